//! Kernel selection as data: for each spec an ordered list of candidates, each with its guards.
//!
//! [`candidates`] gives those that a spec, a range of rows and a device admit; the first whose text exists is taken. A
//! plan stores the candidate's name; [`key`] turns it back into the kernel's key.

use ingle_graph::kernel::{
    Activations, AttentionSpec, KernelSpec, MatmulSpec, RopeWriteSpec, WeightLayout,
};
use ingle_graph::ops::{EltOp, Pairing, Reduction, Rope};
use ingle_graph::passes::RowRange;
use ingle_graph::{Extra, Operand, Program};
use ingle_kernels as kernels;
use ingle_kernels::shapes::{self, DeviceClass};
use ingle_kernels::{
    DeviceLimits, EltArg, EltInput, EltInstruction, EltProgram, Feature, KernelKey, KvElement,
    MatMulTile, MatVecShape, Projection, RopePairing, TokenSource, WeightFormat,
};
use ingle_quant::ElementType;

/// A row of the selection table for matrix products.
struct Product {
    name: &'static str,
    why: &'static str,
    /// The devices that it is for; `None` for all.
    class: Option<DeviceClass>,
    /// Fewest and most rows of `x` it is for.
    rows: (usize, usize),
    activations: Activations,
    shape: Shape,
}

enum Shape {
    Vec { tokens: u8, shape: MatVecShape },
    Mat(MatMulTile),
}

const ONE: (usize, usize) = (0, 1);
const ANY: (usize, usize) = (0, usize::MAX);
const MANY: (usize, usize) = (9, usize::MAX);
const SOFTWARE: Option<DeviceClass> = Some(DeviceClass::Software);
const HARDWARE: Option<DeviceClass> = Some(DeviceClass::Hardware);

/// The shape for one row of `x`.
const fn decode(class: DeviceClass, activations: kernels::Activations, packed_dot: bool) -> Shape {
    Shape::Vec {
        tokens: 1,
        shape: shapes::decode(class, activations, packed_dot),
    }
}

/// All matrix products, best first. The last row needs nothing.
const PRODUCTS: &[Product] = &[
    Product {
        name: "decode int8 software",
        why: "one row, 8-bit activations, on a processor: many rows an invocation",
        class: SOFTWARE,
        rows: ONE,
        activations: Activations::Int8,
        shape: decode(DeviceClass::Software, kernels::Activations::Int8, false),
    },
    Product {
        name: "decode int8 dot4",
        why: "one row, 8-bit activations: packed dot products",
        class: HARDWARE,
        rows: ONE,
        activations: Activations::Int8,
        shape: decode(DeviceClass::Hardware, kernels::Activations::Int8, true),
    },
    Product {
        name: "decode int8",
        why: "one row, 8-bit activations, without packed dot products",
        class: HARDWARE,
        rows: ONE,
        activations: Activations::Int8,
        shape: decode(DeviceClass::Hardware, kernels::Activations::Int8, false),
    },
    Product {
        name: "decode f32 software",
        why: "one row, on a processor: many rows an invocation",
        class: SOFTWARE,
        rows: ONE,
        activations: Activations::F32,
        shape: decode(DeviceClass::Software, kernels::Activations::F32, false),
    },
    Product {
        name: "decode f32",
        why: "one row",
        class: HARDWARE,
        rows: ONE,
        activations: Activations::F32,
        shape: decode(DeviceClass::Hardware, kernels::Activations::F32, false),
    },
    Product {
        name: "rows8 software",
        why: "several rows, on a processor: each weight read once for 8 of them",
        class: SOFTWARE,
        rows: ANY,
        activations: Activations::F32,
        shape: Shape::Vec {
            tokens: 8,
            shape: shapes::rows8(DeviceClass::Software),
        },
    },
    Product {
        name: "tile",
        why: "many rows: tiles through workgroup memory",
        class: HARDWARE,
        rows: MANY,
        activations: Activations::F32,
        shape: Shape::Mat(shapes::tile()),
    },
    Product {
        name: "rows8",
        why: "several rows: each weight read once for 8 of them",
        class: HARDWARE,
        rows: ANY,
        activations: Activations::F32,
        shape: Shape::Vec {
            tokens: 8,
            shape: shapes::rows8(DeviceClass::Hardware),
        },
    },
    Product {
        name: "plain",
        why: "what fits every device",
        class: None,
        rows: ANY,
        activations: Activations::F32,
        shape: Shape::Vec {
            tokens: 1,
            shape: MatVecShape {
                threads: 64,
                lanes: 1,
                rows: 1,
                packed_dot: false,
            },
        },
    },
];

