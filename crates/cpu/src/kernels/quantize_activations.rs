//! `quantize_activations`: rows of `f32` to codes of two 8-bit terms in groups of 32, exactly as [`ingle_quant::quantize_activations`]
//! defines them, with the sums that matmuls of weights with an offset or a min need.
//!
//! A quantised row is a run of words: the scale of each group of 32, `scale · Σ codes` of each group of 32, the same of each
//! half group, then the codes in the instruction set's own order. It is made and read by the same machine only.

use ingle_quant::{ACTIVATION_GROUP, HIGH_TERM, LARGEST_CODE};

use crate::error::{check_length, check_multiple};
use crate::isa::{ACTIVATION_BYTES, Isa, Kernel};
use crate::kernels::rms_norm::{Norm, norm_factor, normalise};
use crate::{CpuError, Machine, Rows, RowsMut};

/// Rows that are worth waking a thread for.
const GRAIN: usize = 4;

/// Quantised rows, as [`quantize_rows`] wrote them.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedRows<'a> {
    words: &'a [f32],
    rows: usize,
    k: usize,
    row_words: usize,
}

impl<'a> QuantizedRows<'a> {
    /// Words that a quantised row of `k` elements takes.
    pub fn row_words(k: usize) -> Result<usize, CpuError> {
        check_multiple("width of quantised activations", ACTIVATION_GROUP, k)?;
        Ok(k / ACTIVATION_GROUP * (4 + ACTIVATION_GROUP * ACTIVATION_BYTES / 4))
    }

    /// `words` is what [`quantize_rows`] filled.
    pub fn new(words: &'a [f32], rows: usize, k: usize) -> Result<Self, CpuError> {
        let row_words = Self::row_words(k)?;
        let limit = usize::MAX / row_words.max(1);
        let expected = row_words.checked_mul(rows).ok_or(CpuError::Limit {
            field: "rows",
            limit,
            found: rows,
        })?;
        check_length("words of quantised rows", expected, words.len())?;
        Ok(QuantizedRows {
            words,
            rows,
            k,
            row_words,
        })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn k(&self) -> usize {
        self.k
    }

    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> QuantizedRow {
        let words = &self.words[i * self.row_words..][..self.row_words];
        let groups = self.k / ACTIVATION_GROUP;
        QuantizedRow {
            scales: words.as_ptr(),
            sums_of_32: words[groups..].as_ptr(),
            sums_of_16: words[2 * groups..].as_ptr(),
            codes: words[4 * groups..].as_ptr().cast(),
        }
    }
}

/// Where the parts of one quantised row lie.
#[derive(Clone, Copy)]
pub(crate) struct QuantizedRow {
    pub scales: *const f32,
    pub sums_of_32: *const f32,
    pub sums_of_16: *const f32,
    pub codes: *const u8,
}

/// Quantises each row of `x`, after a norm if there is one, into `out[rows, QuantizedRows::row_words]`.
pub fn quantize_rows(
    machine: &Machine,
    x: Rows<'_>,
    norm: Option<Norm<'_>>,
    out: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    let level = machine.level();
    check_length("rows of quantised activations", x.rows(), out.rows())?;
    check_length(
        "words of a quantised row",
        QuantizedRows::row_words(x.width())?,
        out.width(),
    )?;
    if let Some(norm) = norm {
        check_length("weight of the norm", x.width(), norm.weight.len())?;
    }
    let out = &*out;
    machine.pool().split(x.rows(), GRAIN, &|range| {
        for r in range {
            // SAFETY: each row is written by one call.
            let words = unsafe { out.row(r) };
            level
                .run_any(QuantizeRow {
                    x: x.row(r),
                    norm,
                    words,
                })
                .expect("a machine has its level");
        }
    });
    Ok(())
}

/// Replaces each row by what quantising and dequantising it gives: `y[rows, k]`.
pub fn fake_quantize_rows(
    machine: &Machine,
    x: Rows<'_>,
    y: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    check_length("rows of the output", x.rows(), y.rows())?;
    check_length("width of the output", x.width(), y.width())?;
    let y = &*y;
    machine.pool().split(x.rows(), GRAIN, &|range| {
        for r in range {
            // SAFETY: each row is written by one call.
            let out = unsafe { y.row(r) };
            out.copy_from_slice(x.row(r));
            ingle_quant::fake_quantize(out);
        }
    });
    Ok(())
}

/// The lengths have been checked.
struct QuantizeRow<'a> {
    x: &'a [f32],
    norm: Option<Norm<'a>>,
    words: &'a mut [f32],
}

