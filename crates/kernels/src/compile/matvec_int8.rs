//! `out[t, r] = epilogue(Σ_k W[r, k] · x[t, k])` for few rows of `x`, activations in two 8-bit terms.
//!
//! The workgroup first quantises its rows of `x` into workgroup memory, each group of 32 as `t = x · 127/amax`,
//! `high = round_half_even(t)`, `low = round_half_even((t − high) · 254)`, `scale = amax/32258` (a group that is not finite
//! gets the scale NaN). Then codes meet codes, four products at a time, and each group of the matrix adds
//! `scale_w · scale_x · (254 · Σ code_w · high + Σ code_w · low) + bias_w · Σ x`.
//!
//! Rung: as [`super::matvec`], with integer products. Where `dot4I8Packed` is not asked for, one 32-bit multiplication
//! computes two products: codes `a0 + 2¹⁶ a1` times activations `y0 + 2¹⁶ y1` hold `a0 y1 + a1 y0` in the upper half
//! and the unwanted `a0 y0` in the lower. Sums of 8 such products of 4-bit codes, and single ones of 8-bit codes, fit
//! their halves; adding 2¹⁵ before the shift takes out what the lower half borrowed.

use cubecl::prelude::*;
use ingle_quant::{ACTIVATION_GROUP, HIGH_TERM, LARGEST_CODE};

use super::common::{Vec4, add_to, float, sum_over_workgroup, word, workgroup_index, zeros};
use super::intrinsics::dot4;
use super::matvec::{finish, lane_and_team, rows_of};
use super::weights::{
    chunk_stride, chunks, group_stride, has_bias, scale_and_bias, span_at, spans,
};
use crate::params::projection as p;
use crate::{MatVecKey, WeightFormat};

/// Activations that share a scale.
const GROUP: u32 = ACTIVATION_GROUP as u32;

/// Terms of an activation.
const TERMS: usize = 2;

/// Codes and scales of the workgroup's rows of `x`.
#[derive(CubeType)]
struct Staged {
    /// For each four elements their high terms, then their low ones. Four terms take a word for `dot4I8Packed`, else two:
    /// `x2 + 2¹⁶ x0` and `x3 + 2¹⁶ x1`.
    codes: Shared<[u32]>, // [tokens, stage_k/4, TERMS, 1 or 2]
    scales: Shared<[f32]>, // [tokens, stage_k/32]
    sums: Shared<[f32]>,   // [tokens, stage_k/group of the matrix]: scale · Σ (254 · high + low)
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

