//! `out[r, :] = x[output_rows[r], :]`, one workgroup per row.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::word;
use super::{KernelError, require_threads};
use crate::params::take_rows as p;
use crate::step::{AT_OUTPUT_ROWS, N_OUTPUT_ROWS};
use crate::{DeviceLimits, KernelText, TakeRowsKey};

pub fn build(
    id: String,
    key: &TakeRowsKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let mut builder = Builder::new(id, "take_rows", threads);
    let x = builder.buffer::<f32>("x");
    let mut out = builder.buffer::<f32>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    take_rows::expand(builder.scope(), &x, &mut out, &step, &params, threads);
    builder.finish(limits)
}

#[cube]
fn take_rows(
    x: &[f32],       // [tokens, k]
    out: &mut [f32], // [output_rows, k]
    step: &[u32],
    params: &[u32],
    #[comptime] threads: u32,
) {
    let k = word(params, p::k);
    if CUBE_POS_X < word(step, N_OUTPUT_ROWS) {
        let row = step[(word(step, AT_OUTPUT_ROWS) + CUBE_POS_X) as usize];
        for i in range_stepped(UNIT_POS_X, k, threads) {
            out[(CUBE_POS_X * k + i) as usize] = x[(row * k + i) as usize];
        }
    }
}
