//! `f32` to blocks, bit for bit what gguf-py's `quantize` (and ggml's `quantize_row_*_ref`) gives for finite values.
//!
//! Where gguf-py leaves the result to the machine, this is what happens: a NaN makes the scale of its block NaN, values
//! so small that the reciprocal of their scale overflows get whatever code saturates (their f16 scale is zero), and a
//! least value that is a zero of both signs gives a min with the sign of the first (as in ggml).

use half::{bf16, f16};

use crate::error::check_length;
use crate::{GgmlType, QuantError};

/// Elements of a block of every type that can be quantised to.
const BLOCK: usize = 32;

/// Quantises `values` to whole blocks of `ty`: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1 or Q8_0.
///
/// `values.len()` is a multiple of the block and `out.len()` the bytes it takes.
pub fn quantize(ty: GgmlType, values: &[f32], out: &mut [u8]) -> Result<(), QuantError> {
    check_length("quantized bytes", ty.row_bytes(values.len())?, out.len())?;
    match ty {
        GgmlType::F32 => each(values, out, |x| x.to_le_bytes()),
        GgmlType::F16 => each(values, out, |x| f16::from_f32(x).to_le_bytes()),
        GgmlType::BF16 => each(values, out, |x| bf16::from_f32(x).to_le_bytes()),
        GgmlType::Q4_0 => blocks(values, out, q4_0),
        GgmlType::Q4_1 => blocks(values, out, q4_1),
        GgmlType::Q5_0 => blocks(values, out, q5_0),
        GgmlType::Q5_1 => blocks(values, out, q5_1),
        GgmlType::Q8_0 => blocks(values, out, q8_0),
        _ => {
            let operation = "quantizing to blocks";
            return Err(QuantError::UnsupportedType { ty, operation });
        }
    }
    Ok(())
}

fn each<const N: usize>(values: &[f32], out: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
    let (elements, _) = out.as_chunks_mut::<N>();
    for (&value, element) in values.iter().zip(elements) {
        *element = bytes(value);
    }
}

fn blocks<const N: usize>(values: &[f32], out: &mut [u8], pack: fn(&[f32; BLOCK]) -> [u8; N]) {
    let (values, _) = values.as_chunks::<BLOCK>();
    let (out, _) = out.as_chunks_mut::<N>();
    for (values, block) in values.iter().zip(out) {
        *block = pack(values);
    }
}

fn q4_0(x: &[f32; BLOCK]) -> [u8; 18] {
    let (d, codes) = symmetric_codes(x, 8);
    let mut block = [0; 18];
    put_half(&mut block, 0, d);
    put_nibbles(&mut block[2..], &codes);
    block
}

fn q4_1(x: &[f32; BLOCK]) -> [u8; 20] {
    let (d, min, codes) = codes_with_min(x, 15);
    let mut block = [0; 20];
    put_half(&mut block, 0, d);
    put_half(&mut block, 2, min);
    put_nibbles(&mut block[4..], &codes);
    block
}

fn q5_0(x: &[f32; BLOCK]) -> [u8; 22] {
    let (d, codes) = symmetric_codes(x, 16);
    let mut block = [0; 22];
    put_half(&mut block, 0, d);
    put_fifth_bits(&mut block[2..6], &codes);
    put_nibbles(&mut block[6..], &codes);
    block
}

fn q5_1(x: &[f32; BLOCK]) -> [u8; 24] {
    let (d, min, codes) = codes_with_min(x, 31);
    let mut block = [0; 24];
    put_half(&mut block, 0, d);
    put_half(&mut block, 2, min);
    put_fifth_bits(&mut block[4..8], &codes);
    put_nibbles(&mut block[8..], &codes);
    block
}

fn q8_0(x: &[f32; BLOCK]) -> [u8; 34] {
    let d = largest_magnitude(x).abs() / 127.0;
    let inverse = reciprocal(d);
    let mut block = [0; 34];
    put_half(&mut block, 0, d);
    for (code, &x) in block[2..].iter_mut().zip(x) {
        // Halves are rounded away from zero.
        *code = (x * inverse).round() as i8 as u8;
    }
    block
}

/// Scale and codes `0 … 2·steps − 1` around `steps`; the value of the largest magnitude gets code 0.
fn symmetric_codes(x: &[f32; BLOCK], steps: u8) -> (f32, [u8; BLOCK]) {
    let d = largest_magnitude(x) / -f32::from(steps);
    let inverse = reciprocal(d);
    let middle = f32::from(steps) + 0.5;
    let codes = x.map(|x| ((x * inverse + middle) as u8).min(2 * steps - 1));
    (d, codes)
}

/// Scale, min and codes `0 … steps`.
fn codes_with_min(x: &[f32; BLOCK], steps: u8) -> (f32, f32, [u8; BLOCK]) {
    let min = first_by(x, |candidate, min| candidate < min);
    let max = first_by(x, |candidate, max| candidate > max);
    let d = (max - min) / f32::from(steps);
    let inverse = reciprocal(d);
    let codes = x.map(|x| (((x - min) * inverse + 0.5) as u8).min(steps));
    (d, min, codes)
}

/// The first value of the largest magnitude, with its sign.
fn largest_magnitude(x: &[f32; BLOCK]) -> f32 {
    first_by(x, |candidate, max| candidate.abs() > max.abs())
}

/// The first value that no other is `better` than; a NaN if there is one.
fn first_by(x: &[f32; BLOCK], better: impl Fn(f32, f32) -> bool) -> f32 {
    let mut best = x[0];
    for &candidate in &x[1..] {
        if candidate.is_nan() || better(candidate, best) {
            best = candidate;
        }
    }
    best
}

fn reciprocal(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

fn put_half(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// Byte `b` holds the low four bits of codes `b` and `b + 16`.
fn put_nibbles(bytes: &mut [u8], codes: &[u8; BLOCK]) {
    let (low, high) = codes.split_at(BLOCK / 2);
    for ((byte, low), high) in bytes.iter_mut().zip(low).zip(high) {
        *byte = (low & 0x0F) | (high << 4);
    }
}

/// Bit `i` of the little-endian word is the fifth bit of code `i`.
fn put_fifth_bits(bytes: &mut [u8], codes: &[u8; BLOCK]) {
    let fifth = |word, (i, code): (usize, &u8)| word | u32::from(code >> 4 & 1) << i;
    let word: u32 = codes.iter().enumerate().fold(0, fifth);
    bytes.copy_from_slice(&word.to_le_bytes());
}
