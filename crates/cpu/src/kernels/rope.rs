//! `rope`: rotary position embedding, from a table of cosines and sines that is made once for the rows of a step.

use ingle_graph::ops::Pairing;

use crate::error::{check_length, check_multiple};
use crate::isa::{Isa, Kernel};
use crate::{CpuError, Machine, Rows, RowsMut};

/// Values that are worth waking a thread for.
const GRAIN: usize = 8 << 10;

/// Cosines and sines for the rows of a step.
#[derive(Clone, Copy, Debug)]
pub struct RotaryTable<'a> {
    /// `[rows, rotary_dim]`: for each pair the cosine, then for each pair the sine.
    table: Rows<'a>,
    pairing: Pairing,
}

impl<'a> RotaryTable<'a> {
    /// `table` is what [`rotary_table`] filled.
    pub fn new(table: Rows<'a>, pairing: Pairing) -> Result<Self, CpuError> {
        check_multiple("width of the rotary table", 2, table.width())?;
        Ok(RotaryTable { table, pairing })
    }

    pub(crate) fn rows(&self) -> usize {
        self.table.rows()
    }

    pub(crate) fn rotary_dim(&self) -> usize {
        self.table.width()
    }

    /// Turns one head of row `row`: `y[d]` from `x[d]`, `d ≥ rotary_dim`.
    #[inline(always)]
    pub(crate) fn turn<I: Isa>(&self, isa: I, row: usize, x: &[f32], y: &mut [f32]) {
        let n = self.rotary_dim() / 2;
        let (cos, sin) = self.table.row(row).split_at(n);
        let (x, x_rest) = x.split_at(2 * n);
        let (y, y_rest) = y.split_at_mut(2 * n);
        y_rest.copy_from_slice(x_rest);
        match self.pairing {
            Pairing::Halves => turn_halves(isa, cos, sin, x, y),
            Pairing::Interleaved => {
                for ((y, x), (&c, &s)) in y
                    .chunks_exact_mut(2)
                    .zip(x.chunks_exact(2))
                    .zip(cos.iter().zip(sin))
                {
                    (y[0], y[1]) = (x[0] * c - x[1] * s, x[0] * s + x[1] * c);
                }
            }
        }
    }
}

/// Fills `table[rows, rotary_dim]` for positions `pos`; `frequencies` are the angles per position of each pair
/// (`ingle_graph::ops::Rope::frequencies`). Angles and their functions are computed in `f64`.
pub fn rotary_table(
    frequencies: &[f64],
    pos: &[i32],
    table: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    check_length("rows of the rotary table", pos.len(), table.rows())?;
    check_length(
        "width of the rotary table",
        2 * frequencies.len(),
        table.width(),
    )?;
    for (row, &p) in pos.iter().enumerate() {
        // SAFETY: no other slice of the table exists.
        let (cos, sin) = unsafe { table.row(row) }.split_at_mut(frequencies.len());
        for ((&f, cos), sin) in frequencies.iter().zip(cos).zip(sin) {
            let (s, c) = (f64::from(p) * f).sin_cos();
            (*cos, *sin) = (c as f32, s as f32);
        }
    }
    Ok(())
}

/// Turns every head of every row: `y[rows, heads · head_dim]` from `x`.
pub fn rope(
    machine: &Machine,
    x: Rows<'_>,
    table: RotaryTable<'_>,
    head_dim: usize,
    y: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    check_length("rows of the rotary table", x.rows(), table.rows())?;
    check_length("rows of the output", x.rows(), y.rows())?;
    check_length("width of the output", x.width(), y.width())?;
    check_heads(table, head_dim, x.width())?;
    let (level, y) = (machine.level(), &*y);
    machine
        .pool()
        .split(x.rows(), GRAIN.div_ceil(x.width().max(1)), &|rows| {
            for row in rows {
                // SAFETY: each row is written by one call.
                let y = unsafe { y.row(row) };
                level
                    .run_any(TurnRow {
                        table,
                        row,
                        head_dim,
                        x: x.row(row),
                        y,
                    })
                    .expect("a machine has its level");
            }
        });
    Ok(())
}

/// Checks that a row of `width` is whole heads that the table can turn.
pub(crate) fn check_heads(
    table: RotaryTable<'_>,
    head_dim: usize,
    width: usize,
) -> Result<(), CpuError> {
    if head_dim < table.rotary_dim() || head_dim == 0 {
        return Err(CpuError::Limit {
            field: "rotary dimensions",
            limit: head_dim,
            found: table.rotary_dim(),
        });
    }
    check_multiple("width of rows of heads", head_dim, width)
}

/// All heads of a row.
pub(crate) struct TurnRow<'a> {
    pub table: RotaryTable<'a>,
    pub row: usize,
    pub head_dim: usize,
    pub x: &'a [f32],
    pub y: &'a mut [f32],
}

impl Kernel for TurnRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let heads = self
            .x
            .chunks_exact(self.head_dim)
            .zip(self.y.chunks_exact_mut(self.head_dim));
        for (x, y) in heads {
            self.table.turn(isa, self.row, x, y);
        }
    }
}

/// All five have been cut to `n` pairs: `cos`, `sin` to `n`, `x` and `y` to `2n`.
#[inline(always)]
fn turn_halves<I: Isa>(isa: I, cos: &[f32], sin: &[f32], x: &[f32], y: &mut [f32]) {
    let n = cos.len();
    assert!(sin.len() == n && x.len() == 2 * n && y.len() == 2 * n);
    let whole = n / I::LANES * I::LANES;
    for at in (0..whole).step_by(I::LANES) {
        // SAFETY: `at + LANES ≤ n`, and `x` and `y` have `2n` elements.
        unsafe {
            let (c, s) = (
                isa.load(cos.as_ptr().add(at)),
                isa.load(sin.as_ptr().add(at)),
            );
            let (a, b) = (
                isa.load(x.as_ptr().add(at)),
                isa.load(x.as_ptr().add(at + n)),
            );
            isa.store(
                y.as_mut_ptr().add(at),
                isa.sub(isa.mul(a, c), isa.mul(b, s)),
            );
            isa.store(
                y.as_mut_ptr().add(at + n),
                isa.add(isa.mul(a, s), isa.mul(b, c)),
            );
        }
    }
    for at in whole..n {
        let (a, b) = (x[at], x[at + n]);
        (y[at], y[at + n]) = (a * cos[at] - b * sin[at], a * sin[at] + b * cos[at]);
    }
}
