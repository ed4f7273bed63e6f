//! safetensors.
//!
//! ```text
//! header_length:u64  (little-endian)
//! header: JSON { "__metadata__"?: {…}, name: { "dtype": …, "shape": […], "data_offsets": [start, end] }, … }
//! data: the tensors without holes; offsets count from here
//! ```
//!
//! See <https://github.com/huggingface/safetensors#format>. That crate's own reader is not used here: it wants the
//! whole file in one slice, keeps the last of two tensors with one name, and takes memory by several times what the
//! header has; it is the oracle of the tests.
//!
//! Types are named as ggml names them. `__metadata__` is free text for people; it is skipped.

use std::ops::Range;

use ingle_quant::GgmlType;
use serde::Deserialize;

use crate::FormatError;
use crate::budget::{Budget, MAX_HEADER_BYTES};
use crate::error::{Field, shown, shown_bytes};
use crate::json::{self, Text};
use crate::tensor::{Holes, TensorInfo, TensorTable};

/// What [`parse`] has to say about a prefix of a file.
pub type Parsed = crate::Parsed<Manifest>;

/// What the header of a safetensors file says.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// In the order of the header.
    pub tensors: TensorTable,
    /// Where offsets of tensors count from.
    pub data_start: u64,
    pub file_size: u64,
}

/// Bytes of the header's length.
const LENGTH_BYTES: u64 = 8;

/// The key that is not a tensor.
const METADATA: &str = "__metadata__";

/// Dimensions that a tensor may have. PyTorch's limit is 64, models use 5 at most.
const MAX_RANK: usize = 8;

/// Reads the header of a safetensors file of `file_size` bytes from its first bytes.
///
/// # Errors
///
/// Every way in which the header is malformed or contradicts itself or the size of the file, and types that
/// [`GgmlType`] does not have.
pub fn parse(prefix: &[u8], file_size: u64) -> Result<Parsed, FormatError> {
    let given = prefix.len() as u64;
    if given > file_size {
        return Err(FormatError::PrefixTooLong {
            prefix: given,
            file_size,
        });
    }
    let Some((length, after)) = prefix.split_first_chunk() else {
        return need("header length", LENGTH_BYTES, file_size);
    };
    let length = u64::from_le_bytes(*length);
    let data_start = LENGTH_BYTES.saturating_add(length);
    if length > MAX_HEADER_BYTES {
        return Err(FormatError::HeaderTooLong {
            field: "header".to_owned(),
            end: data_start,
            limit: LENGTH_BYTES + MAX_HEADER_BYTES,
        });
    }
    if given < data_start {
        return need("header", data_start, file_size);
    }
    let header = json::check("header", &after[..length as usize])?;
    if !header.starts_with('{') {
        return Err(FormatError::Magic {
            format: "safetensors",
            expected: "\"{\" at byte 8",
            found: shown_bytes(&header.as_bytes()[..header.len().min(8)]),
        });
    }
    let data = data_start..file_size;
    Ok(Parsed::Done(Manifest {
        tensors: read_table(header, prefix.len(), data)?,
        data_start,
        file_size,
    }))
}

/// Asks for the file up to `end`, if it is that long.
fn need(field: &str, end: u64, file_size: u64) -> Result<Parsed, FormatError> {
    if end > file_size {
        return Err(FormatError::Truncated {
            field: field.to_owned(),
            end,
            file_size,
        });
    }
    Ok(Parsed::NeedMore { at_least: end })
}

/// Reads the tensors of a header whose data lies at `data` in the file.
fn read_table(header: &str, input: usize, data: Range<u64>) -> Result<TensorTable, FormatError> {
    let (mut count, mut name_bytes, mut dimensions, mut metadata) = (0, 0, 0, 0);
    json::read_object("header", header, |name, value| {
        if name == METADATA {
            metadata += 1;
            return check_metadata(value, metadata);
        }
        count += 1;
        name_bytes += name.len();
        dimensions += read_entry(name, value, &data)?.shape.rank;
        Ok(())
    })?;
    let mut budget = Budget::new(input);
    TensorTable::reserve(&mut budget, count, name_bytes, dimensions)?;

    let mut tensors = Vec::with_capacity(count);
    json::read_object("header", header, |name, value| {
        if name == METADATA {
            return Ok(());
        }
        let Checked { ty, shape, range } = read_entry(name, value, &data)?;
        tensors.push(TensorInfo {
            name: name.to_owned(),
            ty,
            shape: shape.dimensions[..shape.rank].to_vec(),
            range,
        });
        Ok(())
    })?;
    TensorTable::new(tensors, Holes::Refused(data))
}

