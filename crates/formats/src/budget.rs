//! How much memory a parser may take: the size of its input plus 1 MiB, counted before it is allocated.

use crate::FormatError;

/// The longest header that is read. Real ones reach some 20 MB (a vocabulary of 260,000 tokens with its merges).
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// What may be allocated over the size of the input: 1 MiB, less what is not counted (an error, and what is said about
/// one tensor in JSON).
const SLACK: u64 = (1 << 20) - (128 << 10);

/// Counts the bytes a parser is going to allocate.
pub(crate) struct Budget {
    limit: u64,
    taken: u64,
}

impl Budget {
    pub(crate) fn new(input: usize) -> Self {
        Budget {
            limit: (input as u64).saturating_add(SLACK),
            taken: 0,
        }
    }

    /// Counts `count` times `bytes`, which are about to be allocated for `field`.
    pub(crate) fn take(
        &mut self,
        field: &'static str,
        count: usize,
        bytes: usize,
    ) -> Result<(), FormatError> {
        let found = (count as u64).saturating_mul(bytes as u64);
        self.taken = self.taken.saturating_add(found);
        if self.taken > self.limit {
            return Err(FormatError::TooLarge {
                field: field.to_owned(),
                found: self.taken,
                limit: self.limit,
            });
        }
        Ok(())
    }
}
