//! Values as two 8-bit terms hold them: each group of 32 of a row becomes `(254 · high + low) · scale` with
//! `t = x · 127/amax`, `high = round_half_even(t)`, `low = round_half_even((t − high) · 254)` and `scale = amax/32258`.
//! A group that is not finite becomes NaN, one too small to divide by zero.
//!
//! Rung: one workgroup per row, one group per invocation.

use cubecl::prelude::*;
use ingle_quant::{ACTIVATION_GROUP, HIGH_TERM, LARGEST_CODE};

use super::builder::Builder;
use super::common::word;
use super::{KernelError, require_threads};
use crate::params::quantize_activations as p;
use crate::{DeviceLimits, KernelText, QuantizeActivationsKey};

/// Activations that share a scale.
const GROUP: u32 = ACTIVATION_GROUP as u32;

pub fn build(
    id: String,
    key: &QuantizeActivationsKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let mut builder = Builder::new(id, "quantize_activations", threads);
    let x = builder.buffer::<f32>("x");
    let mut out = builder.buffer::<f32>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    quantize_activations::expand(builder.scope(), &x, &mut out, &step, &params, threads);
    builder.finish(limits)
}

#[cube]
fn quantize_activations(
    x: &[f32],       // [rows, k]
    out: &mut [f32], // [rows, k]
    step: &[u32],
    params: &[u32],
    #[comptime] threads: u32,
) {
    let row = CUBE_POS_X;
    if row < step[word(params, p::count_word) as usize] {
        let k = word(params, p::k);
        let groups = (k + comptime!(GROUP - 1)) / GROUP;
        for group in range_stepped(UNIT_POS_X, groups, threads) {
            let first = group * GROUP;
            let last = min(first + GROUP, k);
            // Without their sign, floats are ordered like their bits, and what is not finite comes last.
            let mut amax = 0u32.runtime();
            for i in first..last {
                let bits = u32::reinterpret(x[(row * k + i) as usize]) & 0x7fff_ffffu32;
                amax = max(amax, bits);
            }
            let finite = amax < 0x7f80_0000u32;
            let largest = f32::reinterpret(amax);
            // Below this, 127 / amax overflows.
            let usable = finite && largest > 3.732_3e-37f32;
            let divisor = select(usable, largest, f32::new(1.0));
            let inverse = select(usable, f32::new(127.0) / divisor, f32::new(0.0));
            let small = select(
                usable,
                largest / f32::new(LARGEST_CODE as f32),
                f32::new(0.0),
            );
            let scale = select(finite, small, f32::reinterpret(amax | 0x7fc0_0000u32));
            for i in first..last {
                let scaled = x[(row * k + i) as usize] * inverse;
                let high = clamp(scaled.round(), f32::new(-127.0), f32::new(127.0));
                let weight = f32::new(HIGH_TERM as f32);
                let low = ((scaled - high) * weight).round();
                // Through an integer, which has no zero with a sign.
                let code = i32::cast_from(high * weight + low);
                out[(row * k + i) as usize] = f32::cast_from(code) * scale;
            }
        }
    }
}
