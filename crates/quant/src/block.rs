//! What lies in a block: every quantised ggml type as *groups*, each with codes in the order of
//! [`crate::PackedLayout`] and a scale (and min) as its bytes.
//!
//! Dequantising and packing both read blocks through this file, so that they cannot disagree. The bit patterns are
//! those of ggml's `ggml-quants.c`.

use half::f16;

use crate::{GgmlType, QuantError, ScaleType};

/// The longest group of any type, in elements.
pub(crate) const MAX_GROUP: usize = 32;

/// How the codes and scales of a group are stored; the part of a `PackedLayout` that follows from the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub bits: u8,
    pub offset: u8,
    pub group: usize,
    pub scale: ScaleType,
    pub min: bool,
}

impl Form {
    /// Bytes of the codes of one group of one row.
    pub const fn code_bytes(self) -> usize {
        self.group * self.bits as usize / 8
    }

    /// The values of one group: `scale · (code − offset) + min`, rounded after each operation, as ggml does.
    #[inline(always)]
    pub fn values(self, codes: &[u8], scale: f32, min: f32, out: &mut [f32]) {
        let value = |code: i32| {
            let product = scale * (code - i32::from(self.offset)) as f32;
            // Adding a zero min would turn −0 into +0.
            if self.min { product + min } else { product }
        };
        if self.bits == 4 {
            let (low, high) = out.split_at_mut(self.group / 2);
            for ((low, high), &byte) in low.iter_mut().zip(high).zip(codes) {
                *low = value(i32::from(byte & 0x0F));
                *high = value(i32::from(byte >> 4));
            }
        } else {
            for (out, &byte) in out.iter_mut().zip(codes) {
                *out = value(i32::from(byte as i8));
            }
        }
    }

    /// The value of a scale or min from the bytes at the start of `bytes`.
    #[inline(always)]
    pub fn scale_value(self, bytes: &[u8]) -> f32 {
        match self.scale {
            ScaleType::F16 => half_at(bytes, 0),
            ScaleType::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        }
    }
}

/// One group of a block. Only the first `code_bytes` codes, and the first `scale.bytes()` of scale and min, count.
pub(crate) struct Group {
    pub codes: [u8; MAX_GROUP],
    pub scale: [u8; 4],
    pub min: [u8; 4],
}

impl Group {
    const ZERO: Group = Group {
        codes: [0; MAX_GROUP],
        scale: [0; 4],
        min: [0; 4],
    };
}

/// A quantised ggml type.
pub(crate) trait Block {
    const FORM: Form;
    /// Bytes of one block.
    const BYTES: usize;
    /// Groups of one block.
    const GROUPS: usize;

    /// Hands each group of `block` (of `BYTES` bytes) to `emit`, in order.
    fn for_each_group(block: &[u8], emit: impl FnMut(usize, &Group));
}

/// Something that is done for one quantised type, chosen at run time.
pub(crate) trait BlockTask {
    type Output;
    fn run<B: Block>(self) -> Self::Output;
}

/// Runs `task` for `ty`; `operation` names it in the error.
pub(crate) fn with_block<T: BlockTask>(
    ty: GgmlType,
    operation: &'static str,
    task: T,
) -> Result<T::Output, QuantError> {
    Ok(match ty {
        GgmlType::Q4_0 => task.run::<Q4_0>(),
        GgmlType::Q4_1 => task.run::<Q4_1>(),
        GgmlType::Q5_0 => task.run::<Q5_0>(),
        GgmlType::Q5_1 => task.run::<Q5_1>(),
        GgmlType::Q8_0 => task.run::<Q8_0>(),
        GgmlType::Q4_K => task.run::<Q4K>(),
        GgmlType::Q5_K => task.run::<Q5K>(),
        GgmlType::Q6_K => task.run::<Q6K>(),
        _ => return Err(QuantError::UnsupportedType { ty, operation }),
    })
}

const fn form(bits: u8, offset: u8, group: usize, scale: ScaleType, min: bool) -> Form {
    Form {
        bits,
        offset,
        group,
        scale,
        min,
    }
}

struct Q4_0;
struct Q4_1;
struct Q5_0;
struct Q5_1;
struct Q8_0;
struct Q4K;
struct Q5K;
struct Q6K;

