//! Blocks to `f32`, bit for bit what gguf-py's `dequantize` gives; and rows of a file to a kernel's plain elements.

use half::{bf16, f16};

use crate::block::{Block, BlockTask, MAX_GROUP, with_block};
use crate::error::{check_length, checked_mul};
use crate::{ElementType, GgmlType, QuantError};

/// Writes the values of whole blocks of `ty` to `out`. A scale that is not finite gives values that are not.
///
/// `bytes.len()` is a multiple of the block's bytes and `out.len()` the number of elements in it.
pub fn dequantize(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    check_length("bytes to dequantize", ty.row_bytes(out.len())?, bytes.len())?;
    match ty {
        GgmlType::F32 => each(bytes, out, f32::from_le_bytes),
        GgmlType::F16 => each(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
        GgmlType::BF16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
        _ => with_block(ty, "dequantizing", Dequantize { bytes, out })?,
    }
    Ok(())
}

/// Converts rows of a file to plain little-endian elements for a kernel, where that is exact: `F16` stays `f16`, and
/// everything that can be dequantised becomes `f32`. What would round is refused.
///
/// `src` holds whole blocks; `out` has `to.bytes()` for each element in it.
pub fn convert_rows(
    ty: GgmlType,
    src: &[u8],
    to: ElementType,
    out: &mut [u8],
) -> Result<(), QuantError> {
    let elements = elements_of(ty, src.len())?;
    check_length(
        "converted rows",
        checked_mul("converted rows", elements, to.bytes())?,
        out.len(),
    )?;
    match (ty, to) {
        (GgmlType::F32, ElementType::F32)
        | (GgmlType::F16, ElementType::F16)
        | (GgmlType::BF16, ElementType::Bf16) => out.copy_from_slice(src),
        (_, ElementType::F32) => convert_to_f32(ty, src, out)?,
        _ => return Err(QuantError::InexactConversion { from: ty, to }),
    }
    Ok(())
}

/// Elements in `bytes` bytes of whole blocks.
fn elements_of(ty: GgmlType, bytes: usize) -> Result<usize, QuantError> {
    let block = ty.block_bytes();
    if !bytes.is_multiple_of(block) {
        return Err(QuantError::RowLength {
            what: "bytes of a block",
            multiple: block,
            found: bytes,
        });
    }
    checked_mul("elements", bytes / block, ty.block_elements())
}

/// Goes through a small buffer of values, because the bytes of `out` need not be aligned.
fn convert_to_f32(ty: GgmlType, src: &[u8], out: &mut [u8]) -> Result<(), QuantError> {
    const CHUNK: usize = 256;
    let mut values = [0f32; CHUNK];
    let chunk_bytes = ty.row_bytes(CHUNK)?;
    for (src, out) in src.chunks(chunk_bytes).zip(out.chunks_mut(4 * CHUNK)) {
        let values = &mut values[..out.len() / 4];
        dequantize(ty, src, values)?;
        for (out, value) in out.chunks_exact_mut(4).zip(values) {
            out.copy_from_slice(&value.to_le_bytes());
        }
    }
    Ok(())
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let (elements, _) = bytes.as_chunks::<N>();
    for (out, &element) in out.iter_mut().zip(elements) {
        *out = value(element);
    }
}

struct Dequantize<'a> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl BlockTask for Dequantize<'_> {
    type Output = ();

    fn run<B: Block>(self) {
        const { assert!(B::FORM.group <= MAX_GROUP) };
        let blocks = self.bytes.chunks_exact(B::BYTES);
        let outs = self.out.chunks_exact_mut(B::GROUPS * B::FORM.group);
        for (block, out) in blocks.zip(outs) {
            B::for_each_group(block, |g, group| {
                let out = &mut out[g * B::FORM.group..][..B::FORM.group];
                let scale = B::FORM.scale_value(&group.scale);
                let min = if B::FORM.min {
                    B::FORM.scale_value(&group.min)
                } else {
                    0.0
                };
                B::FORM.values(&group.codes, scale, min, out);
            });
        }
    }
}
