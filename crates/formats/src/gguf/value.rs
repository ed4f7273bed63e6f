//! Values of metadata, borrowed from the bytes of the header.

use std::fmt;

use super::cursor::{Cursor, Layout, Stop};
use crate::FormatError;
use crate::error::Field;

/// How deep arrays may lie in arrays. No model known nests them at all.
const MAX_NESTING: usize = 4;

/// What kind of value it is; the number is the one in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array whose elements have one type. Elements are read from the header's bytes as they are asked for.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    ty: ValueType,
    len: usize,
    bytes: &'a [u8],
    layout: Layout,
}

/// The elements of an [`Array`].
#[derive(Clone)]
pub struct Values<'a> {
    ty: ValueType,
    left: usize,
    cursor: Cursor<'a>,
}

impl ValueType {
    /// The type's name: `u32`, `string`, `array`, …
    pub const fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }

    fn from_id(id: u32, field: Field) -> Result<Self, FormatError> {
        Ok(match id {
            0 => ValueType::U8,
            1 => ValueType::I8,
            2 => ValueType::U16,
            3 => ValueType::I16,
            4 => ValueType::U32,
            5 => ValueType::I32,
            6 => ValueType::F32,
            7 => ValueType::Bool,
            8 => ValueType::String,
            9 => ValueType::Array,
            10 => ValueType::U64,
            11 => ValueType::I64,
            12 => ValueType::F64,
            found => {
                return Err(FormatError::ValueType {
                    field: field.to_string(),
                    found,
                });
            }
        })
    }

    /// The least number of bytes a value takes.
    fn least_bytes(self, layout: Layout) -> u64 {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 => 8,
            ValueType::String => layout.size_bytes(),
            ValueType::Array => 4 + layout.size_bytes(),
        }
    }
}

impl<'a> Value<'a> {
    pub const fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value of an integer of any width, which `i128` holds whole.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The value of a float of either width.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Value::String(v) => Some(v),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<Array<'a>> {
        match *self {
            Value::Array(v) => Some(v),
            _ => None,
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::String(v) => v.fmt(f),
            Value::Array(v) => fmt::Debug::fmt(v, f),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
        }
    }
}

impl<'a> Array<'a> {
    pub const fn element_type(&self) -> ValueType {
        self.ty
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> Values<'a> {
        Values {
            ty: self.ty,
            left: self.len,
            cursor: Cursor::new(self.bytes, 0, self.bytes.len() as u64, self.layout),
        }
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Value<'a>;
    type IntoIter = Values<'a>;

    fn into_iter(self) -> Values<'a> {
        self.iter()
    }
}

impl fmt::Debug for Array<'_> {
    /// Type and length alone: a vocabulary would fill the screen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}]", self.ty.name(), self.len)
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let field = Field::Part("element");
        Some(validated(read_value(&mut self.cursor, self.ty, field)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Values<'_> {}

/// The result of reading bytes a second time that were read once without error.
pub(super) fn validated<T>(read: Result<T, Stop>) -> T {
    match read {
        Ok(value) => value,
        Err(_) => unreachable!("metadata that was valid when it was parsed"),
    }
}

/// Reads a key and its value.
pub(super) fn read_pair<'a>(
    cursor: &mut Cursor<'a>,
    index: u64,
) -> Result<(&'a str, Value<'a>), Stop> {
    let key = cursor.string(Field::Key(index))?;
    let field = Field::Value(key);
    let ty = ValueType::from_id(cursor.u32(field)?, field)?;
    Ok((key, read_value(cursor, ty, field)?))
}

/// Reads a value of type `ty`, and an array to its end.
fn read_value<'a>(cursor: &mut Cursor<'a>, ty: ValueType, field: Field) -> Result<Value<'a>, Stop> {
    read_nested(cursor, ty, field, 0)
}

fn read_nested<'a>(
    cursor: &mut Cursor<'a>,
    ty: ValueType,
    field: Field,
    depth: usize,
) -> Result<Value<'a>, Stop> {
    Ok(match ty {
        ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.number(field)?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.number(field)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.number(field)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.number(field)?)),
        ValueType::U32 => Value::U32(cursor.u32(field)?),
        ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.number(field)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.number(field)?)),
        ValueType::Bool => Value::Bool(read_bool(cursor, field)?),
        ValueType::String => Value::String(cursor.string(field)?),
        ValueType::Array => Value::Array(read_array(cursor, field, depth)?),
        ValueType::U64 => Value::U64(cursor.u64(field)?),
        ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.number(field)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.number(field)?)),
    })
}

fn read_bool(cursor: &mut Cursor, field: Field) -> Result<bool, Stop> {
    match cursor.number::<1>(field)? {
        [0] => Ok(false),
        [1] => Ok(true),
        [found] => Err(Stop::Error(FormatError::Bool {
            field: field.to_string(),
            found,
        })),
    }
}

/// Reads an array, checking every element, and returns it with the bytes of its elements.
fn read_array<'a>(cursor: &mut Cursor<'a>, field: Field, depth: usize) -> Result<Array<'a>, Stop> {
    if depth == MAX_NESTING {
        return Err(Stop::Error(FormatError::Nesting {
            field: field.to_string(),
            limit: MAX_NESTING,
        }));
    }
    let ty = ValueType::from_id(cursor.u32(field)?, field)?;
    let len = cursor.size(field)?;
    let least = ty.least_bytes(cursor.layout);
    cursor.expect_room(len, least, field)?;
    let start = cursor.at();
    match ty {
        ValueType::Bool | ValueType::String | ValueType::Array => {
            for _ in 0..len {
                read_nested(cursor, ty, field, depth + 1)?;
            }
        }
        _ => {
            cursor.take(len * least, field)?;
        }
    }
    Ok(Array {
        ty,
        len: len as usize,
        bytes: cursor.between(start, cursor.at()),
        layout: cursor.layout,
    })
}
