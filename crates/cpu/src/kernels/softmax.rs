//! `softmax`: `exp(x − max) / Σ exp(x − max)`, row by row.

use crate::error::check_length;
use crate::isa::{Isa, Kernel};
use crate::kernels::reduce::{row_max, row_sum};
use crate::{CpuError, Machine, Rows, RowsMut, math};

/// Values that are worth waking a thread for.
const GRAIN: usize = 8 << 10;

/// `y[rows, k]` from `x[rows, k]`.
pub fn softmax(machine: &Machine, x: Rows<'_>, y: &mut RowsMut<'_>) -> Result<(), CpuError> {
    check_length("rows of the output", x.rows(), y.rows())?;
    check_length("width of the output", x.width(), y.width())?;
    let (level, y) = (machine.level(), &*y);
    machine
        .pool()
        .split(x.rows(), GRAIN.div_ceil(x.width().max(1)), &|rows| {
            for r in rows {
                // SAFETY: each row is written by one call.
                let y = unsafe { y.row(r) };
                level
                    .run_any(SoftmaxRow { x: x.row(r), y })
                    .expect("a machine has its level");
            }
        });
    Ok(())
}

struct SoftmaxRow<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for SoftmaxRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let SoftmaxRow { x, y } = self;
        assert!(x.len() == y.len());
        let max = row_max(isa, x);
        let whole = x.len() / I::LANES * I::LANES;
        for at in (0..whole).step_by(I::LANES) {
            // SAFETY: `at + LANES` is at most the length of both.
            unsafe {
                let v = isa.sub(isa.load(x.as_ptr().add(at)), isa.splat(max));
                isa.store(y.as_mut_ptr().add(at), math::exp(isa, v));
            }
        }
        for at in whole..x.len() {
            y[at] = (x[at] - max).exp();
        }
        let total = row_sum(isa, y);
        y.iter_mut().for_each(|v| *v /= total);
    }
}
