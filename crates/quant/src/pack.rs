//! Packing: blocks of a file to the layout that a kernel reads, exactly; and the slow reader of that layout.
//!
//! Works on whole tiles, so that a matrix can be streamed: fetch some rows, pack them into scratch, write the scratch to
//! [`PackedLayout::ranges`], drop both. The order of the rows is the caller's ([`pack_tile`] takes any), so permuting and
//! concatenating rows costs nothing.

use crate::block::{Block, BlockTask, Form, Group, MAX_GROUP, with_block};
use crate::error::{check_length, checked_mul};
use crate::{GgmlType, PackedLayout, Placement, QuantError};

/// The most rows of a tile.
const MAX_ROWS: usize = 16;

/// Packs one tile: `rows` are the bytes of up to `layout.rows` rows of `k` elements each, and missing ones become zeros.
///
/// `codes` has [`PackedLayout::tile_codes_bytes`], `scales` [`PackedLayout::tile_scales_bytes`] (none with
/// [`Placement::Inline`]).
pub fn pack_tile(
    ty: GgmlType,
    rows: &[&[u8]],
    k: usize,
    layout: &PackedLayout,
    codes: &mut [u8],
    scales: &mut [u8],
) -> Result<(), QuantError> {
    layout.check_holds(ty)?;
    let tile = usize::from(layout.rows);
    if rows.len() > tile {
        return Err(QuantError::Length {
            field: "rows of a packed tile",
            expected: tile,
            found: rows.len(),
        });
    }
    let row_bytes = ty.row_bytes(k)?;
    for row in rows {
        check_length("bytes of a row to pack", row_bytes, row.len())?;
    }
    check_length("packed codes", layout.tile_codes_bytes(k)?, codes.len())?;
    check_length("packed scales", layout.tile_scales_bytes(k)?, scales.len())?;
    let layout = *layout;
    let task = PackTile {
        rows,
        layout,
        codes,
        scales,
    };
    with_block(ty, "packing", task)
}

/// Packs consecutive rows, `src`, from the start of a tile on; the last tile is padded if they do not fill it.
///
/// `codes` and `scales` have as many bytes as the tiles take: the lengths of [`PackedLayout::ranges`].
pub fn pack_rows(
    ty: GgmlType,
    src: &[u8],
    k: usize,
    layout: &PackedLayout,
    codes: &mut [u8],
    scales: &mut [u8],
) -> Result<(), QuantError> {
    layout.check_holds(ty)?;
    let row_bytes = ty.row_bytes(k)?;
    if !src.len().is_multiple_of(row_bytes) {
        return Err(QuantError::RowLength {
            what: "bytes of a row to pack",
            multiple: row_bytes,
            found: src.len(),
        });
    }
    // Rows of no elements have no bytes, so their number is lost: there is nothing to pack.
    let rows = src.len().checked_div(row_bytes).unwrap_or(0);
    let (tile_codes, tile_scales) = (layout.tile_codes_bytes(k)?, layout.tile_scales_bytes(k)?);
    let tiles = layout.tiles(rows);
    let codes_bytes = checked_mul("packed codes", tiles, tile_codes)?;
    check_length("packed codes", codes_bytes, codes.len())?;
    let scales_bytes = checked_mul("packed scales", tiles, tile_scales)?;
    check_length("packed scales", scales_bytes, scales.len())?;

    for tile in 0..tiles {
        let first = tile * usize::from(layout.rows);
        let count = usize::from(layout.rows).min(rows - first);
        let mut tile_rows: [&[u8]; MAX_ROWS] = [&[]; MAX_ROWS];
        for (i, row) in tile_rows[..count].iter_mut().enumerate() {
            *row = &src[(first + i) * row_bytes..][..row_bytes];
        }
        pack_tile(
            ty,
            &tile_rows[..count],
            k,
            layout,
            &mut codes[tile * tile_codes..][..tile_codes],
            &mut scales[tile * tile_scales..][..tile_scales],
        )?;
    }
    Ok(())
}

/// Reads a packed matrix `[rows, k]`: the reference that kernels are tested against. Gives the very values that
/// [`crate::dequantize`] gives for the blocks that were packed.
pub fn unpack(
    layout: &PackedLayout,
    bytes: &[u8],
    rows: usize,
    k: usize,
    out: &mut [f32],
) -> Result<(), QuantError> {
    check_length(
        "unpacked values",
        checked_mul("unpacked values", rows, k)?,
        out.len(),
    )?;
    check_length("packed matrix", layout.bytes(rows, k)?, bytes.len())?;
    for (row, out) in out.chunks_exact_mut(k.max(1)).enumerate() {
        unpack_checked(layout, bytes, rows, row, out)?;
    }
    Ok(())
}

/// Reads row `row` of a packed matrix `[rows, out.len()]`.
pub fn unpack_row(
    layout: &PackedLayout,
    bytes: &[u8],
    rows: usize,
    row: usize,
    out: &mut [f32],
) -> Result<(), QuantError> {
    if row >= rows {
        return Err(QuantError::Length {
            field: "row to unpack",
            expected: rows.saturating_sub(1),
            found: row,
        });
    }
    check_length("packed matrix", layout.bytes(rows, out.len())?, bytes.len())?;
    unpack_checked(layout, bytes, rows, row, out)
}

