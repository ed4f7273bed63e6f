//! What the JSON parsers share: one level of an object at a time, borrowed from the document.
//!
//! `serde_json`'s own maps keep the last of several equal keys, grow by what the file says, and its errors quote
//! strings of any length. Here each key and the untouched text of its value goes to a sink as it is read, and values
//! are deserialised only when they are short. The parsers go through a document twice: to check and count, and to
//! build.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::FormatError;
use crate::error::{Field, shown_bytes};

/// The longest text that is copied while reading: a string with escapes, or what is said about one tensor.
pub(crate) const MAX_COPIED: usize = 4 << 10;

/// How deep objects and arrays may lie in each other. The known documents need three levels.
const MAX_NESTING: usize = 32;

/// A string, borrowed from the document unless it has escapes.
pub(crate) struct Text<'de>(pub Cow<'de, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let inside = raw.strip_prefix('"').and_then(|r| r.strip_suffix('"'));
        let inside = inside.ok_or_else(|| D::Error::custom("expected a string"))?;
        if !inside.contains('\\') {
            return Ok(Text(Cow::Borrowed(inside)));
        }
        if inside.len() > MAX_COPIED {
            return Err(D::Error::custom("a string with escapes is too long"));
        }
        let text = serde_json::from_str(raw).map_err(D::Error::custom)?;
        Ok(Text(Cow::Owned(text)))
    }
}

/// Checks that `bytes` are UTF-8 and nest no deeper than they should. It must come before anything else, since
/// skipping a value in `serde_json` takes memory by its depth.
pub(crate) fn check<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a str, FormatError> {
    let text = std::str::from_utf8(bytes).map_err(|source| FormatError::Utf8 {
        field: field.to_owned(),
        found: shown_bytes(&bytes[source.valid_up_to()..]),
        source,
    })?;
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(FormatError::Nesting {
                field: field.to_owned(),
                limit: MAX_NESTING,
            });
        }
    }
    Ok(text)
}

/// Reads `text`, which was checked and should be one JSON object, and gives each key with the text of its value to
/// `sink`. Equal keys are given as often as they come.
pub(crate) fn read_object<'de>(
    field: &'static str,
    text: &'de str,
    mut sink: impl FnMut(&str, &'de str) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let malformed = |source| FormatError::Json {
        field: field.to_owned(),
        source,
    };
    if !text.trim_start().starts_with('{') {
        return Err(malformed(Error::custom("expected an object")));
    }
    let mut refused = None;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let pairs = Pairs {
        sink: &mut sink,
        refused: &mut refused,
    };
    let read = deserializer
        .deserialize_map(pairs)
        .and_then(|()| deserializer.end());
    match refused {
        Some(error) => Err(error),
        None => read.map_err(malformed),
    }
}

/// Deserialises what is said about `name`, which is expected to be short.
pub(crate) fn read_short<'de, T: Deserialize<'de>>(
    name: &str,
    text: &'de str,
) -> Result<T, FormatError> {
    if text.len() > MAX_COPIED {
        return Err(FormatError::TooLarge {
            field: Field::Tensor(name, "entry").to_string(),
            found: text.len() as u64,
            limit: MAX_COPIED as u64,
        });
    }
    serde_json::from_str(text).map_err(|source| FormatError::Json {
        field: Field::Tensor(name, "entry").to_string(),
        source,
    })
}

struct Pairs<'s, F> {
    sink: &'s mut F,
    refused: &'s mut Option<FormatError>,
}

impl<'de, F> Visitor<'de> for Pairs<'_, F>
where
    F: FnMut(&str, &'de str) -> Result<(), FormatError>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((Text(key), value)) = map.next_entry::<Text, &RawValue>()? {
            if let Err(error) = (self.sink)(&key, value.get()) {
                *self.refused = Some(error);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}
