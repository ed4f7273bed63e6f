//! What kernels and the pool report.

/// An error names the thing that is wrong, what was expected and what was found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CpuError {
    #[error("this CPU or build has no {level} kernels for tiles of {lanes} rows")]
    Level { level: &'static str, lanes: usize },
    #[error("{field}: expected {expected}, found {found}")]
    Length {
        field: &'static str,
        expected: usize,
        found: usize,
    },
    #[error("{field}: expected a multiple of {multiple}, found {found}")]
    Multiple {
        field: &'static str,
        multiple: usize,
        found: usize,
    },
    #[error("{field}: expected at most {limit}, found {found}")]
    Limit {
        field: &'static str,
        limit: usize,
        found: usize,
    },
    #[error("{field}: expected {expected}, found {found}")]
    Unsupported {
        field: &'static str,
        expected: &'static str,
        found: String,
    },
    #[error("{field} {row}: expected an index below {limit}, found {found}")]
    Index {
        field: &'static str,
        row: usize,
        limit: usize,
        found: i64,
    },
    #[error("weight layout: {0}")]
    Layout(#[from] ingle_quant::QuantError),
    #[error("there is no memory for {bytes} bytes")]
    Memory { bytes: usize },
    #[error("thread {index} of the pool did not start: {reason}")]
    Thread { index: usize, reason: String },
}

/// Checks that a length is what it must be.
pub(crate) fn check_length(
    field: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), CpuError> {
    if expected == found {
        Ok(())
    } else {
        Err(CpuError::Length {
            field,
            expected,
            found,
        })
    }
}

/// Checks that a length is a multiple of something.
pub(crate) fn check_multiple(
    field: &'static str,
    multiple: usize,
    found: usize,
) -> Result<(), CpuError> {
    if found.is_multiple_of(multiple) {
        Ok(())
    } else {
        Err(CpuError::Multiple {
            field,
            multiple,
            found,
        })
    }
}
