//! `Metadata`: the key-value pairs of a header, with typed access.

use std::fmt;

use super::cursor::{Cursor, Layout};
use super::value::{Array, Value, ValueType, Values, read_pair, validated};
use crate::FormatError;
use crate::budget::Budget;
use crate::error::{Field, shown};

/// The pairs of a header, kept as the bytes of the file and found by binary search. What [`Metadata::get`] returns
/// borrows from here.
#[derive(Clone)]
pub struct Metadata {
    pairs: Box<[u8]>,
    /// Where each pair begins in `pairs`, in the order of the keys. All keys differ.
    starts: Box<[u32]>,
    layout: Layout,
}

impl Metadata {
    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// All pairs, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Value<'_>)> {
        self.starts.iter().map(|&start| {
            let mut cursor = self.cursor(start);
            validated(read_pair(&mut cursor, 0))
        })
    }

    /// The value of `key`, whatever its type.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let found = self
            .starts
            .binary_search_by(|&start| key_at(self.cursor(start)).cmp(key))
            .ok()?;
        let mut cursor = self.cursor(self.starts[found]);
        let (_, value) = validated(read_pair(&mut cursor, 0));
        Some(value)
    }

    /// The value of `key`, or [`FormatError::MissingKey`].
    pub fn require(&self, key: &str) -> Result<Value<'_>, FormatError> {
        self.get(key).ok_or_else(|| FormatError::MissingKey {
            key: key.to_owned(),
        })
    }

    /// An integer of any width whose value fits.
    pub fn u32(&self, key: &str) -> Result<u32, FormatError> {
        self.scalar(key, "u32", is_integer, integer)
    }

    /// An integer of any width whose value fits.
    pub fn u64(&self, key: &str) -> Result<u64, FormatError> {
        self.scalar(key, "u64", is_integer, integer)
    }

    /// An integer of any width whose value fits.
    pub fn i32(&self, key: &str) -> Result<i32, FormatError> {
        self.scalar(key, "i32", is_integer, integer)
    }

    /// An integer of any width whose value fits.
    pub fn i64(&self, key: &str) -> Result<i64, FormatError> {
        self.scalar(key, "i64", is_integer, integer)
    }

    /// A float; one of 64 bits is rounded.
    pub fn f32(&self, key: &str) -> Result<f32, FormatError> {
        self.scalar(key, "f32", is_float, float)
    }

    pub fn bool(&self, key: &str) -> Result<bool, FormatError> {
        self.scalar(key, "bool", is(ValueType::Bool), |v| v.as_bool())
    }

    pub fn str(&self, key: &str) -> Result<&str, FormatError> {
        self.scalar(key, "string", is(ValueType::String), |v| v.as_str())
    }

    /// An array of any element type.
    pub fn array(&self, key: &str) -> Result<Array<'_>, FormatError> {
        self.scalar(key, "array", is(ValueType::Array), |v| v.as_array())
    }

    /// An array of strings, read one after the other.
    pub fn strings(&self, key: &str) -> Result<Elements<'_, &str>, FormatError> {
        self.elements(key, "string", is(ValueType::String), |v| v.as_str())
    }

    /// An array of integers of any width, all of which fit.
    pub fn i32s(&self, key: &str) -> Result<Elements<'_, i32>, FormatError> {
        self.elements(key, "i32", is_integer, integer)
    }

    /// An array of integers of any width, all of which fit.
    pub fn u32s(&self, key: &str) -> Result<Elements<'_, u32>, FormatError> {
        self.elements(key, "u32", is_integer, integer)
    }

    /// An array of floats; those of 64 bits are rounded.
    pub fn f32s(&self, key: &str) -> Result<Elements<'_, f32>, FormatError> {
        self.elements(key, "f32", is_float, float)
    }

    /// An array of bools.
    pub fn bools(&self, key: &str) -> Result<Elements<'_, bool>, FormatError> {
        self.elements(key, "bool", is(ValueType::Bool), |v| v.as_bool())
    }

    /// The value of `key` where its type is accepted and it converts.
    fn scalar<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        accepts: impl Fn(ValueType) -> bool,
        convert: Convert<'a, T>,
    ) -> Result<T, FormatError> {
        let value = self.require(key)?;
        if !accepts(value.value_type()) {
            return Err(FormatError::WrongType {
                key: key.to_owned(),
                expected,
                found: kind(value),
            });
        }
        convert(value).ok_or_else(|| out_of_range(key, expected, value))
    }

    /// The array `key` where the type of its elements is accepted and every one converts. An empty array has no
    /// element of a wrong type.
    fn elements<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        accepts: impl Fn(ValueType) -> bool,
        convert: Convert<'a, T>,
    ) -> Result<Elements<'a, T>, FormatError> {
        let value = self.require(key)?;
        let array = value
            .as_array()
            .filter(|array| array.is_empty() || accepts(array.element_type()))
            .ok_or_else(|| FormatError::WrongElementType {
                key: key.to_owned(),
                expected,
                found: kind(value),
            })?;
        if let Some(value) = array.iter().find(|&value| convert(value).is_none()) {
            return Err(out_of_range(key, expected, value));
        }
        Ok(Elements {
            values: array.iter(),
            convert,
        })
    }

    fn cursor(&self, start: u32) -> Cursor<'_> {
        let end = self.pairs.len() as u64;
        Cursor::new(&self.pairs, start as usize, end, self.layout)
    }

    /// Counts what [`Metadata::new`] will take.
    pub(super) fn reserve(
        budget: &mut Budget,
        pair_count: usize,
        bytes: usize,
    ) -> Result<(), FormatError> {
        budget.take("metadata", bytes, 1)?;
        budget.take("order of metadata", pair_count, size_of::<u32>())
    }

    /// Copies `pairs`, which were scanned and hold `count` pairs in less than 4 GiB.
    pub(super) fn new(pairs: &[u8], count: usize, layout: Layout) -> Result<Self, FormatError> {
        let mut metadata = Metadata {
            pairs: pairs.into(),
            starts: Box::default(),
            layout,
        };
        let mut starts = Vec::with_capacity(count);
        let mut cursor = metadata.cursor(0);
        for index in 0..count as u64 {
            starts.push(cursor.at() as u32);
            validated(read_pair(&mut cursor, index));
        }
        let key = |start: u32| key_at(metadata.cursor(start));
        starts.sort_unstable_by_key(|&start| key(start));
        for pair in starts.windows(2) {
            if key(pair[0]) == key(pair[1]) {
                return Err(FormatError::DuplicateKey {
                    key: shown(key(pair[0])),
                });
            }
        }
        metadata.starts = starts.into_boxed_slice();
        Ok(metadata)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The elements of an array of one Rust type. All of them were found to convert.
#[derive(Clone)]
pub struct Elements<'a, T> {
    values: Values<'a>,
    convert: Convert<'a, T>,
}

