//! Dense weights times `f32` activations: vectors run along `k`, and their lanes are added at the end of a row.

use ingle_quant::ElementType;

use crate::Rows;
use crate::isa::{Isa, Kernel};
use crate::kernels::program::Chunk;

use super::weight::DenseMatrix;

/// Rows of the weight that are computed together.
const WEIGHT_ROWS: usize = 2;

/// Sums of weight rows `first .. first + len` with `T` rows of `x` from `row` on.
#[inline(always)]
pub(super) fn block<I: Isa, const T: usize>(
    isa: I,
    weight: DenseMatrix<'_>,
    x: Rows<'_>,
    first: usize,
    len: usize,
    row: usize,
    sums: &mut [Chunk; T],
) {
    assert!(len <= sums[0].len());
    let mut rows: [&[f32]; T] = [&[]; T];
    for (t, r) in rows.iter_mut().enumerate() {
        *r = x.row(row + t);
    }
    match weight.element() {
        ElementType::F32 => isa.run(DenseRows::<T, F32> {
            weight,
            first,
            len,
            rows,
            sums,
        }),
        ElementType::F16 => isa.run(DenseRows::<T, F16> {
            weight,
            first,
            len,
            rows,
            sums,
        }),
        ElementType::Bf16 => isa.run(DenseRows::<T, BF16> {
            weight,
            first,
            len,
            rows,
            sums,
        }),
        other => unreachable!("a dense weight has no {}", other.name()),
    }
}

const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

/// All lengths have been checked.
struct DenseRows<'a, const T: usize, const ELEMENT: u8> {
    weight: DenseMatrix<'a>,
    first: usize,
    len: usize,
    rows: [&'a [f32]; T],
    sums: &'a mut [Chunk; T],
}

impl<const T: usize, const ELEMENT: u8> Kernel for DenseRows<'_, T, ELEMENT> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self {
            weight,
            first,
            len,
            rows,
            sums,
        } = self;
        let mut done = 0;
        while done < len {
            if len - done >= WEIGHT_ROWS {
                let dots = dot::<I, T, WEIGHT_ROWS, ELEMENT>(isa, weight, first + done, rows);
                for t in 0..T {
                    sums[t][done..done + WEIGHT_ROWS].copy_from_slice(&dots[t]);
                }
                done += WEIGHT_ROWS;
            } else {
                let dots = dot::<I, T, 1, ELEMENT>(isa, weight, first + done, rows);
                for t in 0..T {
                    sums[t][done] = dots[t][0];
                }
                done += 1;
            }
        }
    }
}

/// The dot products of `R` rows of the weight with `T` rows of `x`. Each is one vector of sums over `k` in order, so it is
/// the same for all `R` and `T`.
#[inline(always)]
fn dot<I: Isa, const T: usize, const R: usize, const ELEMENT: u8>(
    isa: I,
    weight: DenseMatrix<'_>,
    first: usize,
    rows: [&[f32]; T],
) -> [[f32; R]; T] {
    let k = rows[0].len();
    let mut weights = [std::ptr::null(); R];
    for (r, p) in weights.iter_mut().enumerate() {
        let row = weight.row(first + r);
        assert!(row.len() == k * element_bytes::<ELEMENT>());
        *p = row.as_ptr();
    }
    let mut sums = [[isa.splat(0.0); R]; T];
    let whole = k / I::LANES * I::LANES;
    for at in (0..whole).step_by(I::LANES) {
        let mut w = [isa.splat(0.0); R];
        for r in 0..R {
            // SAFETY: `at + LANES ≤ k`, the length of every row.
            w[r] = unsafe { load::<I, ELEMENT>(isa, weights[r], at) };
        }
        for t in 0..T {
            // SAFETY: as above.
            let x = unsafe { isa.load(rows[t].as_ptr().add(at)) };
            for r in 0..R {
                sums[t][r] = isa.mul_add(w[r], x, sums[t][r]);
            }
        }
    }
    let mut out = [[0.0; R]; T];
    for t in 0..T {
        for r in 0..R {
            let mut total = isa.sum(sums[t][r]);
            for (at, x) in rows[t].iter().enumerate().skip(whole) {
                // SAFETY: `at < k`.
                total += unsafe { element::<ELEMENT>(weights[r], at) } * x;
            }
            out[t][r] = total;
        }
    }
    out
}

const fn element_bytes<const ELEMENT: u8>() -> usize {
    if ELEMENT == F32 { 4 } else { 2 }
}

/// # Safety
/// Elements `at .. at + LANES` of the row are readable.
#[inline(always)]
unsafe fn load<I: Isa, const ELEMENT: u8>(isa: I, row: *const u8, at: usize) -> I::F {
    unsafe {
        match ELEMENT {
            F32 => isa.load(row.add(4 * at).cast()),
            F16 => isa.load_f16(row.add(2 * at).cast()),
            _ => isa.load_bf16(row.add(2 * at).cast()),
        }
    }
}

/// # Safety
/// Element `at` of the row is readable.
#[inline(always)]
unsafe fn element<const ELEMENT: u8>(row: *const u8, at: usize) -> f32 {
    unsafe {
        match ELEMENT {
            F32 => row.add(4 * at).cast::<f32>().read_unaligned(),
            F16 => half::f16::from_bits(row.add(2 * at).cast::<u16>().read_unaligned()).to_f32(),
            _ => half::bf16::from_bits(row.add(2 * at).cast::<u16>().read_unaligned()).to_f32(),
        }
    }
}
