//! Workgroup shapes that measured well, as data for kernel selection.
//!
//! Software devices (SwiftShader, lavapipe) execute four invocations as one SIMD thread. There a load costs more than
//! ten multiplications, and every SIMD thread of a workgroup clears all of its workgroup memory: so many rows per
//! invocation, few invocations per workgroup, no lanes that would have to meet. Hardware wants neighbouring invocations
//! to read neighbouring words and enough workgroups to fill its cores.
//!
//! Measured with `examples/bench_products.rs`: processor time of the products of one SmolLM2-135M token on SwiftShader,
//! two busy cores, `t16 l1 r16` against `t64 l8 r2`: 135 against 968 ms with 8-bit activations, 193 (`t8 l1 r8`) against
//! 638 ms with FP32.

use crate::{Activations, MatMulTile, MatVecShape};

/// What kind of device a shape is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceClass {
    /// The "GPU" is the processor.
    Software,
    Hardware,
}

/// The shape of a matrix–vector product for one row of `x`.
pub const fn decode(class: DeviceClass, activations: Activations, packed_dot: bool) -> MatVecShape {
    match (class, activations) {
        (DeviceClass::Software, Activations::Int8) => {
            // SwiftShader takes dot4I8Packed apart again; two products per multiplication are faster.
            MatVecShape {
                threads: 16,
                lanes: 1,
                rows: 16,
                packed_dot: false,
            }
        }
        (DeviceClass::Software, Activations::F32) => MatVecShape {
            threads: 8,
            lanes: 1,
            rows: 8,
            packed_dot: false,
        },
        (DeviceClass::Hardware, Activations::Int8) => MatVecShape {
            threads: 64,
            lanes: 8,
            rows: 2,
            packed_dot,
        },
        (DeviceClass::Hardware, Activations::F32) => MatVecShape {
            threads: 64,
            lanes: 8,
            rows: 2,
            packed_dot: false,
        },
    }
}

/// The shape of a matrix–vector product for 8 rows of `x`, FP32 activations.
pub const fn rows8(class: DeviceClass) -> MatVecShape {
    match class {
        DeviceClass::Software => MatVecShape {
            threads: 8,
            lanes: 1,
            rows: 8,
            packed_dot: false,
        },
        DeviceClass::Hardware => MatVecShape {
            threads: 64,
            lanes: 8,
            rows: 1,
            packed_dot: false,
        },
    }
}

/// The tile of a product for many rows of `x`. On software devices [`rows8`] is faster than any tile.
pub const fn tile() -> MatMulTile {
    MatMulTile {
        tokens: 32,
        rows: 32,
        thread_tokens: 4,
        thread_rows: 4,
    }
}

/// Invocations of a workgroup of attention: each SIMD thread of a software device clears the tile of scores.
pub const fn attention_threads(class: DeviceClass, head_dim: u16) -> u16 {
    let least = (head_dim / 4).next_power_of_two();
    match class {
        DeviceClass::Software => {
            if least > 16 {
                least
            } else {
                16
            }
        }
        DeviceClass::Hardware => {
            if least > 64 {
                least
            } else {
                64
            }
        }
    }
}
