//! Kernel selection as data: for each spec an ordered list of candidates, each with its guards.
//!
//! [`candidates`] gives those that a spec, a range of rows and a device admit; the first whose text exists is taken. A
//! plan stores the candidate's name; [`key`] turns it back into the kernel's key.

use ingle_graph::kernel::{Activations, AttentionSpec, KernelSpec, MatmulSpec, RopeWriteSpec, WeightLayout};
use ingle_graph::ops::{EltOp, Pairing, Reduction, Rope};
use ingle_graph::passes::RowRange;
use ingle_graph::{Extra, Operand, Program};
use ingle_kernels as kernels;
use ingle_kernels::{
    EltArg, EltInput, EltInstruction, EltProgram, Feature, KernelKey, KvElement, MatMulTile, MatVecShape, Projection,
    RopePairing, TokenSource, WeightFormat,
};
use ingle_quant::ElementType;

/// A row of the selection table for matrix products.
struct Product {
    name: &'static str,
    why: &'static str,
    /// Fewest and most rows of `x` it is for.
    rows: (usize, usize),
    /// `None` for both.
    activations: Option<Activations>,
    shape: Shape,
}

enum Shape {
    Vec { tokens: u8, shape: MatVecShape },
    Mat(MatMulTile),
}

const ANY: (usize, usize) = (0, usize::MAX);

const fn vec(tokens: u8, threads: u16, lanes: u16, rows: u8, packed_dot: bool) -> Shape {
    Shape::Vec { tokens, shape: MatVecShape { threads, lanes, rows, packed_dot } }
}

const fn tile(tokens: u16, rows: u16, thread_tokens: u8, thread_rows: u8) -> Shape {
    Shape::Mat(MatMulTile { tokens, rows, thread_tokens, thread_rows })
}

/// All matrix products, best first. Every range of rows ends in one that needs nothing.
const PRODUCTS: &[Product] = &[
    Product {
        name: "matvec n1 t64 l8 r2 dot4",
        why: "one row, 8-bit activations: packed dot products",
        rows: (0, 1),
        activations: Some(Activations::Int8),
        shape: vec(1, 64, 8, 2, true),
    },
    Product {
        name: "matvec n1 t64 l8 r2",
        why: "one row",
        rows: (0, 1),
        activations: None,
        shape: vec(1, 64, 8, 2, false),
    },
    Product {
        name: "matvec n8 t64 l8 r1 dot4",
        why: "several rows, 8-bit activations: packed dot products, each weight read once for 8 rows",
        rows: ANY,
        activations: Some(Activations::Int8),
        shape: vec(8, 64, 8, 1, true),
    },
    Product {
        name: "matvec n4 t64 l8 r1 dot4",
        why: "several rows, 8-bit activations, too wide for 8 rows in workgroup memory",
        rows: ANY,
        activations: Some(Activations::Int8),
        shape: vec(4, 64, 8, 1, true),
    },
    Product {
        name: "matmul 32x32",
        why: "many rows: tiles through workgroup memory",
        rows: (9, usize::MAX),
        activations: Some(Activations::F32),
        shape: tile(32, 32, 4, 4),
    },
    Product {
        name: "matvec n4 t64 l8 r1",
        why: "several rows: each weight read once for 4 of them",
        rows: ANY,
        activations: None,
        shape: vec(4, 64, 8, 1, false),
    },
    Product {
        name: "matvec n1 t64 l1 r1",
        why: "what always fits",
        rows: ANY,
        activations: None,
        shape: vec(1, 64, 1, 1, false),
    },
];

/// A kernel that a spec may use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub name: &'static str,
    pub why: &'static str,
    pub key: KernelKey,
}

/// The candidates for a spec, best first.
pub(crate) fn candidates(spec: &KernelSpec, rows: RowRange, features: &[Feature]) -> Result<Vec<Candidate>, String> {
    let KernelSpec::Matmul(m) = spec else {
        let only = single(spec)?;
        return Ok(vec![only]);
    };
    let admitted = PRODUCTS.iter().filter(|p| {
        let rows = p.rows.0 <= rows.low.max(1) && rows.high <= p.rows.1;
        let packed = matches!(p.shape, Shape::Vec { shape: MatVecShape { packed_dot: true, .. }, .. });
        let device = !packed || features.contains(&Feature::PackedIntegerDot);
        rows && device && p.activations.is_none_or(|a| a == m.activations)
    });
    admitted.map(|p| Ok(Candidate { name: p.name, why: p.why, key: product(m, p)? })).collect()
}

