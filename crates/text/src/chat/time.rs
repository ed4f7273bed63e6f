//! `Now`: the time that a template may ask for, and Python's `strftime`.

use std::fmt::Write;

use chrono::DateTime;
use chrono::format::{Item, StrftimeItems};
use minijinja::{Error, ErrorKind};

/// A time, and how it is told where the user is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub unix_seconds: i64,
    /// Local time less UTC.
    pub utc_offset_seconds: i32,
}

impl Now {
    /// `datetime.now().strftime(format)`.
    pub(super) fn strftime(self, format: &str) -> Result<String, Error> {
        let fail = |message: String| Error::new(ErrorKind::InvalidOperation, message);
        let local = self
            .unix_seconds
            .checked_add(self.utc_offset_seconds.into());
        let local = local
            .and_then(|seconds| DateTime::from_timestamp(seconds, 0))
            .ok_or_else(|| fail(format!("no date for {} s", self.unix_seconds)))?
            .naive_utc();
        let items: Vec<Item<'_>> = StrftimeItems::new(format).collect();
        let mut text = String::new();
        // A time without a zone has no text for `%z`: formatting fails.
        write!(text, "{}", local.format_with_items(items.iter()))
            .map_err(|_| fail(format!("unknown time format {format:?}")))?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_time_as_python_writes_it() {
        let now = Now {
            unix_seconds: 1_721_952_000,
            utc_offset_seconds: 7200,
        };
        for (format, expected) in [
            ("%d %b %Y", "26 Jul 2024"),
            ("%B %-d, %Y, %A %H:%M:%S", "July 26, 2024, Friday 02:00:00"),
            ("%Y-%m-%d %% %j", "2024-07-26 % 208"),
        ] {
            assert_eq!(now.strftime(format).unwrap(), expected);
        }
        now.strftime("%Q").unwrap_err();
        now.strftime("%z").unwrap_err();
    }
}
