//! What all formats say about tensors: type, shape, range of bytes; and the table of a file's tensors.

use std::ops::{Deref, Range};

use ingle_quant::GgmlType;

use crate::FormatError;
use crate::budget::Budget;
use crate::error::shown;

/// What a parser has to say about a prefix of a file.
#[derive(Clone, Debug)]
pub enum Parsed<T> {
    /// The header is longer than the prefix. Ask again with at least this many bytes from the start of the file: more
    /// than were given, at most the whole file, and at least double, so that asking again and again costs no more
    /// than twice the header.
    NeedMore { at_least: u64 },
    /// The header is complete and consistent.
    Done(T),
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    /// How the bytes lie. A type that `ingle-quant` cannot read has `ty.storage() == None`.
    pub ty: GgmlType,
    /// Row-major, outermost dimension first: a matrix of `rows` rows of `k` elements is `[rows, k]`. That is the order
    /// of safetensors; GGUF writes the dimensions the other way round (`ne`, innermost first), and they are reversed
    /// here.
    pub shape: Vec<u64>,
    /// Where the bytes lie, counted from the start of the file.
    pub range: Range<u64>,
}

impl TensorInfo {
    /// Elements of the tensor: the product of its shape, 1 for a scalar.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes of the tensor.
    pub fn byte_count(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The tensors of a file in the file's order, each findable by its name. Names differ and ranges do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorTable {
    tensors: Vec<TensorInfo>,
    /// Indices into `tensors`, sorted by name.
    by_name: Box<[u32]>,
}

impl TensorTable {
    /// The tensor called `name`.
    pub fn find(&self, name: &str) -> Option<&TensorInfo> {
        let at = |index: &u32| self.tensors[*index as usize].name.as_str();
        let found = self
            .by_name
            .binary_search_by(|index| at(index).cmp(name))
            .ok()?;
        Some(&self.tensors[self.by_name[found] as usize])
    }

    /// The tensor called `name`, or [`FormatError::MissingTensor`].
    pub fn require(&self, name: &str) -> Result<&TensorInfo, FormatError> {
        self.find(name)
            .ok_or_else(|| FormatError::MissingTensor { name: shown(name) })
    }

    /// Checks `tensors` against each other. Their number fits in `u32`, since each takes bytes of a header.
    pub(crate) fn new(tensors: Vec<TensorInfo>, holes: Holes) -> Result<Self, FormatError> {
        let mut order: Vec<u32> = (0..tensors.len() as u32).collect();
        let at = |index: u32| &tensors[index as usize];
        order.sort_unstable_by_key(|&index| (at(index).range.start, at(index).range.end));
        check_ranges(order.iter().map(|&index| at(index)), holes)?;
        order.sort_unstable_by_key(|&index| at(index).name.as_str());
        for pair in order.windows(2) {
            if at(pair[0]).name == at(pair[1]).name {
                return Err(FormatError::DuplicateTensor {
                    name: shown(&at(pair[0]).name),
                });
            }
        }
        Ok(TensorTable {
            tensors,
            by_name: order.into_boxed_slice(),
        })
    }

    /// Counts what a table of `count` tensors with so many bytes of names and so many dimensions will take.
    pub(crate) fn reserve(
        budget: &mut Budget,
        count: usize,
        name_bytes: usize,
        dimensions: usize,
    ) -> Result<(), FormatError> {
        budget.take("table of tensors", count, size_of::<TensorInfo>())?;
        budget.take("order of tensors", count, size_of::<u32>())?;
        budget.take("names of tensors", name_bytes, 1)?;
        budget.take("shapes of tensors", dimensions, size_of::<u64>())
    }
}

impl Deref for TensorTable {
    type Target = [TensorInfo];

    fn deref(&self) -> &[TensorInfo] {
        &self.tensors
    }
}

/// Whether bytes of the data may belong to no tensor.
pub(crate) enum Holes {
    Allowed,
    /// All bytes of this range belong to a tensor.
    Refused(Range<u64>),
}

/// Checks tensors that come in the order of their ranges.
fn check_ranges<'a>(
    tensors: impl Iterator<Item = &'a TensorInfo>,
    holes: Holes,
) -> Result<(), FormatError> {
    let hole = |start: u64, end: u64| match holes {
        Holes::Refused(_) if start < end => Err(FormatError::Hole { start, end }),
        _ => Ok(()),
    };
    let (mut end, last) = match &holes {
        Holes::Allowed => (0, 0),
        Holes::Refused(data) => (data.start, data.end),
    };
    let mut before: Option<&TensorInfo> = None;
    for tensor in tensors {
        let start = tensor.range.start;
        if let Some(other) = before.filter(|other| other.range.end > start) {
            return Err(FormatError::Overlap {
                name: shown(&tensor.name),
                other: shown(&other.name),
                expected: other.range.end,
                found: start,
            });
        }
        hole(end, start)?;
        end = tensor.range.end;
        before = Some(tensor);
    }
    hole(end, last)
}
