//! `matmul`: `y[rows, n] = epilogue(W · x)`, for weights packed or dense, activations quantised or `f32`.
//!
//! Output columns are rows of the weight. A thread takes a range of columns and goes over it in blocks of
//! [`CHUNK`]; a block's weights stay in cache while all rows of `x` pass, four (then two, then one) at a time,
//! so that unpacking a weight is paid once for four rows. The epilogue runs over the block as soon as its sums are there.
//! With two accumulators (gate and up) the weight is `[2n, k]` and column `c` needs its rows `c` and `n + c`.
//!
//! Each output is one lane's running sum over `k` in order, so it does not depend on threads, blocks, or how many rows
//! are computed together.

mod dense;
mod packed_f32;
mod packed_int8;
mod weight;

use std::ops::Range;

use crate::error::{check_length, check_multiple};
use crate::isa::{ACTIVATION_BYTES, Isa, Kernel};
use crate::kernels::program::{
    CHUNK, Chunk, ExtraInput, MAX_ACCUMULATORS, Prepared, RunChunk, Slots,
};
use crate::kernels::quantize_activations::QuantizedRows;
use crate::{CpuError, Machine, Rows, RowsMut};

pub use weight::{DenseMatrix, PackedMatrix, Weight};

/// Rows of `x` that a tile of weights is multiplied with at once, at most.
const ROWS_AT_ONCE: usize = 4;

/// Bytes of activations that should stay in the second cache while a block of columns is computed.
const ACTIVATION_CACHE: usize = 256 << 10;

/// Multiplications that are worth waking a thread for.
const GRAIN: usize = 32 << 10;

/// The rows that are multiplied.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    F32(Rows<'a>),
    Int8(QuantizedRows<'a>),
}

impl Input<'_> {
    fn rows(&self) -> usize {
        match self {
            Input::F32(x) => x.rows(),
            Input::Int8(x) => x.rows(),
        }
    }

    fn k(&self) -> usize {
        match self {
            Input::F32(x) => x.width(),
            Input::Int8(x) => x.k(),
        }
    }
}

/// What is done with the sums before they are stored.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    pub program: &'a Prepared,
    pub extras: &'a [ExtraInput<'a>],
}

/// `y = epilogue(weight · x)`, `y[rows, n]`.
pub fn matmul(
    machine: &Machine,
    weight: Weight<'_>,
    x: Input<'_>,
    epilogue: Epilogue<'_>,
    y: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    let level = machine.level();
    let (rows, n) = (y.rows(), y.width());
    let accumulators = epilogue.program.accumulators();
    if accumulators == 0 {
        return Err(CpuError::Length {
            field: "accumulators of a matmul",
            expected: 1,
            found: 0,
        });
    }
    check_length("rows of the matmul's input", rows, x.rows())?;
    check_length("width of the matmul's input", weight.k(), x.k())?;
    let weight_rows = n.saturating_mul(accumulators);
    check_length("rows of the matmul's weight", weight_rows, weight.rows())?;
    epilogue.program.check(epilogue.extras, rows, n)?;
    let lanes = match weight {
        Weight::Packed(w) => w.tile_rows(),
        Weight::Dense(_) => level.tile_rows(),
    };
    if let (Weight::Dense(w), Input::Int8(_)) = (weight, x) {
        let found = format!(
            "quantised activations for a weight of {}",
            w.element().name()
        );
        return Err(CpuError::Unsupported {
            field: "matmul",
            expected: "f32 activations for a dense weight",
            found,
        });
    }
    if accumulators > 1 && matches!(weight, Weight::Packed(_)) {
        check_multiple("rows of each part of the weight", lanes, n)?;
    }
    // Only to learn whether these tiles can be computed: from here on running cannot fail.
    level.run(lanes, Nothing)?;

    let y = &*y;
    let tiles = n.div_ceil(lanes);
    let work = (weight.k() * rows * lanes * accumulators).max(1);
    machine.pool().split(tiles, GRAIN.div_ceil(work), &|tiles| {
        let columns = tiles.start * lanes..n.min(tiles.end * lanes);
        let part = Part {
            weight,
            x,
            epilogue,
            y,
            columns,
        };
        level.run(lanes, part).expect("it has been asked for above");
    });
    Ok(())
}