/// The key of a candidate by its name.
pub(crate) fn key(spec: &KernelSpec, candidate: &str) -> Result<KernelKey, String> {
    match spec {
        KernelSpec::Matmul(m) => {
            let found = PRODUCTS.iter().find(|p| p.name == candidate);
            product(m, found.ok_or_else(|| format!("there is no candidate {candidate:?}"))?)
        }
        spec => {
            let only = single(spec)?;
            if only.name == candidate { Ok(only.key) } else { Err(format!("there is no candidate {candidate:?}")) }
        }
    }
}

/// How kernels read a weight.
pub(crate) fn format(layout: WeightLayout) -> Result<WeightFormat, String> {
    match layout {
        WeightLayout::Packed(layout) => WeightFormat::from_layout(&layout).map_err(|e| e.to_string()),
        WeightLayout::Dense(ElementType::F32) => Ok(WeightFormat::F32),
        WeightLayout::Dense(ElementType::F16) => Ok(WeightFormat::F16),
        WeightLayout::Dense(ElementType::Bf16) => Ok(WeightFormat::Bf16),
        WeightLayout::Dense(other) => Err(format!("no kernel reads a matrix of {}", other.name())),
    }
}

fn product(m: &MatmulSpec, row: &Product) -> Result<KernelKey, String> {
    let activations = match m.activations {
        Activations::F32 => kernels::Activations::F32,
        Activations::Int8 => kernels::Activations::Int8,
    };
    let projection = Projection {
        weights: format(m.layout)?,
        activations,
        norm: m.norm.is_some(),
        epilogue: program(&m.epilogue)?,
    };
    Ok(match row.shape {
        Shape::Vec { tokens, shape } => {
            let staged = m.activations == Activations::Int8;
            // A few sizes, so that models share texts.
            let stage_k = if staged { u32::try_from(m.k).map_err(|e| e.to_string())?.next_power_of_two().max(1024) } else { 0 };
            KernelKey::MatVec(kernels::MatVecKey { projection, tokens, shape, stage_k })
        }
        Shape::Mat(tile) => KernelKey::MatMul(kernels::MatMulKey { projection, tile }),
    })
}

/// The specs that have one kernel.
fn single(spec: &KernelSpec) -> Result<Candidate, String> {
    let only = |name, key| Ok(Candidate { name, why: "the only candidate", key });
    match spec {
        KernelSpec::Matmul(_) => Err("matrix products have candidates of their own".into()),
        KernelSpec::Embedding { layout, .. } => {
            let weights = format(*layout)?;
            // The id that is fed back is copied into the step data, so that one kernel serves both.
            let source = TokenSource::Step;
            only("t64", KernelKey::Embedding(kernels::EmbeddingKey { weights, source, threads: 64 }))
        }
        KernelSpec::RmsNorm { .. } => only("t64", KernelKey::RmsNorm(kernels::RmsNormKey { threads: 64 })),
        KernelSpec::RopeWrite(w) => only("t64", KernelKey::RopeWrite(rope_write(w)?)),
        KernelSpec::Attention(a) => only("t64", KernelKey::Attention(attention(a)?)),
        KernelSpec::Elementwise { program: p, .. } => {
            only("t64", KernelKey::Elementwise(kernels::ElementwiseKey { program: program(p)?, threads: 64 }))
        }
        KernelSpec::TakeRows { .. } => only("t64", KernelKey::TakeRows(kernels::TakeRowsKey { threads: 64 })),
        KernelSpec::Argmax { .. } => only("t256", KernelKey::Argmax(kernels::ArgmaxKey { threads: 256 })),
        KernelSpec::QuantizeActivations { .. } => {
            only("t64", KernelKey::QuantizeActivations(kernels::QuantizeActivationsKey { threads: 64 }))
        }
        KernelSpec::Reduce { kind, .. } => {
            let kind = match kind {
                Reduction::Sum => kernels::Reduction::Sum,
                Reduction::Mean => kernels::Reduction::Mean,
                Reduction::Max => kernels::Reduction::Max,
            };
            only("t64", KernelKey::Reduce(kernels::ReduceKey { kind, threads: 64 }))
        }
        KernelSpec::Softmax { .. } => only("t64", KernelKey::Softmax(kernels::SoftmaxKey { threads: 64 })),
        KernelSpec::Slice { .. } => only("t64", KernelKey::Slice(kernels::SliceKey { threads: 64 })),
        // Rotating alone is rotating queries of a layer without keys, writing alone is a layer without queries whose
        // keys are not rotated.
        KernelSpec::Rope { op, .. } => {
            only("rope_write t64", KernelKey::RopeWrite(rope(op.head_dim, op.rotary_dim, op.pairing, KvElement::F32, true)?))
        }
        KernelSpec::StateWrite { head_dim, kv: element, .. } => only(
            "rope_write t64",
            KernelKey::RopeWrite(rope(*head_dim, 0, Pairing::Interleaved, kv(*element)?, false)?),
        ),
    }
}

