//! `embedding`: rows of a weight as `f32`, from the very bytes that matmuls read, so that a tied head needs no copy.

use half::{bf16, f16};
use ingle_quant::{ElementType, unpack_row};

use crate::error::check_length;
use crate::kernels::matmul::{DenseMatrix, Weight};
use crate::{CpuError, Machine, RowsMut};

/// Values that are worth waking a thread for.
const GRAIN: usize = 16 << 10;

/// Row `ids[r]` of the weight to row `r` of `y`; NaN where there is no such row.
pub fn embedding(
    machine: &Machine,
    ids: &[i32],
    weight: Weight<'_>,
    y: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    check_length("rows of the output", ids.len(), y.rows())?;
    check_length("width of the output", weight.k(), y.width())?;
    let y = &*y;
    machine
        .pool()
        .split(ids.len(), GRAIN.div_ceil(weight.k().max(1)), &|rows| {
            for r in rows {
                // SAFETY: each row is written by one call.
                let out = unsafe { y.row(r) };
                match usize::try_from(ids[r]).ok().filter(|&i| i < weight.rows()) {
                    Some(row) => read_row(weight, row, out),
                    None => out.fill(f32::NAN),
                }
            }
        });
    Ok(())
}

/// The row exists and `out` has its width.
fn read_row(weight: Weight<'_>, row: usize, out: &mut [f32]) {
    match weight {
        Weight::Packed(w) => {
            unpack_row(w.layout(), w.bytes(), weight.rows(), row, out)
                .expect("the matrix has been checked");
        }
        Weight::Dense(w) => read_dense(w, row, out),
    }
}

fn read_dense(weight: DenseMatrix<'_>, row: usize, out: &mut [f32]) {
    let bytes = weight.row(row);
    match weight.element() {
        ElementType::F16 => {
            for (y, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *y = f16::from_le_bytes([b[0], b[1]]).to_f32();
            }
        }
        ElementType::Bf16 => {
            for (y, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *y = bf16::from_le_bytes([b[0], b[1]]).to_f32();
            }
        }
        _ => {
            for (y, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *y = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
    }
}
