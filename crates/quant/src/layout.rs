//! `PackedLayout`: how a kernel wants the bytes of a quantised matrix `[rows, k]`.
//!
//! One family serves every backend. A *group* is `group` consecutive `k` of one row, sharing a scale (and a min). Rows
//! are taken in *tiles* of `rows`; within a tile and group the codes lie in chunks, each holding, for every row of the
//! tile in turn, one *run* of 4 consecutive code bytes:
//!
//! - 8-bit codes: chunk `c` holds `k = 4c … 4c+3` of the group; a byte is the signed code (`offset` already applied).
//! - 4-bit codes: chunk `c` holds bytes `b = 4c … 4c+3`; the low nibble of byte `b` is the code of `k = b`, the high
//!   nibble that of `k = b + group/2` (the order of ggml's Q4_0 and Q4_1, so with `rows = 1` they are copied as they
//!   are). Nibbles are unsigned; `offset` is subtracted by the kernel.
//!
//! `weight = scale · (code − offset) + min`.
//!
//! Scales lie either after the codes of each tile and group (`Placement::Inline`: codes, then `rows` scales, then
//! `rows` mins) or after all codes of the matrix (`Placement::Apart`: for every row, for every group, the scale, then
//! the min if there is one; rows = 1 only, and the section starts at a multiple of 16 bytes).
//!
//! The last tile is padded with rows of zero codes, zero scales and zero mins.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::block::{Block, BlockTask, Form, with_block};
use crate::error::{checked_add, checked_mul};
use crate::{GgmlType, QuantError, QuantScheme, ScaleType};

/// Where scales and mins lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// After the codes of their tile and group. What CPU kernels stream.
    Inline,
    /// In one section after all codes. What GPU kernels index.
    Apart,
}

/// How the bytes of a quantised matrix lie for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PackedLayout {
    /// Bits of a stored code: 4 or 8.
    pub bits: u8,
    /// Subtracted from a 4-bit code by the kernel; 0 for 8-bit codes, which are stored signed.
    pub offset: u8,
    /// Elements of a row that share a scale: 16 or 32.
    pub group: u16,
    /// Rows in a tile: 1, 4, 8 or 16.
    pub rows: u8,
    pub scale: ScaleType,
    /// Whether a min of the same type follows each scale.
    pub min: bool,
    pub placement: Placement,
}

/// What a kernel asks of a layout; the rest follows from the type in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayoutRequest {
    /// Rows in a tile: 1, 4, 8 or 16; with [`Placement::Apart`] 1.
    pub rows: u8,
    pub placement: Placement,
}

/// Where the packed bytes of some rows lie in the buffer of their whole matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRanges {
    /// Codes, and with [`Placement::Inline`] their scales too.
    pub codes: Range<usize>,
    /// Scales; empty with [`Placement::Inline`].
    pub scales: Range<usize>,
}

/// The scales section of [`Placement::Apart`] starts at a multiple of this.
const SCALES_ALIGN: usize = 16;

impl PackedLayout {
    /// The layout that holds `ty` exactly, or `None` if `ty` has no blocks that this crate can read, or the request
    /// asks for tiles that do not exist.
    pub fn for_type(ty: GgmlType, request: LayoutRequest) -> Option<Self> {
        let form = form_of(ty).ok()?;
        let layout = PackedLayout {
            bits: form.bits,
            offset: form.offset,
            group: form.group as u16,
            rows: request.rows,
            scale: form.scale,
            min: form.min,
            placement: request.placement,
        };
        layout.validate().ok().map(|()| layout)
    }

