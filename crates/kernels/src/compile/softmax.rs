//! `out[r, i] = exp(x[r, i] − max) / Σ_i exp(x[r, i] − max)`
//!
//! Rung: one workgroup per row, the exponentials computed twice rather than kept.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::{max_over_workgroup, sum_over_workgroup, word};
use super::{KernelError, require_threads};
use crate::params::softmax as p;
use crate::{DeviceLimits, KernelText, SoftmaxKey};

pub fn build(
    id: String,
    key: &SoftmaxKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let mut builder = Builder::new(id, "softmax", threads);
    let x = builder.buffer::<f32>("x");
    let mut out = builder.buffer::<f32>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    softmax::expand(builder.scope(), &x, &mut out, &step, &params, threads);
    builder.finish(limits)
}

#[cube]
fn softmax(
    x: &[f32],       // [rows, k]
    out: &mut [f32], // [rows, k]
    step: &[u32],
    params: &[u32],
    #[comptime] threads: u32,
) {
    let row = CUBE_POS_X;
    if row < step[word(params, p::count_word) as usize] {
        let k = word(params, p::k);
        let mut best = x[(row * k) as usize];
        for i in range_stepped(UNIT_POS_X, k, threads) {
            best = max(best, x[(row * k + i) as usize]);
        }
        let largest = max_over_workgroup(best, threads);
        let mut total = f32::new(0.0);
        for i in range_stepped(UNIT_POS_X, k, threads) {
            total += (x[(row * k + i) as usize] - largest).exp();
        }
        let sum = sum_over_workgroup(total, threads);
        for i in range_stepped(UNIT_POS_X, k, threads) {
            out[(row * k + i) as usize] = (x[(row * k + i) as usize] - largest).exp() / sum;
        }
    }
}
