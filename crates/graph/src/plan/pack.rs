//! Executes a weight's recipe: rows of sources become bytes in the kernel's layout.

use std::borrow::Cow;
use std::ops::Range;

use ingle_quant::{
    ElementType, GgmlType, PackedLayout, QuantError, Storage, convert_rows, pack_tile,
};

use super::Weight;
use crate::kernel::WeightLayout;

/// What can be wrong with the rows that a recipe asks for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PackError {
    #[error("{weight}: source {source_name}: expected {expected}, found {found}")]
    Source {
        weight: String,
        source_name: String,
        expected: String,
        found: String,
    },
    #[error("{weight}: {error}")]
    Quant { weight: String, error: QuantError },
}

/// Rows of a source, as the file stores them.
pub struct SourceRows<'a> {
    pub ty: GgmlType,
    pub bytes: Cow<'a, [u8]>,
}

/// Gives the rows of a source.
pub type ReadRows<'f, 'a, E> = &'f mut dyn FnMut(&str, Range<usize>) -> Result<SourceRows<'a>, E>;

/// Takes bytes and their offset in the weight's buffer.
pub type WriteBytes<'f, E> = &'f mut dyn FnMut(u64, &[u8]) -> Result<(), E>;

impl Weight {
    /// Rows that must be packed together.
    pub fn tile(&self) -> usize {
        match self.layout {
            WeightLayout::Packed(layout) => usize::from(layout.rows),
            WeightLayout::Dense(_) => 1,
        }
    }

    /// Packs `rows` (which start a tile and end one, or the matrix), asking `source` for the rows of each source and
    /// giving `write` the bytes and their offset in the weight's buffer.
    pub fn pack<'a, E: From<PackError>>(
        &self,
        rows: Range<usize>,
        source: ReadRows<'_, 'a, E>,
        write: WriteBytes<'_, E>,
    ) -> Result<(), E> {
        let row_bytes = |ty: GgmlType| ty.row_bytes(self.k).map_err(|e| self.quant(e));
        let mut parts: Vec<(SourceRows<'a>, (f32, f32))> = Vec::new();
        for piece in self.recipe.pieces(rows.clone()) {
            let got = source(piece.source, piece.rows.clone())?;
            let expected = row_bytes(got.ty)? * piece.rows.len();
            // Plain elements are converted where that is exact, so that a norm in f16 can be an f32 leaf.
            let dense = matches!(self.layout, WeightLayout::Dense(_));
            let same = got.ty.storage() == Some(self.storage);
            if got.bytes.len() != expected || !(same || dense) {
                return Err(E::from(PackError::Source {
                    weight: self.name.clone(),
                    source_name: piece.source.to_owned(),
                    expected: format!("{expected} bytes of {:?}", self.storage),
                    found: format!("{} bytes of {}", got.bytes.len(), got.ty.name()),
                }));
            }
            parts.push((got, piece.affine));
        }
        match self.layout {
            WeightLayout::Dense(element) => self.dense(element, rows, &parts, write),
            WeightLayout::Packed(layout) => self.packed(&layout, rows, &parts, write),
        }
    }

    fn quant(&self, error: QuantError) -> PackError {
        PackError::Quant {
            weight: self.name.clone(),
            error,
        }
    }

    fn dense<E: From<PackError>>(
        &self,
        element: ElementType,
        rows: Range<usize>,
        parts: &[(SourceRows<'_>, (f32, f32))],
        write: WriteBytes<'_, E>,
    ) -> Result<(), E> {
        let mut offset = rows.start as u64 * (self.k * element.bytes()) as u64;
        for (part, (scale, shift)) in parts {
            let elements = part.bytes.len() / part.ty.block_bytes() * part.ty.block_elements();
            let mut out = vec![0u8; elements * element.bytes()];
            convert_rows(part.ty, &part.bytes, element, &mut out).map_err(|e| self.quant(e))?;
            if (*scale, *shift) != (1.0, 0.0) {
                for v in out.chunks_exact_mut(4) {
                    let x = f32::from_le_bytes([v[0], v[1], v[2], v[3]]);
                    v.copy_from_slice(&(scale * x + shift).to_le_bytes());
                }
            }
            write(offset, &out)?;
            offset += out.len() as u64;
        }
        Ok(())
    }

    fn packed<E: From<PackError>>(
        &self,
        layout: &PackedLayout,
        rows: Range<usize>,
        parts: &[(SourceRows<'_>, (f32, f32))],
        write: WriteBytes<'_, E>,
    ) -> Result<(), E> {
        let Storage::Quant(_) = self.storage else {
            return Err(E::from(self.quant(QuantError::TooLarge {
                field: "a packed layout of plain elements",
            })));
        };
        let mut slices: Vec<(GgmlType, &[u8])> = Vec::with_capacity(rows.len());
        for (part, _) in parts {
            let row_bytes = part.ty.row_bytes(self.k).map_err(|e| self.quant(e))?;
            slices.extend(part.bytes.chunks_exact(row_bytes).map(|row| (part.ty, row)));
        }
        let ranges = layout
            .ranges(self.rows, self.k, rows.start, rows.len())
            .map_err(|e| self.quant(e))?;
        let mut codes = vec![0u8; ranges.codes.len()];
        let mut scales = vec![0u8; ranges.scales.len()];
        let tile_codes = layout
            .tile_codes_bytes(self.k)
            .map_err(|e| self.quant(e))?
            .max(1);
        let tile_scales = layout
            .tile_scales_bytes(self.k)
            .map_err(|e| self.quant(e))?;
        for (i, tile) in slices.chunks(usize::from(layout.rows)).enumerate() {
            let rows: Vec<&[u8]> = tile.iter().map(|t| t.1).collect();
            let codes = &mut codes[i * tile_codes..][..tile_codes];
            let scales = match scales.len() {
                0 => &mut [][..],
                _ => &mut scales[i * tile_scales..][..tile_scales],
            };
            pack_tile(tile[0].0, &rows, self.k, layout, codes, scales)
                .map_err(|e| self.quant(e))?;
        }
        write(ranges.codes.start as u64, &codes)?;
        if !scales.is_empty() {
            write(ranges.scales.start as u64, &scales)?;
        }
        Ok(())
    }
}
