//! The instruction sets: one trait, one implementation each, chosen at run time.
//!
//! Kernels are written once, generic over [`Isa`]. This is the only module that names a `target_arch`.
//!
//! The trait's unit is a vector of `LANES` lanes, which is also the number of rows in a tile of packed weights
//! ([`ingle_quant::PackedLayout::rows`]): a load of `LANES × 4` bytes brings 4 codes for each row, every lane works on one
//! row, and no sum ever crosses lanes. An instruction set with wider or better integer dot products (AVX-512, VNNI, NEON
//! `sdot`, relaxed SIMD) is one more implementation of the same trait.
//!
//! Methods are `#[inline(always)]`, and a kernel starts inside [`Isa::run`], whose body is compiled with the features of
//! the instruction set; everything below it must be inlined too, or it falls back to baseline code.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(not(target_arch = "wasm32"))]
mod scalar;
#[cfg(target_arch = "wasm32")]
mod simd128;

use crate::CpuError;

/// An upper bound of `Isa::LANES`, for small buffers on the stack.
pub(crate) const MAX_LANES: usize = 16;

/// Bytes that hold one quantised activation: its two terms as signed bytes, or its code in 16 bits, in the order that
/// [`Isa::activations`] wants.
pub(crate) const ACTIVATION_BYTES: usize = 2;

/// A computation that is generic over the instruction set.
pub(crate) trait Kernel {
    type Output;

    /// Must be `#[inline(always)]`.
    fn run<I: Isa>(self, isa: I) -> Self::Output;
}

/// One instruction set. A value of the type is the proof that the CPU has it.
pub(crate) trait Isa: Copy + Send + Sync + 'static {
    /// Lanes of a vector of `f32`, and rows in a tile of packed weights.
    const LANES: usize;

    /// `LANES` values of `f32`.
    type F: Copy;
    /// `LANES` values of `i32`.
    type I: Copy;
    /// `LANES` truth values.
    type Mask: Copy;
    /// `LANES` runs of 4 bytes, as they lie in packed weights.
    type Raw: Copy;
    /// 4 unsigned 4-bit codes for each lane, ready to multiply.
    type U4: Copy;
    /// 4 signed 8-bit codes for each lane, ready to multiply.
    type I8: Copy;
    /// 4 quantised activations, the same for all lanes.
    type Activations: Copy;
    /// Running dot products of 4-bit codes, good for one group of up to 32.
    type SumU4: Copy;

    /// Runs a kernel inside a function compiled for this instruction set.
    fn run<K: Kernel>(self, kernel: K) -> K::Output;

    // Memory. Pointers need no alignment; `LANES` elements must be readable or writable.

    /// # Safety
    /// `LANES` elements at `p` are readable.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// # Safety
    /// `LANES` elements at `p` are writable.
    unsafe fn store(self, p: *mut f32, v: Self::F);
    /// # Safety
    /// `LANES` elements at `p` are readable.
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    /// Rounds to nearest, ties to even.
    ///
    /// # Safety
    /// `LANES` elements at `p` are writable.
    unsafe fn store_f16(self, p: *mut u16, v: Self::F);
    /// # Safety
    /// `LANES` elements at `p` are readable.
    unsafe fn load_bf16(self, p: *const u16) -> Self::F;
    /// # Safety
    /// `LANES` elements at `p` are writable.
    unsafe fn store_i32(self, p: *mut i32, v: Self::I);
    /// # Safety
    /// `LANES · 4` bytes at `p` are readable.
    unsafe fn load_raw(self, p: *const u8) -> Self::Raw;
    /// Hints that the cache line at `p`, which need not be readable, will be read soon.
    fn prefetch(self, _p: *const u8) {}

    // Arithmetic on f32.

    fn splat(self, v: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once where the instruction set can, else twice.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The smaller; unspecified which if either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// The larger; unspecified which if either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    fn copysign(self, magnitude: Self::F, sign: Self::F) -> Self::F;
    fn less(self, a: Self::F, b: Self::F) -> Self::Mask;
    fn is_nan(self, a: Self::F) -> Self::Mask;
    /// `a` where the mask is true, else `b`.
    fn select(self, mask: Self::Mask, a: Self::F, b: Self::F) -> Self::F;
    /// `a · 2ⁿ` for integral `n` in −252 ..= 254.
    fn scale_by_power(self, a: Self::F, n: Self::I) -> Self::F;
    /// The nearest integer, ties to even; for magnitudes below 2³¹.
    fn round_to_i32(self, a: Self::F) -> Self::I;
    fn to_f32(self, a: Self::I) -> Self::F;
    /// The sum of the lanes, always in the same order.
    fn sum(self, a: Self::F) -> f32;
    /// The largest lane; unspecified if one is NaN.
    fn max_lane(self, a: Self::F) -> f32;

    // Integer dot products.

    /// Writes 32 codes in −32258 ..= 32258 as [`Isa::activations`] reads them.
    ///
    /// # Safety
    /// `32 · ACTIVATION_BYTES` bytes at `p` are writable.
    unsafe fn pack_activations(self, codes: &[i32; 32], p: *mut u8);
    /// # Safety
    /// `4 · ACTIVATION_BYTES` bytes at `p` are readable.
    unsafe fn activations(self, p: *const u8) -> Self::Activations;
    /// The low and the high nibbles.
    fn split_u4(self, raw: Self::Raw) -> (Self::U4, Self::U4);
    fn codes_i8(self, raw: Self::Raw) -> Self::I8;
    fn zero_i32(self) -> Self::I;
    fn zero_u4(self) -> Self::SumU4;
    fn dot_u4(self, sum: Self::SumU4, codes: Self::U4, acts: Self::Activations) -> Self::SumU4;
    fn total_u4(self, sum: Self::SumU4) -> Self::I;
    fn dot_i8(self, sum: Self::I, codes: Self::I8, acts: Self::Activations) -> Self::I;

    // Codes as floats.

    /// The lowest nibble of each lane as a float, and the lanes shifted down by one nibble.
    fn next_u4(self, raw: Self::Raw) -> (Self::F, Self::Raw);
    /// The lowest byte of each lane, signed, as a float, and the lanes shifted down by one byte.
    fn next_i8(self, raw: Self::Raw) -> (Self::F, Self::Raw);
}

