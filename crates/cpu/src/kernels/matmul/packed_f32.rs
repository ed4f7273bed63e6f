//! Packed weights times `f32` activations: codes become floats in registers, `w = s · (c − offset) + m`.

use crate::Rows;
use crate::isa::{Isa, Kernel};
use crate::kernels::program::Chunk;

use super::weight::{Format, PackedMatrix};

/// Sums of weight rows `first .. first + len` with `T` rows of `x` from `row` on.
#[inline(always)]
pub(super) fn block<I: Isa, const T: usize>(
    isa: I,
    weight: PackedMatrix<'_>,
    x: Rows<'_>,
    first: usize,
    len: usize,
    row: usize,
    sums: &mut [Chunk; T],
) {
    assert!(weight.tile_rows() == I::LANES && len <= sums[0].len());
    let mut rows = [std::ptr::null(); T];
    for (t, r) in rows.iter_mut().enumerate() {
        *r = x.row(row + t).as_ptr();
    }
    let (tiles, format) = (weight.tiles(first, len), weight.format());
    match (weight.layout().bits, weight.layout().group) {
        (4, 32) => isa.run(Tiles::<T, 4, 32> {
            tiles,
            format,
            rows,
            sums,
        }),
        (4, _) => isa.run(Tiles::<T, 4, 16> {
            tiles,
            format,
            rows,
            sums,
        }),
        (_, 32) => isa.run(Tiles::<T, 8, 32> {
            tiles,
            format,
            rows,
            sums,
        }),
        (_, _) => isa.run(Tiles::<T, 8, 16> {
            tiles,
            format,
            rows,
            sums,
        }),
    }
}

/// Consecutive tiles. All lengths have been checked; each row has `k` elements.
struct Tiles<'a, const T: usize, const BITS: usize, const GROUP: usize> {
    tiles: &'a [u8],
    format: Format,
    rows: [*const f32; T],
    sums: &'a mut [Chunk; T],
}

impl<const T: usize, const BITS: usize, const GROUP: usize> Kernel for Tiles<'_, T, BITS, GROUP> {
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
            // Even and odd elements apart, so that a sum waits for the one before the last.
            let mut y = [[isa.splat(0.0); 2]; T];
            for g in 0..format.groups {
                // SAFETY: the tile has `groups` groups of this size, each row of activations too.
                unsafe {
                    let codes = p;
                    let (scales, after) = format.scales(isa, p.add(GROUP * BITS / 8 * I::LANES));
                    p = after;
                    let mut shift = isa.mul(scales, isa.splat(-format.offset));
                    if format.min {
                        let (mins, after) = format.scales(isa, p);
                        p = after;
                        shift = isa.add(shift, mins);
                    }
                    for chunk in 0..GROUP * BITS / 32 {
                        let mut raw = isa.load_raw(codes.add(chunk * 4 * I::LANES));
                        for j in 0..4 {
                            let k = g * GROUP + 4 * chunk + j;
                            if BITS == 4 {
                                let (low, rest) = isa.next_u4(raw);
                                let (high, rest) = isa.next_u4(rest);
                                raw = rest;
                                multiply(isa, &rows, k, isa.mul_add(low, scales, shift), 0, &mut y);
                                multiply(
                                    isa,
                                    &rows,
                                    k + GROUP / 2,
                                    isa.mul_add(high, scales, shift),
                                    1,
                                    &mut y,
                                );
                            } else {
                                let (code, rest) = isa.next_i8(raw);
                                raw = rest;
                                multiply(
                                    isa,
                                    &rows,
                                    k,
                                    isa.mul_add(code, scales, shift),
                                    j % 2,
                                    &mut y,
                                );
                            }
                        }
                    }
                }
            }
            for t in 0..T {
                // SAFETY: the tile's rows are inside the block, whose length rounds up to whole tiles within a chunk.
                unsafe {
                    isa.store(
                        sums[t].as_mut_ptr().add(i * I::LANES),
                        isa.add(y[t][0], y[t][1]),
                    )
                };
            }
        }
    }
}

/// Adds one element of each weight row times element `k` of each row of `x`.
///
/// # Safety
/// Each row has an element `k`.
#[inline(always)]
unsafe fn multiply<I: Isa, const T: usize>(
    isa: I,
    rows: &[*const f32; T],
    k: usize,
    weights: I::F,
    half: usize,
    y: &mut [[I::F; 2]; T],
) {
    for t in 0..T {
        y[t][half] = isa.mul_add(weights, isa.splat(unsafe { *rows[t].add(k) }), y[t][half]);
    }
}
