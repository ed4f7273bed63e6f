//! `take_rows`: `y[i] = x[index[i]]`; NaN where there is no such row.

use crate::error::check_length;
use crate::{CpuError, Rows, RowsMut};

/// Copies rows.
pub fn take_rows(x: Rows<'_>, index: &[i32], y: &mut RowsMut<'_>) -> Result<(), CpuError> {
    check_length("rows of the output", index.len(), y.rows())?;
    check_length("width of the output", x.width(), y.width())?;
    for (r, &i) in index.iter().enumerate() {
        // SAFETY: no other slice of the output exists.
        let out = unsafe { y.row(r) };
        match usize::try_from(i).ok().filter(|&i| i < x.rows()) {
            Some(i) => out.copy_from_slice(x.row(i)),
            None => out.fill(f32::NAN),
        }
    }
    Ok(())
}
