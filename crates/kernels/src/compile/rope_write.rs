//! Rotates queries and keys and writes keys and values into the state.
//!
//! For a pair `(a, b)` at angle `θ`: `(a cos θ − b sin θ, a sin θ + b cos θ)`. One invocation handles two pairs, so that
//! a word of two `f16` has one writer. The state is `[blocks, 2, kv_heads, 32, head_dim]`.
//!
//! Rung: one pass, four elements per invocation.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::word;
use super::intrinsics::pack_halves;
use super::{KernelError, require, require_threads};
use crate::params::rope_write as p;
use crate::rope::LOW_ROWS;
use crate::step::{AT_POSITIONS, AT_SLOTS, BLOCK_LEN, N_TOKENS};
use crate::{DeviceLimits, KernelText, KvElement, RopePairing, RopeWriteKey};

pub fn build(
    id: String,
    key: &RopeWriteKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let (head_dim, rotary_dim) = (key.head_dim, key.rotary_dim);
    require(
        head_dim > 0 && head_dim.is_multiple_of(4),
        &id,
        "head_dim",
        "a multiple of 4",
        head_dim,
    )?;
    let rotary_ok = rotary_dim <= head_dim && rotary_dim.is_multiple_of(4);
    require(
        rotary_ok,
        &id,
        "rotary_dim",
        "a multiple of 4, at most head_dim",
        rotary_dim,
    )?;
    let mut builder = Builder::new(id, "rope_write", threads);
    let mut sources = Sequence::<Box<[f32]>>::__expand_new(builder.scope());
    for name in if key.fused {
        &["qkv"][..]
    } else {
        &["q", "k", "v"]
    } {
        let source = builder.buffers::<f32>(name, 1);
        for buffer in source {
            sources.__expand_push_method(builder.scope(), buffer);
        }
    }
    let table = builder.buffer::<Vector<f32, Const<2>>>("rope_table");
    let mut q_out = builder.buffer::<f32>("q_out");
    let mut kv = builder.buffer::<u32>("kv");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    rope_write::expand(
        builder.scope(),
        &sources,
        &table,
        &mut q_out,
        &mut kv,
        &step,
        &params,
        key.clone(),
    );
    builder.finish(limits)
}

