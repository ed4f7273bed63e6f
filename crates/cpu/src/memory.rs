//! `Buffer`: aligned bytes, in huge pages where they are many.
//!
//! Decoding reads every weight once per token. In pages of 4 KiB the reading ahead of the CPU ends at each page, and page
//! tables compete with weights for the cache: 96 MB of weights are read at 14 GB/s, in pages of 2 MiB at 21.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use crate::CpuError;

/// Every buffer starts at a multiple of this: a cache line.
const ALIGN: usize = 64;

/// The size of a huge page, and what buffers of several of them start at a multiple of.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed bytes of a fixed length.
#[derive(Debug)]
pub struct Buffer {
    bytes: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: it owns its bytes as a `Vec<u8>` would.
unsafe impl Send for Buffer {}
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zeroes.
    pub fn zeroed(len: usize) -> Result<Self, CpuError> {
        let no_memory = CpuError::Memory { bytes: len };
        let align = if len >= 2 * HUGE_PAGE {
            HUGE_PAGE
        } else {
            ALIGN
        };
        let layout = Layout::from_size_align(len.max(1), align).map_err(|_| no_memory.clone())?;
        // SAFETY: the layout is not empty.
        let bytes = NonNull::new(unsafe { alloc(layout) }).ok_or(no_memory)?;
        if align == HUGE_PAGE {
            advise_huge_pages(bytes, layout.size());
        }
        // SAFETY: just allocated with this length. Writing comes after the advice, which is for pages not yet touched.
        unsafe { bytes.write_bytes(0, layout.size()) };
        Ok(Buffer { bytes, len, layout })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the bytes are initialised and owned.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) };
    }
}

/// Asks for huge pages. A kernel that has none says no, and nothing but speed is lost.
#[cfg(target_os = "linux")]
fn advise_huge_pages(bytes: NonNull<u8>, len: usize) {
    // SAFETY: the range is an allocation of ours, and the advice changes nothing that a program can see. Only whole huge
    // pages are named, so no other allocation is meant.
    unsafe {
        libc::madvise(
            bytes.as_ptr().cast(),
            len / HUGE_PAGE * HUGE_PAGE,
            libc::MADV_HUGEPAGE,
        )
    };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: NonNull<u8>, _: usize) {}
