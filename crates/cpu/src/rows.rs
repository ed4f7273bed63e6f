//! Views of matrices: what kernels read and write.

use std::marker::PhantomData;

use crate::CpuError;
use crate::error::check_length;

/// A matrix of `f32` to read: row `i` is `width` elements from `i · stride` on.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    data: &'a [f32],
    rows: usize,
    width: usize,
    stride: usize,
}

impl<'a> Rows<'a> {
    /// A dense matrix `[rows, width]`.
    pub fn new(data: &'a [f32], rows: usize, width: usize) -> Result<Self, CpuError> {
        check_length("elements of a matrix", product(rows, width)?, data.len())?;
        Ok(Rows {
            data,
            rows,
            width,
            stride: width,
        })
    }

    /// Columns `start .. start + width` of this matrix.
    pub fn columns(self, start: usize, width: usize) -> Result<Self, CpuError> {
        if start > self.width || width > self.width - start {
            let found = start.saturating_add(width);
            return Err(CpuError::Limit {
                field: "last column",
                limit: self.width,
                found,
            });
        }
        // A matrix without rows has no data to skip.
        let data = self.data.get(start..).unwrap_or(&[]);
        Ok(Rows {
            data,
            width,
            ..self
        })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    pub fn row(&self, i: usize) -> &'a [f32] {
        assert!(i < self.rows);
        &self.data[i * self.stride..][..self.width]
    }
}

/// A dense matrix `[rows, width]` to write, shared by the threads of one launch, which write disjoint parts of it.
#[derive(Debug)]
pub struct RowsMut<'a, T = f32> {
    data: *mut T,
    rows: usize,
    width: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for `&mut [T]`; the only way to the elements is unsafe and asks for disjoint parts.
unsafe impl<T: Send> Send for RowsMut<'_, T> {}
unsafe impl<T: Send> Sync for RowsMut<'_, T> {}

impl<'a, T> RowsMut<'a, T> {
    pub fn new(data: &'a mut [T], rows: usize, width: usize) -> Result<Self, CpuError> {
        check_length("elements of a matrix", product(rows, width)?, data.len())?;
        Ok(RowsMut {
            data: data.as_mut_ptr(),
            rows,
            width,
            owner: PhantomData,
        })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn width(&self) -> usize {
        self.width
    }

    /// Elements `start .. start + len` of row `i`.
    ///
    /// # Safety
    /// No two slices that exist at a time overlap.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, i: usize, start: usize, len: usize) -> &mut [T] {
        assert!(i < self.rows && start <= self.width && len <= self.width - start);
        // SAFETY: the part lies inside the slice that this was made from; the caller sees to it that it is alone.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(i * self.width + start), len) }
    }

    /// Row `i`.
    ///
    /// # Safety
    /// As for [`RowsMut::part`].
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn row(&self, i: usize) -> &mut [T] {
        unsafe { self.part(i, 0, self.width) }
    }
}

fn product(rows: usize, width: usize) -> Result<usize, CpuError> {
    rows.checked_mul(width).ok_or(CpuError::Limit {
        field: "rows of a matrix",
        limit: usize::MAX / width.max(1),
        found: rows,
    })
}