/// What selection asks about a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine<'a> {
    pub class: DeviceClass,
    pub features: &'a [Feature],
    pub limits: &'a DeviceLimits,
}

/// A kernel that a spec may use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub name: &'static str,
    pub why: &'static str,
    pub key: KernelKey,
}

/// The candidates for a spec, best first.
pub(crate) fn candidates(
    spec: &KernelSpec,
    rows: RowRange,
    machine: &Machine<'_>,
) -> Result<Vec<Candidate>, String> {
    let KernelSpec::Matmul(m) = spec else {
        return Ok(vec![single(spec, machine.class)?]);
    };
    let admitted = PRODUCTS.iter().filter(|p| p.admits(m, rows, machine));
    admitted
        .map(|p| {
            Ok(Candidate {
                name: p.name,
                why: p.why,
                key: product(m, p)?,
            })
        })
        .collect()
}

/// Whether a matrix product can take activations as `spec` says they enter it.
pub(crate) fn takes(spec: &MatmulSpec, rows: RowRange, machine: &Machine<'_>) -> bool {
    PRODUCTS.iter().any(|p| p.admits(spec, rows, machine))
}

/// The key of a candidate by its name.
pub(crate) fn key(spec: &KernelSpec, candidate: &str) -> Result<KernelKey, String> {
    let unknown = || format!("there is no candidate {candidate:?}");
    if let KernelSpec::Matmul(m) = spec {
        return product(
            m,
            PRODUCTS
                .iter()
                .find(|p| p.name == candidate)
                .ok_or_else(unknown)?,
        );
    }
    for class in [DeviceClass::Hardware, DeviceClass::Software] {
        let only = single(spec, class)?;
        if only.name == candidate {
            return Ok(only.key);
        }
    }
    Err(unknown())
}

impl Product {
    fn admits(&self, m: &MatmulSpec, rows: RowRange, machine: &Machine<'_>) -> bool {
        let rows = self.rows.0 <= rows.low.max(1) && rows.high <= self.rows.1;
        let packed = matches!(
            self.shape,
            Shape::Vec {
                shape: MatVecShape {
                    packed_dot: true,
                    ..
                },
                ..
            }
        );
        let features = !packed || machine.features.contains(&Feature::PackedIntegerDot);
        let class = self.class.is_none_or(|c| c == machine.class);
        let fits =
            self.workgroup_bytes(m) <= u64::from(machine.limits.max_compute_workgroup_storage_size);
        rows && features && class && self.activations == m.activations && fits
    }

    /// About how much workgroup memory it takes, so that none is asked for that no compiler would make: a pack only
    /// knows that it has no text.
    fn workgroup_bytes(&self, m: &MatmulSpec) -> u64 {
        let Shape::Vec { tokens, shape } = self.shape else {
            return 0;
        };
        let (accumulators, tokens) = (u64::from(m.epilogue.accumulators.max(1)), u64::from(tokens));
        let parts = (accumulators * u64::from(shape.rows) + 1) * tokens * u64::from(shape.threads);
        let sums = if shape.lanes > 1 { parts * 4 } else { 0 };
        // A byte for each code, and for each group a scale and a sum.
        let staged = if m.activations == Activations::Int8 {
            stage_k(m.k) * 11 / 8 * tokens
        } else {
            0
        };
        sums + staged
    }
}

/// The size class of staged activations: a few, so that models share texts.
fn stage_k(k: usize) -> u64 {
    (k as u64).next_power_of_two()
}

/// How kernels read a weight.
pub(crate) fn format(layout: WeightLayout) -> Result<WeightFormat, String> {
    match layout {
        WeightLayout::Packed(layout) => {
            WeightFormat::from_layout(&layout).map_err(|e| e.to_string())
        }
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
            let stage_k = if staged {
                u32::try_from(m.k)
                    .map_err(|e| e.to_string())?
                    .next_power_of_two()
                    .max(1024)
            } else {
                0
            };
            KernelKey::MatVec(kernels::MatVecKey {
                projection,
                tokens,
                shape,
                stage_k,
            })
        }
        Shape::Mat(tile) => KernelKey::MatMul(kernels::MatMulKey { projection, tile }),
    })
}

