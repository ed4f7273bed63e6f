//! `out[t, r] = epilogue(Σ_k W[r, k] · x[t, k])` for few rows of `x`, activations in 8 bits.
//!
//! The workgroup first quantises its rows of `x` into workgroup memory, each group of 32 as
//! `code = round_half_even(x · 127/amax)`, `scale = amax/127` (a group that is not finite gets the scale NaN). Then
//! codes meet codes, four products at a time, and each group of the matrix adds
//! `scale_w · scale_x · Σ code_w · code_x + bias_w · Σ x`.
//!
//! Rung: as [`super::matvec`], with packed integer dot products.

use cubecl::prelude::*;

use super::common::{Vec4, add_to, float, sum_over_workgroup, word, workgroup_index, zeros};
use super::intrinsics::dot4;
use super::matvec::finish;
use super::weights::{chunks, has_bias, scale_and_bias, span_at, spans};
use crate::params::projection as p;
use crate::{MatVecKey, WeightFormat};

/// Activations that share a scale.
const GROUP: u32 = 32;

/// Codes and scales of the workgroup's rows of `x`.
#[derive(CubeType)]
struct Staged {
    codes: Shared<[u32]>,  // [tokens, stage_k/4]
    scales: Shared<[f32]>, // [tokens, stage_k/32]
    sums: Shared<[f32]>,   // [tokens, stage_k/group of the matrix]: scale · Σ codes
}

#[cube]
#[allow(clippy::too_many_arguments)]
pub fn matvec_int8(
    x: &[Vec4],                          // [tokens, k/4]
    norm_weight: &Sequence<Box<[Vec4]>>, // [k/4]
    weights: &[u32],                     // [accumulators · rows, k]
    inputs: &Sequence<Box<[f32]>>,       // [tokens, out_stride] or as the program says
    out: &mut [f32],                     // [tokens, out_stride]
    step: &[u32],
    params: &[u32],
    #[comptime] key: MatVecKey,
    #[comptime] accumulators: usize,
) {
    let format = comptime!(key.projection.weights);
    let tokens = comptime!(key.tokens as usize);
    let rows = comptime!(key.shape.rows as usize);
    let lanes = comptime!(key.shape.lanes as u32);
    let teams = comptime!(key.shape.threads as u32 / lanes);
    let stage = comptime!(key.stage_k);
    let group_len = comptime!(format.group());

    let first_token = CUBE_POS_Z * comptime!(tokens as u32);
    let count = step[word(params, p::count_word) as usize];
    let mut staged = Staged {
        codes: Shared::<[u32]>::new_slice(comptime!(tokens * stage as usize / 4)),
        scales: Shared::<[f32]>::new_slice(comptime!(tokens * stage as usize / GROUP as usize)),
        sums: Shared::<[f32]>::new_slice(comptime!(if has_bias(format) {
            tokens * (stage / group_len) as usize
        } else {
            1
        })),
    };
    #[unroll]
    for t in 0..tokens {
        let token = min(first_token + t as u32, count - 1u32);
        let from = (word(params, p::x_offset) + token * word(params, p::x_stride)) / 4u32;
        quantize(
            x,
            norm_weight,
            params,
            &mut staged,
            from,
            t as u32,
            key.clone(),
        );
    }
    sync_cube();

    let lane = UNIT_POS_X % lanes;
    let team = UNIT_POS_X / lanes;
    let groups = word(params, p::k) / group_len;
    let columns = word(params, p::rows);
    let first_row = workgroup_index() * comptime!(teams * rows as u32) + team;
    let mut row_group = Sequence::<u32>::new(); // [accumulators · rows], first group of the row
    #[unroll]
    for a in 0..accumulators {
        #[unroll]
        for r in 0..rows {
            let row = min(first_row + comptime!(r as u32 * teams), columns - 1u32);
            row_group.push((row + word(params, p::pair_rows) * a as u32) * groups);
        }
    }
    let sums = zeros(comptime!(accumulators * rows * tokens));
    for group in range_stepped(lane, groups, lanes) {
        let mut dots = Sequence::<RuntimeCell<i32>>::new();
        #[unroll]
        for _ in 0..comptime!(accumulators * rows * tokens) {
            dots.push(RuntimeCell::<i32>::new(0i32));
        }
        #[unroll]
        for chunk in 0..comptime!(chunks(format)) {
            #[unroll]
            for span in 0..comptime!(spans(format)) {
                let at = group * comptime!(group_len / 4) + comptime!(span_at(format, chunk, span));
                let mut codes = Sequence::<u32>::new();
                #[unroll]
                for t in 0..tokens {
                    codes.push(staged.codes[(at + comptime!(t as u32 * stage / 4)) as usize]);
                }
                #[unroll]
                for i in 0..comptime!(accumulators * rows) {
                    let word_at = (row_group[i] + group) * comptime!(format.group_words()) + chunk;
                    let code = packed_codes(weights[word_at as usize], format, span);
                    #[unroll]
                    for t in 0..tokens {
                        let dot = &dots[i * tokens + t];
                        dot.store(dot4(
                            code,
                            codes[t],
                            dot.read(),
                            comptime!(key.shape.packed_dot),
                        ));
                    }
                }
            }
        }
        #[unroll]
        for i in 0..comptime!(accumulators * rows) {
            let (scale, bias) = scale_and_bias(
                weights,
                word(params, p::scales_word),
                row_group[i] + group,
                format,
            );
            #[unroll]
            for t in 0..tokens {
                let at = group * group_len / GROUP + comptime!(t as u32 * stage / GROUP);
                let dot = f32::cast_from(dots[i * tokens + t].read());
                add_to(
                    &sums[i * tokens + t],
                    scale * staged.scales[at as usize] * dot,
                );
                if comptime!(has_bias(format)) {
                    let at = group + comptime!(t as u32 * stage / group_len);
                    add_to(&sums[i * tokens + t], bias * staged.sums[at as usize]);
                }
            }
        }
    }
    let squares = zeros(tokens);
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
        false,
    );
}

