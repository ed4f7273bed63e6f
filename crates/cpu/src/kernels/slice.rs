//! `slice`: some columns of a matrix, as a matrix of its own.

use crate::error::check_length;
use crate::{CpuError, Rows, RowsMut};

/// Copies columns `start .. start + y.width()`.
pub fn slice(x: Rows<'_>, start: usize, y: &mut RowsMut<'_>) -> Result<(), CpuError> {
    check_length("rows of the output", x.rows(), y.rows())?;
    let part = x.columns(start, y.width())?;
    for r in 0..x.rows() {
        // SAFETY: no other slice of the output exists.
        unsafe { y.row(r) }.copy_from_slice(part.row(r));
    }
    Ok(())
}