/// The instruction sets by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Plain Rust, in tiles of 4 or 8 rows. The reference of the others; not on WebAssembly, whose module is compiled
    /// for SIMD as a whole.
    Scalar,
    /// AVX2 with FMA and F16C (x86-64).
    Avx2,
    /// WebAssembly's fixed-width SIMD.
    Simd128,
}

impl Level {
    pub const ALL: [Level; 3] = [Level::Scalar, Level::Avx2, Level::Simd128];

    /// The best that this CPU has.
    pub fn detect() -> Level {
        [Level::Avx2, Level::Simd128]
            .into_iter()
            .find(|l| l.is_available())
            .unwrap_or(Level::Scalar)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Simd128 => "simd128",
        }
    }

    /// Whether this build has it and the CPU too.
    pub fn is_available(self) -> bool {
        struct Probe;
        impl Kernel for Probe {
            type Output = ();
            #[inline(always)]
            fn run<I: Isa>(self, _: I) {}
        }
        self.run(self.tile_rows(), Probe).is_ok()
    }

    /// Rows per tile that packed weights should have for this level.
    pub const fn tile_rows(self) -> usize {
        match self {
            Level::Scalar | Level::Avx2 => 8,
            Level::Simd128 => 4,
        }
    }

    /// Runs a kernel with vectors of `lanes` lanes.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, lanes: usize, kernel: K) -> Result<K::Output, CpuError> {
        match (self, lanes) {
            #[cfg(not(target_arch = "wasm32"))]
            (Level::Scalar, 4) => return Ok(scalar::Scalar::<4>.run(kernel)),
            #[cfg(not(target_arch = "wasm32"))]
            (Level::Scalar, 8) => return Ok(scalar::Scalar::<8>.run(kernel)),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, 8) => {
                if let Some(isa) = avx2::Avx2::detect() {
                    return Ok(isa.run(kernel));
                }
            }
            #[cfg(target_arch = "wasm32")]
            (Level::Simd128, 4) => return Ok(simd128::Simd128.run(kernel)),
            _ => {}
        }
        Err(CpuError::Level {
            level: self.name(),
            lanes,
        })
    }

    /// Runs a kernel that does not care about the number of lanes.
    #[inline]
    pub(crate) fn run_any<K: Kernel>(self, kernel: K) -> Result<K::Output, CpuError> {
        self.run(self.tile_rows(), kernel)
    }
}