/// The text of `__metadata__` when it comes for the `times`-th time.
fn check_metadata(value: &str, times: usize) -> Result<(), FormatError> {
    if times > 1 {
        return Err(FormatError::DuplicateKey {
            key: shown(METADATA),
        });
    }
    json::read_object(METADATA, value, |key, value| {
        if value.starts_with('"') {
            return Ok(());
        }
        Err(FormatError::WrongType {
            key: shown(key),
            expected: "string",
            found: shown(value),
        })
    })
}

/// What the header says about one tensor, as it is written.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    dtype: Option<Text<'a>>,
    shape: Option<Shape>,
    data_offsets: Option<(u64, u64)>,
}

/// The same after all checks that need no other tensor.
struct Checked {
    ty: GgmlType,
    shape: Shape,
    range: Range<u64>,
}

/// The first dimensions, and how many there are in all.
struct Shape {
    dimensions: [u64; MAX_RANK],
    rank: usize,
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // An entry is short, so that its list of dimensions is as well.
        let all = Vec::<u64>::deserialize(deserializer)?;
        let mut dimensions = [0; MAX_RANK];
        for (to, from) in dimensions.iter_mut().zip(&all) {
            *to = *from;
        }
        Ok(Shape {
            dimensions,
            rank: all.len(),
        })
    }
}

fn read_entry(name: &str, text: &str, data: &Range<u64>) -> Result<Checked, FormatError> {
    let entry: Entry = json::read_short(name, text)?;
    let missing = |field| FormatError::MissingField {
        name: shown(name),
        field,
    };
    let Text(dtype) = entry.dtype.ok_or_else(|| missing("dtype"))?;
    let shape = entry.shape.ok_or_else(|| missing("shape"))?;
    let (start, end) = entry.data_offsets.ok_or_else(|| missing("data_offsets"))?;
    if shape.rank > MAX_RANK {
        return Err(FormatError::Dimensions {
            name: shown(name),
            limit: MAX_RANK as u64,
            found: shape.rank as u64,
        });
    }
    let ty = element_type(&dtype).ok_or_else(|| FormatError::TensorType {
        name: shown(name),
        found: shown(&dtype),
    })?;
    let expected = byte_count(name, ty, &shape.dimensions[..shape.rank])?;
    if end.checked_sub(start) != Some(expected) {
        return Err(FormatError::ByteCount {
            name: shown(name),
            expected,
            start,
            end,
        });
    }
    if end > data.end - data.start {
        return Err(FormatError::Truncated {
            field: Field::Tensor(name, "data").to_string(),
            end: data.start.saturating_add(end),
            file_size: data.end,
        });
    }
    Ok(Checked {
        ty,
        shape,
        range: data.start + start..data.start + end,
    })
}

/// The ggml type whose elements are the same as those of a safetensors `dtype`.
fn element_type(dtype: &str) -> Option<GgmlType> {
    Some(match dtype {
        "F32" => GgmlType::F32,
        "F16" => GgmlType::F16,
        "BF16" => GgmlType::BF16,
        "F64" => GgmlType::F64,
        "I8" => GgmlType::I8,
        "I16" => GgmlType::I16,
        "I32" => GgmlType::I32,
        "I64" => GgmlType::I64,
        _ => return None,
    })
}

/// Bytes of a tensor. A dimension may be 0 here.
fn byte_count(name: &str, ty: GgmlType, shape: &[u64]) -> Result<u64, FormatError> {
    let elements = shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n));
    elements
        .and_then(|elements| elements.checked_mul(ty.block_bytes() as u64))
        .ok_or_else(|| FormatError::Overflow {
            field: Field::Tensor(name, "shape").to_string(),
        })
}
