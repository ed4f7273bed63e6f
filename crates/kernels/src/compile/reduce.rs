//! `out[r] = Σ_i x[r, i]`, its mean, or `max_i x[r, i]`.
//!
//! Rung: one workgroup per row.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::{max_over_workgroup, sum_over_workgroup, word};
use super::{KernelError, require_threads};
use crate::params::reduce as p;
use crate::{DeviceLimits, KernelText, ReduceKey, Reduction};

pub fn build(
    id: String,
    key: &ReduceKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    require_threads(&id, u32::from(key.threads), 1, limits)?;
    let mut builder = Builder::new(id, "reduce", u32::from(key.threads));
    let x = builder.buffer::<f32>("x");
    let mut out = builder.buffer::<f32>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    reduce::expand(builder.scope(), &x, &mut out, &step, &params, key.clone());
    builder.finish(limits)
}

#[cube]
fn reduce(
    x: &[f32],       // [rows, k]
    out: &mut [f32], // [rows]
    step: &[u32],
    params: &[u32],
    #[comptime] key: ReduceKey,
) {
    let threads = comptime!(u32::from(key.threads));
    let row = CUBE_POS_X;
    if row < step[word(params, p::count_word) as usize] {
        let k = word(params, p::k);
        // Every row has an element; an invocation without one of its own takes the first.
        let mut best = x[(row * k) as usize];
        let mut total = f32::new(0.0);
        for i in range_stepped(UNIT_POS_X, k, threads) {
            let value = x[(row * k + i) as usize];
            total += value;
            best = max(best, value);
        }
        let value = if comptime!(key.kind == Reduction::Max) {
            max_over_workgroup(best, threads)
        } else {
            let sum = sum_over_workgroup(total, threads);
            if comptime!(key.kind == Reduction::Mean) {
                sum / f32::cast_from(k)
            } else {
                sum
            }
        };
        if UNIT_POS_X == 0u32 {
            out[row as usize] = value;
        }
    }
}