/// `bytes` has the length of the matrix and `row` lies in it.
fn unpack_checked(
    layout: &PackedLayout,
    bytes: &[u8],
    rows: usize,
    row: usize,
    out: &mut [f32],
) -> Result<(), QuantError> {
    let k = out.len();
    let form = form_of(layout);
    let (tile, r) = (
        row / usize::from(layout.rows),
        row % usize::from(layout.rows),
    );
    let codes = &bytes[tile * layout.tile_codes_bytes(k)?..];
    let scales = &bytes[layout.scales_offset(rows, k)? + tile * layout.tile_scales_bytes(k)?..];
    for (index, out) in out.chunks_exact_mut(form.group).enumerate() {
        let place = Place::of(layout, index);
        let codes_of_tile = &codes[place.codes..];
        let scales_of_tile = match layout.placement {
            Placement::Inline => &codes[place.scales..],
            Placement::Apart => &scales[place.scales..],
        };
        let mut group = [0; MAX_GROUP];
        let runs = group[..form.code_bytes()].chunks_exact_mut(4);
        for (run, chunk) in runs.zip(codes_of_tile.chunks(4 * usize::from(layout.rows))) {
            run.copy_from_slice(&chunk[4 * r..][..4]);
        }
        let at = layout.scale.bytes() * r;
        let scale = form.scale_value(&scales_of_tile[at..]);
        let min = if layout.min {
            let mins = layout.scale.bytes() * usize::from(layout.rows);
            form.scale_value(&scales_of_tile[mins + at..])
        } else {
            0.0
        };
        form.values(&group, scale, min, out);
    }
    Ok(())
}

fn form_of(layout: &PackedLayout) -> Form {
    Form {
        bits: layout.bits,
        offset: layout.offset,
        group: usize::from(layout.group),
        scale: layout.scale,
        min: layout.min,
    }
}

/// Where group `index` of a tile lies: its codes in the tile's codes; its scales in the tile's codes (`Inline`) or in the
/// tile's scales (`Apart`).
struct Place {
    codes: usize,
    scales: usize,
}

impl Place {
    #[inline(always)]
    fn of(layout: &PackedLayout, index: usize) -> Place {
        let rows = usize::from(layout.rows);
        let (code_bytes, scale_bytes) = (layout.group_code_bytes(), layout.group_scale_bytes());
        match layout.placement {
            Placement::Inline => {
                let codes = index * rows * (code_bytes + scale_bytes);
                let scales = codes + rows * code_bytes;
                Place { codes, scales }
            }
            Placement::Apart => Place {
                codes: index * code_bytes,
                scales: index * scale_bytes,
            },
        }
    }
}

/// Lengths and the layout are checked; the tile has at most `layout.rows` rows.
struct PackTile<'a> {
    rows: &'a [&'a [u8]],
    layout: PackedLayout,
    codes: &'a mut [u8],
    scales: &'a mut [u8],
}

impl BlockTask for PackTile<'_> {
    type Output = ();

    fn run<B: Block>(self) {
        // Restating what `check_holds` found lets the compiler fix all sizes but the number of rows.
        let layout = PackedLayout {
            bits: B::FORM.bits,
            group: B::FORM.group as u16,
            scale: B::FORM.scale,
            min: B::FORM.min,
            ..self.layout
        };
        let tile_rows = usize::from(layout.rows);
        if self.rows.len() < tile_rows {
            self.codes.fill(0);
            self.scales.fill(0);
        }
        let blocks = self.rows.first().map_or(0, |row| row.len() / B::BYTES);
        for b in 0..blocks {
            for (r, row) in self.rows.iter().enumerate() {
                B::for_each_group(&row[b * B::BYTES..][..B::BYTES], |g, group| {
                    let place = Place::of(&layout, b * B::GROUPS + g);
                    let codes = &mut self.codes[place.codes..][..tile_rows * B::FORM.code_bytes()];
                    put_codes(codes, tile_rows, r, &group.codes[..B::FORM.code_bytes()]);
                    let scales = match layout.placement {
                        Placement::Inline => &mut self.codes[place.scales..],
                        Placement::Apart => &mut self.scales[place.scales..],
                    };
                    put_scales(scales, B::FORM, tile_rows, r, group);
                });
            }
        }
    }
}

/// Puts the codes of row `r` into those of a group of a tile of `rows` rows: a run of 4 bytes in each chunk.
#[inline(always)]
fn put_codes(tile: &mut [u8], rows: usize, r: usize, codes: &[u8]) {
    if rows == 1 {
        return tile.copy_from_slice(codes);
    }
    let chunks = tile.chunks_exact_mut(4 * rows);
    for (chunk, run) in chunks.zip(codes.chunks_exact(4)) {
        chunk[4 * r..][..4].copy_from_slice(run);
    }
}

/// Puts the scale (and min) of row `r` into those of a group of a tile: all scales, then all mins.
#[inline(always)]
fn put_scales(tile: &mut [u8], form: Form, rows: usize, r: usize, group: &Group) {
    let bytes = form.scale.bytes();
    tile[r * bytes..][..bytes].copy_from_slice(&group.scale[..bytes]);
    if form.min {
        tile[(rows + r) * bytes..][..bytes].copy_from_slice(&group.min[..bytes]);
    }
}
