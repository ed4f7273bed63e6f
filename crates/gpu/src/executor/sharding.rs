//! Shards of weights that are too large for one buffer or binding.
//!
//! A matrix with two accumulators (gate and up) is cut so that a shard has the same columns of both. Segments say where
//! each part of the whole weight's bytes goes.

use std::ops::Range;

use ingle_graph::backend::BackendError;
use ingle_graph::kernel::WeightLayout;
use ingle_graph::plan;

use crate::device::Limits;

/// Columns of a shard are a multiple of this, so that its rows begin at whole words.
const SHARD_COLUMNS: usize = 64;

/// Part of a weight: columns `first .. first + columns` of each accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub first: u32,
    pub columns: u32,
    /// Rows of the shard's matrix: its columns for each accumulator.
    pub rows: u32,
    pub bytes: u64,
}

/// Where a range of the whole weight's bytes goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub source: Range<u64>,
    pub shard: usize,
    pub to: u64,
}

/// A weight's shards and how bytes find them.
#[derive(Clone, Debug)]
pub(super) struct Sharding {
    pub shards: Vec<Shard>,
    pub segments: Vec<Segment>,
    /// Bytes of the whole weight.
    pub bytes: u64,
}

/// Cuts a weight into shards that fit the device.
pub(super) fn shard(
    weight: &plan::Weight,
    accumulators: u32,
    limits: &Limits,
) -> Result<Sharding, BackendError> {
    let limit = limits
        .max_buffer_size
        .min(limits.max_storage_buffer_binding_size);
    let sections = Sections::of(weight)?;
    let accumulators = accumulators.max(1) as usize;
    let fits = |columns: usize| {
        sections
            .bytes(columns * accumulators)
            .is_some_and(|b| b <= limit)
    };
    let too_large = |needed: Option<u64>| {
        let needed = needed.unwrap_or(u64::MAX);
        BackendError::Limit {
            what: weight.name.clone(),
            needed,
            limit,
        }
    };
    let total = weight.rows / accumulators;
    if fits(total) {
        return sections.whole(total).ok_or_else(|| too_large(None));
    }
    // The largest multiple that fits, by halving.
    let (mut low, mut high) = (0, total / SHARD_COLUMNS + 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        *(if fits(middle * SHARD_COLUMNS) {
            &mut low
        } else {
            &mut high
        }) = middle;
    }
    // The second accumulator's rows must begin at a tile of the whole.
    let cuttable = accumulators == 1 || total.is_multiple_of(sections.tile);
    if low == 0 || !cuttable {
        return Err(too_large(
            sections.bytes(SHARD_COLUMNS.min(total) * accumulators),
        ));
    }
    sections
        .cut(total, low * SHARD_COLUMNS, accumulators)
        .ok_or_else(|| too_large(None))
}

/// The sections of a weight's bytes, each a list of tiles of rows: its elements, or codes and then scales.
struct Sections<'a> {
    weight: &'a plan::Weight,
    /// Rows of a tile.
    tile: usize,
    /// Bytes of a tile in each section.
    tiles: [u64; 2],
}

impl<'a> Sections<'a> {
    fn of(weight: &'a plan::Weight) -> Result<Self, BackendError> {
        let input = |found: String| BackendError::Input {
            field: weight.name.clone(),
            expected: "a layout that fits its shape".into(),
            found,
        };
        let (tile, tiles) = match weight.layout {
            WeightLayout::Dense(element) => (1, [weight.k as u64 * element.bytes() as u64, 0]),
            WeightLayout::Packed(layout) => {
                let codes = layout
                    .tile_codes_bytes(weight.k)
                    .map_err(|e| input(e.to_string()))?;
                let scales = layout
                    .tile_scales_bytes(weight.k)
                    .map_err(|e| input(e.to_string()))?;
                (usize::from(layout.rows), [codes as u64, scales as u64])
            }
        };
        let sections = Sections {
            weight,
            tile,
            tiles,
        };
        let bytes = sections.exact(weight.rows);
        if bytes != Some(weight.bytes) {
            return Err(input(format!("{} bytes for {bytes:?}", weight.bytes)));
        }
        Ok(sections)
    }

    /// Where the second section of a matrix with this many rows begins.
    fn second(&self, rows: usize) -> Option<u64> {
        match self.weight.layout {
            WeightLayout::Dense(_) => (rows as u64).checked_mul(self.tiles[0]),
            WeightLayout::Packed(layout) => layout
                .scales_offset(rows, self.weight.k)
                .ok()
                .map(|o| o as u64),
        }
    }

