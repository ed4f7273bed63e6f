//! `out[t, r] = epilogue(Σ_k W[r, k] · x[t, k])` for many rows of `x`.
//!
//! Rung: tiled. A workgroup computes `tile.tokens × tile.rows` outputs. 32 of `k` at a time, its invocations bring a tile
//! of `x` and a dequantised tile of `W` into workgroup memory, both with `k` outermost, so that an invocation reads its
//! `thread_tokens` and `thread_rows` values in fours and multiplies them all with each other.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::{Vec4, vec4, word, workgroup_index};
use super::weights::{
    chunk_stride, chunks, codes, group_stride, has_bias, has_scale, row_word, scale_and_bias, spans,
};
use super::{KernelError, program, require, require_threads};
use crate::params::projection as p;
use crate::{Activations, DeviceLimits, KernelText, MatMulKey, WeightFormat};

/// Depth of a tile.
const DEPTH: u32 = 32;

pub fn build(
    id: String,
    key: &MatMulKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let accumulators = check(&id, key, limits)?;
    let projection = &key.projection;
    let mut builder = Builder::new(id, "matmul", key.threads());
    let x = builder.buffer::<Vec4>("x");
    let weights = builder.buffer::<u32>("weights");
    let inputs = builder.buffers::<f32>("input", projection.epilogue.inputs.len());
    let mut out = builder.buffer::<f32>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    matmul::expand(
        builder.scope(),
        &x,
        &weights,
        &inputs,
        &mut out,
        &step,
        &params,
        key.clone(),
        accumulators,
    );
    builder.finish(limits)
}

fn check(id: &str, key: &MatMulKey, limits: &DeviceLimits) -> Result<usize, KernelError> {
    let tile = key.tile;
    let parts_ok = |whole: u16, part: u8| {
        part > 0 && part.is_multiple_of(4) && whole.is_multiple_of(part.into())
    };
    let tokens_ok = parts_ok(tile.tokens, tile.thread_tokens);
    require(
        tokens_ok,
        id,
        "tile.thread_tokens",
        "a multiple of 4 that divides tile.tokens",
        tile.thread_tokens,
    )?;
    let rows_ok = parts_ok(tile.rows, tile.thread_rows);
    require(
        rows_ok,
        id,
        "tile.thread_rows",
        "a multiple of 4 that divides tile.rows",
        tile.thread_rows,
    )?;
    require_threads(id, key.threads(), 1, limits)?;
    let projection = &key.projection;
    require(
        projection.activations == Activations::F32,
        id,
        "activations",
        "f32 in tiles",
        "int8",
    )?;
    require(!projection.norm, id, "norm", "false in tiles", true)?;
    let program = &projection.epilogue;
    program.check(2).map_err(|source| KernelError::Program {
        kernel: id.into(),
        source,
    })?;
    Ok(program.accumulators().max(1))
}

