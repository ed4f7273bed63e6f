//! Reading a weight matrix `[rows, k]`: `weight = scale · code + bias` with `bias = min − scale · offset`.
//!
//! A row is a run of groups, a group a run of *chunks*: one word of codes (4 bits: elements `4c…4c+3` in the low nibbles
//! and `group/2 + 4c …` in the high ones; 8 bits: elements `4c…4c+3`), or four dense elements. Rows of a tile lie side by
//! side: chunk `c` of each row of the tile in turn.

use cubecl::prelude::*;
use ingle_quant::ScaleType;

use super::common::{Vec4, vec4};
use super::intrinsics::unpack_halves;
use crate::WeightFormat;

/// Chunks of a group.
pub fn chunks(format: WeightFormat) -> u32 {
    match format {
        WeightFormat::Packed { .. } => format.group_words(),
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => 1,
    }
}

/// Words from one chunk of a group to the next.
pub fn chunk_stride(format: WeightFormat) -> u32 {
    format.group_words() / chunks(format) * format.tile()
}

/// Words from one group of a row to the next.
pub fn group_stride(format: WeightFormat) -> u32 {
    format.group_words() * format.tile() + format.inline_scale_words()
}

/// Spans of four elements in a chunk.
pub fn spans(format: WeightFormat) -> u32 {
    if matches!(format, WeightFormat::Packed { bits: 4, .. }) {
        2
    } else {
        1
    }
}

/// Where a span of a chunk begins within its group, in fours of elements.
pub fn span_at(format: WeightFormat, chunk: u32, span: u32) -> u32 {
    chunk + span * format.group() / 8
}

/// Whether groups have a scale.
pub fn has_scale(format: WeightFormat) -> bool {
    matches!(format, WeightFormat::Packed { .. })
}

/// Whether groups have a bias.
pub fn has_bias(format: WeightFormat) -> bool {
    matches!(format, WeightFormat::Packed { offset, min, .. } if min || offset != 0)
}

/// The codes (or dense elements) of one span of the chunk that begins at word `at`.
#[cube]
pub fn codes(
    weights: &[u32],
    at: u32,
    #[comptime] format: WeightFormat,
    #[comptime] span: u32,
) -> Vec4 {
    match format {
        WeightFormat::Packed { bits: 4, .. } => {
            let shift = comptime!(4 * span);
            let shifts = vec4::<u32>(shift, shift + 8u32, shift + 16u32, shift + 24u32);
            let words = Vector::<u32, Const<4>>::new(weights[at as usize]);
            // Through signed integers: where there is no unsigned conversion it takes several instructions.
            let codes = (words >> shifts) & Vector::<u32, Const<4>>::new(15u32);
            Vec4::cast_from(Vector::<i32, Const<4>>::cast_from(codes))
        }
        WeightFormat::Packed { .. } => {
            let words = Vector::<i32, Const<4>>::new(i32::reinterpret(weights[at as usize]));
            let shifts = vec4::<i32>(24i32, 16i32, 8i32, 0i32);
            Vec4::cast_from((words << shifts) >> Vector::<i32, Const<4>>::new(24i32))
        }
        WeightFormat::F32 => vec4::<f32>(
            f32::reinterpret(weights[at as usize]),
            f32::reinterpret(weights[(at + 1u32) as usize]),
            f32::reinterpret(weights[(at + 2u32) as usize]),
            f32::reinterpret(weights[(at + 3u32) as usize]),
        ),
        WeightFormat::F16 => {
            let low = unpack_halves(weights[at as usize]);
            let high = unpack_halves(weights[(at + 1u32) as usize]);
            vec4::<f32>(
                low.extract(0usize),
                low.extract(1usize),
                high.extract(0usize),
                high.extract(1usize),
            )
        }
        WeightFormat::Bf16 => {
            let low = weights[at as usize];
            let high = weights[(at + 1u32) as usize];
            vec4::<f32>(
                f32::reinterpret(low << 16u32),
                f32::reinterpret(low & 0xffff_0000u32),
                f32::reinterpret(high << 16u32),
                f32::reinterpret(high & 0xffff_0000u32),
            )
        }
    }
}