impl Kernel for QuantizeRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let groups = self.x.len() / ACTIVATION_GROUP;
        let factor = self
            .norm
            .map_or(1.0, |norm| norm_factor(isa, self.x, norm.eps));
        let (scales, rest) = self.words.split_at_mut(groups);
        let (sums_of_32, rest) = rest.split_at_mut(groups);
        let (sums_of_16, codes) = rest.split_at_mut(2 * groups);
        let codes: *mut u8 = codes.as_mut_ptr().cast();
        for g in 0..groups {
            let mut group = [0.0f32; ACTIVATION_GROUP];
            let x = &self.x[g * ACTIVATION_GROUP..][..ACTIVATION_GROUP];
            match self.norm {
                Some(norm) => normalise(
                    isa,
                    x,
                    &norm.weight[g * ACTIVATION_GROUP..][..ACTIVATION_GROUP],
                    factor,
                    &mut group,
                ),
                None => group.copy_from_slice(x),
            }
            let mut integers = [0i32; ACTIVATION_GROUP];
            let scale = quantize_group(isa, &group, &mut integers);
            let low: i32 = integers[..16].iter().sum();
            let high: i32 = integers[16..].iter().sum();
            scales[g] = scale;
            sums_of_32[g] = scale * (low + high) as f32;
            sums_of_16[2 * g] = scale * low as f32;
            sums_of_16[2 * g + 1] = scale * high as f32;
            // SAFETY: the row has `32 · ACTIVATION_BYTES` bytes for each group.
            unsafe {
                isa.pack_activations(
                    &integers,
                    codes.add(g * ACTIVATION_GROUP * ACTIVATION_BYTES),
                )
            };
        }
    }
}

/// The codes of a group and its scale.
#[inline(always)]
fn quantize_group<I: Isa>(
    isa: I,
    x: &[f32; ACTIVATION_GROUP],
    codes: &mut [i32; ACTIVATION_GROUP],
) -> f32 {
    let mut largest = isa.splat(0.0);
    // Finite values times zero add up to zero; infinities and NaN leave NaN.
    let mut finite = isa.splat(0.0);
    for at in (0..ACTIVATION_GROUP).step_by(I::LANES) {
        // SAFETY: LANES divides the group.
        let v = unsafe { isa.load(x.as_ptr().add(at)) };
        largest = isa.max(largest, isa.abs(v));
        finite = isa.mul_add(v, isa.splat(0.0), finite);
    }
    if isa.sum(finite).is_nan() {
        return f32::NAN;
    }
    let amax = isa.max_lane(largest);
    let inverse = 127.0 / amax;
    if !inverse.is_finite() {
        return 0.0;
    }
    for at in (0..ACTIVATION_GROUP).step_by(I::LANES) {
        // SAFETY: as above. The products are at most 127 and a rounding error, so they round to at most 127.
        unsafe {
            let t = isa.mul(isa.load(x.as_ptr().add(at)), isa.splat(inverse));
            let high = isa.to_f32(isa.round_to_i32(t));
            let weight = isa.splat(HIGH_TERM as f32);
            let low = isa.round_to_i32(isa.mul(isa.sub(t, high), weight));
            let code = isa.mul_add(high, weight, isa.to_f32(low));
            isa.store_i32(codes.as_mut_ptr().add(at), isa.round_to_i32(code));
        }
    }
    amax / LARGEST_CODE as f32
}
