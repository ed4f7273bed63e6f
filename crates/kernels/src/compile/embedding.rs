//! `out[t, :] = scale · table[ids[t], :]`, dequantised. Ids beyond the vocabulary give NaN.
//!
//! Rung: one workgroup per token, one chunk of codes per invocation at a time.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::{Vec4, float, word};
use super::weights::{chunk_stride, chunks, codes, group_stride, row_word, scale_and_bias, spans};
use super::{KernelError, require_threads};
use crate::params::embedding as p;
use crate::step::AT_IDS;
use crate::{DeviceLimits, EmbeddingKey, KernelText, TokenSource, WeightFormat};

pub fn build(
    id: String,
    key: &EmbeddingKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let mut builder = Builder::new(id, "embedding", threads);
    let weights = builder.buffer::<u32>("weights");
    let fed_back =
        builder.buffers::<u32>("tokens", usize::from(key.source == TokenSource::Feedback));
    let mut out = builder.buffer::<Vec4>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    let feedback = key.source == TokenSource::Feedback;
    embedding::expand(
        builder.scope(),
        &weights,
        &fed_back,
        &mut out,
        &step,
        &params,
        key.weights,
        feedback,
        threads,
    );
    builder.finish(limits)
}

#[cube]
#[allow(clippy::too_many_arguments)]
fn embedding(
    weights: &[u32],                 // [vocabulary, k]
    fed_back: &Sequence<Box<[u32]>>, // [tokens]
    out: &mut [Vec4],                // [tokens, k/4]
    step: &[u32],
    params: &[u32],
    #[comptime] format: WeightFormat,
    #[comptime] feedback: bool,
    #[comptime] threads: u32,
) {
    let token = CUBE_POS_X;
    let id = if feedback {
        fed_back[0][token as usize]
    } else {
        step[(word(step, AT_IDS) + token) as usize]
    };
    let k = word(params, p::k);
    let groups = k / comptime!(format.group());
    // Wraps for ids before this shard, which are then too large as well.
    let row = id - word(params, p::first_row);
    if row < word(params, p::vocabulary) {
        for i in range_stepped(UNIT_POS_X, groups * comptime!(chunks(format)), threads) {
            let group = i / comptime!(chunks(format));
            let chunk = i % comptime!(chunks(format));
            let first = row_word(row, groups, format) + group * comptime!(group_stride(format));
            let at = first + chunk * comptime!(chunk_stride(format));
            let (scale, bias) =
                scale_and_bias(weights, word(params, p::scales_word), first, row, format);
            #[unroll]
            for span in 0..comptime!(spans(format)) {
                let place = group * comptime!(format.group() / 4)
                    + chunk
                    + comptime!(span * format.group() / 8);
                let value = codes(weights, at, format, span) * Vec4::new(scale) + Vec4::new(bias);
                out[(token * (k / 4u32) + place) as usize] =
                    value * Vec4::new(float(params, p::scale));
            }
        }
    } else if word(params, p::first_row) == 0u32 && id >= word(params, p::ids) {
        for i in range_stepped(UNIT_POS_X, k / 4u32, threads) {
            // Made from the id so that it is no constant: WGSL has no constant NaN.
            out[(token * (k / 4u32) + i) as usize] =
                Vec4::new(f32::reinterpret(id | 0x7fc0_0000u32));
        }
    }
}