/// Word of the first chunk of group 0 of `row`; `groups` is the number of groups in a row. Group `g` begins
/// `g · group_stride` later.
#[cube]
pub fn row_word(row: u32, groups: u32, #[comptime] format: WeightFormat) -> u32 {
    let tile = comptime!(format.tile());
    row / tile * groups * comptime!(group_stride(format)) + row % tile
}

/// Scale and bias of a group of `row` whose first chunk is at word `at`. `scales` is where scales apart begin.
#[cube]
pub fn scale_and_bias(
    weights: &[u32],
    scales: u32,
    at: u32,
    row: u32,
    #[comptime] format: WeightFormat,
) -> (f32, f32) {
    let (scale, min) = match comptime!(scale_kind(format)) {
        ScaleKind::HalfPair => {
            let pair =
                unpack_halves(weights[(scales + at / comptime!(format.group_words())) as usize]);
            (pair.extract(0usize), pair.extract(1usize))
        }
        ScaleKind::Half => {
            let group = at / comptime!(format.group_words());
            (
                half(weights[(scales + group / 2u32) as usize], group),
                f32::new(0.0),
            )
        }
        ScaleKind::FloatPair => {
            let place = scales + at / comptime!(format.group_words()) * 2u32;
            (
                f32::reinterpret(weights[place as usize]),
                f32::reinterpret(weights[(place + 1u32) as usize]),
            )
        }
        ScaleKind::Float => {
            let group = at / comptime!(format.group_words());
            (
                f32::reinterpret(weights[(scales + group) as usize]),
                f32::new(0.0),
            )
        }
        ScaleKind::InlineHalf => {
            let in_tile = row % comptime!(format.tile());
            let place =
                at - in_tile + comptime!(format.group_words() * format.tile()) + in_tile / 2u32;
            let scale = half(weights[place as usize], in_tile);
            if comptime!(has_min(format)) {
                (
                    scale,
                    half(
                        weights[(place + comptime!(format.tile() / 2)) as usize],
                        in_tile,
                    ),
                )
            } else {
                (scale, f32::new(0.0))
            }
        }
        ScaleKind::InlineFloat => {
            let place = at + comptime!(format.group_words() * format.tile());
            let scale = f32::reinterpret(weights[place as usize]);
            if comptime!(has_min(format)) {
                (
                    scale,
                    f32::reinterpret(weights[(place + comptime!(format.tile())) as usize]),
                )
            } else {
                (scale, f32::new(0.0))
            }
        }
        ScaleKind::None => (f32::new(1.0), f32::new(0.0)),
    };
    let offset = comptime!(match format {
        WeightFormat::Packed { offset, .. } => f32::from(offset),
        _ => 0.0,
    });
    if comptime!(offset == 0.0) {
        (scale, min)
    } else {
        (scale, min - scale * offset)
    }
}

/// The low half of `word` if `index` is even, else the high half.
#[cube]
fn half(word: u32, index: u32) -> f32 {
    unpack_halves(word >> ((index & 1u32) * 16u32)).extract(0usize)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ScaleKind {
    HalfPair,
    Half,
    FloatPair,
    Float,
    InlineHalf,
    InlineFloat,
    None,
}

fn scale_kind(format: WeightFormat) -> ScaleKind {
    let WeightFormat::Packed {
        scale, min, tile, ..
    } = format
    else {
        return ScaleKind::None;
    };
    match (scale, min, tile) {
        (ScaleType::F16, true, 1) => ScaleKind::HalfPair,
        (ScaleType::F16, false, 1) => ScaleKind::Half,
        (ScaleType::F32, true, 1) => ScaleKind::FloatPair,
        (ScaleType::F32, false, 1) => ScaleKind::Float,
        (ScaleType::F16, _, _) => ScaleKind::InlineHalf,
        (ScaleType::F32, _, _) => ScaleKind::InlineFloat,
    }
}

fn has_min(format: WeightFormat) -> bool {
    matches!(format, WeightFormat::Packed { min: true, .. })
}
