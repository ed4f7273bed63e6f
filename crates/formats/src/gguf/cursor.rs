//! A place in a prefix of a file, from which numbers and strings are read.

use super::Endian;
use crate::FormatError;
use crate::budget::MAX_HEADER_BYTES;
use crate::error::{Field, shown_bytes};

/// How numbers and sizes are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub endian: Endian,
    /// Sizes take eight bytes, as they do from version 2 on, rather than four.
    pub wide: bool,
}

impl Layout {
    /// Bytes of a count, length or dimension.
    pub(super) fn size_bytes(self) -> u64 {
        if self.wide { 8 } else { 4 }
    }
}

/// Why reading stopped.
pub(super) enum Stop {
    /// What comes next ends at this byte, which lies in the file but not in the prefix.
    More(u64),
    Error(FormatError),
}

impl From<FormatError> for Stop {
    fn from(error: FormatError) -> Self {
        Stop::Error(error)
    }
}

impl Stop {
    /// As an error, where the bytes at hand are all there are.
    pub(super) fn at_end(self, file_size: u64) -> FormatError {
        match self {
            Stop::Error(error) => error,
            Stop::More(end) => FormatError::Truncated {
                field: "header".to_owned(),
                end,
                file_size,
            },
        }
    }
}

/// Reads forward through `bytes`, the first ones of a file of `file_size` bytes.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    file_size: u64,
    pub(super) layout: Layout,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize, file_size: u64, layout: Layout) -> Self {
        Cursor {
            bytes,
            at,
            file_size,
            layout,
        }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The bytes between two places that were reached.
    pub(super) fn between(&self, start: usize, end: usize) -> &'a [u8] {
        &self.bytes[start..end]
    }

    /// Checks that `count` items of at least `each` bytes can follow in the file.
    pub(super) fn expect_room(&self, count: u64, each: u64, field: Field) -> Result<(), Stop> {
        let most = (self.file_size - self.at as u64) / each;
        if count <= most {
            return Ok(());
        }
        Err(Stop::Error(FormatError::CountPastEnd {
            field: field.to_string(),
            count,
            most,
        }))
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: u64, field: Field) -> Result<&'a [u8], Stop> {
        let at = self.at as u64;
        let end = at.saturating_add(count);
        if end > self.file_size {
            return Err(Stop::Error(FormatError::Truncated {
                field: field.to_string(),
                end,
                file_size: self.file_size,
            }));
        }
        if end > MAX_HEADER_BYTES {
            return Err(Stop::Error(FormatError::HeaderTooLong {
                field: field.to_string(),
                end,
                limit: MAX_HEADER_BYTES,
            }));
        }
        if end > self.bytes.len() as u64 {
            return Err(Stop::More(end));
        }
        let taken = &self.bytes[self.at..end as usize];
        self.at = end as usize;
        Ok(taken)
    }

    /// The next `N` bytes, turned round where the file is big-endian.
    pub(super) fn number<const N: usize>(&mut self, field: Field) -> Result<[u8; N], Stop> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, field)?);
        if self.layout.endian == Endian::Big {
            out.reverse();
        }
        Ok(out)
    }

    pub(super) fn u32(&mut self, field: Field) -> Result<u32, Stop> {
        self.number(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: Field) -> Result<u64, Stop> {
        self.number(field).map(u64::from_le_bytes)
    }

    /// A count, length or dimension: four bytes in version 1, eight after.
    pub(super) fn size(&mut self, field: Field) -> Result<u64, Stop> {
        if self.layout.wide {
            self.u64(field)
        } else {
            self.u32(field).map(u64::from)
        }
    }

    pub(super) fn string(&mut self, field: Field) -> Result<&'a str, Stop> {
        let length = self.size(field)?;
        let bytes = self.take(length, field)?;
        std::str::from_utf8(bytes).map_err(|source| {
            Stop::Error(FormatError::Utf8 {
                field: field.to_string(),
                found: shown_bytes(bytes),
                source,
            })
        })
    }
}