    /// The layout that holds a scheme exactly: 4-bit codes as they are, others as signed bytes; two levels of scales
    /// become one level of `f32`, which is exact because that is how dequantising computes them.
    pub fn for_scheme(scheme: &QuantScheme, request: LayoutRequest) -> Option<Self> {
        let four = scheme.bits == 4;
        let layout = PackedLayout {
            bits: if four { 4 } else { 8 },
            offset: if four { scheme.offset } else { 0 },
            group: scheme.group,
            rows: request.rows,
            scale: if scheme.super_group.is_some() {
                ScaleType::F32
            } else {
                scheme.scale
            },
            min: scheme.min,
            placement: request.placement,
        };
        layout.validate().ok().map(|()| layout)
    }

    /// Checks that every field has a value that kernels know. A layout read from a file may hold anything.
    pub fn validate(&self) -> Result<(), QuantError> {
        let check = |field, ok, expected, found: usize| {
            let error = QuantError::Layout {
                field,
                expected,
                found,
            };
            if ok { Ok(()) } else { Err(error) }
        };
        let (bits, offset, rows) = (self.bits, self.offset, self.rows);
        check("bits", matches!(bits, 4 | 8), "4 or 8", bits.into())?;
        let offset_ok = offset == 0 || (bits == 4 && offset < 16);
        check("offset", offset_ok, "0, or for 4 bits < 16", offset.into())?;
        let group_ok = matches!(self.group, 16 | 32);
        check("group", group_ok, "16 or 32", self.group.into())?;
        let rows_ok = matches!(rows, 1 | 4 | 8 | 16);
        check("rows", rows_ok, "1, 4, 8 or 16", rows.into())?;
        let apart_ok = self.placement == Placement::Inline || rows == 1;
        check("rows with scales apart", apart_ok, "1", rows.into())
    }

    /// Checks that this layout is one that `ty` can be packed into.
    pub fn check_holds(&self, ty: GgmlType) -> Result<(), QuantError> {
        form_of(ty)?;
        self.validate()?;
        let request = LayoutRequest {
            rows: self.rows,
            placement: self.placement,
        };
        if Self::for_type(ty, request) == Some(*self) {
            Ok(())
        } else {
            Err(QuantError::LayoutMismatch { ty })
        }
    }

    /// Tiles that `rows` rows take; the last may be padded.
    pub fn tiles(&self, rows: usize) -> usize {
        rows.div_ceil(usize::from(self.rows.max(1)))
    }

    /// Groups in a row of `k` elements.
    pub fn groups(&self, k: usize) -> Result<usize, QuantError> {
        self.validate()?;
        let group = usize::from(self.group);
        if !k.is_multiple_of(group) {
            return Err(QuantError::RowLength {
                what: "group of the packed layout",
                multiple: group,
                found: k,
            });
        }
        Ok(k / group)
    }

    /// Bytes of the codes of one group of one row.
    pub const fn group_code_bytes(&self) -> usize {
        self.group as usize * self.bits as usize / 8
    }

    /// Bytes of the scale, and the min if there is one, of one group of one row.
    pub const fn group_scale_bytes(&self) -> usize {
        self.scale.bytes() * (1 + self.min as usize)
    }

    /// Bytes that a tile takes in the codes section: with [`Placement::Inline`] all of them.
    pub fn tile_codes_bytes(&self, k: usize) -> Result<usize, QuantError> {
        let per_group = match self.placement {
            Placement::Inline => self.group_code_bytes() + self.group_scale_bytes(),
            Placement::Apart => self.group_code_bytes(),
        };
        self.per_tile(k, per_group)
    }

    /// Bytes that a tile takes in the scales section: with [`Placement::Inline`] none.
    pub fn tile_scales_bytes(&self, k: usize) -> Result<usize, QuantError> {
        let per_group = match self.placement {
            Placement::Inline => 0,
            Placement::Apart => self.group_scale_bytes(),
        };
        self.per_tile(k, per_group)
    }

    /// Bytes of a tile, codes and scales together.
    pub fn tile_bytes(&self, k: usize) -> Result<usize, QuantError> {
        checked_add(
            "packed tile",
            self.tile_codes_bytes(k)?,
            self.tile_scales_bytes(k)?,
        )
    }

