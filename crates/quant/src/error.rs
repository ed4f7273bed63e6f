//! What can be wrong with a quantised tensor or with a request about one.

use crate::{ElementType, GgmlType};

/// Every error of this crate. Each names the field, what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    #[error("ggml type: expected a known type id, found {id}")]
    UnknownType { id: u32 },

    #[error("ggml type: {operation} is not supported for {}", .ty.name())]
    UnsupportedType {
        ty: GgmlType,
        operation: &'static str,
    },

    #[error("row length: expected a multiple of {multiple} ({what}), found {found}")]
    RowLength {
        what: &'static str,
        multiple: usize,
        found: usize,
    },

    #[error("{field}: expected {expected}, found {found}")]
    Length {
        field: &'static str,
        expected: usize,
        found: usize,
    },

    #[error("{field}: the size does not fit in this machine's address space")]
    TooLarge { field: &'static str },

    #[error("packed layout: {field}: expected {expected}, found {found}")]
    Layout {
        field: &'static str,
        expected: &'static str,
        found: usize,
    },

    #[error("packed layout: it does not hold {} (its codes, group, scale or min differ)", .ty.name())]
    LayoutMismatch { ty: GgmlType },

    #[error("conversion: expected an exact conversion to {}, found {} (it would round)", .to.name(), .from.name())]
    InexactConversion { from: GgmlType, to: ElementType },
}

/// Checks that `found` equals `expected`.
pub(crate) fn check_length(
    field: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), QuantError> {
    if expected == found {
        Ok(())
    } else {
        Err(QuantError::Length {
            field,
            expected,
            found,
        })
    }
}

/// `a · b`, or an error that names what was too large.
pub(crate) fn checked_mul(field: &'static str, a: usize, b: usize) -> Result<usize, QuantError> {
    a.checked_mul(b).ok_or(QuantError::TooLarge { field })
}

/// `a + b`, or an error that names what was too large.
pub(crate) fn checked_add(field: &'static str, a: usize, b: usize) -> Result<usize, QuantError> {
    a.checked_add(b).ok_or(QuantError::TooLarge { field })
}
