//! Random data, weight matrices in every format, and the slow obvious way to compute what kernels compute.

use half::{bf16, f16};
use ingle_kernels::WeightFormat;
use ingle_quant::ScaleType;

/// xorshift64*
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Between −1 and 1.
    pub fn float(&mut self) -> f32 {
        self.next() as f32 / u32::MAX as f32 * 2.0 - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

pub fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|w| f32::from_bits(*w)).collect()
}

/// A random matrix: what a kernel binds, and what it means.
pub struct Matrix {
    pub words: Vec<u32>,
    pub values: Vec<f32>, // [rows, k]
}

impl Matrix {
    pub fn random(format: WeightFormat, rows: usize, k: usize, random: &mut Random) -> Self {
        let matrix = match format {
            WeightFormat::Packed {
                bits,
                offset,
                group,
                scale,
                min,
            } => packed(bits, offset, group as usize, scale, min, rows, k, random),
            WeightFormat::F32 => {
                let values = random.floats(rows * k);
                Matrix {
                    words: self::bits(&values),
                    values,
                }
            }
            WeightFormat::F16 => dense(
                rows * k,
                random,
                |v| f16::from_f32(v).to_bits(),
                |b| f16::from_bits(b).to_f32(),
            ),
            WeightFormat::Bf16 => dense(
                rows * k,
                random,
                |v| bf16::from_f32(v).to_bits(),
                |b| bf16::from_bits(b).to_f32(),
            ),
        };
        assert_eq!(
            matrix.words.len() as u64 * 4,
            format.matrix_bytes(rows as u32, k as u32)
        );
        matrix
    }

    /// `Σ_k W[row, k] x[k]` in f64.
    pub fn dot(&self, row: usize, x: &[f32]) -> f64 {
        let row = &self.values[row * x.len()..][..x.len()];
        row.iter()
            .zip(x)
            .map(|(w, x)| f64::from(*w) * f64::from(*x))
            .sum()
    }
}

fn dense(
    n: usize,
    random: &mut Random,
    to: impl Fn(f32) -> u16,
    from: impl Fn(u16) -> f32,
) -> Matrix {
    let halves: Vec<u16> = random.floats(n).into_iter().map(to).collect();
    let words = halves
        .chunks(2)
        .map(|p| u32::from(p[0]) | u32::from(p[1]) << 16)
        .collect();
    Matrix {
        words,
        values: halves.into_iter().map(from).collect(),
    }
}

/// The layout as `ingle_quant::PackedLayout` describes it, for `rows = 1` and scales apart.
#[allow(clippy::too_many_arguments)]
fn packed(
    bits: u8,
    offset: u8,
    group: usize,
    scale: ScaleType,
    min: bool,
    rows: usize,
    k: usize,
    random: &mut Random,
) -> Matrix {
    let (mut bytes, mut scales, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut push_scale = |value: f32| match scale {
        ScaleType::F16 => {
            let half = f16::from_f32(value);
            scales.extend(half.to_le_bytes());
            half.to_f32()
        }
        ScaleType::F32 => {
            scales.extend(value.to_le_bytes());
            value
        }
    };
    for group_index in 0..rows * k / group {
        // Some scales are subnormal halves.
        let size = if group_index % 7 == 3 { 3e-6 } else { 0.05 };
        let scale = push_scale(random.float() * size);
        let min = if min {
            push_scale(random.float() * 0.1)
        } else {
            0.0
        };
        if bits == 4 {
            let codes: Vec<u8> = (0..group)
                .map(|_| (random.next() >> 9) as u8 & 15)
                .collect();
            bytes.extend((0..group / 2).map(|b| codes[b] | codes[b + group / 2] << 4));
            values.extend(
                codes
                    .iter()
                    .map(|c| scale * (f32::from(*c) - f32::from(offset)) + min),
            );
        } else {
            let codes: Vec<i8> = (0..group).map(|_| (random.next() >> 9) as i8).collect();
            bytes.extend(codes.iter().map(|c| *c as u8));
            values.extend(codes.iter().map(|c| scale * f32::from(*c) + min));
        }
    }
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    bytes.extend(scales);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let words = bytes
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes(c.try_into().expect("four bytes")))
        .collect();
    Matrix { words, values }
}

/// Every format that kernels read.
pub fn formats() -> Vec<WeightFormat> {
    let mut formats = vec![WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16];
    for (bits, offset, min) in [(4, 0, true), (4, 8, false), (8, 0, false), (8, 0, true)] {
        for group in [16, 32] {
            for scale in [ScaleType::F16, ScaleType::F32] {
                formats.push(WeightFormat::Packed {
                    bits,
                    offset,
                    group,
                    scale,
                    min,
                });
            }
        }
    }
    formats
}

/// Fails unless `found` is within `tolerance` of `expected`, relative to the largest expected magnitude.
pub fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-30f32, |m, v| m.max(v.abs()));
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!(
            (f - e).abs() <= tolerance * largest,
            "{what}: element {i} is {f}, expected {e} (largest {largest})"
        );
    }
}
