//! `out[t, h] = Σ_p softmax_p(scale · q[t, h]·k[p, h/g]) v[p, h/g]`
//!
//! State: `[blocks, 2 (key, value), kv_heads, 32, head_dim]`. Rung: one workgroup per head and row of tokens; positions
//! pass in tiles of [`KEYS_PER_THREAD`] per invocation with an online softmax (Milakov and Gimelshein 2018, arXiv
//! 1805.02867), so that the context has no bound and workgroup memory holds one tile of scores. Within a tile the
//! invocations first split the keys, then, in teams of `head_dim/4`, the values.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::{Vec4, float, max_over_workgroup, sum_over_workgroup, vec4, word};
use super::intrinsics::unpack_halves;
use super::{KernelError, program, require, require_threads};
use crate::params::attention as p;
use crate::step::{AT_POSITIONS, AT_SEQUENCES, AT_TABLE, BLOCK_LEN, MAX_BLOCKS, N_TOKENS};
use crate::{AttentionKey, DeviceLimits, KernelText, KvElement};

/// Scores that one invocation computes in a tile.
const KEYS_PER_THREAD: u32 = 8;

/// Below every score. Not −∞, since WGSL compilers may assume that floats are finite.
const LOWEST: f32 = -3.0e38;

pub fn build(
    id: String,
    key: &AttentionKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let head_dim = u32::from(key.head_dim);
    let ok =
        head_dim > 0 && head_dim.is_multiple_of(4) && head_dim <= 256 && head_dim / 4 <= threads;
    require(
        ok,
        &id,
        "head_dim",
        "a multiple of 4, at most 256 and 4 · threads",
        head_dim,
    )?;
    let mut builder = Builder::new(id, "attention", threads);
    let q = builder.buffer::<Vec4>("q");
    match key.kv {
        KvElement::F32 => {
            let kv = builder.buffer::<Vector<u32, Const<4>>>("kv");
            let mut out = builder.buffer::<Vec4>("out");
            let step = builder.buffer::<u32>("step");
            let params = builder.buffer::<u32>("params");
            attention::expand::<Const<4>>(
                builder.scope(),
                &q,
                &kv,
                &mut out,
                &step,
                &params,
                key.clone(),
            );
        }
        KvElement::F16 => {
            let kv = builder.buffer::<Vector<u32, Const<2>>>("kv");
            let mut out = builder.buffer::<Vec4>("out");
            let step = builder.buffer::<u32>("step");
            let params = builder.buffer::<u32>("params");
            attention::expand::<Const<2>>(
                builder.scope(),
                &q,
                &kv,
                &mut out,
                &step,
                &params,
                key.clone(),
            );
        }
    }
    builder.finish(limits)
}