    let packed = comptime!(key.shape.packed_dot);
    let term_words = comptime!(term_words(packed));
    let code_words = comptime!(TERMS as u32 * term_words);
    let first_token = CUBE_POS_Z * comptime!(tokens as u32);
    let count = step[word(params, p::count_word) as usize];
    let mut staged = Staged {
        codes: Shared::<[u32]>::new_slice(comptime!(tokens * (stage * code_words / 4) as usize)),
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

    let (lane, team) = lane_and_team(key.clone());
    let groups = word(params, p::k) / group_len;
    let columns = word(params, p::rows);
    let first_row = workgroup_index() * comptime!(teams * rows as u32) + team;
    let mine = rows_of(params, first_row, key.clone(), accumulators);
    let sums = zeros(comptime!(accumulators * rows * tokens));
    for group in range_stepped(lane, groups, lanes) {
        let dots = int_zeros(comptime!(accumulators * rows * tokens * TERMS));
        let halves = int_zeros(comptime!(accumulators * rows * tokens * TERMS));
        #[unroll]
        for chunk in 0..comptime!(chunks(format)) {
            #[unroll]
            for span in 0..comptime!(spans(format)) {
                let at = group * comptime!(group_len / 4) + comptime!(span_at(format, chunk, span));
                let mut xs = Sequence::<u32>::new();
                #[unroll]
                for t in 0..tokens {
                    #[unroll]
                    for w in 0..code_words {
                        let place =
                            at * code_words + comptime!(t as u32 * stage / 4 * code_words + w);
                        xs.push(staged.codes[place as usize]);
                    }
                }
                #[unroll]
                for i in 0..comptime!(accumulators * rows) {
                    let word_at = mine.words[i]
                        + group * comptime!(group_stride(format))
                        + comptime!(chunk * chunk_stride(format));
                    let code = weights[word_at as usize];
                    #[unroll]
                    for t in 0..comptime!(tokens * TERMS) {
                        let dot = &dots[i * comptime!(tokens * TERMS) + t];
                        if comptime!(packed) {
                            dot.store(dot4(
                                packed_codes(code, format, span),
                                xs[t],
                                dot.read(),
                                true,
                            ));
                        } else {
                            let half = &halves[i * comptime!(tokens * TERMS) + t];
                            add_products(code, xs[2 * t], xs[2 * t + 1], dot, half, format, span);
                            // 8 products per two chunks of 4-bit codes.
                            if comptime!(spans(format) == 2 && span == 1 && chunk % 2 == 1) {
                                dot.store(dot.read() + upper_half(half.read()));
                                half.store(0i32);
                            }
                        }
                    }
                }
            }
        }
        #[unroll]
        for i in 0..comptime!(accumulators * rows) {
            let (scale, bias) = scale_and_bias(
                weights,
                word(params, p::scales_word),
                mine.words[i] + group * comptime!(group_stride(format)),
                mine.rows[i],
                format,
            );
            #[unroll]
            for t in 0..tokens {
                let at = group * group_len / GROUP + comptime!(t as u32 * stage / GROUP);
                let high = dots[(i * tokens + t) * TERMS].read();
                let dot = high * HIGH_TERM + dots[(i * tokens + t) * TERMS + 1].read();
                add_to(
                    &sums[i * tokens + t],
                    scale * staged.scales[at as usize] * f32::cast_from(dot),
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

/// Words that four terms take in [`Staged::codes`].
fn term_words(packed: bool) -> u32 {
    if packed { 1 } else { 2 }
}

#[cube]
fn int_zeros(#[comptime] count: usize) -> Sequence<RuntimeCell<i32>> {
    let mut cells = Sequence::<RuntimeCell<i32>>::new();
    #[unroll]
    for _ in 0..count {
        cells.push(RuntimeCell::<i32>::new(0i32));
    }
    cells
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

/// Adds the four products of a span: of 4-bit codes to the doubled sum `half`, of 8-bit codes to `dot`.
#[cube]
fn add_products(
    codes: u32,
    even: u32,
    odd: u32,
    dot: &RuntimeCell<i32>,
    half: &RuntimeCell<i32>,
    #[comptime] format: WeightFormat,
    #[comptime] span: u32,
) {
    if comptime!(spans(format) == 2) {
        let a = (codes >> comptime!(4 * span)) & 0x000f_000fu32;
        let b = (codes >> comptime!(4 * span + 8)) & 0x000f_000fu32;
        half.store(half.read() + i32::reinterpret(a * even) + i32::reinterpret(b * odd));
    } else {
        // Signed bytes as 16-bit fields: made unsigned, spread, made signed again.
        let unsigned = codes ^ 0x8080_8080u32;
        let a = (unsigned & 0x00ff_00ffu32) - 0x0080_0080u32;
        let b = ((unsigned >> 8u32) & 0x00ff_00ffu32) - 0x0080_0080u32;
        let sum = upper_half(i32::reinterpret(a * even)) + upper_half(i32::reinterpret(b * odd));
        dot.store(dot.read() + sum);
    }
}

/// The upper half of a sum whose lower half is signed too.
#[cube]
fn upper_half(sum: i32) -> i32 {
    (sum + 0x8000i32) >> 16i32
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
    let term_words = comptime!(term_words(key.shape.packed_dot));
    let code_words = comptime!(TERMS as u32 * term_words);
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
        let small = select(
            usable,
            largest / f32::new(LARGEST_CODE as f32),
            f32::new(0.0),
        );
        let scale = select(finite, small, f32::reinterpret(amax | 0x7fc0_0000u32));
        let mut total = 0i32.runtime();
        #[unroll]
        for i in 0..comptime!(GROUP / 4) {
            let weight = f32::new(HIGH_TERM as f32);
            let scaled = values[comptime!(i as usize)] * Vec4::new(inverse);
            let high = clamp(
                scaled.round(),
                Vec4::new(f32::new(-127.0)),
                Vec4::new(f32::new(127.0)),
            );
            let low = ((scaled - high) * Vec4::new(weight)).round();
            let at = (group * comptime!(GROUP / 4) + comptime!(t * stage / 4 + i)) * code_words;
            total += stage_term(&mut staged.codes, at, high, key.shape.packed_dot) * HIGH_TERM;
            total += stage_term(
                &mut staged.codes,
                at + term_words,
                low,
                key.shape.packed_dot,
            );
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

/// Writes four terms from word `at` on and gives their sum.
#[cube]
fn stage_term(codes: &mut Shared<[u32]>, at: u32, term: Vec4, #[comptime] packed: bool) -> i32 {
    let c0 = i32::cast_from(term.extract(0usize));
    let c1 = i32::cast_from(term.extract(1usize));
    let c2 = i32::cast_from(term.extract(2usize));
    let c3 = i32::cast_from(term.extract(3usize));
    if comptime!(packed) {
        let low = (u32::reinterpret(c0) & 255u32) | ((u32::reinterpret(c1) & 255u32) << 8u32);
        let high = (u32::reinterpret(c2) & 255u32) | (u32::reinterpret(c3) << 8u32);
        codes[at as usize] = low | (high << 16u32);
    } else {
        codes[at as usize] = u32::reinterpret(c2 + (c0 << 16i32));
        codes[(at + 1u32) as usize] = u32::reinterpret(c3 + (c1 << 16i32));
    }
    c0 + c1 + c2 + c3
}
