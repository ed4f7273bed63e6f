//! GGUF, versions 1 to 3, in both byte orders.
//!
//! ```text
//! "GGUF"  version:u32  tensor_count:size  pair_count:size
//! pair_count   × { key:string  type:u32  value }
//! tensor_count × { name:string  rank:u32  ne:size[rank]  type:u32  offset:u64 }
//! padding to `general.alignment` (32 if not given), then the tensors; offsets count from here
//!
//! size   = u32 in version 1, u64 from version 2 on
//! string = length:size  bytes
//! array  = type:u32  length:size  elements (a string or array element in full, else its bytes)
//! ```
//!
//! The magic is the same four bytes in both byte orders; the version tells which one it is. See
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.
//!
//! Parsing is one scan that checks everything and allocates nothing, and then, once the header is complete, one pass
//! that builds the manifest. Metadata is kept as the bytes of the file: a vocabulary takes what it takes there.

mod cursor;
mod metadata;
mod scan;
mod value;

pub use metadata::{Elements, Metadata};
pub use value::{Array, Value, ValueType, Values};

use crate::FormatError;
use crate::budget::{Budget, MAX_HEADER_BYTES};
use crate::error::{Field, Optional, shown};
use crate::tensor::{Holes, TensorInfo, TensorTable};
use cursor::{Cursor, Stop};
use scan::Scan;

/// The alignment of a file that does not give one.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// What [`parse`] has to say about a prefix of a file.
pub type Parsed = crate::Parsed<Manifest>;

/// The order of the bytes of every number in a file, those of the tensors included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    Little,
    Big,
}

/// What the header of a GGUF file says.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// 1, 2 or 3.
    pub version: u32,
    pub endian: Endian,
    /// A power of two; every tensor's offset is a multiple of it.
    pub alignment: u64,
    pub metadata: Metadata,
    /// In the order of the file.
    pub tensors: TensorTable,
    /// Where offsets of tensors count from. In a file without tensors it may lie past the end.
    pub data_start: u64,
    pub file_size: u64,
}

/// Reads the header of a GGUF file of `file_size` bytes from its first bytes.
///
/// # Errors
///
/// Every way in which the header is malformed or contradicts itself or the size of the file.
pub fn parse(prefix: &[u8], file_size: u64) -> Result<Parsed, FormatError> {
    let given = prefix.len() as u64;
    if given > file_size {
        return Err(FormatError::PrefixTooLong {
            prefix: given,
            file_size,
        });
    }
    match Scan::run(prefix, file_size) {
        Ok(scan) => build(prefix, file_size, &scan).map(Parsed::Done),
        Err(Stop::Error(error)) => Err(error),
        Err(Stop::More(end)) => Ok(Parsed::NeedMore {
            at_least: more(given, end, file_size),
        }),
    }
}

/// How many bytes to ask for when `end` are needed: at least double, so that all scans together stay linear.
fn more(given: u64, end: u64, file_size: u64) -> u64 {
    const FIRST: u64 = 64 << 10;
    end.max(given * 2)
        .clamp(FIRST, MAX_HEADER_BYTES)
        .min(file_size)
}

/// Builds the manifest of a scanned header, after counting what it takes.
fn build(prefix: &[u8], file_size: u64, scan: &Scan) -> Result<Manifest, FormatError> {
    let mut budget = Budget::new(prefix.len());
    Metadata::reserve(&mut budget, scan.pair_count, scan.pairs.len())?;
    TensorTable::reserve(
        &mut budget,
        scan.tensor_count,
        scan.name_bytes,
        scan.dimensions,
    )?;
    let pairs = &prefix[scan.pairs.clone()];
    let metadata = Metadata::new(pairs, scan.pair_count, scan.layout)?;
    let alignment = alignment(&metadata)?;
    // Neither overflows: the header is at most 100 MB long and an alignment at most 2^63.
    let data_start = (scan.end as u64).next_multiple_of(alignment);
    let tensors = read_tensors(prefix, file_size, scan, data_start, alignment)?;
    Ok(Manifest {
        version: scan.version,
        endian: scan.layout.endian,
        alignment,
        metadata,
        tensors: TensorTable::new(tensors, Holes::Allowed)?,
        data_start,
        file_size,
    })
}

fn alignment(metadata: &Metadata) -> Result<u64, FormatError> {
    let found = metadata
        .u64("general.alignment")
        .optional()?
        .unwrap_or(DEFAULT_ALIGNMENT);
    if found.is_power_of_two() {
        Ok(found)
    } else {
        Err(FormatError::Alignment { found })
    }
}

/// Reads the records of the tensors a second time and places each in the file.
fn read_tensors(
    prefix: &[u8],
    file_size: u64,
    scan: &Scan,
    data_start: u64,
    alignment: u64,
) -> Result<Vec<TensorInfo>, FormatError> {
    let mut cursor = Cursor::new(prefix, scan.pairs.end, file_size, scan.layout);
    let mut tensors = Vec::with_capacity(scan.tensor_count);
    for index in 0..scan.tensor_count as u64 {
        let record =
            scan::read_record(&mut cursor, index).map_err(|stop| stop.at_end(file_size))?;
        if !record.offset.is_multiple_of(alignment) {
            return Err(FormatError::Misaligned {
                name: shown(record.name),
                alignment,
                found: record.offset,
            });
        }
        let overflow = || FormatError::Overflow {
            field: Field::Tensor(record.name, "range").to_string(),
        };
        let start = data_start.checked_add(record.offset).ok_or_else(overflow)?;
        let end = start.checked_add(record.bytes).ok_or_else(overflow)?;
        if end > file_size {
            return Err(FormatError::Truncated {
                field: Field::Tensor(record.name, "data").to_string(),
                end,
                file_size,
            });
        }
        tensors.push(TensorInfo {
            name: record.name.to_owned(),
            ty: record.ty,
            shape: record.shape().collect(),
            range: start..end,
        });
    }
    Ok(tensors)
}
