//! Plain Rust with `N` lanes: the reference of the other instruction sets, and what runs where there is none.

use half::{bf16, f16};

use super::{Isa, Kernel};

#[derive(Clone, Copy)]
pub(crate) struct Scalar<const N: usize>;

#[inline(always)]
fn map<const N: usize, T: Copy, U: Copy + Default>(a: [T; N], f: impl Fn(T) -> U) -> [U; N] {
    let mut out = [U::default(); N];
    for i in 0..N {
        out[i] = f(a[i]);
    }
    out
}

#[inline(always)]
fn zip<const N: usize, T: Copy, U: Copy + Default>(
    a: [T; N],
    b: [T; N],
    f: impl Fn(T, T) -> U,
) -> [U; N] {
    let mut out = [U::default(); N];
    for i in 0..N {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline(always)]
fn dot<const N: usize>(sum: [i32; N], codes: [[i8; 4]; N], acts: [i16; 4]) -> [i32; N] {
    let mut out = sum;
    for i in 0..N {
        for j in 0..4 {
            out[i] += i32::from(codes[i][j]) * i32::from(acts[j]);
        }
    }
    out
}

impl<const N: usize> Isa for Scalar<N> {
    const LANES: usize = N;

    type F = [f32; N];
    type I = [i32; N];
    type Mask = [bool; N];
    type Raw = [u32; N];
    type U4 = [[i8; 4]; N];
    type I8 = [[i8; 4]; N];
    type Activations = [i16; 4];
    type SumU4 = [i32; N];

    fn run<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        unsafe { p.cast::<[f32; N]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F) {
        unsafe { p.cast::<[f32; N]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        map(unsafe { p.cast::<[u16; N]>().read_unaligned() }, |h| {
            f16::from_bits(h).to_f32()
        })
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F) {
        unsafe {
            p.cast::<[u16; N]>()
                .write_unaligned(map(v, |x| f16::from_f32(x).to_bits()))
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        map(unsafe { p.cast::<[u16; N]>().read_unaligned() }, |h| {
            bf16::from_bits(h).to_f32()
        })
    }
    #[inline(always)]
    unsafe fn store_i32(self, p: *mut i32, v: Self::I) {
        unsafe { p.cast::<[i32; N]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_raw(self, p: *const u8) -> Self::Raw {
        map(
            unsafe { p.cast::<[[u8; 4]; N]>().read_unaligned() },
            u32::from_le_bytes,
        )
    }

    #[inline(always)]
    fn splat(self, v: f32) -> Self::F {
        [v; N]
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        map(a, f32::sqrt)
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        map(a, f32::abs)
    }
    #[inline(always)]
    fn copysign(self, magnitude: Self::F, sign: Self::F) -> Self::F {
        zip(magnitude, sign, f32::copysign)
    }
    #[inline(always)]
    fn less(self, a: Self::F, b: Self::F) -> Self::Mask {
        zip(a, b, |a, b| a < b)
    }
    #[inline(always)]
    fn is_nan(self, a: Self::F) -> Self::Mask {
        map(a, f32::is_nan)
    }
    #[inline(always)]
    fn select(self, mask: Self::Mask, a: Self::F, b: Self::F) -> Self::F {
        let mut out = b;
        for i in 0..N {
            if mask[i] {
                out[i] = a[i];
            }
        }
        out
    }
    #[inline(always)]
    fn scale_by_power(self, a: Self::F, n: Self::I) -> Self::F {
        let mut out = a;
        for i in 0..N {
            let half = n[i] >> 1;
            out[i] = a[i] * power(half) * power(n[i] - half);
        }
        out
    }
    #[inline(always)]
    fn round_to_i32(self, a: Self::F) -> Self::I {
        map(a, |v| v.round_ties_even() as i32)
    }
    #[inline(always)]
    fn to_f32(self, a: Self::I) -> Self::F {
        map(a, |v| v as f32)
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        let mut total = 0.0;
        for v in a {
            total += v;
        }
        total
    }
    #[inline(always)]
    fn max_lane(self, a: Self::F) -> f32 {
        let mut best = a[0];
        for v in a {
            if v > best {
                best = v;
            }
        }
        best
    }

    #[inline(always)]
    unsafe fn pack_activations(self, codes: &[i32; 32], p: *mut u8) {
        unsafe {
            p.cast::<[i16; 32]>()
                .write_unaligned(map(*codes, |c| c as i16))
        }
    }
    #[inline(always)]
    unsafe fn activations(self, p: *const u8) -> Self::Activations {
        unsafe { p.cast::<[i16; 4]>().read_unaligned() }
    }
    #[inline(always)]
    fn split_u4(self, raw: Self::Raw) -> (Self::U4, Self::U4) {
        let nibbles = |shift: u32| {
            map(raw, |v| {
                ((v >> shift) & 0x0f0f_0f0f).to_le_bytes().map(|b| b as i8)
            })
        };
        (nibbles(0), nibbles(4))
    }
    #[inline(always)]
    fn codes_i8(self, raw: Self::Raw) -> Self::I8 {
        map(raw, |v| v.to_le_bytes().map(|b| b as i8))
    }
    #[inline(always)]
    fn zero_i32(self) -> Self::I {
        [0; N]
    }
    #[inline(always)]
    fn zero_u4(self) -> Self::SumU4 {
        [0; N]
    }
    #[inline(always)]
    fn dot_u4(self, sum: Self::SumU4, codes: Self::U4, acts: Self::Activations) -> Self::SumU4 {
        dot(sum, codes, acts)
    }
    #[inline(always)]
    fn total_u4(self, sum: Self::SumU4) -> Self::I {
        sum
    }
    #[inline(always)]
    fn dot_i8(self, sum: Self::I, codes: Self::I8, acts: Self::Activations) -> Self::I {
        dot(sum, codes, acts)
    }

    #[inline(always)]
    fn next_u4(self, raw: Self::Raw) -> (Self::F, Self::Raw) {
        (map(raw, |v| (v & 0xf) as f32), map(raw, |v| v >> 4))
    }
    #[inline(always)]
    fn next_i8(self, raw: Self::Raw) -> (Self::F, Self::Raw) {
        (map(raw, |v| f32::from(v as u8 as i8)), map(raw, |v| v >> 8))
    }
}

/// `2ⁿ` for `n` in −126 ..= 127.
#[inline(always)]
fn power(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}
