//! `KernelSpec`: what one launch computes, target-neutral. A plan's kernel table holds these; a backend turns one into a
//! function or a shader text.
//!
//! Each spec states its argument list; a [`crate::plan::Launch`] binds buffers in that order.

use ingle_quant::{ElementType, PackedLayout};
use serde::{Deserialize, Serialize};

use crate::Program;
use crate::ops::{Attention, Rope};

/// How a weight's bytes lie in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightLayout {
    /// Row-major elements of one type.
    Dense(ElementType),
    /// Quantised, packed for a kernel.
    Packed(PackedLayout),
}

/// How activations enter a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activations {
    F32,
    /// Codes of 8 bits in groups of 32, as [`crate::ops::QuantizeActivations`] defines.
    Int8,
}

/// `y[rows, n] = epilogue(W · prologue(x))`.
///
/// Arguments: `x[rows, k]`, the norm's weight `[k]` if `norm` is set, the weight, each of the epilogue's extras, `y`, and
/// the workspace if the target asked for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatmulSpec {
    pub layout: WeightLayout,
    pub k: usize,
    /// Columns of `y`. The weight has `n · epilogue.accumulators` rows; accumulator `i` of column `c` is row `i · n + c`.
    pub n: usize,
    /// RMSNorm of `x` with this epsilon before anything else.
    pub norm: Option<f32>,
    pub activations: Activations,
    pub epilogue: Program,
}

/// Turns queries and keys and writes keys and values to the pool.
///
/// Arguments: the sources of q, k and v (`qkv` once if they are columns of one matrix, else three), `pos[rows]`,
/// `slots[rows]`, the frequency factors if `factors`, the KV pool (written), `q_out[rows, heads · head_dim]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RopeWriteSpec {
    /// q, k and v are columns of one matrix `[rows, width]`.
    pub packed: bool,
    /// Width of a row of the sources of q, k and v.
    pub widths: [usize; 3],
    /// First column of q, k and v in their sources.
    pub starts: [usize; 3],
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub rope: Rope,
    pub factors: bool,
    pub kv: ElementType,
}

/// Arguments: `q[rows, heads · head_dim]`, the KV pool, `pos`, `seq`, `table`, `y`, and the workspace if asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionSpec {
    pub op: Attention,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub kv: ElementType,
}

/// What one launch computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelSpec {
    /// Arguments: `ids[rows]`, the weight `[vocabulary, k]`, `y[rows, k]`.
    Embedding {
        layout: WeightLayout,
        vocabulary: usize,
        k: usize,
    },
    /// Arguments: `x[rows, k]`, `weight[k]`, `y[rows, k]`.
    RmsNorm {
        k: usize,
        eps: f32,
    },
    /// Arguments: `x[rows, k]`, `y[rows, k]`: values on the 8-bit grid, as `f32`.
    QuantizeActivations {
        k: usize,
    },
    Matmul(MatmulSpec),
    /// Arguments: `x[rows, heads · head_dim]`, `pos[rows]`, the factors if `factors`, `y`.
    Rope {
        op: Rope,
        width: usize,
        factors: bool,
    },
    RopeWrite(RopeWriteSpec),
    /// Writes rows to the pool. Arguments: `k[rows, kv_heads · head_dim]`, `v[…]`, `slots[rows]`, the pool (written).
    StateWrite {
        kv_heads: usize,
        head_dim: usize,
        kv: ElementType,
    },
    Attention(AttentionSpec),
    /// An element-wise program over `[rows, n]`. Arguments: each extra, `y[rows, n]`.
    Elementwise {
        n: usize,
        program: Program,
    },
    /// Arguments: `x[rows, k]`, `y[rows, 1]`.
    Reduce {
        k: usize,
        kind: crate::ops::Reduction,
    },
    /// Arguments: `x[rows, k]`, `y[rows, k]`.
    Softmax {
        k: usize,
    },
    /// Columns `start..end`. Arguments: `x[rows, k]`, `y[rows, end − start]`.
    Slice {
        k: usize,
        start: usize,
        end: usize,
    },
    /// Arguments: `x[any, k]`, `index[rows]`, `y[rows, k]`.
    TakeRows {
        k: usize,
    },
    /// Arguments: `x[rows, n]`, `y[rows]`.
    Argmax {
        n: usize,
    },
}

impl KernelSpec {
    /// The kernel's name in plans, traces and counts.
    pub fn name(&self) -> String {
        match self {
            KernelSpec::Embedding { .. } => "embedding".into(),
            KernelSpec::RmsNorm { .. } => "rms_norm".into(),
            KernelSpec::QuantizeActivations { .. } => "quantize_activations".into(),
            KernelSpec::Matmul(m) => m.name(),
            KernelSpec::Rope { .. } => "rope".into(),
            KernelSpec::RopeWrite(_) => "rope_write".into(),
            KernelSpec::StateWrite { .. } => "state_write".into(),
            KernelSpec::Attention(_) => "attention".into(),
            KernelSpec::Elementwise { .. } => "elementwise".into(),
            KernelSpec::Reduce { .. } => "reduce".into(),
            KernelSpec::Softmax { .. } => "softmax".into(),
            KernelSpec::Slice { .. } => "slice".into(),
            KernelSpec::TakeRows { .. } => "take_rows".into(),
            KernelSpec::Argmax { .. } => "argmax".into(),
        }
    }
}

impl MatmulSpec {
    fn name(&self) -> String {
        let mut name = String::new();
        if self.norm.is_some() {
            name += "norm_";
        }
        if self.activations == Activations::Int8 {
            name += "quantize_";
        }
        name += "matmul";
        for step in &self.epilogue.steps {
            name.push('_');
            name += step.op.name();
        }
        name
    }
}