struct Nothing;

impl Kernel for Nothing {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, _: I) {}
}

/// A thread's columns, from the start of a tile.
struct Part<'a> {
    weight: Weight<'a>,
    x: Input<'a>,
    epilogue: Epilogue<'a>,
    y: &'a RowsMut<'a>,
    columns: Range<usize>,
}

impl Kernel for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let row_bytes = match self.x {
            Input::F32(x) => x.width() * 4,
            Input::Int8(x) => x.k() * ACTIVATION_BYTES,
        };
        let at_once = (ACTIVATION_CACHE / row_bytes.max(1))
            .next_multiple_of(ROWS_AT_ONCE)
            .max(32);
        let rows = self.x.rows();
        let mut slots = Slots::new();
        for first in (0..rows).step_by(at_once) {
            let end = rows.min(first + at_once);
            for column in self.columns.clone().step_by(CHUNK) {
                let columns = column..self.columns.end.min(column + CHUNK);
                let mut row = first;
                while row < end {
                    row += match end - row {
                        1 => isa.run(Block::<1> {
                            part: &self,
                            columns: columns.clone(),
                            row,
                            slots: &mut slots,
                        }),
                        2 | 3 => isa.run(Block::<2> {
                            part: &self,
                            columns: columns.clone(),
                            row,
                            slots: &mut slots,
                        }),
                        _ => isa.run(Block::<4> {
                            part: &self,
                            columns: columns.clone(),
                            row,
                            slots: &mut slots,
                        }),
                    };
                }
            }
        }
    }
}

/// `T` rows from `row` on times one block of columns. Gives `T`.
struct Block<'a, const T: usize> {
    part: &'a Part<'a>,
    columns: Range<usize>,
    row: usize,
    slots: &'a mut Slots,
}

impl<const T: usize> Kernel for Block<'_, T> {
    type Output = usize;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> usize {
        let Part {
            weight,
            x,
            epilogue,
            y,
            ..
        } = *self.part;
        let (column, len) = (self.columns.start, self.columns.len());
        let mut sums = [[[0.0; CHUNK]; T]; MAX_ACCUMULATORS];
        for (i, sums) in sums
            .iter_mut()
            .enumerate()
            .take(epilogue.program.accumulators())
        {
            let first = i * y.width() + column;
            match (weight, x) {
                (Weight::Packed(w), Input::Int8(x)) => {
                    packed_int8::block(isa, w, x, first, len, self.row, sums)
                }
                (Weight::Packed(w), Input::F32(x)) => {
                    packed_f32::block(isa, w, x, first, len, self.row, sums)
                }
                (Weight::Dense(w), Input::F32(x)) => {
                    dense::block(isa, w, x, first, len, self.row, sums)
                }
                (Weight::Dense(_), Input::Int8(_)) => unreachable!("refused by `matmul`"),
            }
        }
        let [first, second] = &sums;
        for (t, (first, second)) in first.iter().zip(second).enumerate() {
            let row = self.row + t;
            // SAFETY: a block of columns belongs to one thread.
            let out = unsafe { y.part(row, column, len) };
            if epilogue.program.is_identity() {
                out.copy_from_slice(&first[..len]);
                continue;
            }
            let accumulators: [&Chunk; MAX_ACCUMULATORS] = [first, second];
            let Epilogue { program, extras } = epilogue;
            isa.run(RunChunk {
                program,
                extras,
                accumulators,
                row,
                column,
                slots: self.slots,
                out,
            });
        }
        T
    }
}
