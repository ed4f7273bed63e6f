//! `out[t, r] = epilogue(Σ_k W[r, k] · x[t, k])` for few rows of `x`, FP32 activations.
//!
//! Rung: vectorised. `lanes` neighbouring invocations share a row and take its groups in turn; an invocation works on
//! `rows` rows at once so that what it read of `x` is used several times; partial sums meet in workgroup memory. A fused
//! norm costs no second pass: `x · weight` is multiplied as it is read, and `1/√(mean x² + eps)`, being the same for the
//! whole row, multiplies the sums at the end.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::{Vec4, add_to, float, sum4, word, workgroup_index, zeros};
use super::matvec_int8::matvec_int8;
use super::weights::{
    chunk_stride, chunks, codes, group_stride, has_bias, has_scale, row_word, scale_and_bias,
    span_at, spans,
};
use super::{KernelError, program, require, require_threads};
use crate::params::projection as p;
use crate::{Activations, DeviceLimits, KernelText, MatVecKey};

pub fn build(
    id: String,
    key: &MatVecKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let accumulators = check(&id, key, limits)?;
    let projection = &key.projection;
    let mut builder = Builder::new(id, "matvec", u32::from(key.shape.threads));
    let x = builder.buffer::<Vec4>("x");
    let norm_weight = builder.buffers::<Vec4>("norm_weight", usize::from(projection.norm));
    let weights = builder.buffer::<u32>("weights");
    let inputs = builder.buffers::<f32>("input", projection.epilogue.inputs.len());
    let mut out = builder.buffer::<f32>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    let (scope, key) = (builder.scope(), key.clone());
    match projection.activations {
        Activations::F32 => {
            matvec::expand(
                scope,
                &x,
                &norm_weight,
                &weights,
                &inputs,
                &mut out,
                &step,
                &params,
                key,
                accumulators,
            );
        }
        Activations::Int8 => {
            matvec_int8::expand(
                scope,
                &x,
                &norm_weight,
                &weights,
                &inputs,
                &mut out,
                &step,
                &params,
                key,
                accumulators,
            );
        }
    }
    builder.finish(limits)
}

fn check(id: &str, key: &MatVecKey, limits: &DeviceLimits) -> Result<usize, KernelError> {
    let shape = key.shape;
    require_threads(id, u32::from(shape.threads), 1, limits)?;
    let lanes_ok = shape.lanes.is_power_of_two() && shape.lanes <= shape.threads;
    require(
        lanes_ok,
        id,
        "lanes",
        "a power of two, at most threads",
        shape.lanes,
    )?;
    require(
        (1..=16).contains(&shape.rows),
        id,
        "rows",
        "1 to 16",
        shape.rows,
    )?;
    require(
        (1..=8).contains(&key.tokens),
        id,
        "tokens",
        "1 to 8",
        key.tokens,
    )?;
    let int8 = key.projection.activations == Activations::Int8;
    require(
        int8 || !shape.packed_dot,
        id,
        "packed_dot",
        "false with f32 activations",
        shape.packed_dot,
    )?;
    let stage_ok = if int8 {
        key.stage_k > 0 && key.stage_k.is_multiple_of(32)
    } else {
        key.stage_k == 0
    };
    require(
        stage_ok,
        id,
        "stage_k",
        "a multiple of 32 with int8 activations, else 0",
        key.stage_k,
    )?;
    let packed = has_scale(key.projection.weights);
    require(
        packed || !int8,
        id,
        "activations",
        "f32 with dense weights",
        "int8",
    )?;
    let program = &key.projection.epilogue;
    program.check(2).map_err(|source| KernelError::Program {
        kernel: id.into(),
        source,
    })?;
    Ok(program.accumulators().max(1))
}