/// The four codes of a span as signed bytes.
#[cube]
fn packed_codes(codes: u32, #[comptime] format: WeightFormat, #[comptime] span: u32) -> u32 {
    if comptime!(spans(format) == 2) {
        (codes >> comptime!(4 * span)) & 0x0f0f_0f0fu32
    } else {
        codes
    }
}

/// Quantises one row of `x`, which begins at `from` (in Vec4), as row `t` of the staged rows.
#[cube]
fn quantize(
    x: &[Vec4],
    norm_weight: &Sequence<Box<[Vec4]>>,
    params: &[u32],
    staged: &mut Staged,
    from: u32,
    #[comptime] t: u32,
    #[comptime] key: MatVecKey,
) {
    let format = comptime!(key.projection.weights);
    let norm = comptime!(key.projection.norm);
    let threads = comptime!(key.shape.threads as u32);
    let stage = comptime!(key.stage_k);
    let fours = word(params, p::k) / 4u32;
    let mut normalizer = f32::new(1.0);
    if norm {
        let mut squares = f32::new(0.0);
        for i in range_stepped(UNIT_POS_X, fours, threads) {
            let v = x[(from + i) as usize];
            squares += v.dot(v);
        }
        let mean = sum_over_workgroup(squares, threads) / f32::cast_from(word(params, p::k));
        normalizer = (mean + float(params, p::eps)).inverse_sqrt();
    }
    for group in range_stepped(
        UNIT_POS_X,
        (fours + comptime!(GROUP / 4 - 1)) / comptime!(GROUP / 4),
        threads,
    ) {
        let mut values = Sequence::<Vec4>::new();
        let mut amax = 0u32.runtime();
        #[unroll]
        for i in 0..comptime!(GROUP / 4) {
            let at = group * comptime!(GROUP / 4) + i;
            // The last group may be shorter: what lies beyond is zero.
            let inside = min(at, fours - 1u32);
            let mut value = x[(from + inside) as usize];
            if norm {
                value = value * Vec4::new(normalizer) * norm_weight[0][inside as usize];
            }
            value = select(at < fours, value, Vec4::new(f32::new(0.0)));
            values.push(value);
            // Without their sign, floats are ordered like their bits, and what is not finite comes last.
            #[unroll]
            for j in 0..4usize {
                amax = max(amax, u32::reinterpret(value.extract(j)) & 0x7fff_ffffu32);
            }
        }
        let finite = amax < 0x7f80_0000u32;
        let largest = f32::reinterpret(amax);
        // Below this, 127 / amax overflows.
        let usable = finite && largest > 3.732_3e-37f32;
        let inverse = select(
            usable,
            f32::new(127.0) / select(usable, largest, f32::new(1.0)),
            f32::new(0.0),
        );
        let small = select(usable, largest / f32::new(127.0), f32::new(0.0));
        let scale = select(finite, small, f32::reinterpret(amax | 0x7fc0_0000u32));
        let mut total = 0i32.runtime();
        #[unroll]
        for i in 0..comptime!(GROUP / 4) {
            let mut word = 0u32.runtime();
            let scaled = (values[comptime!(i as usize)] * Vec4::new(inverse)).round();
            #[unroll]
            for j in 0..4u32 {
                let code = clamp_code(scaled.extract(comptime!(j as usize)));
                total += code;
                word |= (u32::reinterpret(code) & 255u32) << comptime!(8 * j);
            }
            staged.codes[(group * comptime!(GROUP / 4) + comptime!(t * stage / 4 + i)) as usize] =
                word;
            if comptime!(has_bias(format) && (i + 1) * 4 % format.group() == 0) {
                let place = comptime!(t * stage / format.group() + (i * 4) / format.group());
                let at = group * comptime!(GROUP / format.group()) + place;
                staged.sums[at as usize] = scale * f32::cast_from(total);
                total = 0i32;
            }
        }
        staged.scales[(group + comptime!(t * stage / GROUP)) as usize] = scale;
    }
}

#[cube]
fn clamp_code(value: f32) -> i32 {
    i32::cast_from(clamp(value, f32::new(-127.0), f32::new(127.0)))
}
