//! Random data, weight matrices in every format, and the slow obvious way to compute what kernels compute.

use half::{bf16, f16};
use ingle_kernels::WeightFormat;
use ingle_kernels::step::{StepLayout, StepRows};
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
            WeightFormat::Packed { .. } => packed(format, rows, k, random),
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

/// One group of one row: the bytes of its codes, its scale and min as stored, and its values.
struct Group {
    codes: Vec<u8>,
    scale: Vec<u8>,
    min: Vec<u8>,
    values: Vec<f32>,
}

/// The layout as `ingle_quant::PackedLayout` describes it.
fn packed(format: WeightFormat, rows: usize, k: usize, random: &mut Random) -> Matrix {
    let WeightFormat::Packed { group, tile, .. } = format else {
        panic!("not packed")
    };
    let (groups, tile) = (k / group as usize, tile as usize);
    let all: Vec<Vec<Group>> = (0..rows)
        .map(|_| {
            (0..groups)
                .map(|n| random_group(format, n, random))
                .collect()
        })
        .collect();
    let values = all
        .iter()
        .flatten()
        .flat_map(|g| &g.values)
        .copied()
        .collect();
    let mut bytes = Vec::new();
    if tile == 1 {
        bytes.extend(all.iter().flatten().flat_map(|g| &g.codes));
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        bytes.extend(
            all.iter()
                .flatten()
                .flat_map(|g| [&g.scale, &g.min])
                .flatten(),
        );
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    } else {
        for rows in all.chunks(tile) {
            for n in 0..groups {
                let column: Vec<&Group> = rows.iter().map(|row| &row[n]).collect();
                let first = column[0];
                let pad = tile - column.len();
                for run in 0..first.codes.len() / 4 {
                    bytes.extend(column.iter().flat_map(|g| &g.codes[run * 4..][..4]));
                    bytes.resize(bytes.len() + pad * 4, 0);
                }
                for part in [|g: &Group| g.scale.clone(), |g: &Group| g.min.clone()] {
                    bytes.extend(column.iter().flat_map(|g| part(g)));
                    bytes.resize(bytes.len() + pad * part(first).len(), 0);
                }
            }
        }
    }
    let words = bytes
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes(c.try_into().expect("four bytes")))
        .collect();
    Matrix { words, values }
}

fn random_group(format: WeightFormat, n: usize, random: &mut Random) -> Group {
    let WeightFormat::Packed {
        bits,
        offset,
        group,
        scale,
        min,
        ..
    } = format
    else {
        panic!("not packed")
    };
    let group = group as usize;
    let store = |value: f32| match scale {
        ScaleType::F16 => {
            let half = f16::from_f32(value);
            (half.to_le_bytes().to_vec(), half.to_f32())
        }
        ScaleType::F32 => (value.to_le_bytes().to_vec(), value),
    };
    // Some scales are subnormal halves.
    let size = if n % 7 == 3 { 3e-6 } else { 0.05 };
    let (scale_bytes, scale) = store(random.float() * size);
    let (min_bytes, min) = if min {
        store(random.float() * 0.1)
    } else {
        (vec![], 0.0)
    };
    let (codes, values) = if bits == 4 {
        let codes: Vec<u8> = (0..group)
            .map(|_| (random.next() >> 9) as u8 & 15)
            .collect();
        let bytes = (0..group / 2)
            .map(|b| codes[b] | codes[b + group / 2] << 4)
            .collect();
        let value = |c: &u8| scale * (f32::from(*c) - f32::from(offset)) + min;
        (bytes, codes.iter().map(value).collect())
    } else {
        let codes: Vec<i8> = (0..group).map(|_| (random.next() >> 9) as i8).collect();
        let value = |c: &i8| scale * f32::from(*c) + min;
        (
            codes.iter().map(|c| *c as u8).collect(),
            codes.iter().map(value).collect(),
        )
    };
    Group {
        codes,
        scale: scale_bytes,
        min: min_bytes,
        values,
    }
}

/// Every format that kernels read.
pub fn formats() -> Vec<WeightFormat> {
    let mut formats = vec![WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16];
    for (bits, offset, min) in [(4, 0, true), (4, 8, false), (8, 0, false), (8, 0, true)] {
        for group in [16, 32] {
            for scale in [ScaleType::F16, ScaleType::F32] {
                for tile in [1, if group == 16 { 4 } else { 16 }] {
                    formats.push(WeightFormat::Packed {
                        bits,
                        offset,
                        group,
                        scale,
                        min,
                        tile,
                    });
                }
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

/// Step data, with the block table behind it.
pub fn step_words(rows: &StepRows, table: &[Vec<u32>]) -> Vec<u32> {
    let max_blocks = table.iter().map(Vec::len).max().unwrap_or(0) as u32;
    let layout = StepLayout {
        tokens: 80,
        output_rows: 8,
        sequences: table.len() as u32,
        max_blocks,
    };
    let mut words = vec![0; layout.words() as usize];
    layout.write(rows, &mut words).expect("it fits");
    for (sequence, blocks) in table.iter().enumerate() {
        let at = layout.table_word() as usize + sequence * max_blocks as usize;
        words[at..at + blocks.len()].copy_from_slice(blocks);
    }
    words
}

/// Step data of `n` rows that only count.
pub fn rows_only(n: usize) -> Vec<u32> {
    let zeros = vec![0; n];
    step_words(
        &StepRows {
            ids: &zeros,
            positions: &zeros,
            slots: &zeros,
            sequences: &zeros,
            output_rows: &[],
        },
        &[],
    )
}