#[cube]
#[allow(clippy::too_many_arguments)]
fn matmul(
    x: &[Vec4],                    // [tokens, k/4]
    weights: &[u32],               // [accumulators · rows, k]
    inputs: &Sequence<Box<[f32]>>, // [tokens, out_stride] or as the program says
    out: &mut [f32],               // [tokens, out_stride]
    step: &[u32],
    params: &[u32],
    #[comptime] key: MatMulKey,
    #[comptime] accumulators: usize,
) {
    let tile_tokens = comptime!(u32::from(key.tile.tokens));
    let tile_rows = comptime!(u32::from(key.tile.rows));
    let fours_t = comptime!(u32::from(key.tile.thread_tokens) / 4);
    let fours_r = comptime!(u32::from(key.tile.thread_rows) / 4);
    let across = comptime!(tile_rows / (4 * fours_r));

    let first_row = workgroup_index() * tile_rows;
    let first_token = CUBE_POS_Z * tile_tokens;
    let count = step[word(params, p::count_word) as usize];
    let columns = word(params, p::rows);
    let k = word(params, p::k);
    let mine_r = UNIT_POS_X % across; // fours of rows: mine_r, mine_r + across, …
    let mine_t = UNIT_POS_X / across; // fours of tokens, likewise
    let down = comptime!(tile_tokens / (4 * fours_t));

    let mut x_tile = Shared::<[Vec4]>::new_slice(comptime!((DEPTH * tile_tokens / 4) as usize));
    let mut w_tile =
        Shared::<[Vec4]>::new_slice(comptime!(accumulators * (DEPTH * tile_rows / 4) as usize));

    let mut sums = Sequence::<RuntimeCell<Vec4>>::new(); // [accumulators, fours_t · 4, fours_r]
    #[unroll]
    for _ in 0..comptime!(accumulators * (fours_t * 4 * fours_r) as usize) {
        sums.push(RuntimeCell::<Vec4>::new(Vec4::new(f32::new(0.0))));
    }
    for depth in range_stepped(0u32, k, DEPTH) {
        load_x(
            x,
            &mut x_tile,
            params,
            first_token,
            count,
            depth,
            key.clone(),
        );
        #[unroll]
        for a in 0..accumulators {
            load_weights(
                weights,
                &mut w_tile,
                params,
                first_row,
                depth,
                a as u32,
                key.clone(),
            );
        }
        sync_cube();
        for i in 0..DEPTH {
            let mut xs = Sequence::<Vec4>::new();
            #[unroll]
            for t in 0..fours_t {
                xs.push(
                    x_tile
                        [(i * comptime!(tile_tokens / 4) + mine_t + comptime!(t * down)) as usize],
                );
            }
            #[unroll]
            for a in 0..accumulators {
                #[unroll]
                for r in 0..fours_r {
                    let w_at = (i + comptime!(a as u32 * DEPTH)) * comptime!(tile_rows / 4)
                        + mine_r
                        + comptime!(r * across);
                    let w = w_tile[w_at as usize];
                    #[unroll]
                    for t in 0..comptime!(fours_t * 4) {
                        let cell =
                            &sums[comptime!(((a as u32 * fours_t * 4 + t) * fours_r + r) as usize)];
                        let value =
                            xs[comptime!((t / 4) as usize)].extract(comptime!((t % 4) as usize));
                        cell.store(cell.read() + Vec4::new(value) * w);
                    }
                }
            }
        }
        sync_cube();
    }
    #[unroll]
    for t in 0..comptime!(fours_t * 4) {
        let token = first_token + (mine_t + comptime!(t / 4 * down)) * 4u32 + comptime!(t % 4);
        #[unroll]
        for r in 0..comptime!(fours_r * 4) {
            let row = first_row + (mine_r + comptime!(r / 4 * across)) * 4u32 + comptime!(r % 4);
            if token < count && row < columns {
                let mut values = Sequence::<f32>::new();
                #[unroll]
                for a in 0..accumulators {
                    let cell =
                        &sums[comptime!(((a as u32 * fours_t * 4 + t) * fours_r + r / 4) as usize)];
                    values.push(cell.read().extract(comptime!((r % 4) as usize)));
                }
                let column = word(params, p::out_offset) + row;
                let at = token * word(params, p::out_stride) + column;
                out[at as usize] = program::evaluate(
                    &values,
                    inputs,
                    at,
                    token,
                    column,
                    comptime!(key.projection.epilogue.clone()),
                );
            }
        }
    }
}

/// Brings `x[first_token .., depth .. depth + 32]` into `tile` `[32, tile.tokens/4]`; beyond the ends are zeros.
#[cube]
fn load_x(
    x: &[Vec4],
    tile: &mut Shared<[Vec4]>,
    params: &[u32],
    first_token: u32,
    count: u32,
    depth: u32,
    #[comptime] key: MatMulKey,
) {
    let fours = comptime!(u32::from(key.tile.tokens) / 4);
    let stride = word(params, p::x_stride);
    let k = word(params, p::k);
    // A unit is four tokens by four of k, transposed on the way.
    for unit in range_stepped(
        UNIT_POS_X,
        comptime!(fours * DEPTH / 4),
        comptime!(key.threads()),
    ) {
        let at_k = unit % comptime!(DEPTH / 4) * 4u32;
        let at_t = unit / comptime!(DEPTH / 4);
        let mut rows = Sequence::<Vec4>::new();
        #[unroll]
        for i in 0..4u32 {
            let token = first_token + at_t * 4u32 + i;
            let inside = token < count && depth + at_k < k;
            let from = (word(params, p::x_offset)
                + min(token, count - 1u32) * stride
                + min(depth + at_k, k - 4u32))
                / 4u32;
            rows.push(select(inside, x[from as usize], Vec4::new(f32::new(0.0))));
        }
        store_transposed(&rows, tile, at_k, fours, at_t);
    }
}

