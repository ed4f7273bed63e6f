//! `out[t, i] = x[t, i] · weight[i] / √(mean(x[t]²) + eps)`
//!
//! Rung: one workgroup per row, four elements per read.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::{Vec4, float, sum_over_workgroup, word};
use super::{KernelError, require_threads};
use crate::params::rms_norm as p;
use crate::{DeviceLimits, KernelText, RmsNormKey};

pub fn build(
    id: String,
    key: &RmsNormKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let mut builder = Builder::new(id, "rms_norm", threads);
    let x = builder.buffer::<Vec4>("x");
    let weight = builder.buffer::<Vec4>("norm_weight");
    let mut out = builder.buffer::<Vec4>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    rms_norm::expand(
        builder.scope(),
        &x,
        &weight,
        &mut out,
        &step,
        &params,
        threads,
    );
    builder.finish(limits)
}

#[cube]
fn rms_norm(
    x: &[Vec4],       // [tokens, k/4]
    weight: &[Vec4],  // [k/4]
    out: &mut [Vec4], // [tokens, k/4]
    step: &[u32],
    params: &[u32],
    #[comptime] threads: u32,
) {
    let token = CUBE_POS_X;
    if token < step[word(params, p::count_word) as usize] {
        let k = word(params, p::k);
        let first = token * (k / 4u32);
        let mut squares = f32::new(0.0);
        for i in range_stepped(UNIT_POS_X, k / 4u32, threads) {
            let v = x[(first + i) as usize];
            squares += v.dot(v);
        }
        let mean = sum_over_workgroup(squares, threads) / f32::cast_from(k);
        let scale = Vec4::new((mean + float(params, p::eps)).inverse_sqrt());
        for i in range_stepped(UNIT_POS_X, k / 4u32, threads) {
            out[(first + i) as usize] = x[(first + i) as usize] * scale * weight[i as usize];
        }
    }
}