#[cube]
#[allow(clippy::too_many_arguments)]
fn matvec(
    x: &[Vec4],                          // [tokens, k/4]
    norm_weight: &Sequence<Box<[Vec4]>>, // [k/4]
    weights: &[u32],                     // [accumulators · rows, k]
    inputs: &Sequence<Box<[f32]>>,       // [tokens, out_stride] or [columns]
    out: &mut [f32],                     // [tokens, out_stride]
    step: &[u32],
    params: &[u32],
    #[comptime] key: MatVecKey,
    #[comptime] accumulators: usize,
) {
    let format = comptime!(key.projection.weights);
    let norm = comptime!(key.projection.norm);
    let tokens = comptime!(key.tokens as usize);
    let rows = comptime!(key.shape.rows as usize);
    let lanes = comptime!(key.shape.lanes as u32);
    let teams = comptime!(key.shape.threads as u32 / lanes);

    let (lane, team) = lane_and_team(key.clone());
    let groups = word(params, p::k) / comptime!(format.group());
    let columns = word(params, p::rows);
    let first_row = workgroup_index() * comptime!(teams * rows as u32) + team;
    let first_token = CUBE_POS_Z * comptime!(tokens as u32);
    let count = step[word(params, p::count_word) as usize];

    // Rows and tokens past the end repeat the last one; they are not written.
    let mut x_at = Sequence::<u32>::new(); // in Vec4
    #[unroll]
    for t in 0..tokens {
        let token = min(first_token + t as u32, count - 1u32);
        x_at.push((word(params, p::x_offset) + token * word(params, p::x_stride)) / 4u32);
    }
    let mine = rows_of(params, first_row, key.clone(), accumulators);
    let sums = zeros(comptime!(accumulators * rows * tokens));
    let squares = zeros(tokens);
    for group in range_stepped(lane, groups, lanes) {
        let dots = zeros(comptime!(accumulators * rows * tokens));
        let x_sum = zeros(tokens);
        #[unroll]
        for chunk in 0..comptime!(chunks(format)) {
            #[unroll]
            for span in 0..comptime!(spans(format)) {
                let at =
                    group * comptime!(format.group() / 4) + comptime!(span_at(format, chunk, span));
                let mut xs = Sequence::<Vec4>::new();
                #[unroll]
                for t in 0..tokens {
                    let raw = x[(x_at[t] + at) as usize];
                    if norm {
                        add_to(&squares[t], raw.dot(raw));
                        xs.push(raw * norm_weight[0][at as usize]);
                    } else {
                        xs.push(raw);
                    }
                    if comptime!(has_bias(format)) {
                        add_to(&x_sum[t], sum4(xs[t]));
                    }
                }
                #[unroll]
                for i in 0..comptime!(accumulators * rows) {
                    let word_at = mine.words[i]
                        + group * comptime!(group_stride(format))
                        + comptime!(chunk * chunk_stride(format));
                    let code = codes(weights, word_at, format, span);
                    #[unroll]
                    for t in 0..tokens {
                        add_to(&dots[i * tokens + t], code.dot(xs[t]));
                    }
                }
            }
        }
        #[unroll]
        for i in 0..comptime!(accumulators * rows) {
            if comptime!(has_scale(format)) {
                let (scale, bias) = scale_and_bias(
                    weights,
                    word(params, p::scales_word),
                    mine.words[i] + group * comptime!(group_stride(format)),
                    mine.rows[i],
                    format,
                );
                #[unroll]
                for t in 0..tokens {
                    add_to(&sums[i * tokens + t], scale * dots[i * tokens + t].read());
                    if comptime!(has_bias(format)) {
                        add_to(&sums[i * tokens + t], bias * x_sum[t].read());
                    }
                }
            } else {
                #[unroll]
                for t in 0..tokens {
                    add_to(&sums[i * tokens + t], dots[i * tokens + t].read());
                }
            }
        }
    }
    finish(
        &sums,
        &squares,
        inputs,
        out,
        params,
        first_row,
        first_token,
        count,
        columns,
        key,
        accumulators,
        norm,
    );
}

/// The rows of the matrix that an invocation works on, `[accumulators, rows]`.
#[derive(CubeType)]
pub struct Rows {
    /// Which they are. Rows past the end repeat the last one; they are not written.
    pub rows: Sequence<u32>,
    /// Word where each begins.
    pub words: Sequence<u32>,
}