fn rope_write(w: &RopeWriteSpec) -> Result<kernels::RopeWriteKey, String> {
    let Rope { rotary_dim, pairing, .. } = w.rope;
    rope(w.head_dim, rotary_dim, pairing, kv(w.kv)?, w.packed)
}

fn rope(
    head_dim: usize,
    rotary_dim: usize,
    pairing: Pairing,
    kv: KvElement,
    fused: bool,
) -> Result<kernels::RopeWriteKey, String> {
    Ok(kernels::RopeWriteKey {
        head_dim: small(head_dim, "head_dim")?,
        rotary_dim: small(rotary_dim, "rotary_dim")?,
        pairing: rope_pairing(pairing),
        kv,
        fused,
        threads: 64,
    })
}

fn attention(a: &AttentionSpec) -> Result<kernels::AttentionKey, String> {
    Ok(kernels::AttentionKey {
        head_dim: small(a.head_dim, "head_dim")?,
        kv: kv(a.kv)?,
        window: a.op.window.is_some(),
        soft_cap: a.op.softcap.is_some(),
        threads: 64,
    })
}

fn rope_pairing(pairing: Pairing) -> RopePairing {
    match pairing {
        Pairing::Interleaved => RopePairing::Interleaved,
        Pairing::Halves => RopePairing::Halves,
    }
}

fn kv(element: ElementType) -> Result<KvElement, String> {
    match element {
        ElementType::F32 => Ok(KvElement::F32),
        ElementType::F16 => Ok(KvElement::F16),
        other => Err(format!("no kernel keeps keys and values as {}", other.name())),
    }
}

fn small(n: usize, what: &str) -> Result<u16, String> {
    u16::try_from(n).map_err(|_| format!("{what} {n} is too large"))
}

/// A program in the kernels' terms.
fn program(p: &Program) -> Result<EltProgram, String> {
    let inputs = p.extras.iter().map(|extra| input(*extra)).collect();
    let arg = |operand: Operand| match operand {
        Operand::Acc(i) => Ok(EltArg::Acc(i)),
        Operand::Extra(i) => Ok(EltArg::Input(i)),
        Operand::Const(c) => Ok(EltArg::constant(c)),
        Operand::Step(i) => u8::try_from(i).map(EltArg::Value).map_err(|_| "a program of over 255 steps".to_owned()),
    };
    let mut instructions = Vec::with_capacity(p.steps.len());
    for step in &p.steps {
        let args = [step.a, step.b].into_iter().take(step.op.arity()).map(arg).collect::<Result<_, _>>()?;
        instructions.push(EltInstruction { op: op(step.op), args });
    }
    Ok(EltProgram { inputs, instructions, result: arg(p.result)? })
}

fn input(extra: Extra) -> EltInput {
    match extra {
        Extra::Full => EltInput::Same,
        Extra::Column => EltInput::Column,
        Extra::Row => EltInput::Row,
        Extra::Scalar => EltInput::Scalar,
    }
}

fn op(op: EltOp) -> kernels::EltOp {
    use kernels::EltOp as K;
    match op {
        EltOp::Add => K::Add,
        EltOp::Sub => K::Sub,
        EltOp::Mul => K::Mul,
        EltOp::Div => K::Div,
        EltOp::Min => K::Min,
        EltOp::Max => K::Max,
        EltOp::Neg => K::Neg,
        EltOp::Exp => K::Exp,
        EltOp::Log => K::Log,
        EltOp::Sqrt => K::Sqrt,
        EltOp::Rsqrt => K::Rsqrt,
        EltOp::Recip => K::Recip,
        EltOp::Abs => K::Abs,
        EltOp::Tanh => K::Tanh,
        EltOp::Sigmoid => K::Sigmoid,
        EltOp::Silu => K::Silu,
        EltOp::Relu => K::Relu,
        EltOp::Gelu => K::GeluErf,
        EltOp::GeluTanh => K::GeluTanh,
        EltOp::Sin => K::Sin,
        EltOp::Cos => K::Cos,
        EltOp::Erf => K::Erf,
    }
}
