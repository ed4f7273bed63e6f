//! `FormatError`: one enum for all parsers, and how text out of a file is shown in it.

use std::fmt;
use std::str::Utf8Error;

use thiserror::Error;

/// Why a file was refused, or a value could not be had. Text that comes from the file is escaped and cut to 64
/// characters.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FormatError {
    #[error(
        "the given size of the file is {file_size} bytes, but {prefix} bytes of it were handed over"
    )]
    PrefixTooLong { prefix: u64, file_size: u64 },
    #[error("file is cut off: {field} ends at byte {end}, the file at byte {file_size}")]
    Truncated {
        field: String,
        end: u64,
        file_size: u64,
    },
    #[error("header is too long: {field} ends at byte {end}, expected at most {limit}")]
    HeaderTooLong { field: String, end: u64, limit: u64 },
    #[error("not a {format} file: expected {expected}, found {found}")]
    Magic {
        format: &'static str,
        expected: &'static str,
        found: String,
    },
    #[error("GGUF version: expected 1, 2 or 3 in either byte order, found {found:#010x}")]
    Version { found: u32 },
    #[error(
        "{field}: found {count}, expected at most {most} (what the bytes left in the file can hold)"
    )]
    CountPastEnd {
        field: String,
        count: u64,
        most: u64,
    },
    #[error("{field}: expected at most {limit} bytes, found {found}")]
    TooLarge {
        field: String,
        found: u64,
        limit: u64,
    },
    #[error("{field}: size does not fit in 64 bits")]
    Overflow { field: String },
    #[error("{field}: expected UTF-8, found {found}")]
    Utf8 {
        field: String,
        found: String,
        source: Utf8Error,
    },
    #[error("{field}: expected JSON of the documented form")]
    Json {
        field: String,
        source: serde_json::Error,
    },

    #[error("metadata key {key} occurs twice")]
    DuplicateKey { key: String },
    #[error("metadata {key}: expected a value, found none")]
    MissingKey { key: String },
    #[error("metadata {key}: expected {expected}, found {found}")]
    WrongType {
        key: String,
        expected: &'static str,
        found: String,
    },
    #[error("metadata {key}: expected an array of {expected}, found {found}")]
    WrongElementType {
        key: String,
        expected: &'static str,
        found: String,
    },
    #[error("metadata {key}: expected a value in the range of {expected}, found {found}")]
    OutOfRange {
        key: String,
        expected: &'static str,
        found: String,
    },
    #[error("{field}: expected a value type from 0 to 12, found {found}")]
    ValueType { field: String, found: u32 },
    #[error("{field}: expected a bool of 0 or 1, found {found}")]
    Bool { field: String, found: u8 },
    #[error("{field}: expected arrays nested at most {limit} deep")]
    Nesting { field: String, limit: usize },
    #[error("general.alignment: expected a power of two, found {found}")]
    Alignment { found: u64 },

    #[error("tensor {name} occurs twice")]
    DuplicateTensor { name: String },
    #[error("tensor {name}: expected it in the file, found none of this name")]
    MissingTensor { name: String },
    #[error("tensor {name}: expected at most {limit} dimensions, found {found}")]
    Dimensions {
        name: String,
        limit: u64,
        found: u64,
    },
    #[error("tensor {name}: expected dimensions of at least 1, found 0 in dimension {dimension}")]
    ZeroDimension { name: String, dimension: usize },
    #[error("tensor {name}: expected a known type, found {found}")]
    TensorType { name: String, found: String },
    #[error(
        "tensor {name}: expected rows of a multiple of {block} elements for {ty}, found {found}"
    )]
    RowLength {
        name: String,
        ty: &'static str,
        block: u64,
        found: u64,
    },
    #[error("tensor {name}: expected an offset that is a multiple of {alignment}, found {found}")]
    Misaligned {
        name: String,
        alignment: u64,
        found: u64,
    },
    #[error("tensor {name}: expected {field} to be given")]
    MissingField { name: String, field: &'static str },
    #[error(
        "tensor {name}: expected {expected} bytes from its type and shape, found the range {start}..{end}"
    )]
    ByteCount {
        name: String,
        expected: u64,
        start: u64,
        end: u64,
    },
    #[error(
        "tensor {name}: expected it to begin at or after byte {expected}, where {other} ends, found {found}"
    )]
    Overlap {
        name: String,
        other: String,
        expected: u64,
        found: u64,
    },
    #[error("data: expected tensors without holes, found bytes {start}..{end} in none")]
    Hole { start: u64, end: u64 },

    #[error("tensor {name}: expected the plain name of a .safetensors file, found {found} ({why})")]
    ShardName {
        name: String,
        found: String,
        why: &'static str,
    },
    #[error("weight_map: expected at most {limit} different files, found more")]
    TooManyShards { limit: usize },
}

/// Turns "there is no such key" into `None` and leaves all other errors.
pub trait Optional<T> {
    fn optional(self) -> Result<Option<T>, FormatError>;
}

impl<T> Optional<T> for Result<T, FormatError> {
    fn optional(self) -> Result<Option<T>, FormatError> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(FormatError::MissingKey { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Text of a file as an error shows it: quoted, escaped, at most 64 characters.
pub(crate) fn shown(text: &str) -> String {
    shown_bytes(text.as_bytes())
}

/// As [`shown`], for bytes that need not be UTF-8.
pub(crate) fn shown_bytes(bytes: &[u8]) -> String {
    const MOST: usize = 64;
    // Four bytes hold one character, so that what is cut off here would not be shown anyway.
    let head = &bytes[..bytes.len().min(4 * MOST)];
    let text = String::from_utf8_lossy(head);
    let mut out = String::from("\"");
    for c in text.chars().take(MOST) {
        out.extend(c.escape_debug());
    }
    let cut = bytes.len() > head.len() || text.chars().nth(MOST).is_some();
    out.push_str(if cut { "…\"" } else { "\"" });
    out
}

/// A place in a file, cheap to pass around and written out only when an error needs it.
#[derive(Clone, Copy)]
pub(crate) enum Field<'a> {
    /// A fixed part of the header.
    Part(&'static str),
    /// The key of the metadata pair with this index.
    Key(u64),
    /// The value of a metadata key.
    Value(&'a str),
    /// The name of the tensor with this index.
    TensorName(u64),
    /// A part of what is said about a named tensor.
    Tensor(&'a str, &'static str),
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Part(name) => f.write_str(name),
            Field::Key(index) => write!(f, "key {index} of the metadata"),
            Field::Value(key) => write!(f, "metadata {}", shown(key)),
            Field::TensorName(index) => write!(f, "name of tensor {index}"),
            Field::Tensor(name, part) => write!(f, "{part} of tensor {}", shown(name)),
        }
    }
}
