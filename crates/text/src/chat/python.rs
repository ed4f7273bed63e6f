//! Python's methods on values, where templates use them: what `minijinja-contrib` has, and the rest of the methods on
//! strings.

use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Output, State};
use minijinja_contrib::pycompat;

use super::json;

/// Padding a string to a width is the one method here that makes much out of little.
const MAX_WIDTH: usize = 1 << 16;

/// Calls a method that the value itself does not have.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => match string_method(text, name, args)? {
            Some(result) => Ok(result),
            None => pycompat::unknown_method_callback(state, value, name, args),
        },
        None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// The filter `string`: Python's `str`.
pub(super) fn string(value: &Value) -> String {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), json::float)
        }
        _ => value.to_string(),
    }
}

/// The filter `int`: what can't be converted is the default, 0.
pub(super) fn int(value: &Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let default = either(default, &named)?;
    named.assert_all_used()?;
    if value.is_integer() {
        return Ok(value.clone());
    }
    let text = value.as_str().map(str::trim);
    if let Some(Ok(parsed)) = text.map(str::parse::<i64>) {
        return Ok(Value::from(parsed));
    }
    let whole = number(value).map(f64::trunc);
    let fits = |f: &f64| f.abs() <= i64::MAX as f64;
    Ok(whole
        .filter(fits)
        .map(|f| Value::from(f as i64))
        .or(default)
        .unwrap_or(Value::from(0)))
}

/// The filter `float`: what can't be converted is the default, 0.0.
pub(super) fn float(value: &Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let default = either(default, &named)?;
    named.assert_all_used()?;
    Ok(number(value)
        .map(Value::from)
        .or(default)
        .unwrap_or(Value::from(0.0)))
}

/// Writes a value as `{{ value }}` does: Python's `str`.
pub(super) fn formatter(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            out.write_str(&string(value)).map_err(Error::from)
        }
        _ => minijinja::escape_formatter(out, state, value),
    }
}

/// The test `iterable`.
pub(super) fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

/// The test `sequence`: what has a length and elements, strings and maps too.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined
    )
}

fn either(positional: Option<Value>, named: &Kwargs) -> Result<Option<Value>, Error> {
    match positional {
        Some(value) => Ok(Some(value)),
        None => named.get("default"),
    }
}

fn number(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::String => value.as_str()?.trim().parse().ok(),
        _ => None,
    }
}

fn string_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.split_once(non_empty(separator)?) {
                Some((before, after)) => Value::from((before, separator, after)),
                None => Value::from((text, "", "")),
            }
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.rsplit_once(non_empty(separator)?) {
                Some((before, after)) => Value::from((before, separator, after)),
                None => Value::from(("", "", text)),
            }
        }
        "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            rsplit(text, separator, most)?
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(title(text))
        }
        "swapcase" => {
            let () = from_args(args)?;
            Value::from(text.chars().map(swap_case).collect::<String>())
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase().replace('ß', "ss"))
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let found = match name {
                "index" => text.find(part),
                _ => text.rfind(part),
            };
            let at = found.ok_or_else(|| fail("substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        "isdecimal" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(|c| c.is_ascii_digit()))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            let zeros = "0".repeat(missing(text, width)?);
            Value::from(format!("{sign}{zeros}{digits}"))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            Value::from(justify(text, name, width, fill.unwrap_or(' '))?)
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// Splits from the right, at most `most` times.
fn rsplit(text: &str, separator: Option<&str>, most: Option<i64>) -> Result<Value, Error> {
    let most = most.and_then(|most| usize::try_from(most).ok());
    let mut parts = Vec::new();
    let mut rest = text;
    while parts.len() < most.unwrap_or(usize::MAX) {
        let cut = match separator {
            Some(separator) => rest.rsplit_once(non_empty(separator)?),
            // Whitespace at an end separates nothing from something.
            None => match rest.trim_end() {
                "" => break,
                word => word.rsplit_once(char::is_whitespace).or(Some(("", word))),
            },
        };
        let Some((before, after)) = cut else { break };
        parts.push(Value::from(after));
        rest = before;
    }
    match separator {
        Some(_) => parts.push(Value::from(rest)),
        None if rest.trim_end().is_empty() => {}
        None => parts.push(Value::from(rest.trim_end())),
    }
    parts.reverse();
    Ok(Value::from(parts))
}

/// Each letter that follows none is a capital, and every other one is small.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut after_letter = false;
    for c in text.chars() {
        match after_letter {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
        after_letter = c.is_alphabetic();
    }
    out
}

fn swap_case(c: char) -> String {
    match c.is_uppercase() {
        true => c.to_lowercase().collect(),
        false => c.to_uppercase().collect(),
    }
}

fn justify(text: &str, how: &str, width: usize, fill: char) -> Result<String, Error> {
    let missing = missing(text, width)?;
    let left = match how {
        "ljust" => 0,
        "rjust" => missing,
        // Python puts the odd one on the left where the width is odd.
        _ => missing / 2 + (missing & width & 1),
    };
    let fill = |count| std::iter::repeat_n(fill, count);
    Ok(fill(left)
        .chain(text.chars())
        .chain(fill(missing - left))
        .collect())
}

/// How many characters a text is short of a width.
fn missing(text: &str, width: usize) -> Result<usize, Error> {
    match width <= MAX_WIDTH {
        true => Ok(width.saturating_sub(text.chars().count())),
        false => Err(fail(format!(
            "width of {width}, expected at most {MAX_WIDTH}"
        ))),
    }
}

fn non_empty(separator: &str) -> Result<&str, Error> {
    match separator.is_empty() {
        true => Err(fail("empty separator")),
        false => Ok(separator),
    }
}

fn fail(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
