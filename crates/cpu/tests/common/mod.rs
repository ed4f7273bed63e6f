//! What the kernel tests share: random data, every machine to test on, comparing with a tolerance.

#![allow(dead_code)]

use half::f16;
use ingle_cpu::{Level, Machine};
use ingle_quant::{PackedLayout, Placement, ScaleType};

/// A small generator: tests need the same numbers everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n
    }

    /// In −1 .. 1.
    pub fn float(&mut self) -> f32 {
        (self.bits() as f32 / u32::MAX as f32) * 2.0 - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// The instruction sets that this CPU has.
pub fn levels() -> Vec<Level> {
    Level::ALL
        .into_iter()
        .filter(|l| l.is_available())
        .collect()
}

/// Every instruction set with 1 to 4 threads.
pub fn machines() -> Vec<Machine> {
    let mut machines = Vec::new();
    for level in levels() {
        for threads in if cfg!(target_arch = "wasm32") {
            1..=1
        } else {
            1..=4
        } {
            machines.push(Machine::with_level(level, threads).expect("the level is available"));
        }
    }
    machines
}

/// A packed matrix of random codes, with scales and mins of a size that real weights have.
pub fn packed(layout: PackedLayout, rows: usize, k: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0u8; layout.bytes(rows, k).expect("a valid layout")];
    let codes = layout.group_code_bytes() * usize::from(layout.rows);
    let scales = layout.group_scale_bytes() * usize::from(layout.rows);
    let largest = f32::from(if layout.bits == 4 { 15u8 } else { 127 });
    for group in bytes.chunks_exact_mut(codes + scales) {
        group[..codes].fill_with(|| random.bits() as u8);
        for scale in group[codes..].chunks_exact_mut(layout.scale.bytes()) {
            let value = random.float() / largest;
            match layout.scale {
                ScaleType::F16 => scale.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
                ScaleType::F32 => scale.copy_from_slice(&value.to_le_bytes()),
            }
        }
    }
    bytes
}

/// Every layout that a CPU kernel with tiles of `rows` rows can read.
pub fn layouts(rows: usize) -> Vec<PackedLayout> {
    let mut layouts = Vec::new();
    for (bits, offset, min) in [
        (4, 0, true),
        (4, 8, false),
        (4, 5, true),
        (4, 0, false),
        (8, 0, false),
        (8, 0, true),
    ] {
        for group in [16, 32] {
            for scale in [ScaleType::F16, ScaleType::F32] {
                let rows = rows as u8;
                layouts.push(PackedLayout {
                    bits,
                    offset,
                    group,
                    rows,
                    scale,
                    min,
                    placement: Placement::Inline,
                });
            }
        }
    }
    layouts
}

/// Compares with an error allowed for each element: `tolerance` times the size of what was added up to get it.
#[track_caller]
pub fn assert_close(found: &[f32], expected: &[f64], sizes: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(f) - e).abs();
        assert!(
            error <= tolerance * sizes[i],
            "{what}: element {i} is {f}, expected {e}; error {error}, size {}",
            sizes[i]
        );
    }
}