/// Brings `W[a · pair_rows + first_row .., depth .. depth + 32]`, dequantised, into part `a` of `tile`
/// `[accumulators, 32, tile.rows/4]`.
#[cube]
fn load_weights(
    weights: &[u32],
    tile: &mut Shared<[Vec4]>,
    params: &[u32],
    first_row: u32,
    depth: u32,
    #[comptime] a: u32,
    #[comptime] key: MatMulKey,
) {
    let format = comptime!(key.projection.weights);
    let fours = comptime!(u32::from(key.tile.rows) / 4);
    let k = word(params, p::k);
    let groups = k / comptime!(format.group());
    // A unit is four rows by one chunk of codes.
    let chunks_deep = comptime!(DEPTH / format.group() * chunks(format));
    for unit in range_stepped(
        UNIT_POS_X,
        comptime!(fours * chunks_deep),
        comptime!(key.threads()),
    ) {
        let chunk = unit % chunks_deep;
        let at_r = unit / chunks_deep;
        let in_tile = chunk / comptime!(chunks(format));
        // Rows are whole groups, so a group past the end of k is past it entirely; its x is zero.
        let group = min(depth / comptime!(format.group()) + in_tile, groups - 1u32);
        let in_group = chunk % comptime!(chunks(format));
        let mut firsts = Sequence::<u32>::new();
        let mut scales = Sequence::<f32>::new();
        let mut biases = Sequence::<f32>::new();
        #[unroll]
        for i in 0..4u32 {
            let row = min(first_row + at_r * 4u32 + i, word(params, p::rows) - 1u32)
                + word(params, p::pair_rows) * a;
            let first = row_word(row, groups, format) + group * comptime!(group_stride(format));
            let (scale, bias) =
                scale_and_bias(weights, word(params, p::scales_word), first, row, format);
            firsts.push(first);
            scales.push(scale);
            biases.push(bias);
        }
        #[unroll]
        for span in 0..comptime!(spans(format)) {
            let mut rows = Sequence::<Vec4>::new();
            #[unroll]
            for i in 0..4usize {
                let at = firsts[i] + in_group * comptime!(chunk_stride(format));
                rows.push(dequantized(
                    codes(weights, at, format, span),
                    scales[i],
                    biases[i],
                    format,
                ));
            }
            let at_k = in_tile * comptime!(format.group())
                + in_group * 4u32
                + comptime!(span * format.group() / 2);
            store_transposed(&rows, tile, at_k + comptime!(a * DEPTH), fours, at_r);
        }
    }
}

#[cube]
fn dequantized(codes: Vec4, scale: f32, bias: f32, #[comptime] format: WeightFormat) -> Vec4 {
    if comptime!(has_bias(format)) {
        codes * Vec4::new(scale) + Vec4::new(bias)
    } else if comptime!(has_scale(format)) {
        codes * Vec4::new(scale)
    } else {
        codes
    }
}

/// Writes four rows of four as four columns: element `j` of row `i` becomes element `i` of `tile[at + j, column]`.
#[cube]
fn store_transposed(
    rows: &Sequence<Vec4>,
    tile: &mut Shared<[Vec4]>,
    at: u32,
    #[comptime] width: u32,
    column: u32,
) {
    #[unroll]
    for j in 0..4u32 {
        let e = comptime!(j as usize);
        tile[((at + j) * width + column) as usize] = vec4::<f32>(
            rows[0].extract(e),
            rows[1].extract(e),
            rows[2].extract(e),
            rows[3].extract(e),
        );
    }
}
