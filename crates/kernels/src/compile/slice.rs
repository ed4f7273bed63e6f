//! `out[r, i] = x[r, start + i]`, one workgroup per row.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::word;
use super::{KernelError, require_threads};
use crate::params::slice as p;
use crate::{DeviceLimits, KernelText, SliceKey};

pub fn build(id: String, key: &SliceKey, limits: &DeviceLimits) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let mut builder = Builder::new(id, "slice", threads);
    let x = builder.buffer::<f32>("x");
    let mut out = builder.buffer::<f32>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    slice::expand(builder.scope(), &x, &mut out, &step, &params, threads);
    builder.finish(limits)
}

#[cube]
fn slice(
    x: &[f32],       // [rows, k]
    out: &mut [f32], // [rows, columns]
    step: &[u32],
    params: &[u32],
    #[comptime] threads: u32,
) {
    let row = CUBE_POS_X;
    if row < step[word(params, p::count_word) as usize] {
        let columns = word(params, p::columns);
        let from = row * word(params, p::k) + word(params, p::start);
        for i in range_stepped(UNIT_POS_X, columns, threads) {
            out[(row * columns + i) as usize] = x[(from + i) as usize];
        }
    }
}