#[cube]
fn attention<N: Size>(
    q: &[Vec4],            // [tokens, heads, head_dim/4]
    kv: &[Vector<u32, N>], // [blocks, 2, kv_heads, 32, head_dim/4]
    out: &mut [Vec4],      // [tokens, heads, head_dim/4]
    step: &[u32],
    params: &[u32],
    #[comptime] key: AttentionKey,
) {
    let threads = comptime!(u32::from(key.threads));
    let width = comptime!(u32::from(key.head_dim) / 4);
    let tile = comptime!(threads * KEYS_PER_THREAD);
    let head = CUBE_POS_X;
    let token = CUBE_POS_Y;
    let heads = word(params, p::heads);
    let kv_heads = word(params, p::kv_heads);
    let kv_head = head / (heads / kv_heads);

    let mut query = Shared::<[Vec4]>::new_slice(comptime!(width as usize));
    let mut scores = Shared::<[f32]>::new_slice(comptime!(tile as usize));
    let mut parts = Shared::<[Vec4]>::new_slice(comptime!(threads as usize));

    if token < word(step, N_TOKENS) {
        let row = token * heads + head;
        let last = step[(word(step, AT_POSITIONS) + token) as usize];
        let table = word(step, AT_TABLE)
            + step[(word(step, AT_SEQUENCES) + token) as usize] * word(step, MAX_BLOCKS);
        let first = if comptime!(key.window) {
            let window = word(params, p::window);
            select(last + 1u32 > window, last + 1u32 - window, 0u32)
        } else {
            0u32.runtime()
        };
        let plane = kv_heads * comptime!(BLOCK_LEN * width);
        if UNIT_POS_X < width {
            query[UNIT_POS_X as usize] =
                q[(row * width + UNIT_POS_X) as usize] * Vec4::new(float(params, p::scale));
        }
        sync_cube();

        let teams = comptime!(threads / width);
        let team = UNIT_POS_X / width;
        let lane = UNIT_POS_X % width;
        let mut highest = f32::new(LOWEST);
        let mut sum = f32::new(0.0);
        let mut value = Vec4::new(f32::new(0.0));
        for start in range_stepped(first, last + 1u32, tile) {
            let mut tile_highest = f32::new(LOWEST);
            let end = min(last + 1u32, start + tile);
            for position in range_stepped(start + UNIT_POS_X, end, threads) {
                let place = key_place(step, table, position, kv_head, kv_heads, width);
                let mut dot = f32::new(0.0);
                for i in 0..width {
                    dot += query[i as usize].dot(read4::<N>(kv, place + i, comptime!(key.kv)));
                }
                if comptime!(key.soft_cap) {
                    let cap = float(params, p::cap);
                    dot = cap * program::tanh(dot / cap);
                }
                scores[(position - start) as usize] = dot;
                tile_highest = max(tile_highest, dot);
            }
            let raised = max(highest, max_over_workgroup(tile_highest, threads));
            let shrink = (highest - raised).exp();
            sum *= shrink;
            value *= Vec4::new(shrink);
            highest = raised;
            for at in range_stepped(UNIT_POS_X, end - start, threads) {
                let weight = (scores[at as usize] - raised).exp();
                scores[at as usize] = weight;
                sum += weight;
            }
            sync_cube();
            if team < teams {
                for at in range_stepped(team, end - start, teams) {
                    let place = key_place(step, table, start + at, kv_head, kv_heads, width);
                    let v = read4::<N>(kv, place + plane + lane, comptime!(key.kv));
                    value += Vec4::new(scores[at as usize]) * v;
                }
            }
            sync_cube();
        }
        let total = sum_over_workgroup(sum, threads);
        parts[UNIT_POS_X as usize] = value;
        sync_cube();
        if UNIT_POS_X < width {
            let mut combined = parts[UNIT_POS_X as usize];
            for other in 1..teams {
                combined += parts[(other * width + UNIT_POS_X) as usize];
            }
            out[(row * width + UNIT_POS_X) as usize] = combined / Vec4::new(total);
        }
    }
}

/// Where the key of a position lies, in Vec4; its value lies `kv_heads · 32 · width` further.
#[cube]
fn key_place(
    step: &[u32],
    table: u32,
    position: u32,
    kv_head: u32,
    kv_heads: u32,
    #[comptime] width: u32,
) -> u32 {
    let block = step[(table + position / BLOCK_LEN) as usize];
    ((block * 2u32 * kv_heads + kv_head) * BLOCK_LEN + position % BLOCK_LEN) * width
}

/// Four neighbouring elements of the state.
#[cube]
fn read4<N: Size>(kv: &[Vector<u32, N>], at: u32, #[comptime] element: KvElement) -> Vec4 {
    let words = kv[at as usize];
    if comptime!(element == KvElement::F32) {
        vec4::<f32>(
            f32::reinterpret(words.extract(0usize)),
            f32::reinterpret(words.extract(1usize)),
            f32::reinterpret(words.extract(2usize)),
            f32::reinterpret(words.extract(3usize)),
        )
    } else {
        let low = unpack_halves(words.extract(0usize));
        let high = unpack_halves(words.extract(1usize));
        vec4::<f32>(
            low.extract(0usize),
            low.extract(1usize),
            high.extract(0usize),
            high.extract(1usize),
        )
    }
}
