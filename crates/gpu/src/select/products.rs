//! The selection table for matrix products.

use ingle_graph::kernel::{Activations, MatmulSpec};
use ingle_graph::passes::RowRange;
use ingle_kernels as kernels;
use ingle_kernels::shapes::{self, DeviceClass};
use ingle_kernels::{Feature, KernelKey, MatMulTile, MatVecShape, Projection};

use super::{Machine, format, program};

/// A row of the selection table for matrix products.
pub(super) struct Product {
    pub name: &'static str,
    pub why: &'static str,
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
pub(super) const PRODUCTS: &[Product] = &[
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

impl Product {
    pub fn admits(&self, m: &MatmulSpec, rows: RowRange, machine: &Machine<'_>) -> bool {
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
        // Two terms of a byte or a half word, and for each group a scale and a sum or two.
        let staged = if m.activations == Activations::Int8 {
            stage_k(m.k) * (if shape.packed_dot { 16 } else { 32 } + 3) / 8 * tokens
        } else {
            0
        };
        sums + staged
    }

    /// The key of this candidate for a spec.
    pub fn key(&self, m: &MatmulSpec) -> Result<KernelKey, String> {
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
        Ok(match self.shape {
            Shape::Vec { tokens, shape } => {
                let staged = m.activations == Activations::Int8;
                let stage_k = if staged {
                    u32::try_from(stage_k(m.k)).map_err(|e| e.to_string())?
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
}

/// The size class of staged activations: a few, so that models share texts.
fn stage_k(k: usize) -> u64 {
    (k as u64).next_power_of_two().max(1024)
}
