//! The step data: one `array<u32>` buffer that the host writes before each step.
//!
//! ```text
//! header       12 words
//! ids          [tokens]        token ids
//! positions    [tokens]        position of each row in its sequence
//! slots        [tokens]        where the row's key and value are written: block · 32 + place
//! sequences    [tokens]        which sequence each row belongs to
//! output_rows  [output_rows]   the rows whose logits are wanted
//! …
//! table        [sequences, max_blocks]   physical block of each 32 positions of each sequence
//! ```
//!
//! The arrays follow each other without gaps, so that a decode step of one token is one write of 17 words. The block
//! table lies at a place that depends only on the capacities, so that it is written only when it changes. Kernels find
//! everything through the header.

use serde::{Deserialize, Serialize};

/// Positions in one block of the key-value state.
pub const BLOCK_LEN: u32 = 32;

/// Header word: rows in this step.
pub const N_TOKENS: u32 = 0;
/// Header word: rows whose logits are wanted.
pub const N_OUTPUT_ROWS: u32 = 1;
/// Header word: sequences in the block table.
pub const N_SEQUENCES: u32 = 2;
/// Header word: blocks per sequence in the table.
pub const MAX_BLOCKS: u32 = 3;
/// Header word: where `ids` begins.
pub const AT_IDS: u32 = 4;
/// Header word: where `positions` begins.
pub const AT_POSITIONS: u32 = 5;
/// Header word: where `slots` begins.
pub const AT_SLOTS: u32 = 6;
/// Header word: where `sequences` begins.
pub const AT_SEQUENCES: u32 = 7;
/// Header word: where `output_rows` begins.
pub const AT_OUTPUT_ROWS: u32 = 8;
/// Header word: where `table` begins.
pub const AT_TABLE: u32 = 9;
/// Words of the header; the last two are zero.
pub const HEADER_WORDS: u32 = 12;

/// How much a step buffer can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepLayout {
    pub tokens: u32,
    pub output_rows: u32,
    pub sequences: u32,
    pub max_blocks: u32,
}

/// One step. The slices of rows have equal lengths.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepRows<'a> {
    pub ids: &'a [u32],
    pub positions: &'a [u32],
    pub slots: &'a [u32],
    pub sequences: &'a [u32],
    pub output_rows: &'a [u32],
}

/// Why a step does not fit its buffer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("step field `{field}`: expected {expected}, found {found}")]
    Length {
        field: &'static str,
        expected: usize,
        found: usize,
    },
    #[error("step field `{field}`: at most {capacity} fit, found {found}")]
    Capacity {
        field: &'static str,
        capacity: u32,
        found: usize,
    },
}

impl StepLayout {
    /// Where the block table begins.
    pub fn table_word(&self) -> u32 {
        HEADER_WORDS + 4 * self.tokens + self.output_rows
    }

    /// Words of the whole buffer.
    pub fn words(&self) -> u32 {
        self.table_word() + self.sequences * self.max_blocks
    }

    /// Words of header and arrays of a step with so many rows: what [`StepLayout::write`] writes.
    pub fn row_words(tokens: usize, output_rows: usize) -> usize {
        HEADER_WORDS as usize + 4 * tokens + output_rows
    }

    /// Writes header and arrays to the front of `out` and returns how many words that were.
    pub fn write(&self, rows: &StepRows, out: &mut [u32]) -> Result<usize, StepError> {
        let tokens = rows.positions.len();
        let fields = [
            ("ids", rows.ids),
            ("slots", rows.slots),
            ("sequences", rows.sequences),
        ];
        for (field, slice) in fields {
            if slice.len() != tokens {
                return Err(StepError::Length {
                    field,
                    expected: tokens,
                    found: slice.len(),
                });
            }
        }
        let capacity = |field, capacity: u32, found: usize| match found <= capacity as usize {
            true => Ok(()),
            false => Err(StepError::Capacity {
                field,
                capacity,
                found,
            }),
        };
        capacity("tokens", self.tokens, tokens)?;
        capacity("output_rows", self.output_rows, rows.output_rows.len())?;
        let words = Self::row_words(tokens, rows.output_rows.len());
        let Some(out) = out.get_mut(..words) else {
            return Err(StepError::Length {
                field: "out",
                expected: words,
                found: out.len(),
            });
        };
        let (header, mut rest) = out.split_at_mut(HEADER_WORDS as usize);
        header.fill(0);
        let (n, at) = (tokens as u32, HEADER_WORDS);
        header[N_TOKENS as usize] = n;
        header[N_OUTPUT_ROWS as usize] = rows.output_rows.len() as u32;
        header[N_SEQUENCES as usize] = self.sequences;
        header[MAX_BLOCKS as usize] = self.max_blocks;
        header[AT_IDS as usize] = at;
        header[AT_POSITIONS as usize] = at + n;
        header[AT_SLOTS as usize] = at + 2 * n;
        header[AT_SEQUENCES as usize] = at + 3 * n;
        header[AT_OUTPUT_ROWS as usize] = at + 4 * n;
        header[AT_TABLE as usize] = self.table_word();
        for slice in [
            rows.ids,
            rows.positions,
            rows.slots,
            rows.sequences,
            rows.output_rows,
        ] {
            let (part, after) = rest.split_at_mut(slice.len());
            part.copy_from_slice(slice);
            rest = after;
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decode_step_is_one_short_write() {
        let layout = StepLayout {
            tokens: 64,
            output_rows: 4,
            sequences: 1,
            max_blocks: 8,
        };
        let mut out = [u32::MAX; 32];
        let rows = StepRows {
            ids: &[7],
            positions: &[33],
            slots: &[65],
            sequences: &[0],
            output_rows: &[0],
        };
        assert_eq!(layout.write(&rows, &mut out), Ok(17));
        assert_eq!(out[out[AT_IDS as usize] as usize], 7);
        assert_eq!(out[out[AT_SLOTS as usize] as usize], 65);
        assert_eq!(out[AT_TABLE as usize], 12 + 256 + 4);
        assert_eq!(out[17], u32::MAX);
    }

    #[test]
    fn steps_that_do_not_fit_are_refused() {
        let layout = StepLayout {
            tokens: 1,
            output_rows: 1,
            sequences: 1,
            max_blocks: 1,
        };
        let rows = StepRows {
            ids: &[1, 2],
            positions: &[0, 1],
            slots: &[0, 1],
            sequences: &[0, 0],
            output_rows: &[],
        };
        let error = layout.write(&rows, &mut [0; 64]);
        assert_eq!(
            error,
            Err(StepError::Capacity {
                field: "tokens",
                capacity: 1,
                found: 2
            })
        );
    }
}
