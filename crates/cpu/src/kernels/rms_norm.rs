//! `rms_norm`: `y = x · weight / sqrt(mean(x²) + eps)`, row by row.

use crate::error::check_length;
use crate::isa::{Isa, Kernel};
use crate::{CpuError, Machine, Rows, RowsMut};

/// Rows that are worth waking a thread for.
const GRAIN: usize = 4;

/// The norm that precedes a matmul or stands alone.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// `[k]`
    pub weight: &'a [f32],
    pub eps: f32,
}

/// Normalises each row of `x` into `y`.
pub fn rms_norm(
    machine: &Machine,
    x: Rows<'_>,
    norm: Norm<'_>,
    y: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    check_length("rows of the norm's output", x.rows(), y.rows())?;
    check_length("width of the norm's output", x.width(), y.width())?;
    check_length("weight of the norm", x.width(), norm.weight.len())?;
    let y = &*y;
    let level = machine.level();
    machine.pool().split(x.rows(), GRAIN, &|range| {
        for r in range {
            // SAFETY: each row is written by one call.
            let out = unsafe { y.row(r) };
            level
                .run_any(NormRow {
                    x: x.row(r),
                    norm,
                    out,
                })
                .expect("a machine has its level");
        }
    });
    Ok(())
}

struct NormRow<'a> {
    x: &'a [f32],
    norm: Norm<'a>,
    out: &'a mut [f32],
}

impl Kernel for NormRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let factor = norm_factor(isa, self.x, self.norm.eps);
        normalise(isa, self.x, self.norm.weight, factor, self.out);
    }
}

/// `1 / sqrt(mean(x²) + eps)`.
#[inline(always)]
pub(crate) fn norm_factor<I: Isa>(isa: I, x: &[f32], eps: f32) -> f32 {
    let mut sums = [isa.splat(0.0); 4];
    let whole = x.len() / (4 * I::LANES) * (4 * I::LANES);
    for at in (0..whole).step_by(4 * I::LANES) {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: `at + 4 · LANES ≤ whole ≤ x.len()`.
            let v = unsafe { isa.load(x.as_ptr().add(at + i * I::LANES)) };
            *sum = isa.mul_add(v, v, *sum);
        }
    }
    let mut total = isa.sum(isa.add(isa.add(sums[0], sums[1]), isa.add(sums[2], sums[3])));
    for &v in &x[whole..] {
        total += v * v;
    }
    let mean = f64::from(total) / x.len() as f64;
    (1.0 / (mean + f64::from(eps)).sqrt()) as f32
}

/// `out = (x · factor) · weight`; all three have the same length.
#[inline(always)]
pub(crate) fn normalise<I: Isa>(isa: I, x: &[f32], weight: &[f32], factor: f32, out: &mut [f32]) {
    let n = out.len();
    assert!(x.len() == n && weight.len() == n);
    let whole = n / I::LANES * I::LANES;
    let factors = isa.splat(factor);
    for at in (0..whole).step_by(I::LANES) {
        // SAFETY: `at + LANES ≤ n`, the length of all three.
        unsafe {
            let scaled = isa.mul(isa.load(x.as_ptr().add(at)), factors);
            isa.store(
                out.as_mut_ptr().add(at),
                isa.mul(scaled, isa.load(weight.as_ptr().add(at))),
            );
        }
    }
    for at in whole..n {
        out[at] = x[at] * factor * weight[at];
    }
}
