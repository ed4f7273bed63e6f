//! `out[r] = argmax_i x[r, i]`: the lowest index on ties, −1 if any element of the row is not finite.
//!
//! Rung: one workgroup per row; each invocation finds the best of its own elements, then they meet in workgroup memory.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::word;
use super::{KernelError, require_threads};
use crate::params::argmax as p;
use crate::{ArgmaxKey, DeviceLimits, KernelText};

/// What an invocation that met a value that is not finite says it found.
const POISON: u32 = u32::MAX;

pub fn build(
    id: String,
    key: &ArgmaxKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let mut builder = Builder::new(id, "argmax", threads);
    let x = builder.buffer::<f32>("x");
    let mut out = builder.buffer::<u32>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    argmax::expand(builder.scope(), &x, &mut out, &step, &params, threads);
    builder.finish(limits)
}

#[cube]
fn argmax(
    x: &[f32],       // [rows, columns]
    out: &mut [u32], // [rows]
    step: &[u32],
    params: &[u32],
    #[comptime] threads: u32,
) {
    let row = CUBE_POS_X;
    let columns = word(params, p::columns);
    let mut values = Shared::<[f32]>::new_slice(comptime!(threads as usize));
    let mut indices = Shared::<[u32]>::new_slice(comptime!(threads as usize));
    if row < step[word(params, p::count_word) as usize] {
        let mut best = f32::new(-3.402_823_5e38);
        // An invocation without elements must not win a tie against one that found the lowest value.
        let mut index = comptime!(POISON - 1).runtime();
        let mut poisoned = false;
        for i in range_stepped(UNIT_POS_X, columns, threads) {
            let value = x[(row * columns + i) as usize];
            // Compared as bits, because a compiler may assume that floats are finite.
            poisoned = poisoned || (u32::reinterpret(value) & 0x7f80_0000u32) == 0x7f80_0000u32;
            if value > best || index == comptime!(POISON - 1) {
                best = value;
                index = i;
            }
        }
        values[UNIT_POS_X as usize] = best;
        indices[UNIT_POS_X as usize] = select(poisoned, POISON, index);
        sync_cube();
        #[unroll]
        for level in 1..comptime!(threads.ilog2() + 1) {
            let stride = comptime!(threads >> level);
            if UNIT_POS_X < stride {
                let mine = UNIT_POS_X as usize;
                let other = (UNIT_POS_X + stride) as usize;
                let better = values[other] > values[mine]
                    || (values[other] == values[mine] && indices[other] < indices[mine]);
                if indices[mine] != POISON && (better || indices[other] == POISON) {
                    values[mine] = values[other];
                    indices[mine] = indices[other];
                }
            }
            sync_cube();
        }
        if UNIT_POS_X == 0u32 {
            out[row as usize] = indices[0];
        }
    }
}
