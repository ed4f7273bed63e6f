//! `KernelSpec`: what one launch computes, target-neutral. A plan's kernel table holds these; a backend turns one into a
//! function or a shader text.
//!
//! Each spec states its argument list; a [`crate::plan::Launch`] binds buffers in that order.

use ingle_quant::{ElementType, PackedLayout};
use serde::{Deserialize, Serialize};

use crate::ops::{Attention, KV_BLOCK, Operation, Rope};
use crate::{Program, Symbol, ValueType, shape};

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
    /// Codes of two 8-bit terms in groups of 32, as [`crate::ops::QuantizeActivations`] defines.
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
    /// Arguments: `x[rows, k]`, `y[rows, k]`: values as two 8-bit terms hold them, as `f32`.
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

impl KernelSpec {
    /// Checks that the numbers are those of a kernel that can exist; gives what was expected and found.
    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        let ok = match self {
            KernelSpec::Embedding { vocabulary, k, .. } => *vocabulary > 0 && *k > 0,
            KernelSpec::RmsNorm { k, eps } => *k > 0 && eps.is_finite() && *eps >= 0.0,
            KernelSpec::QuantizeActivations { k }
            | KernelSpec::Softmax { k }
            | KernelSpec::TakeRows { k }
            | KernelSpec::Reduce { k, .. }
            | KernelSpec::Argmax { n: k } => *k > 0,
            KernelSpec::Matmul(m) => {
                let norm = m.norm.is_none_or(|eps| eps.is_finite() && eps >= 0.0);
                let accumulators = matches!(m.epilogue.accumulators, 1 | 2);
                m.k > 0 && m.n > 0 && norm && accumulators && m.epilogue.is_valid()
            }
            KernelSpec::Rope { op, width, .. } => {
                let whole = *width > 0 && op.head_dim > 0 && width.is_multiple_of(op.head_dim);
                whole && op.check("rope").is_ok()
            }
            KernelSpec::RopeWrite(r) => r.is_valid(),
            KernelSpec::StateWrite {
                kv_heads, head_dim, ..
            } => *kv_heads > 0 && *head_dim > 0,
            KernelSpec::Attention(a) => a.is_valid(),
            KernelSpec::Elementwise { n, program } => {
                *n > 0 && program.accumulators == 0 && program.is_valid()
            }
            KernelSpec::Slice { k, start, end } => start < end && end <= k,
        };
        if ok {
            return Ok(());
        }
        Err(("numbers in range".into(), format!("{self:?}")))
    }
}

impl RopeWriteSpec {
    fn is_valid(&self) -> bool {
        let width = |heads: usize| heads.checked_mul(self.head_dim).filter(|&w| w > 0);
        let parts = [self.heads, self.kv_heads, self.kv_heads].map(width);
        let inside = |i: usize| {
            let end = parts[i].and_then(|w| w.checked_add(self.starts[i]));
            end.is_some_and(|end| end <= self.widths[i])
        };
        let same = !self.packed || self.widths.iter().all(|w| *w == self.widths[0]);
        same && (0..3).all(inside)
            && self.rope.head_dim == self.head_dim
            && self.rope.check("rope_write").is_ok()
    }
}

impl AttentionSpec {
    /// Whether the op's own checks pass on the types that the spec stands for.
    fn is_valid(&self) -> bool {
        let rows = Symbol::Tokens;
        let Some(width) = self.op.heads.checked_mul(self.head_dim) else {
            return false;
        };
        let pool = shape![Symbol::Pool, 2, self.kv_heads, KV_BLOCK, self.head_dim];
        let types = [
            ValueType::f32(shape![rows, width]),
            ValueType::state(self.kv, pool),
            ValueType::i32(shape![rows]),
            ValueType::i32(shape![rows]),
            ValueType::i32(shape![Symbol::Batch, Symbol::Table]),
        ];
        self.op.infer(&types.each_ref()).is_ok()
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
