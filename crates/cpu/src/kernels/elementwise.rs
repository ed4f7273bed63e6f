//! `elementwise`: a program over `[rows, n]` as a kernel of its own.

use crate::kernels::program::{CHUNK, ExtraInput, Prepared, RunChunk, Slots};
use crate::{CpuError, Machine, RowsMut};

/// Chunks that are worth waking a thread for.
const GRAIN: usize = 64;

/// `y[r, c] = program(extras at (r, c))`.
pub fn elementwise(
    machine: &Machine,
    program: &Prepared,
    extras: &[ExtraInput<'_>],
    y: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    if program.accumulators() != 0 {
        let found = program.accumulators();
        return Err(CpuError::Length {
            field: "accumulators of an element-wise kernel",
            expected: 0,
            found,
        });
    }
    let (rows, n) = (y.rows(), y.width());
    program.check(extras, rows, n)?;
    let per_row = n.div_ceil(CHUNK);
    let y = &*y;
    let level = machine.level();
    machine.pool().split(rows * per_row, GRAIN, &|range| {
        let mut slots = Slots::new();
        let none = [0.0; CHUNK];
        for i in range {
            let (row, column) = (i / per_row, i % per_row * CHUNK);
            // SAFETY: each chunk is written by one call.
            let out = unsafe { y.part(row, column, CHUNK.min(n - column)) };
            let accumulators = [&none; 2];
            let chunk = RunChunk {
                program,
                extras,
                accumulators,
                row,
                column,
                slots: &mut slots,
                out,
            };
            level.run_any(chunk).expect("a machine has its level");
        }
    });
    Ok(())
}
