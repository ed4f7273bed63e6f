//! `reduce`: the sum, mean or largest of each row. A row with NaN gives NaN.

use ingle_graph::ops::Reduction;

use crate::error::check_length;
use crate::isa::{Isa, Kernel};
use crate::{CpuError, Machine, Rows, RowsMut};

/// Values that are worth waking a thread for.
const GRAIN: usize = 32 << 10;

/// `y[rows, 1]` from `x[rows, k]`.
pub fn reduce(
    machine: &Machine,
    x: Rows<'_>,
    kind: Reduction,
    y: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    check_length("rows of the output", x.rows(), y.rows())?;
    check_length("width of the output", 1, y.width())?;
    let (level, y) = (machine.level(), &*y);
    machine
        .pool()
        .split(x.rows(), GRAIN.div_ceil(x.width().max(1)), &|rows| {
            for r in rows {
                let value = level
                    .run_any(ReduceRow { x: x.row(r), kind })
                    .expect("a machine has its level");
                // SAFETY: each row is written by one call.
                unsafe { y.row(r).fill(value) };
            }
        });
    Ok(())
}

struct ReduceRow<'a> {
    x: &'a [f32],
    kind: Reduction,
}

impl Kernel for ReduceRow<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> f32 {
        match self.kind {
            Reduction::Sum => row_sum(isa, self.x),
            Reduction::Mean => row_sum(isa, self.x) / self.x.len() as f32,
            Reduction::Max => row_max(isa, self.x),
        }
    }
}

/// The sum of a row, by lanes.
#[inline(always)]
pub(crate) fn row_sum<I: Isa>(isa: I, x: &[f32]) -> f32 {
    let whole = x.len() / I::LANES * I::LANES;
    let mut sums = isa.splat(0.0);
    for at in (0..whole).step_by(I::LANES) {
        // SAFETY: `at + LANES ≤ x.len()`.
        sums = isa.add(sums, unsafe { isa.load(x.as_ptr().add(at)) });
    }
    let mut total = isa.sum(sums);
    for &v in &x[whole..] {
        total += v;
    }
    total
}

/// The largest of a row; NaN if it holds one, −∞ if it is empty.
#[inline(always)]
pub(crate) fn row_max<I: Isa>(isa: I, x: &[f32]) -> f32 {
    let whole = x.len() / I::LANES * I::LANES;
    let mut largest = isa.splat(f32::NEG_INFINITY);
    for at in (0..whole).step_by(I::LANES) {
        // SAFETY: `at + LANES ≤ x.len()`.
        let v = unsafe { isa.load(x.as_ptr().add(at)) };
        // Once NaN, always NaN: nothing compares as less than it, and it is taken whenever it comes.
        let keep = isa.select(isa.less(v, largest), largest, v);
        largest = isa.select(isa.is_nan(largest), largest, keep);
    }
    let mut lanes = [f32::NEG_INFINITY; crate::isa::MAX_LANES];
    // SAFETY: the buffer has room for the widest vector.
    unsafe { isa.store(lanes.as_mut_ptr(), largest) };
    let mut best = f32::NEG_INFINITY;
    for &v in lanes[..I::LANES].iter().chain(&x[whole..]) {
        if v > best || v.is_nan() {
            best = v;
        }
        if best.is_nan() {
            break;
        }
    }
    best
}
