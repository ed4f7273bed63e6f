//! `argmax`: the index of each row's largest element, the first of equals; −1 for a row that holds anything not finite.

use crate::error::check_length;
use crate::isa::{Isa, Kernel};
use crate::kernels::reduce::row_max;
use crate::{CpuError, Machine, Rows};

/// `y[rows]` from `x[rows, n]`.
pub fn argmax(machine: &Machine, x: Rows<'_>, y: &mut [i32]) -> Result<(), CpuError> {
    check_length("rows of the output", x.rows(), y.len())?;
    let limit = i32::MAX as usize;
    if x.width() > limit {
        return Err(CpuError::Limit {
            field: "columns of the input",
            limit,
            found: x.width(),
        });
    }
    for (r, y) in y.iter_mut().enumerate() {
        *y = machine.level().run_any(ArgmaxRow { x: x.row(r) })?;
    }
    Ok(())
}

struct ArgmaxRow<'a> {
    x: &'a [f32],
}

impl Kernel for ArgmaxRow<'_> {
    type Output = i32;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> i32 {
        let x = self.x;
        let whole = x.len() / I::LANES * I::LANES;
        // Finite values times zero add up to zero; infinities and NaN leave NaN.
        let mut finite = isa.splat(0.0);
        for at in (0..whole).step_by(I::LANES) {
            // SAFETY: `at + LANES ≤ x.len()`.
            finite = isa.mul_add(
                unsafe { isa.load(x.as_ptr().add(at)) },
                isa.splat(0.0),
                finite,
            );
        }
        if isa.sum(finite).is_nan() || x[whole..].iter().any(|v| !v.is_finite()) {
            return -1;
        }
        let max = row_max(isa, x);
        x.iter().position(|&v| v == max).map_or(-1, |i| i as i32)
    }
}