/// `d: f16, codes: 16 bytes`, in the layout's nibble order already.
impl Block for Q4_0 {
    const FORM: Form = form(4, 8, 32, ScaleType::F16, false);
    const BYTES: usize = 18;
    const GROUPS: usize = 1;

    #[inline(always)]
    fn for_each_group(block: &[u8], mut emit: impl FnMut(usize, &Group)) {
        let mut group = Group::ZERO;
        group.scale[..2].copy_from_slice(&block[..2]);
        group.codes[..16].copy_from_slice(&block[2..18]);
        emit(0, &group);
    }
}

/// `d: f16, m: f16, codes: 16 bytes`, in the layout's nibble order already.
impl Block for Q4_1 {
    const FORM: Form = form(4, 0, 32, ScaleType::F16, true);
    const BYTES: usize = 20;
    const GROUPS: usize = 1;

    #[inline(always)]
    fn for_each_group(block: &[u8], mut emit: impl FnMut(usize, &Group)) {
        let mut group = Group::ZERO;
        group.scale[..2].copy_from_slice(&block[..2]);
        group.min[..2].copy_from_slice(&block[2..4]);
        group.codes[..16].copy_from_slice(&block[4..20]);
        emit(0, &group);
    }
}

/// `d: f16, high: u32, low: 16 bytes`. Codes are stored with the offset 16 taken off.
impl Block for Q5_0 {
    const FORM: Form = form(8, 0, 32, ScaleType::F16, false);
    const BYTES: usize = 22;
    const GROUPS: usize = 1;

    #[inline(always)]
    fn for_each_group(block: &[u8], mut emit: impl FnMut(usize, &Group)) {
        let mut group = Group::ZERO;
        group.scale[..2].copy_from_slice(&block[..2]);
        five_bit_codes(&block[2..22], 16, &mut group.codes);
        emit(0, &group);
    }
}

/// `d: f16, m: f16, high: u32, low: 16 bytes`.
impl Block for Q5_1 {
    const FORM: Form = form(8, 0, 32, ScaleType::F16, true);
    const BYTES: usize = 24;
    const GROUPS: usize = 1;

    #[inline(always)]
    fn for_each_group(block: &[u8], mut emit: impl FnMut(usize, &Group)) {
        let mut group = Group::ZERO;
        group.scale[..2].copy_from_slice(&block[..2]);
        group.min[..2].copy_from_slice(&block[2..4]);
        five_bit_codes(&block[4..24], 0, &mut group.codes);
        emit(0, &group);
    }
}

/// `d: f16, codes: 32 signed bytes`.
impl Block for Q8_0 {
    const FORM: Form = form(8, 0, 32, ScaleType::F16, false);
    const BYTES: usize = 34;
    const GROUPS: usize = 1;

    #[inline(always)]
    fn for_each_group(block: &[u8], mut emit: impl FnMut(usize, &Group)) {
        let mut group = Group::ZERO;
        group.scale[..2].copy_from_slice(&block[..2]);
        group.codes.copy_from_slice(&block[2..34]);
        emit(0, &group);
    }
}

/// `d: f16, dmin: f16, sub-scales: 12 bytes, codes: 128 bytes`. 32 bytes hold two groups, one in each nibble, so the
/// nibbles change places: the layout puts both halves of one group into one byte.
impl Block for Q4K {
    const FORM: Form = form(4, 0, 32, ScaleType::F32, true);
    const BYTES: usize = 144;
    const GROUPS: usize = 8;

    #[inline(always)]
    fn for_each_group(block: &[u8], mut emit: impl FnMut(usize, &Group)) {
        let mut group = Group::ZERO;
        for (j, (scale, min)) in k_scales(block).into_iter().enumerate() {
            group.scale = scale.to_le_bytes();
            group.min = min.to_le_bytes();
            let (first, second) = block[16 + 32 * (j / 2)..][..32].split_at(16);
            for ((code, &a), &b) in group.codes[..16].iter_mut().zip(first).zip(second) {
                *code = if j % 2 == 0 {
                    (a & 0x0F) | (b << 4)
                } else {
                    (a >> 4) | (b & 0xF0)
                };
            }
            emit(j, &group);
        }
    }
}

