//! AVX2 with FMA and F16C: 8 lanes.
//!
//! 4-bit codes are unsigned bytes, so `maddubs` multiplies them with signed activations and adds pairs in `i16`; a group
//! of 32 sums to at most 8 · 2 · 15 · 127 = 30,480, so one `madd` for each term at its end is enough, which weighs the high
//! one too. 8-bit codes are signed: `maddubs` takes their magnitude and activations that carry their sign, and
//! 2 · 128 · 127 = 32,512 still fits. Activations are kept as runs of 4 high terms and their 4 low ones.

use std::arch::x86_64::*;

use ingle_quant::HIGH_TERM;

use super::{Isa, Kernel};

/// Exists only where the CPU has AVX2, FMA and F16C: that is what every `unsafe` block of register operations rests on.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    #[inline]
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        has.then_some(Avx2(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn run_with_features<K: Kernel>(isa: Avx2, kernel: K) -> K::Output {
    kernel.run(isa)
}

/// Pairs of `i16` added up, those of the high terms weighed.
#[inline(always)]
fn weigh(high: __m256i, low: __m256i) -> __m256i {
    unsafe {
        let high = _mm256_madd_epi16(high, _mm256_set1_epi16(HIGH_TERM as i16));
        _mm256_add_epi32(high, _mm256_madd_epi16(low, _mm256_set1_epi16(1)))
    }
}

impl Isa for Avx2 {
    const LANES: usize = 8;

    type F = __m256;
    type I = __m256i;
    type Mask = __m256;
    type Raw = __m256i;
    type U4 = __m256i;
    /// Magnitudes and the codes themselves, whose signs the activations take.
    type I8 = (__m256i, __m256i);
    /// The high and the low terms.
    type Activations = (__m256i, __m256i);
    /// For each term 16 sums of `i16`, two for each lane.
    type SumU4 = (__m256i, __m256i);

    #[inline]
    fn run<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { run_with_features(self, kernel) }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: __m256) {
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> __m256 {
        unsafe {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(
                _mm_loadu_si128(p.cast()),
            )))
        }
    }
    #[inline(always)]
    unsafe fn store_i32(self, p: *mut i32, v: __m256i) {
        unsafe { _mm256_storeu_si256(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_raw(self, p: *const u8) -> __m256i {
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    fn splat(self, v: f32) -> __m256 {
        unsafe { _mm256_set1_ps(v) }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn sqrt(self, a: __m256) -> __m256 {
        unsafe { _mm256_sqrt_ps(a) }
    }
    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }
    #[inline(always)]
    fn copysign(self, magnitude: __m256, sign: __m256) -> __m256 {
        unsafe {
            let mask = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(mask, magnitude), _mm256_and_ps(mask, sign))
        }
    }
    #[inline(always)]
    fn less(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn is_nan(self, a: __m256) -> __m256 {
        unsafe { _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a) }
    }
    #[inline(always)]
    fn select(self, mask: __m256, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_blendv_ps(b, a, mask) }
    }
    #[inline(always)]
    fn scale_by_power(self, a: __m256, n: __m256i) -> __m256 {
        unsafe {
            let bias = _mm256_set1_epi32(127);
            let half = _mm256_srai_epi32::<1>(n);
            let rest = _mm256_sub_epi32(n, half);
            let x = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(half, bias)));
            let y = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(rest, bias)));
            _mm256_mul_ps(_mm256_mul_ps(a, x), y)
        }
    }
    #[inline(always)]
    fn round_to_i32(self, a: __m256) -> __m256i {
        unsafe { _mm256_cvtps_epi32(a) }
    }
    #[inline(always)]
    fn to_f32(self, a: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(a) }
    }
    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn max_lane(self, a: __m256) -> f32 {
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    unsafe fn pack_activations(self, codes: &[i32; 32], p: *mut u8) {
        unsafe {
            let split = [0, 8, 16, 24].map(|at| {
                let code = _mm256_loadu_si256(codes.as_ptr().add(at).cast());
                // Any split whose terms fit their bytes will do, so a rounded quotient does.
                let quotient = _mm256_mul_ps(
                    _mm256_cvtepi32_ps(code),
                    _mm256_set1_ps(1.0 / HIGH_TERM as f32),
                );
                let high = _mm256_cvtps_epi32(quotient);
                let weighed = _mm256_mullo_epi32(high, _mm256_set1_epi32(HIGH_TERM));
                (high, _mm256_sub_epi32(code, weighed))
            });
            let [high, low] = [split.map(|s| s.0), split.map(|s| s.1)].map(|[a, b, c, d]| {
                _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d))
            });
            // Packing works in halves of 128 bits, so the first halves hold the runs 0, 2, 4, 6 and the others the rest.
            let even = _mm256_unpacklo_epi32(high, low);
            let odd = _mm256_unpackhi_epi32(high, low);
            let runs =
                [even, odd].map(|v| (_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v)));
            for (i, (first, second)) in runs.into_iter().enumerate() {
                let q = p.add(32 * i).cast::<__m128i>();
                _mm_storeu_si128(q, _mm_unpacklo_epi64(first, second));
                _mm_storeu_si128(q.add(1), _mm_unpackhi_epi64(first, second));
            }
        }
    }
    #[inline(always)]
    unsafe fn activations(self, p: *const u8) -> (__m256i, __m256i) {
        let at = |i: usize| unsafe { p.cast::<i32>().add(i).read_unaligned() };
        unsafe { (_mm256_set1_epi32(at(0)), _mm256_set1_epi32(at(1))) }
    }
    #[inline(always)]
    fn split_u4(self, raw: __m256i) -> (__m256i, __m256i) {
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            (
                _mm256_and_si256(raw, mask),
                _mm256_and_si256(_mm256_srli_epi16::<4>(raw), mask),
            )
        }
    }
    #[inline(always)]
    fn codes_i8(self, raw: __m256i) -> (__m256i, __m256i) {
        unsafe { (_mm256_abs_epi8(raw), raw) }
    }
    #[inline(always)]
    fn zero_i32(self) -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    fn zero_u4(self) -> (__m256i, __m256i) {
        (self.zero_i32(), self.zero_i32())
    }
    #[inline(always)]
    fn dot_u4(
        self,
        sum: (__m256i, __m256i),
        codes: __m256i,
        acts: (__m256i, __m256i),
    ) -> (__m256i, __m256i) {
        unsafe {
            (
                _mm256_add_epi16(sum.0, _mm256_maddubs_epi16(codes, acts.0)),
                _mm256_add_epi16(sum.1, _mm256_maddubs_epi16(codes, acts.1)),
            )
        }
    }
    #[inline(always)]
    fn total_u4(self, sum: (__m256i, __m256i)) -> __m256i {
        weigh(sum.0, sum.1)
    }
    #[inline(always)]
    fn dot_i8(self, sum: __m256i, codes: (__m256i, __m256i), acts: (__m256i, __m256i)) -> __m256i {
        unsafe {
            let high = _mm256_maddubs_epi16(codes.0, _mm256_sign_epi8(acts.0, codes.1));
            let low = _mm256_maddubs_epi16(codes.0, _mm256_sign_epi8(acts.1, codes.1));
            _mm256_add_epi32(sum, weigh(high, low))
        }
    }

    #[inline(always)]
    fn next_u4(self, raw: __m256i) -> (__m256, __m256i) {
        unsafe {
            let code = _mm256_and_si256(raw, _mm256_set1_epi32(0xf));
            (_mm256_cvtepi32_ps(code), _mm256_srli_epi32::<4>(raw))
        }
    }
    #[inline(always)]
    fn next_i8(self, raw: __m256i) -> (__m256, __m256i) {
        unsafe {
            let code = _mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(raw));
            (_mm256_cvtepi32_ps(code), _mm256_srli_epi32::<8>(raw))
        }
    }
}
