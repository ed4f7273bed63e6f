//! WebAssembly's fixed-width SIMD: 4 lanes.
//!
//! There is no byte product that adds pairs, but `i32x4.dot_i16x8` adds pairs of 16-bit products. The two even bytes of a
//! run of 4 lie in one lane's two halves after a mask, the two odd ones after a shift, so that a dot with the activations
//! `(0, 2)` and one with `(1, 3)` leave each row's sum in its own lane. Activations are kept as `i16` in that order: their
//! two 8-bit terms cost no more than one.

use std::arch::wasm32::*;

use super::{Isa, Kernel};

#[derive(Clone, Copy)]
pub(crate) struct Simd128;

#[target_feature(enable = "simd128")]
fn run_with_features<K: Kernel>(isa: Simd128, kernel: K) -> K::Output {
    kernel.run(isa)
}

/// Dot products of the even and of the odd elements of each run.
#[inline(always)]
fn dot(sum: v128, codes: (v128, v128), acts: (v128, v128)) -> v128 {
    let even = i32x4_dot_i16x8(codes.0, acts.0);
    let odd = i32x4_dot_i16x8(codes.1, acts.1);
    i32x4_add(i32x4_add(sum, even), odd)
}

/// Half-precision bits in the low half of each lane as floats: exact, subnormals, infinities and NaN included, and without
/// a subnormal on the way, which some CPUs take a hundred cycles for.
#[inline(always)]
fn f16_to_f32(h: v128) -> v128 {
    let sign = i32x4_shl(v128_and(h, i32x4_splat(0x8000)), 16);
    let magnitude = v128_and(h, i32x4_splat(0x7fff));
    // The exponent is raised to where infinity stays infinity, then the value brought back to its size.
    let raised = i32x4_add(i32x4_shl(magnitude, 13), u32x4_splat(0x7000_0000));
    let normal = f32x4_mul(raised, f32x4_splat(f32::from_bits(0x0780_0000)));
    // A subnormal's bits count steps of 2⁻²⁴, the step of floats from one half on.
    let half = f32x4_splat(0.5);
    let subnormal = f32x4_sub(v128_or(magnitude, half), half);
    let small = i32x4_lt(magnitude, i32x4_splat(0x400));
    v128_or(sign, v128_bitselect(subnormal, normal, small))
}

impl Isa for Simd128 {
    const LANES: usize = 4;

    type F = v128;
    type I = v128;
    type Mask = v128;
    type Raw = v128;
    /// The even and the odd codes of each run, as `i16`.
    type U4 = (v128, v128);
    type I8 = (v128, v128);
    type Activations = (v128, v128);
    type SumU4 = v128;

