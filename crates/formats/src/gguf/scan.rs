//! The first pass over a header: checks all of it and counts what the manifest will need, without allocating.

use std::ops::Range;

use ingle_quant::GgmlType;

use super::cursor::{Cursor, Layout, Stop};
use super::{Endian, value};
use crate::FormatError;
use crate::error::{Field, shown, shown_bytes};

/// ggml's limit on the dimensions of a tensor.
const MAX_RANK: usize = 4;

/// A complete header: where its parts lie and how much there is of each.
pub(super) struct Scan {
    pub version: u32,
    pub layout: Layout,
    pub pair_count: usize,
    /// Where the metadata lies. The records of the tensors follow.
    pub pairs: Range<usize>,
    pub tensor_count: usize,
    /// Bytes of all tensors' names.
    pub name_bytes: usize,
    /// Dimensions of all tensors.
    pub dimensions: usize,
    /// Where the header ends.
    pub end: usize,
}

/// What the header says about one tensor.
pub(super) struct Record<'a> {
    pub name: &'a str,
    pub ty: GgmlType,
    /// Innermost dimension first, as in the file.
    ne: [u64; MAX_RANK],
    rank: usize,
    /// From the start of the data.
    pub offset: u64,
    pub bytes: u64,
}

impl Record<'_> {
    /// Outermost dimension first.
    pub(super) fn shape(&self) -> impl ExactSizeIterator<Item = u64> {
        self.ne[..self.rank].iter().rev().copied()
    }
}

impl Scan {
    /// Scans the header that `prefix` begins with.
    pub(super) fn run(prefix: &[u8], file_size: u64) -> Result<Scan, Stop> {
        let (version, mut cursor) = read_version(prefix, file_size)?;
        let tensor_count = cursor.size(Field::Part("tensor count"))?;
        let pair_count = cursor.size(Field::Part("metadata count"))?;
        let size = cursor.layout.size_bytes();
        // A pair has at least a length, a type and one byte; a tensor a length, a rank, a type and an offset.
        cursor.expect_room(pair_count, size + 5, Field::Part("metadata count"))?;
        cursor.expect_room(tensor_count, size + 16, Field::Part("tensor count"))?;

        let start = cursor.at();
        for index in 0..pair_count {
            value::read_pair(&mut cursor, index)?;
        }
        let pairs = start..cursor.at();
        let (mut name_bytes, mut dimensions) = (0, 0);
        for index in 0..tensor_count {
            let record = read_record(&mut cursor, index)?;
            name_bytes += record.name.len();
            dimensions += record.rank;
        }
        // The counts fit: each of what they count took bytes of the prefix.
        Ok(Scan {
            version,
            layout: cursor.layout,
            pair_count: pair_count as usize,
            pairs,
            tensor_count: tensor_count as usize,
            name_bytes,
            dimensions,
            end: cursor.at(),
        })
    }
}

/// Reads magic and version; the version also tells the byte order.
fn read_version(prefix: &[u8], file_size: u64) -> Result<(u32, Cursor<'_>), Stop> {
    let little = Layout {
        endian: Endian::Little,
        wide: true,
    };
    let mut cursor = Cursor::new(prefix, 0, file_size, little);
    let magic = cursor.take(4, Field::Part("magic"))?;
    if magic != b"GGUF" {
        return Err(Stop::Error(FormatError::Magic {
            format: "GGUF",
            expected: "\"GGUF\" at its start",
            found: shown_bytes(magic),
        }));
    }
    let found = cursor.u32(Field::Part("version"))?;
    let (version, endian) = match (found, found.swap_bytes()) {
        (version @ 1..=3, _) => (version, Endian::Little),
        (_, version @ 1..=3) => (version, Endian::Big),
        _ => return Err(Stop::Error(FormatError::Version { found })),
    };
    cursor.layout = Layout {
        endian,
        wide: version >= 2,
    };
    Ok((version, cursor))
}

/// Reads one tensor's record and checks all that can be checked without the metadata.
pub(super) fn read_record<'a>(cursor: &mut Cursor<'a>, index: u64) -> Result<Record<'a>, Stop> {
    let name = cursor.string(Field::TensorName(index))?;
    let rank = cursor.u32(Field::Tensor(name, "dimension count"))?;
    if rank as usize > MAX_RANK {
        return Err(Stop::Error(FormatError::Dimensions {
            name: shown(name),
            limit: MAX_RANK as u64,
            found: rank.into(),
        }));
    }
    let rank = rank as usize;
    let mut ne = [1; MAX_RANK];
    for (dimension, ne) in ne[..rank].iter_mut().enumerate() {
        *ne = cursor.size(Field::Tensor(name, "shape"))?;
        if *ne == 0 {
            return Err(Stop::Error(FormatError::ZeroDimension {
                name: shown(name),
                dimension: rank - 1 - dimension,
            }));
        }
    }
    let id = cursor.u32(Field::Tensor(name, "type"))?;
    let ty = GgmlType::from_id(id).map_err(|_| FormatError::TensorType {
        name: shown(name),
        found: id.to_string(),
    })?;
    let offset = cursor.u64(Field::Tensor(name, "offset"))?;
    Ok(Record {
        name,
        ty,
        ne,
        rank,
        offset,
        bytes: byte_count(name, ty, &ne)?,
    })
}

/// Bytes of a tensor whose rows are whole blocks.
fn byte_count(name: &str, ty: GgmlType, ne: &[u64; MAX_RANK]) -> Result<u64, FormatError> {
    let block = ty.block_elements() as u64;
    if !ne[0].is_multiple_of(block) {
        return Err(FormatError::RowLength {
            name: shown(name),
            ty: ty.name(),
            block,
            found: ne[0],
        });
    }
    // Elements must fit as well, for those who multiply the shape.
    let elements = ne.iter().try_fold(1u64, |all, &n| all.checked_mul(n));
    elements
        .and_then(|elements| (elements / block).checked_mul(ty.block_bytes() as u64))
        .ok_or_else(|| FormatError::Overflow {
            field: Field::Tensor(name, "shape").to_string(),
        })
}
