//! Kernel selection as data: for each spec an ordered list of candidates, each with its guards.
//!
//! [`candidates`] gives those that a spec, a range of rows and a device admit; the first whose text exists is taken. A
//! plan stores the candidate's name; [`key`] turns it back into the kernel's key.

mod products;
mod programs;

use ingle_graph::kernel::{AttentionSpec, KernelSpec, MatmulSpec, RopeWriteSpec, WeightLayout};
use ingle_graph::ops::{Pairing, Reduction, Rope};
use ingle_graph::passes::RowRange;
use ingle_kernels as kernels;
use ingle_kernels::shapes::{self, DeviceClass};
use ingle_kernels::{
    DeviceLimits, Feature, KernelKey, KvElement, RopePairing, TokenSource, WeightFormat,
};
use ingle_quant::ElementType;

use products::PRODUCTS;
use programs::program;

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
                key: p.key(m)?,
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
        let product = PRODUCTS.iter().find(|p| p.name == candidate);
        return product.ok_or_else(unknown)?.key(m);
    }
    for class in [DeviceClass::Hardware, DeviceClass::Software] {
        let only = single(spec, class)?;
        if only.name == candidate {
            return Ok(only.key);
        }
    }
    Err(unknown())
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