/// The specs that have one kernel.
fn single(spec: &KernelSpec, class: DeviceClass) -> Result<Candidate, String> {
    let only = |name, key| {
        Ok(Candidate {
            name,
            why: "the only candidate",
            key,
        })
    };
    match spec {
        KernelSpec::Matmul(_) => Err("matrix products have candidates of their own".into()),
        KernelSpec::Embedding { layout, .. } => {
            let weights = format(*layout)?;
            // The id that is fed back is copied into the step data, so that one kernel serves both.
            let source = TokenSource::Step;
            only(
                "t64",
                KernelKey::Embedding(kernels::EmbeddingKey {
                    weights,
                    source,
                    threads: 64,
                }),
            )
        }
        KernelSpec::RmsNorm { .. } => only(
            "t64",
            KernelKey::RmsNorm(kernels::RmsNormKey { threads: 64 }),
        ),
        KernelSpec::RopeWrite(w) => only("t64", KernelKey::RopeWrite(rope_write(w)?)),
        KernelSpec::Attention(a) => {
            let name = if class == DeviceClass::Software {
                "software"
            } else {
                "hardware"
            };
            only(name, KernelKey::Attention(attention(a, class)?))
        }
        KernelSpec::Elementwise { program: p, .. } => only(
            "t64",
            KernelKey::Elementwise(kernels::ElementwiseKey {
                program: program(p)?,
                threads: 64,
            }),
        ),
        KernelSpec::TakeRows { .. } => only(
            "t64",
            KernelKey::TakeRows(kernels::TakeRowsKey { threads: 64 }),
        ),
        KernelSpec::Argmax { .. } => only(
            "t256",
            KernelKey::Argmax(kernels::ArgmaxKey { threads: 256 }),
        ),
        KernelSpec::QuantizeActivations { .. } => only(
            "t64",
            KernelKey::QuantizeActivations(kernels::QuantizeActivationsKey { threads: 64 }),
        ),
        KernelSpec::Reduce { kind, .. } => {
            let kind = match kind {
                Reduction::Sum => kernels::Reduction::Sum,
                Reduction::Mean => kernels::Reduction::Mean,
                Reduction::Max => kernels::Reduction::Max,
            };
            only(
                "t64",
                KernelKey::Reduce(kernels::ReduceKey { kind, threads: 64 }),
            )
        }
        KernelSpec::Softmax { .. } => only(
            "t64",
            KernelKey::Softmax(kernels::SoftmaxKey { threads: 64 }),
        ),
        KernelSpec::Slice { .. } => {
            only("t64", KernelKey::Slice(kernels::SliceKey { threads: 64 }))
        }
        // Rotating alone is rotating queries of a layer without keys, writing alone is a layer without queries whose
        // keys are not rotated.
        KernelSpec::Rope { op, .. } => only(
            "rope_write t64",
            KernelKey::RopeWrite(rope(
                op.head_dim,
                op.rotary_dim,
                op.pairing,
                KvElement::F32,
                true,
            )?),
        ),
        KernelSpec::StateWrite {
            head_dim,
            kv: element,
            ..
        } => only(
            "rope_write t64",
            KernelKey::RopeWrite(rope(
                *head_dim,
                0,
                Pairing::Interleaved,
                kv(*element)?,
                false,
            )?),
        ),
    }
}

fn rope_write(w: &RopeWriteSpec) -> Result<kernels::RopeWriteKey, String> {
    let Rope {
        rotary_dim,
        pairing,
        ..
    } = w.rope;
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

fn attention(a: &AttentionSpec, class: DeviceClass) -> Result<kernels::AttentionKey, String> {
    let head_dim = small(a.head_dim, "head_dim")?;
    Ok(kernels::AttentionKey {
        head_dim,
        kv: kv(a.kv)?,
        window: a.op.window.is_some(),
        soft_cap: a.op.softcap.is_some(),
        threads: shapes::attention_threads(class, head_dim),
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
        other => Err(format!(
            "no kernel keeps keys and values as {}",
            other.name()
        )),
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
        Operand::Step(i) => u8::try_from(i)
            .map(EltArg::Value)
            .map_err(|_| "a program of over 255 steps".to_owned()),
    };
    let mut instructions = Vec::with_capacity(p.steps.len());
    for step in &p.steps {
        let args = [step.a, step.b]
            .into_iter()
            .take(step.op.arity())
            .map(arg)
            .collect::<Result<_, _>>()?;
        instructions.push(EltInstruction {
            op: op(step.op),
            args,
        });
    }
    Ok(EltProgram {
        inputs,
        instructions,
        result: arg(p.result)?,
    })
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