#[cube]
pub fn rows_of(
    params: &[u32],
    first_row: u32,
    #[comptime] key: MatVecKey,
    #[comptime] accumulators: usize,
) -> Rows {
    let format = comptime!(key.projection.weights);
    let teams = comptime!(u32::from(key.shape.threads) / u32::from(key.shape.lanes));
    let groups = word(params, p::k) / comptime!(format.group());
    let mut rows = Sequence::<u32>::new();
    let mut words = Sequence::<u32>::new();
    #[unroll]
    for a in 0..accumulators {
        #[unroll]
        for r in 0..comptime!(key.shape.rows as usize) {
            let column = min(
                first_row + comptime!(r as u32 * teams),
                word(params, p::rows) - 1u32,
            );
            let row = column + word(params, p::pair_rows) * a as u32;
            rows.push(row);
            words.push(row_word(row, groups, format));
        }
    }
    Rows { rows, words }
}

/// Which part of `k` and which rows an invocation takes. Neighbours read neighbouring words: parts of one row where rows
/// follow each other, rows where they lie side by side.
#[cube]
pub fn lane_and_team(#[comptime] key: MatVecKey) -> (u32, u32) {
    let lanes = comptime!(u32::from(key.shape.lanes));
    let teams = comptime!(u32::from(key.shape.threads) / lanes);
    if comptime!(key.projection.weights.tile() == 1) {
        (UNIT_POS_X % lanes, UNIT_POS_X / lanes)
    } else {
        (UNIT_POS_X / teams, UNIT_POS_X % teams)
    }
}

/// Adds up the lanes of each row, applies norm and epilogue, and writes.
#[cube]
#[allow(clippy::too_many_arguments)]
pub fn finish(
    sums: &Sequence<RuntimeCell<f32>>, // [accumulators, rows, tokens]
    squares: &Sequence<RuntimeCell<f32>>, // [tokens]
    inputs: &Sequence<Box<[f32]>>,
    out: &mut [f32],
    params: &[u32],
    first_row: u32,
    first_token: u32,
    count: u32,
    columns: u32,
    #[comptime] key: MatVecKey,
    #[comptime] accumulators: usize,
    #[comptime] norm: bool,
) {
    let tokens = comptime!(key.tokens as usize);
    let rows = comptime!(key.shape.rows as usize);
    let lanes = comptime!(key.shape.lanes as u32);
    let threads = comptime!(key.shape.threads as u32);
    if comptime!(lanes > 1) {
        let total = comptime!((accumulators * rows + norm as usize) * tokens);
        let mut shared = Shared::<[f32]>::new_slice(comptime!(total * threads as usize));
        #[unroll]
        for i in 0..comptime!(accumulators * rows * tokens) {
            shared[(comptime!(i as u32 * threads) + UNIT_POS_X) as usize] = sums[i].read();
        }
        if norm {
            #[unroll]
            for t in 0..tokens {
                let slot = comptime!((accumulators * rows * tokens + t) as u32 * threads);
                shared[(slot + UNIT_POS_X) as usize] = squares[t].read();
            }
        }
        sync_cube();
        let (_, team) = lane_and_team(key.clone());
        let side_by_side = comptime!(key.projection.weights.tile() > 1);
        let first = if comptime!(side_by_side) {
            team
        } else {
            team * lanes
        };
        let stride = comptime!(if side_by_side { threads / lanes } else { 1 });
        #[unroll]
        for i in 0..total {
            let mut sum = f32::new(0.0);
            for other in 0..lanes {
                sum += shared[(comptime!(i as u32 * threads) + first + other * stride) as usize];
            }
            if comptime!(i < accumulators * rows * tokens) {
                sums[i].store(sum);
            } else {
                squares[comptime!(i - accumulators * rows * tokens)].store(sum);
            }
        }
    }
    // The lanes of a row share its outputs between them.
    let (lane, _) = lane_and_team(key.clone());
    #[unroll]
    for r in 0..rows {
        #[unroll]
        for t in 0..tokens {
            let row = first_row + comptime!(r as u32 * (threads / lanes));
            let token = first_token + t as u32;
            if lane == comptime!(((r * tokens + t) as u32) % lanes)
                && row < columns
                && token < count
            {
                let mut values = Sequence::<f32>::new();
                #[unroll]
                for a in 0..accumulators {
                    let sum = sums[comptime!((a * rows + r) * tokens + t)].read();
                    if norm {
                        let mean = squares[t].read() / f32::cast_from(word(params, p::k));
                        values.push(sum * (mean + float(params, p::eps)).inverse_sqrt());
                    } else {
                        values.push(sum);
                    }
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