    fn exact(&self, rows: usize) -> Option<u64> {
        let tiles = rows.div_ceil(self.tile) as u64;
        self.second(rows)?
            .checked_add(tiles.checked_mul(self.tiles[1])?)
    }

    /// Bytes of a buffer for this many rows: whole words, and never none.
    fn bytes(&self, rows: usize) -> Option<u64> {
        self.exact(rows)?.max(4).checked_next_multiple_of(4)
    }

    /// One buffer for everything.
    fn whole(&self, total: usize) -> Option<Sharding> {
        let (columns, rows) = (
            u32::try_from(total).ok()?,
            u32::try_from(self.weight.rows).ok()?,
        );
        let bytes = self.weight.bytes;
        let segments = vec![Segment {
            source: 0..bytes,
            shard: 0,
            to: 0,
        }];
        let shards = vec![Shard {
            first: 0,
            columns,
            rows,
            bytes: self.bytes(self.weight.rows)?,
        }];
        Some(Sharding {
            shards,
            segments,
            bytes,
        })
    }

    /// Shards of `columns` columns, a multiple of the tile. `None` on overflow.
    fn cut(&self, total: usize, columns: usize, accumulators: usize) -> Option<Sharding> {
        let mut sharding = Sharding {
            shards: vec![],
            segments: vec![],
            bytes: self.weight.bytes,
        };
        let source_second = self.second(self.weight.rows)?;
        for first in (0..total).step_by(columns) {
            let here = columns.min(total - first);
            let rows = here * accumulators;
            let second = self.second(rows)?;
            let index = sharding.shards.len();
            for a in 0..accumulators {
                let source = ((a * total + first) / self.tile) as u64;
                let (to, tiles) = (
                    (a * here / self.tile) as u64,
                    here.div_ceil(self.tile) as u64,
                );
                for (bytes, (source_base, base)) in self
                    .tiles
                    .into_iter()
                    .zip([(0, 0), (source_second, second)])
                {
                    let start = source_base + source * bytes;
                    let segment = Segment {
                        source: start..start + tiles * bytes,
                        shard: index,
                        to: base + to * bytes,
                    };
                    if !segment.source.is_empty() {
                        sharding.segments.push(segment);
                    }
                }
            }
            sharding.shards.push(Shard {
                first: u32::try_from(first).ok()?,
                columns: u32::try_from(here).ok()?,
                rows: u32::try_from(rows).ok()?,
                bytes: self.bytes(rows)?,
            });
        }
        sharding.segments.sort_by_key(|s| s.source.start);
        Some(sharding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingle_graph::Recipe;
    use ingle_quant::{ElementType, Storage};

    fn weight(rows: usize, k: usize) -> plan::Weight {
        plan::Weight {
            name: "w".into(),
            recipe: Recipe::source("w", rows),
            storage: Storage::Element(ElementType::F16),
            rows,
            k,
            layout: WeightLayout::Dense(ElementType::F16),
            bytes: (rows * k * 2) as u64,
        }
    }

    #[test]
    fn shards_hold_the_same_columns_of_both_accumulators() {
        let limits = Limits {
            max_storage_buffer_binding_size: 70_000,
            ..Limits::default()
        };
        let w = weight(2 * 300, 128);
        let sharding = shard(&w, 2, &limits).unwrap();
        let columns: Vec<(u32, u32)> = sharding
            .shards
            .iter()
            .map(|s| (s.first, s.columns))
            .collect();
        assert_eq!(columns, [(0, 128), (128, 128), (256, 44)]);
        assert!(
            sharding
                .shards
                .iter()
                .all(|s| s.bytes <= 70_000 && s.rows == 2 * s.columns)
        );
        let mut end = 0;
        for s in &sharding.segments {
            assert_eq!(s.source.start, end);
            end = s.source.end;
        }
        assert_eq!(end, w.bytes);
        // Row 300 + 130 (column 130 of the second accumulator) is row 128 + 2 of the second shard.
        let at = (430 * 256) as u64;
        let s = sharding
            .segments
            .iter()
            .find(|s| s.source.contains(&at))
            .unwrap();
        assert_eq!((s.shard, s.to + at - s.source.start), (1, 130 * 256));
    }

    #[test]
    fn a_row_that_fits_no_buffer_is_named() {
        let limits = Limits {
            max_storage_buffer_binding_size: 1000,
            ..Limits::default()
        };
        let error = shard(&weight(64, 128), 1, &limits).unwrap_err();
        assert!(matches!(error, BackendError::Limit { what, limit: 1000, .. } if what == "w"));
    }
}