#[cube]
#[allow(clippy::too_many_arguments)]
fn rope_write(
    sources: &Sequence<Box<[f32]>>, // q, k, v or one for all: [tokens, stride]
    table: &[Vector<f32, Const<2>>], // [256 + high, rotary_dim/2]
    q_out: &mut [f32],              // [tokens, heads, head_dim]
    kv: &mut [u32], // [blocks, 2, kv_heads, 32, head_dim], f32 bits or two f16 to a word
    step: &[u32],
    params: &[u32],
    #[comptime] key: RopeWriteKey,
) {
    let units = comptime!(u32::from(key.head_dim) / 4);
    let turned = comptime!(u32::from(key.rotary_dim) / 4);
    let interleaved = comptime!(key.pairing == RopePairing::Interleaved);
    let heads = word(params, p::heads);
    let kv_heads = word(params, p::kv_heads);
    let token = CUBE_POS_Y;
    let unit = CUBE_POS_X * comptime!(u32::from(key.threads)) + UNIT_POS_X;
    let slot = unit / units;
    let j = unit % units;
    if slot < heads + 2u32 * kv_heads && token < word(step, N_TOKENS) {
        let is_query = slot < heads;
        let is_value = slot >= heads + kv_heads;
        let turns = !is_value && j < turned;

        // Elements of the head: pairs (a0, b0) and (a1, b1).
        let halves = comptime!(!interleaved) && turns;
        let a0 = select(halves, 2u32 * j, 4u32 * j);
        let b0 = select(halves, a0 + comptime!(2 * turned), a0 + 1u32);
        let a1 = select(halves, a0 + 1u32, a0 + 2u32);
        let b1 = select(halves, b0 + 1u32, a0 + 3u32);

        let head = select(
            is_query,
            slot,
            select(is_value, slot - heads - kv_heads, slot - heads),
        );
        let stride = select(is_query, 0u32, select(is_value, 4u32, 2u32)) + comptime!(p::q_stride);
        let from = token * params[stride as usize]
            + params[(stride + 1u32) as usize]
            + head * comptime!(u32::from(key.head_dim));
        let va0 = read(sources, is_query, is_value, from + a0);
        let vb0 = read(sources, is_query, is_value, from + b0);
        let va1 = read(sources, is_query, is_value, from + a1);
        let vb1 = read(sources, is_query, is_value, from + b1);

        let mut cos0 = f32::new(1.0);
        let mut sin0 = f32::new(0.0);
        let mut cos1 = f32::new(1.0);
        let mut sin1 = f32::new(0.0);
        if turns {
            let position = step[(word(step, AT_POSITIONS) + token) as usize];
            let (c0, s0) = angle(table, position, 2u32 * j, comptime!(2 * turned));
            let (c1, s1) = angle(table, position, 2u32 * j + 1u32, comptime!(2 * turned));
            cos0 = c0;
            sin0 = s0;
            cos1 = c1;
            sin1 = s1;
        }
        let ra0 = va0 * cos0 - vb0 * sin0;
        let rb0 = va0 * sin0 + vb0 * cos0;
        let ra1 = va1 * cos1 - vb1 * sin1;
        let rb1 = va1 * sin1 + vb1 * cos1;

        if is_query {
            let to = (token * heads + head) * comptime!(u32::from(key.head_dim));
            q_out[(to + a0) as usize] = ra0;
            q_out[(to + b0) as usize] = rb0;
            q_out[(to + a1) as usize] = ra1;
            q_out[(to + b1) as usize] = rb1;
        } else {
            let place = step[(word(step, AT_SLOTS) + token) as usize];
            let plane = place / BLOCK_LEN * 2u32 + u32::cast_from(is_value);
            let row = (plane * kv_heads + head) * BLOCK_LEN + place % BLOCK_LEN;
            let to = row * comptime!(u32::from(key.head_dim));
            if comptime!(key.kv == KvElement::F32) {
                kv[(to + a0) as usize] = u32::reinterpret(ra0);
                kv[(to + b0) as usize] = u32::reinterpret(rb0);
                kv[(to + a1) as usize] = u32::reinterpret(ra1);
                kv[(to + b1) as usize] = u32::reinterpret(rb1);
            } else {
                // The two words: (a0, a1) and (b0, b1) when halves are paired, else (a0, b0) and (a1, b1).
                let second = select(halves, b0, a1);
                kv[((to + a0) / 2u32) as usize] = pack_halves(ra0, select(halves, ra1, rb0));
                kv[((to + second) / 2u32) as usize] = pack_halves(select(halves, rb0, ra1), rb1);
            }
        }
    }
}

#[cube]
fn read(sources: &Sequence<Box<[f32]>>, is_query: bool, is_value: bool, at: u32) -> f32 {
    if comptime!(sources.len() == 1) {
        sources[0][at as usize]
    } else {
        let value = RuntimeCell::<f32>::new(f32::new(0.0));
        if is_query {
            value.store(sources[0][at as usize]);
        } else if is_value {
            value.store(sources[2][at as usize]);
        } else {
            value.store(sources[1][at as usize]);
        }
        value.read()
    }
}

/// Cosine and sine of the angle of `pair` at `position`, from the table's two parts.
#[cube]
fn angle(
    table: &[Vector<f32, Const<2>>],
    position: u32,
    pair: u32,
    #[comptime] pairs: u32,
) -> (f32, f32) {
    let low = table[(position % LOW_ROWS * pairs + pair) as usize];
    let high = table[((LOW_ROWS + position / LOW_ROWS) * pairs + pair) as usize];
    let (ca, sa) = (low.extract(0usize), low.extract(1usize));
    let (cb, sb) = (high.extract(0usize), high.extract(1usize));
    (ca * cb - sa * sb, sa * cb + ca * sb)
}
