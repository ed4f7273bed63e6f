//! Packed weights times quantised activations: integer dot products.
//!
//! Per group `g` of a row: `y += s · (d · Σ c·a − offset · d·Σ a) + m · d·Σ a`, where `s` and `m` are the group's scale and min,
//! `c` its codes, `d` the scale of the activations and `a` their codes. `Σ c·a` is exact; `d·Σ a` was computed when the
//! activations were quantised.

use crate::isa::{ACTIVATION_BYTES, Isa, Kernel};
use crate::kernels::program::Chunk;
use crate::kernels::quantize_activations::{QuantizedRow, QuantizedRows};

use super::weight::{Format, PackedMatrix};

/// How far ahead of the codes a lone row reads its weights into the cache. There is little work per byte then, and what
/// the CPU reads ahead by itself ends at each page.
const PREFETCH: usize = 1024;

/// Sums of weight rows `first .. first + len` with `T` rows of `x` from `row` on.
#[inline(always)]
pub(super) fn block<I: Isa, const T: usize>(
    isa: I,
    weight: PackedMatrix<'_>,
    x: QuantizedRows<'_>,
    first: usize,
    len: usize,
    row: usize,
    sums: &mut [Chunk; T],
) {
    assert!(weight.tile_rows() == I::LANES && len <= sums[0].len());
    let mut rows = [x.row(row); T];
    for (t, r) in rows.iter_mut().enumerate() {
        *r = x.row(row + t);
    }
    let (tiles, format) = (weight.tiles(first, len), weight.format());
    match (weight.layout().bits, weight.layout().group) {
        (4, 32) => isa.run(TilesU4::<T, 32> {
            tiles,
            format,
            rows,
            sums,
        }),
        (4, _) => isa.run(TilesU4::<T, 16> {
            tiles,
            format,
            rows,
            sums,
        }),
        (_, 32) => isa.run(TilesI8::<T, 32> {
            tiles,
            format,
            rows,
            sums,
        }),
        (_, _) => isa.run(TilesI8::<T, 16> {
            tiles,
            format,
            rows,
            sums,
        }),
    }
}

/// Consecutive tiles of 4-bit codes. All lengths have been checked.
struct TilesU4<'a, const T: usize, const GROUP: usize> {
    tiles: &'a [u8],
    format: Format,
    rows: [QuantizedRow; T],
    sums: &'a mut [Chunk; T],
}

impl<const T: usize, const GROUP: usize> Kernel for TilesU4<'_, T, GROUP> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self {
            tiles,
            format,
            rows,
            sums,
        } = self;
        let half = GROUP / 2 * ACTIVATION_BYTES;
        for (i, tile) in tiles.chunks_exact(format.tile_bytes).enumerate() {
            let mut p = tile.as_ptr();
            let mut y = [isa.splat(0.0); T];
            for g in 0..format.groups {
                let mut dots = [isa.zero_u4(); T];
                if T == 1 {
                    prefetch(isa, p, GROUP / 2 * I::LANES);
                }
                for chunk in 0..GROUP / 8 {
                    // SAFETY: the tile has `groups` groups of this size, and so has each row of activations.
                    unsafe {
                        let (low, high) = isa.split_u4(isa.load_raw(p));
                        p = p.add(4 * I::LANES);
                        let at = (g * GROUP + 4 * chunk) * ACTIVATION_BYTES;
                        for t in 0..T {
                            let codes = rows[t].codes.add(at);
                            dots[t] = isa.dot_u4(dots[t], low, isa.activations(codes));
                            dots[t] = isa.dot_u4(dots[t], high, isa.activations(codes.add(half)));
                        }
                    }
                }
                let mut totals = [isa.zero_i32(); T];
                for t in 0..T {
                    totals[t] = isa.total_u4(dots[t]);
                }
                // SAFETY: the group's scales follow its codes.
                p = unsafe { add_group::<I, T, GROUP>(isa, &format, p, &rows, g, totals, &mut y) };
            }
            for t in 0..T {
                // SAFETY: the tile's rows are inside the block, whose length rounds up to whole tiles within a chunk.
                unsafe { isa.store(sums[t].as_mut_ptr().add(i * I::LANES), y[t]) };
            }
        }
    }
}