    /// Bytes of the codes section of `[rows, k]`; with [`Placement::Inline`] of everything.
    pub fn codes_bytes(&self, rows: usize, k: usize) -> Result<usize, QuantError> {
        checked_mul("packed codes", self.tiles(rows), self.tile_codes_bytes(k)?)
    }

    /// Where the scales section of `[rows, k]` starts; with [`Placement::Inline`], which has none, the end.
    pub fn scales_offset(&self, rows: usize, k: usize) -> Result<usize, QuantError> {
        let codes = self.codes_bytes(rows, k)?;
        match self.placement {
            Placement::Inline => Ok(codes),
            Placement::Apart => {
                codes
                    .checked_next_multiple_of(SCALES_ALIGN)
                    .ok_or(QuantError::TooLarge {
                        field: "packed codes",
                    })
            }
        }
    }

    /// Bytes of the scales section of `[rows, k]`.
    pub fn scales_bytes(&self, rows: usize, k: usize) -> Result<usize, QuantError> {
        checked_mul(
            "packed scales",
            self.tiles(rows),
            self.tile_scales_bytes(k)?,
        )
    }

    /// Bytes of the packed matrix `[rows, k]`.
    pub fn bytes(&self, rows: usize, k: usize) -> Result<usize, QuantError> {
        checked_add(
            "packed matrix",
            self.scales_offset(rows, k)?,
            self.scales_bytes(rows, k)?,
        )
    }

    /// Where `count` rows from `first` on lie in the packed matrix `[rows, k]`: what an uploader writes after packing
    /// them. `first` starts a tile, and the last of them ends one or the matrix.
    pub fn ranges(
        &self,
        rows: usize,
        k: usize,
        first: usize,
        count: usize,
    ) -> Result<PackedRanges, QuantError> {
        let scales_offset = self.scales_offset(rows, k)?;
        self.bytes(rows, k)?;
        let end = checked_add("last row", first, count)?;
        if end > rows {
            return Err(QuantError::Length {
                field: "end of the rows to place",
                expected: rows,
                found: end,
            });
        }
        let tile = usize::from(self.rows);
        for (what, row) in [("first row to place", first), ("end of rows to place", end)] {
            if !row.is_multiple_of(tile) && row != rows {
                return Err(QuantError::RowLength {
                    what,
                    multiple: tile,
                    found: row,
                });
            }
        }
        // No product below can overflow: each is at most a part of `bytes(rows, k)`.
        let (first, end) = (self.tiles(first), self.tiles(end));
        let (codes, scales) = (self.tile_codes_bytes(k)?, self.tile_scales_bytes(k)?);
        Ok(PackedRanges {
            codes: first * codes..end * codes,
            scales: scales_offset + first * scales..scales_offset + end * scales,
        })
    }

    fn per_tile(&self, k: usize, bytes_per_group: usize) -> Result<usize, QuantError> {
        let groups = checked_mul("packed tile", self.groups(k)?, usize::from(self.rows))?;
        checked_mul("packed tile", groups, bytes_per_group)
    }
}

fn form_of(ty: GgmlType) -> Result<Form, QuantError> {
    struct FormOf;
    impl BlockTask for FormOf {
        type Output = Form;
        fn run<B: Block>(self) -> Form {
            B::FORM
        }
    }
    with_block(ty, "packing", FormOf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Storage;

    #[test]
    fn a_scheme_and_its_type_have_one_layout() {
        let mut seen = 0;
        for &ty in GgmlType::ALL {
            let Some(Storage::Quant(scheme)) = ty.storage() else {
                continue;
            };
            for rows in [1, 4, 8, 16] {
                let request = LayoutRequest {
                    rows,
                    placement: Placement::Inline,
                };
                assert_eq!(
                    PackedLayout::for_scheme(&scheme, request),
                    PackedLayout::for_type(ty, request),
                    "{ty:?}"
                );
            }
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
            seen += 1;
        }
        assert_eq!(seen, 8);
    }
}
