//! Elementary functions on vectors, written once over [`Isa`]. Errors are in units in the last place of `f32` (ulp), and
//! tests hold them there. NaN gives NaN.

// Coefficients are given as their authors print them.
#![allow(clippy::excessive_precision)]

use crate::isa::{Isa, MAX_LANES};

/// `eˣ`, within 2 ulp (Cephes' polynomial, after taking out the nearest power of two).
#[inline(always)]
pub(crate) fn exp<I: Isa>(isa: I, x: I::F) -> I::F {
    // Beyond these the result is 0 or infinite anyway, and the power stays in range.
    let clamped = isa.max(isa.min(x, isa.splat(89.0)), isa.splat(-104.0));
    let n = isa.round_to_i32(isa.mul(clamped, isa.splat(std::f32::consts::LOG2_E)));
    let power = isa.to_f32(n);
    // ln 2 in two parts: the first has few enough bits for its products with n to be exact.
    let r = isa.mul_add(power, isa.splat(-0.693_359_375), clamped);
    let r = isa.mul_add(power, isa.splat(2.121_944_40e-4), r);
    let p = polynomial(
        isa,
        r,
        [
            1.987_569_15e-4,
            1.398_199_95e-3,
            8.333_451_9e-3,
            4.166_579_59e-2,
            1.666_666_55e-1,
            5.000_000_12e-1,
        ],
    );
    let p = isa.add(isa.mul_add(isa.mul(r, r), p, r), isa.splat(1.0));
    isa.select(isa.is_nan(x), x, isa.scale_by_power(p, n))
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(crate) fn sigmoid<I: Isa>(isa: I, x: I::F) -> I::F {
    let one = isa.splat(1.0);
    isa.div(one, isa.add(one, exp(isa, negate(isa, x))))
}

/// `x / (1 + e⁻ˣ)`.
#[inline(always)]
pub(crate) fn silu<I: Isa>(isa: I, x: I::F) -> I::F {
    isa.div(x, isa.add(isa.splat(1.0), exp(isa, negate(isa, x))))
}

/// `tanh x`: a polynomial near zero, `1 − 2 / (e²ˣ + 1)` beyond.
#[inline(always)]
pub(crate) fn tanh<I: Isa>(isa: I, x: I::F) -> I::F {
    let magnitude = isa.abs(x);
    let square = isa.mul(x, x);
    let p = polynomial(
        isa,
        square,
        [
            -6.112_345_5e-3,
            2.095_868_25e-2,
            -5.382_531_5e-2,
            1.333_233_4e-1,
            -3.333_331e-1,
        ],
    );
    let near = isa.mul_add(isa.mul(p, square), x, x);
    let e = exp(isa, isa.add(magnitude, magnitude));
    let one = isa.splat(1.0);
    let far = isa.sub(one, isa.div(isa.splat(2.0), isa.add(e, one)));
    isa.select(
        isa.less(magnitude, isa.splat(0.55)),
        near,
        isa.copysign(far, x),
    )
}

/// The error function: a polynomial near zero, `1 − e^p(|x|)` beyond.
#[inline(always)]
pub(crate) fn erf<I: Isa>(isa: I, x: I::F) -> I::F {
    let magnitude = isa.abs(x);
    let square = isa.mul(x, x);
    let near = polynomial(
        isa,
        square,
        [
            -5.967_617_03e-4,
            4.991_194_23e-3,
            -2.676_813_49e-2,
            1.128_199_25e-1,
            -3.761_253_36e-1,
            1.283_791_66e-1,
        ],
    );
    let near = isa.mul_add(near, x, x);
    let far = polynomial(
        isa,
        magnitude,
        [
            -1.728_534_70e-5,
            3.831_971_26e-4,
            -3.883_964_38e-3,
            2.425_462_19e-2,
            -1.067_778_77e-1,
            -6.348_466_87e-1,
            -1.287_175_12e-1,
            0.0,
        ],
    );
    let exponent = isa.sub(far, magnitude);
    let far = isa.sub(isa.splat(1.0), exp(isa, exponent));
    isa.select(
        isa.less(magnitude, isa.splat(0.927_734_375)),
        near,
        isa.copysign(far, x),
    )
}

/// `x · Φ(x)`.
#[inline(always)]
pub(crate) fn gelu<I: Isa>(isa: I, x: I::F) -> I::F {
    let half = isa.mul(x, isa.splat(0.5));
    isa.mul_add(
        half,
        erf(isa, isa.mul(x, isa.splat(std::f32::consts::FRAC_1_SQRT_2))),
        half,
    )
}

/// The tanh form of [`gelu`].
#[inline(always)]
pub(crate) fn gelu_tanh<I: Isa>(isa: I, x: I::F) -> I::F {
    let half = isa.mul(x, isa.splat(0.5));
    let cube = isa.mul(isa.mul(x, x), x);
    let inner = isa.mul(
        isa.mul_add(cube, isa.splat(0.044_715), x),
        isa.splat(0.797_884_561),
    );
    isa.mul_add(half, tanh(isa, inner), half)
}

#[inline(always)]
pub(crate) fn negate<I: Isa>(isa: I, x: I::F) -> I::F {
    isa.mul(x, isa.splat(-1.0))
}

/// Applies a function to each lane: for the functions that models rarely use.
#[inline(always)]
pub(crate) fn each_lane<I: Isa>(isa: I, x: I::F, f: fn(f32) -> f32) -> I::F {
    let mut lanes = [0.0; MAX_LANES];
    // SAFETY: the buffer has room for the widest vector.
    unsafe { isa.store(lanes.as_mut_ptr(), x) };
    for lane in &mut lanes[..I::LANES] {
        *lane = f(*lane);
    }
    unsafe { isa.load(lanes.as_ptr()) }
}

/// Horner's rule; the highest power's coefficient comes first.
#[inline(always)]
fn polynomial<I: Isa, const N: usize>(isa: I, x: I::F, coefficients: [f32; N]) -> I::F {
    let mut p = isa.splat(coefficients[0]);
    for &c in &coefficients[1..] {
        p = isa.mul_add(p, x, isa.splat(c));
    }
    p
}
