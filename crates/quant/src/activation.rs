//! Activations in two 8-bit terms: the one definition that every backend's integer matmuls are tested against.
//!
//! A row is cut into groups of 32 from its start; the last may be shorter. For each group, all in `f32`:
//!
//! ```text
//! amax  = max |x|
//! t     = x · (127 / amax)
//! high  = round_ties_even(t)                  −127 ..= 127
//! low   = round_ties_even((t − high) · 254)   −127 ..= 127
//! code  = 254 · high + low                    −32258 ..= 32258
//! scale = amax / 32258
//! value = code · scale
//! ```
//!
//! A dot product with integer weights is `Σ w·code = 254 · Σ w·high + Σ w·low`: two dot products of 8-bit integers over
//! one read of the weights, or one of 16-bit integers where those are as fast. One term alone, which is what llama.cpp's
//! `Q8_0` activations are, puts the logits of SmolLM2-135M off by 1 % to 7 %; two put them off by less than 0.1 %.
//!
//! - If `127 / amax` is not finite (the group is zero, or below 3.8e-37), scale and codes are zero.
//! - If any `x` is not finite, the scale is NaN and the codes are zero: every value of the group is NaN, so that what went
//!   wrong before is never hidden.

use crate::QuantError;
use crate::error::check_length;

/// Elements that share a scale.
pub const ACTIVATION_GROUP: usize = 32;

/// What the high term of a code counts.
pub const HIGH_TERM: i32 = 254;

/// The largest code.
pub const LARGEST_CODE: i32 = 127 * HIGH_TERM;

/// The number of scales of a row of `k` activations.
pub const fn activation_groups(k: usize) -> usize {
    k.div_ceil(ACTIVATION_GROUP)
}

/// Quantises the row `x` to `codes`, one for each element, and `scales`, one for each group.
pub fn quantize_activations(
    x: &[f32],
    codes: &mut [i16],
    scales: &mut [f32],
) -> Result<(), QuantError> {
    check_row(x.len(), codes.len(), scales.len())?;
    let groups = x.chunks(ACTIVATION_GROUP);
    let codes = codes.chunks_mut(ACTIVATION_GROUP);
    for ((x, codes), scale) in groups.zip(codes).zip(scales) {
        let (group_scale, inverse) = scale_and_inverse(x);
        *scale = group_scale;
        for (code, &x) in codes.iter_mut().zip(x) {
            *code = code_of(x, inverse) as i16;
        }
    }
    Ok(())
}

/// The values of a quantised row.
pub fn dequantize_activations(
    codes: &[i16],
    scales: &[f32],
    out: &mut [f32],
) -> Result<(), QuantError> {
    check_row(out.len(), codes.len(), scales.len())?;
    let groups = codes.chunks(ACTIVATION_GROUP);
    let outs = out.chunks_mut(ACTIVATION_GROUP);
    for ((codes, out), scale) in groups.zip(outs).zip(scales) {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = f32::from(code) * scale;
        }
    }
    Ok(())
}

/// Replaces a row by what quantising and dequantising it gives.
pub fn fake_quantize(x: &mut [f32]) {
    for group in x.chunks_mut(ACTIVATION_GROUP) {
        let (scale, inverse) = scale_and_inverse(group);
        for x in group {
            // The integer between drops the sign of a zero, as the stored code does.
            *x = code_of(*x, inverse) as f32 * scale;
        }
    }
}

/// The scale of a group, and what its elements are multiplied by before rounding: zero where all codes are zero.
fn scale_and_inverse(group: &[f32]) -> (f32, f32) {
    // Without their sign, floats are ordered like their bits, and infinities and NaNs come after all others.
    let bits = |x: &f32| x.to_bits() & 0x7FFF_FFFF;
    let amax = f32::from_bits(group.iter().map(bits).max().unwrap_or(0));
    let inverse = 127.0 / amax;
    if !amax.is_finite() {
        (f32::NAN, 0.0)
    } else if !inverse.is_finite() {
        (0.0, 0.0)
    } else {
        (amax / LARGEST_CODE as f32, inverse)
    }
}

/// A NaN (`∞ · 0` in a group that is not finite) gives the code 0.
fn code_of(x: f32, inverse: f32) -> i32 {
    let t = x * inverse;
    let high = t.round_ties_even().clamp(-127.0, 127.0);
    let low = ((t - high) * HIGH_TERM as f32).round_ties_even();
    high as i32 * HIGH_TERM + low as i32
}

fn check_row(k: usize, codes: usize, scales: usize) -> Result<(), QuantError> {
    check_length("activation codes", k, codes)?;
    check_length("activation scales", activation_groups(k), scales)
}
