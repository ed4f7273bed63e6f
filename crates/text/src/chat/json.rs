//! The `tojson` filter, as Hugging Face defines it: Python's `json.dumps`, not Jinja's, which escapes HTML.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Python refuses to go much deeper too.
const MAX_DEPTH: usize = 256;

/// `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`; the last two by name only.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let pick = |positional: Option<Value>, name: &'static str| match positional {
        Some(value) => Ok(Some(value)),
        None => named.get::<Option<Value>>(name),
    };
    let truth = |value: Option<Value>| value.is_some_and(|v| v.is_true());
    let ascii = truth(pick(ensure_ascii, "ensure_ascii")?);
    let indent = pick(indent, "indent")?.map(indent_text).transpose()?;
    let separators = pick(None, "separators")?.map(separator_texts).transpose()?;
    let sort_keys = truth(pick(None, "sort_keys")?);
    named.assert_all_used()?;

    let (item, key) = separators.unwrap_or_else(|| match indent {
        Some(_) => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    });
    let mut writer = Writer {
        out: String::new(),
        ascii,
        indent,
        item,
        key,
        sort_keys,
        state,
    };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer<'a, 's, 'e> {
    out: String,
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
    state: &'a State<'s, 'e>,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return fail(format!("a value nests deeper than {MAX_DEPTH}"));
        }
        let before = self.out.len();
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self.out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => return self.list(value, depth),
            ValueKind::Map => return self.object(value, depth),
            other => return fail(format!("{other} is not JSON serializable")),
        }
        self.charge(before)
    }

    fn list(&mut self, list: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut any = false;
        for element in list.try_iter()? {
            self.separate(any, depth + 1)?;
            self.value(&element, depth + 1)?;
            any = true;
        }
        self.close(']', any, depth)
    }

    fn object(&mut self, map: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('{');
        let mut keys: Vec<Value> = map.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        for (index, key) in keys.iter().enumerate() {
            self.separate(index > 0, depth + 1)?;
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::Number | ValueKind::Bool | ValueKind::None => {
                    self.out.push('"');
                    self.value(key, depth + 1)?;
                    self.out.push('"');
                }
                other => return fail(format!("keys must be strings, not {other}")),
            }
            self.out.push_str(&self.key);
            self.value(&map.get_item(key)?, depth + 1)?;
        }
        self.close('}', !keys.is_empty(), depth)
    }

    /// What stands before an element.
    fn separate(&mut self, after_another: bool, depth: usize) -> Result<(), Error> {
        let before = self.out.len();
        if after_another {
            self.out.push_str(&self.item);
        }
        self.new_line(depth);
        self.charge(before)
    }

    fn close(&mut self, bracket: char, any: bool, depth: usize) -> Result<(), Error> {
        let before = self.out.len();
        if any {
            self.new_line(depth);
        }
        self.out.push(bracket);
        self.charge(before)
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string does not fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// Pays for what was written, as the engine does for its own serialisation: 16 units for each byte.
    fn charge(&self, before: usize) -> Result<(), Error> {
        self.state
            .consume_fuel(((self.out.len() - before) / 4 + 1) as u64)
    }
}

/// A float as Python's `repr` writes it.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    // Rust's shortest digits are Python's; when to use an exponent differs.
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        return match plain.contains('.') {
            true => plain,
            false => plain + ".0",
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn indent_text(value: Value) -> Result<String, Error> {
    const MOST: usize = 64;
    if let Some(text) = value.as_str() {
        return match text.len() <= MOST {
            true => Ok(text.to_owned()),
            false => fail(format!("indent of more than {MOST} bytes")),
        };
    }
    match i64::try_from(value)? {
        width if width <= MOST as i64 => Ok(" ".repeat(width.max(0) as usize)),
        width => fail(format!("indent of {width}, expected at most {MOST}")),
    }
}

fn separator_texts(value: Value) -> Result<(String, String), Error> {
    let texts: Vec<Value> = value.try_iter()?.collect();
    match &texts[..] {
        [item, key] => Ok((item.to_string(), key.to_string())),
        _ => fail("separators must be two strings".to_owned()),
    }
}

fn fail<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_writes_them() {
        for (value, expected) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float(value), expected);
        }
    }
}
