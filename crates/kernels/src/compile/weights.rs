//! Reading a weight matrix `[rows, k]`: `weight = scale · code + bias` with `bias = min − scale · offset`.
//!
//! A row is a run of groups, a group a run of *chunks*: one word of codes (4 bits: elements `4c…4c+3` in the low nibbles
//! and `group/2 + 4c …` in the high ones; 8 bits: elements `4c…4c+3`), or four dense elements.

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

/// Words of a chunk.
pub fn chunk_words(format: WeightFormat) -> u32 {
    format.group_words() / chunks(format)
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
            Vec4::cast_from((words >> shifts) & Vector::<u32, Const<4>>::new(15u32))
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

/// Scale and bias of group `group` of the whole matrix (`row · groups + g`).
#[cube]
pub fn scale_and_bias(
    weights: &[u32],
    scales: u32,
    group: u32,
    #[comptime] format: WeightFormat,
) -> (f32, f32) {
    let (scale, min) = scale_and_min(weights, scales, group, format);
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

#[cube]
fn scale_and_min(
    weights: &[u32],
    scales: u32,
    group: u32,
    #[comptime] format: WeightFormat,
) -> (f32, f32) {
    match comptime!(scale_kind(format)) {
        ScaleKind::HalfPair => {
            let pair = unpack_halves(weights[(scales + group) as usize]);
            (pair.extract(0usize), pair.extract(1usize))
        }
        ScaleKind::Half => {
            let pair = unpack_halves(weights[(scales + group / 2u32) as usize]);
            (
                select(
                    (group & 1u32) == 0u32,
                    pair.extract(0usize),
                    pair.extract(1usize),
                ),
                f32::new(0.0),
            )
        }
        ScaleKind::FloatPair => {
            let at = scales + group * 2u32;
            (
                f32::reinterpret(weights[at as usize]),
                f32::reinterpret(weights[(at + 1u32) as usize]),
            )
        }
        ScaleKind::Float => (
            f32::reinterpret(weights[(scales + group) as usize]),
            f32::new(0.0),
        ),
        ScaleKind::None => (f32::new(1.0), f32::new(0.0)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ScaleKind {
    HalfPair,
    Half,
    FloatPair,
    Float,
    None,
}

fn scale_kind(format: WeightFormat) -> ScaleKind {
    match format {
        WeightFormat::Packed {
            scale: ScaleType::F16,
            min: true,
            ..
        } => ScaleKind::HalfPair,
        WeightFormat::Packed {
            scale: ScaleType::F16,
            min: false,
            ..
        } => ScaleKind::Half,
        WeightFormat::Packed {
            scale: ScaleType::F32,
            min: true,
            ..
        } => ScaleKind::FloatPair,
        WeightFormat::Packed {
            scale: ScaleType::F32,
            min: false,
            ..
        } => ScaleKind::Float,
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => ScaleKind::None,
    }
}
