//! What the targets share: the checks of the tests, and an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[allow(dead_code)]
#[path = "../../crates/formats/tests/support/exercise.rs"]
pub mod exercise;

/// Runs `parse` and fails when it takes more memory at its peak than `input` bytes and 1 MiB.
pub fn within_limit<T>(input: usize, parse: impl FnOnce() -> T) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = parse();
    let peak = PEAK.load(Relaxed).saturating_sub(before);
    assert!(
        peak <= input + (1 << 20),
        "{peak} bytes for an input of {input}"
    );
    drop(result);
}

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is handed to the system's allocator unchanged; the counters do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