/// Consecutive tiles of 8-bit codes. All lengths have been checked.
struct TilesI8<'a, const T: usize, const GROUP: usize> {
    tiles: &'a [u8],
    format: Format,
    rows: [QuantizedRow; T],
    sums: &'a mut [Chunk; T],
}

impl<const T: usize, const GROUP: usize> Kernel for TilesI8<'_, T, GROUP> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self {
            tiles,
            format,
            rows,
            sums,
        } = self;
        for (i, tile) in tiles.chunks_exact(format.tile_bytes).enumerate() {
            let mut p = tile.as_ptr();
            let mut y = [isa.splat(0.0); T];
            for g in 0..format.groups {
                let mut totals = [isa.zero_i32(); T];
                if T == 1 {
                    prefetch(isa, p, GROUP * I::LANES);
                }
                for chunk in 0..GROUP / 4 {
                    // SAFETY: the tile has `groups` groups of this size, and so has each row of activations.
                    unsafe {
                        let codes = isa.codes_i8(isa.load_raw(p));
                        p = p.add(4 * I::LANES);
                        let at = (g * GROUP + 4 * chunk) * ACTIVATION_BYTES;
                        for t in 0..T {
                            totals[t] = isa.dot_i8(
                                totals[t],
                                codes,
                                isa.activations(rows[t].codes.add(at)),
                            );
                        }
                    }
                }
                // SAFETY: the group's scales follow its codes.
                p = unsafe { add_group::<I, T, GROUP>(isa, &format, p, &rows, g, totals, &mut y) };
            }
            for t in 0..T {
                // SAFETY: the tile's rows are inside the block, whose length rounds up to whole tiles within a chunk.
                unsafe { isa.store(sums[t].as_mut_ptr().add(i * I::LANES), y[t]) };
            }
        }
    }
}

/// Asks for the cache lines of a group's codes of `len` bytes, some groups ahead.
#[inline(always)]
fn prefetch<I: Isa>(isa: I, p: *const u8, len: usize) {
    for line in (0..len + 32).step_by(64) {
        isa.prefetch(p.wrapping_add(PREFETCH + line));
    }
}

/// Adds group `g` to the sums; gives what follows its scales and mins.
///
/// # Safety
/// The group's scales (and mins) lie at `p`, and the rows of activations have that group.
#[inline(always)]
unsafe fn add_group<I: Isa, const T: usize, const GROUP: usize>(
    isa: I,
    format: &Format,
    p: *const u8,
    rows: &[QuantizedRow; T],
    g: usize,
    totals: [I::I; T],
    y: &mut [I::F; T],
) -> *const u8 {
    unsafe {
        let (scales, mut p) = format.scales(isa, p);
        let mut terms = [isa.splat(0.0); T];
        let mut sums = [std::ptr::null::<f32>(); T];
        for t in 0..T {
            let scale = isa.splat(*rows[t].scales.add(g * GROUP / 32));
            terms[t] = isa.mul(isa.to_f32(totals[t]), scale);
            sums[t] = if GROUP == 32 {
                rows[t].sums_of_32.add(g)
            } else {
                rows[t].sums_of_16.add(g)
            };
        }
        if format.offset != 0.0 {
            let offset = isa.splat(-format.offset);
            for t in 0..T {
                terms[t] = isa.mul_add(offset, isa.splat(*sums[t]), terms[t]);
            }
        }
        for t in 0..T {
            y[t] = isa.mul_add(scales, terms[t], y[t]);
        }
        if format.min {
            let (mins, rest) = format.scales(isa, p);
            p = rest;
            for t in 0..T {
                y[t] = isa.mul_add(mins, isa.splat(*sums[t]), y[t]);
            }
        }
        p
    }
}