impl<T> Iterator for Elements<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let value = self.values.next()?;
        (self.convert)(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.values.size_hint()
    }
}

impl<T> ExactSizeIterator for Elements<'_, T> {}

/// Turns a value of an accepted type into `T`, or `None` where it does not fit.
type Convert<'a, T> = fn(Value<'a>) -> Option<T>;

fn key_at(mut cursor: Cursor<'_>) -> &str {
    validated(cursor.string(Field::Part("key")))
}

fn is(ty: ValueType) -> impl Fn(ValueType) -> bool {
    move |found| found == ty
}

fn is_integer(ty: ValueType) -> bool {
    use ValueType::*;
    matches!(ty, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
}

fn is_float(ty: ValueType) -> bool {
    matches!(ty, ValueType::F32 | ValueType::F64)
}

fn integer<T: TryFrom<i128>>(value: Value) -> Option<T> {
    T::try_from(value.as_integer()?).ok()
}

/// Rounds, but does not make an infinity of a finite number.
fn float(value: Value) -> Option<f32> {
    let wide = value.as_float()?;
    let narrow = wide as f32;
    (narrow.is_infinite() == wide.is_infinite()).then_some(narrow)
}

/// The type of a value as an error shows it.
fn kind(value: Value) -> String {
    match value {
        Value::Array(array) => format!("{array:?}"),
        other => other.value_type().name().to_owned(),
    }
}

fn out_of_range(key: &str, expected: &'static str, value: Value) -> FormatError {
    FormatError::OutOfRange {
        key: key.to_owned(),
        expected,
        found: value.to_string(),
    }
}