    #[inline]
    fn run<K: Kernel>(self, kernel: K) -> K::Output {
        run_with_features(self, kernel)
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> v128 {
        unsafe { v128_load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: v128) {
        unsafe { v128_store(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> v128 {
        f16_to_f32(unsafe { u32x4_load_extend_u16x4(p) })
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: v128) {
        let mut lanes = [0f32; 4];
        unsafe {
            v128_store(lanes.as_mut_ptr().cast(), v);
            p.cast::<[u16; 4]>()
                .write_unaligned(lanes.map(|x| half::f16::from_f32(x).to_bits()));
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> v128 {
        i32x4_shl(unsafe { u32x4_load_extend_u16x4(p) }, 16)
    }
    #[inline(always)]
    unsafe fn store_i32(self, p: *mut i32, v: v128) {
        unsafe { v128_store(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_raw(self, p: *const u8) -> v128 {
        unsafe { v128_load(p.cast()) }
    }

    #[inline(always)]
    fn splat(self, v: f32) -> v128 {
        f32x4_splat(v)
    }
    #[inline(always)]
    fn add(self, a: v128, b: v128) -> v128 {
        f32x4_add(a, b)
    }
    #[inline(always)]
    fn sub(self, a: v128, b: v128) -> v128 {
        f32x4_sub(a, b)
    }
    #[inline(always)]
    fn mul(self, a: v128, b: v128) -> v128 {
        f32x4_mul(a, b)
    }
    #[inline(always)]
    fn div(self, a: v128, b: v128) -> v128 {
        f32x4_div(a, b)
    }
    #[inline(always)]
    fn mul_add(self, a: v128, b: v128, c: v128) -> v128 {
        f32x4_add(f32x4_mul(a, b), c)
    }
    #[inline(always)]
    fn min(self, a: v128, b: v128) -> v128 {
        f32x4_pmin(b, a)
    }
    #[inline(always)]
    fn max(self, a: v128, b: v128) -> v128 {
        f32x4_pmax(b, a)
    }
    #[inline(always)]
    fn sqrt(self, a: v128) -> v128 {
        f32x4_sqrt(a)
    }
    #[inline(always)]
    fn abs(self, a: v128) -> v128 {
        f32x4_abs(a)
    }
    #[inline(always)]
    fn copysign(self, magnitude: v128, sign: v128) -> v128 {
        v128_bitselect(sign, magnitude, i32x4_splat(i32::MIN))
    }
    #[inline(always)]
    fn less(self, a: v128, b: v128) -> v128 {
        f32x4_lt(a, b)
    }
    #[inline(always)]
    fn is_nan(self, a: v128) -> v128 {
        f32x4_ne(a, a)
    }
    #[inline(always)]
    fn select(self, mask: v128, a: v128, b: v128) -> v128 {
        v128_bitselect(a, b, mask)
    }
    #[inline(always)]
    fn scale_by_power(self, a: v128, n: v128) -> v128 {
        let bias = i32x4_splat(127);
        let half = i32x4_shr(n, 1);
        let rest = i32x4_sub(n, half);
        let x = i32x4_shl(i32x4_add(half, bias), 23);
        let y = i32x4_shl(i32x4_add(rest, bias), 23);
        f32x4_mul(f32x4_mul(a, x), y)
    }
    #[inline(always)]
    fn round_to_i32(self, a: v128) -> v128 {
        i32x4_trunc_sat_f32x4(f32x4_nearest(a))
    }
    #[inline(always)]
    fn to_f32(self, a: v128) -> v128 {
        f32x4_convert_i32x4(a)
    }
    #[inline(always)]
    fn sum(self, a: v128) -> f32 {
        let two = f32x4_add(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
        f32x4_extract_lane::<0>(two) + f32x4_extract_lane::<1>(two)
    }
    #[inline(always)]
    fn max_lane(self, a: v128) -> f32 {
        let two = f32x4_pmax(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
        let one = f32x4_pmax(two, i32x4_shuffle::<1, 0, 3, 2>(two, two));
        f32x4_extract_lane::<0>(one)
    }

    #[inline(always)]
    unsafe fn pack_activations(self, codes: &[i32; 32], p: *mut u8) {
        let mut out = [0i16; 32];
        for (run, four) in out.chunks_exact_mut(4).zip(codes.chunks_exact(4)) {
            for (to, from) in run.iter_mut().zip([four[0], four[2], four[1], four[3]]) {
                *to = from as i16;
            }
        }
        unsafe { p.cast::<[i16; 32]>().write_unaligned(out) }
    }
    #[inline(always)]
    unsafe fn activations(self, p: *const u8) -> (v128, v128) {
        unsafe {
            (
                v128_load32_splat(p.cast()),
                v128_load32_splat(p.add(4).cast()),
            )
        }
    }
    #[inline(always)]
    fn split_u4(self, raw: v128) -> ((v128, v128), (v128, v128)) {
        let mask = i16x8_splat(0xf);
        let low = (v128_and(raw, mask), v128_and(u16x8_shr(raw, 8), mask));
        let high = (v128_and(u16x8_shr(raw, 4), mask), u16x8_shr(raw, 12));
        (low, high)
    }
    #[inline(always)]
    fn codes_i8(self, raw: v128) -> (v128, v128) {
        (i16x8_shr(i16x8_shl(raw, 8), 8), i16x8_shr(raw, 8))
    }
    #[inline(always)]
    fn zero_i32(self) -> v128 {
        i32x4_splat(0)
    }
    #[inline(always)]
    fn zero_u4(self) -> v128 {
        i32x4_splat(0)
    }
    #[inline(always)]
    fn dot_u4(self, sum: v128, codes: (v128, v128), acts: (v128, v128)) -> v128 {
        dot(sum, codes, acts)
    }
    #[inline(always)]
    fn total_u4(self, sum: v128) -> v128 {
        sum
    }
    #[inline(always)]
    fn dot_i8(self, sum: v128, codes: (v128, v128), acts: (v128, v128)) -> v128 {
        dot(sum, codes, acts)
    }

    #[inline(always)]
    fn next_u4(self, raw: v128) -> (v128, v128) {
        (
            f32x4_convert_i32x4(v128_and(raw, i32x4_splat(0xf))),
            u32x4_shr(raw, 4),
        )
    }
    #[inline(always)]
    fn next_i8(self, raw: v128) -> (v128, v128) {
        (
            f32x4_convert_i32x4(i32x4_shr(i32x4_shl(raw, 24), 24)),
            u32x4_shr(raw, 8),
        )
    }
}