/// `d: f16, dmin: f16, sub-scales: 12 bytes, high: 32 bytes, low: 128 bytes`. Bit `j` of high byte `l` is the fifth bit
/// of element `l` of group `j`.
impl Block for Q5K {
    const FORM: Form = form(8, 0, 32, ScaleType::F32, true);
    const BYTES: usize = 176;
    const GROUPS: usize = 8;

    #[inline(always)]
    fn for_each_group(block: &[u8], mut emit: impl FnMut(usize, &Group)) {
        let mut group = Group::ZERO;
        for (j, (scale, min)) in k_scales(block).into_iter().enumerate() {
            group.scale = scale.to_le_bytes();
            group.min = min.to_le_bytes();
            let high = &block[16..48];
            let low = &block[48 + 32 * (j / 2)..][..32];
            for ((code, &low), &high) in group.codes.iter_mut().zip(low).zip(high) {
                *code = ((low >> (4 * (j % 2))) & 0x0F) | (((high >> j) & 1) << 4);
            }
            emit(j, &group);
        }
    }
}

/// `low: 128 bytes, high: 64 bytes, sub-scales: 16 signed bytes, d: f16`. Codes are stored with the offset 32 taken off.
impl Block for Q6K {
    const FORM: Form = form(8, 0, 16, ScaleType::F32, false);
    const BYTES: usize = 210;
    const GROUPS: usize = 16;

    #[inline(always)]
    fn for_each_group(block: &[u8], mut emit: impl FnMut(usize, &Group)) {
        let mut group = Group::ZERO;
        let d = half_at(block, 208);
        for g in 0..Self::GROUPS {
            group.scale = (d * f32::from(block[192 + g] as i8)).to_le_bytes();
            // A half of the block has 4 chunks of 32 elements: chunk `t` takes bits 2t of the 32 high bytes, and the
            // low (t < 2) or high nibbles of the first or second 32 low bytes.
            let (half, t, start) = (g / 8, g / 2 % 4, g % 2 * 16);
            let low = &block[half * 64 + t % 2 * 32 + start..][..16];
            let high = &block[128 + half * 32 + start..][..16];
            for ((code, &low), &high) in group.codes[..16].iter_mut().zip(low).zip(high) {
                let unsigned = ((low >> (4 * (t / 2))) & 0x0F) | (((high >> (2 * t)) & 3) << 4);
                *code = unsigned.wrapping_sub(32);
            }
            emit(g, &group);
        }
    }
}

/// The f16 at byte `at`.
#[inline(always)]
pub(crate) fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Codes from `high: u32, low: 16 bytes` less `offset`: bit `i` of `high` is the fifth bit of element `i`.
#[inline(always)]
fn five_bit_codes(bytes: &[u8], offset: u8, codes: &mut [u8; MAX_GROUP]) {
    let high = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    for (i, &low) in bytes[4..20].iter().enumerate() {
        let fifth = |bit: usize| ((high >> bit) as u8 & 1) << 4;
        codes[i] = ((low & 0x0F) | fifth(i)).wrapping_sub(offset);
        codes[i + 16] = ((low >> 4) | fifth(i + 16)).wrapping_sub(offset);
    }
}

/// Scale and min of the 8 groups of a Q4_K or Q5_K block: `d · sub_scale` and `−(dmin · sub_min)`.
///
/// Bytes 0–3 of the sub-scales hold the scales of groups 0–3 in their low 6 bits, bytes 4–7 the mins; groups 4–7 have
/// their low 4 bits in bytes 8–11 and their high 2 in the top bits of bytes 0–7.
#[inline(always)]
fn k_scales(block: &[u8]) -> [(f32, f32); 8] {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let sub = &block[4..16];
    let mut scales = [(0.0, 0.0); 8];
    for j in 0..4 {
        let pairs = [
            (sub[j] & 0x3F, sub[j + 4] & 0x3F),
            (
                (sub[j + 8] & 0x0F) | ((sub[j] >> 2) & 0x30),
                (sub[j + 8] >> 4) | ((sub[j + 4] >> 2) & 0x30),
            ),
        ];
        for (half, (scale, min)) in pairs.into_iter().enumerate() {
            scales[j + 4 * half] = (d * f32::from(scale), -(dmin * f32::from(min)));
        }
    }
    scales
}
