//! A layer's KV pool, `[blocks, 2, heads, 32, head_dim]`: blocks of 32 positions, the keys of every head, then the values.

use std::marker::PhantomData;

use ingle_graph::ops::KV_BLOCK;
use ingle_quant::ElementType;

use crate::CpuError;
use crate::error::check_length;
use crate::isa::Isa;

/// The shape of a pool and the type of its elements.
#[derive(Clone, Copy, Debug)]
pub struct PoolShape {
    element: ElementType,
    blocks: usize,
    heads: usize,
    head_dim: usize,
}

/// Keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Keys = 0,
    Values = 1,
}

/// A pool to read.
#[derive(Clone, Copy, Debug)]
pub struct KvPool<'a> {
    shape: PoolShape,
    bytes: &'a [u8],
}

/// A pool to write, shared by the threads of one launch, each of which writes other heads.
#[derive(Debug)]
pub struct KvPoolMut<'a> {
    shape: PoolShape,
    bytes: *mut u8,
    owner: PhantomData<&'a mut [u8]>,
}

// SAFETY: it stands for `&mut [u8]`; writing is unsafe and asks for one thread per head.
unsafe impl Send for KvPoolMut<'_> {}
unsafe impl Sync for KvPoolMut<'_> {}

impl PoolShape {
    /// Elements are `f16` or `f32`.
    pub fn new(
        element: ElementType,
        blocks: usize,
        heads: usize,
        head_dim: usize,
    ) -> Result<Self, CpuError> {
        if !matches!(element, ElementType::F16 | ElementType::F32) {
            let found = element.name().into();
            return Err(CpuError::Unsupported {
                field: "element of the KV pool",
                expected: "f16 or f32",
                found,
            });
        }
        for (field, found) in [
            ("heads of the KV pool", heads),
            ("head size of the KV pool", head_dim),
        ] {
            if found == 0 {
                return Err(CpuError::Length {
                    field,
                    expected: 1,
                    found,
                });
            }
        }
        Ok(PoolShape {
            element,
            blocks,
            heads,
            head_dim,
        })
    }

    pub fn blocks(&self) -> usize {
        self.blocks
    }

    pub fn heads(&self) -> usize {
        self.heads
    }

    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    pub(crate) fn half(&self) -> bool {
        self.element == ElementType::F16
    }

    fn check(&self, bytes: usize) -> Result<(), CpuError> {
        let sizes = [2, self.heads, KV_BLOCK, self.head_dim, self.element.bytes()];
        let expected = sizes.into_iter().try_fold(self.blocks, usize::checked_mul);
        let too_large = CpuError::Limit {
            field: "blocks of the KV pool",
            limit: usize::MAX,
            found: self.blocks,
        };
        check_length("bytes of the KV pool", expected.ok_or(too_large)?, bytes)
    }

    /// Bytes before a position's vector.
    #[inline(always)]
    fn offset(&self, block: usize, which: Which, head: usize, place: usize) -> usize {
        let position = ((block * 2 + which as usize) * self.heads + head) * KV_BLOCK + place;
        position * self.head_dim * self.element.bytes()
    }
}

impl<'a> KvPool<'a> {
    pub fn new(shape: PoolShape, bytes: &'a [u8]) -> Result<Self, CpuError> {
        shape.check(bytes.len())?;
        Ok(KvPool { shape, bytes })
    }

    pub fn shape(&self) -> &PoolShape {
        &self.shape
    }

    /// The vectors of a block's 32 positions, one after the other.
    #[inline(always)]
    pub(crate) fn block(&self, block: usize, which: Which, head: usize) -> &'a [u8] {
        let len = KV_BLOCK * self.shape.head_dim * self.shape.element.bytes();
        &self.bytes[self.shape.offset(block, which, head, 0)..][..len]
    }
}

impl<'a> KvPoolMut<'a> {
    pub fn new(shape: PoolShape, bytes: &'a mut [u8]) -> Result<Self, CpuError> {
        shape.check(bytes.len())?;
        Ok(KvPoolMut {
            shape,
            bytes: bytes.as_mut_ptr(),
            owner: PhantomData,
        })
    }

    pub fn shape(&self) -> &PoolShape {
        &self.shape
    }

    /// Stores a vector at a slot.
    ///
    /// # Safety
    /// No other thread writes this head.
    #[inline(always)]
    pub(crate) unsafe fn write<I: Isa>(
        &self,
        isa: I,
        which: Which,
        head: usize,
        slot: usize,
        vector: &[f32],
    ) {
        let shape = &self.shape;
        assert!(
            slot / KV_BLOCK < shape.blocks && head < shape.heads && vector.len() == shape.head_dim
        );
        // SAFETY: the slot and the head exist, and the pool has the bytes of its shape.
        unsafe {
            let to = self
                .bytes
                .add(shape.offset(slot / KV_BLOCK, which, head, slot % KV_BLOCK));
            if shape.half() {
                store_half(isa, vector, to.cast());
            } else {
                std::ptr::copy_nonoverlapping(vector.as_ptr().cast(), to, 4 * vector.len());
            }
        }
    }
}

/// # Safety
/// `vector.len()` elements at `to` are writable.
#[inline(always)]
unsafe fn store_half<I: Isa>(isa: I, vector: &[f32], to: *mut u16) {
    let whole = vector.len() / I::LANES * I::LANES;
    unsafe {
        for at in (0..whole).step_by(I::LANES) {
            isa.store_f16(to.add(at), isa.load(vector.as_ptr().add(at)));
        }
        for (at, &v) in vector.iter().enumerate().skip(whole) {
            to.add(at).write_unaligned(half::f16::from_f32(v).to_bits());
        }
    }
}

/// Checks that every slot lies in the pool.
pub(crate) fn check_slots(slots: &[i32], shape: &PoolShape) -> Result<(), CpuError> {
    let limit = shape.blocks * KV_BLOCK;
    for (row, &slot) in slots.iter().enumerate() {
        if usize::try_from(slot).is_ok_and(|s| s < limit) {
            continue;
        }
        return Err(CpuError::Index {
            field: "slot of row",
            row,
            limit,
            found: slot.into(),
        });
    }
    Ok(())
}
