//! `Pool`: threads that share one launch at a time.
//!
//! A launch is short (microseconds), so a worker spins for a while before it sleeps, and starting one takes a counter and
//! no allocation. What a kernel computes does not depend on how its work is split, so results are the same for any number
//! of threads. A pool of one thread starts none, which is what WebAssembly without threads uses.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

use crate::CpuError;

/// Polls before a waiting thread sleeps: about 20 µs, longer than the gap between two launches of a step.
const SPINS: u32 = 4000;

/// Chunks that each thread gets on average, so that a thread that is held up does not hold up all.
const CHUNKS_PER_THREAD: usize = 4;

/// A fixed set of threads, the caller's included.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Counts launches; a worker runs one for each step of it.
    launch: AtomicUsize,
    /// The launch's work: `&&(dyn Fn() + Sync)`, valid until `pending` is 0.
    work: AtomicPtr<Work<'static>>,
    /// Workers that have not finished the launch.
    pending: AtomicUsize,
    /// Whether a launch is running.
    busy: AtomicBool,
    stop: AtomicBool,
    panicked: AtomicBool,
    sleeping: Vec<AtomicBool>,
}

type Work<'a> = &'a (dyn Fn() + Sync);

impl Pool {
    /// A pool of `threads` threads; the caller is one of them.
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        let helpers = threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            launch: AtomicUsize::new(0),
            work: AtomicPtr::new(std::ptr::null_mut()),
            pending: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            sleeping: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut pool = Pool {
            shared,
            workers: Vec::with_capacity(helpers),
        };
        for index in 0..helpers {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new()
                .name(format!("ingle-cpu-{index}"))
                .spawn(move || shared.serve(index))
                .map_err(|e| CpuError::Thread {
                    index,
                    reason: e.to_string(),
                })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Cuts `0..total` into chunks of at least `grain` and calls `work` with each once, from any thread. Returns when all
    /// have been.
    pub fn split(&self, total: usize, grain: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        let grain = grain.max(1);
        if self.workers.is_empty() || total <= grain {
            if total > 0 {
                work(0..total);
            }
            return;
        }
        let chunk = total
            .div_ceil(self.threads() * CHUNKS_PER_THREAD)
            .next_multiple_of(grain);
        let next = AtomicUsize::new(0);
        self.run(&|| {
            loop {
                let start = next.fetch_add(chunk, Ordering::Relaxed);
                if start >= total {
                    break;
                }
                work(start..total.min(start + chunk));
            }
        });
    }

    /// Calls `work` on every thread once and waits for all; while another launch runs, only on this thread.
    fn run(&self, work: Work<'_>) {
        let shared = &*self.shared;
        if shared.busy.swap(true, Ordering::Acquire) {
            return work();
        }
        // SAFETY: only the lifetime changes. Workers use the pointer before they lower `pending`, and this function does
        // not return, nor unwind, before `pending` is 0.
        let mut work: Work<'static> =
            unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
        shared.work.store(&mut work, Ordering::Relaxed);
        shared.pending.store(self.workers.len(), Ordering::Relaxed);
        shared.launch.fetch_add(1, Ordering::SeqCst);
        for (worker, sleeping) in self.workers.iter().zip(&shared.sleeping) {
            if sleeping.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        let mine = catch_unwind(AssertUnwindSafe(work));
        wait_for(|| shared.pending.load(Ordering::Acquire) == 0);
        shared.busy.store(false, Ordering::Release);
        if let Err(panic) = mine {
            resume_unwind(panic);
        }
        if shared.panicked.swap(false, Ordering::Relaxed) {
            panic!("a thread of the pool panicked; its message is above");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.launch.fetch_add(1, Ordering::SeqCst);
        self.workers
            .iter()
            .map(JoinHandle::thread)
            .for_each(Thread::unpark);
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its work, so joining cannot fail in a way that anyone could act on.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// The life of worker `index`.
    fn serve(&self, index: usize) {
        let mut seen = 0;
        loop {
            self.await_launch(index, seen);
            seen = seen.wrapping_add(1);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: `run` keeps the work alive until `pending` is 0, which it is not before this worker is done.
            let work = unsafe { *self.work.load(Ordering::Relaxed) };
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.pending.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits until the launch counter has left `seen`: spins first, then sleeps.
    fn await_launch(&self, index: usize, seen: usize) {
        for _ in 0..SPINS {
            if self.launch.load(Ordering::Acquire) != seen {
                return;
            }
            std::hint::spin_loop();
        }
        self.sleeping[index].store(true, Ordering::SeqCst);
        // The counter is read again after the flag is set, and `run` reads the flag after it has moved the counter: one of
        // the two sees the other, so no launch is slept through.
        while self.launch.load(Ordering::SeqCst) == seen {
            thread::park();
        }
        self.sleeping[index].store(false, Ordering::SeqCst);
    }
}

/// Waits until `done`; gives way to other threads when it takes long, so that a busy machine still makes progress.
fn wait_for(done: impl Fn() -> bool) {
    let mut spins = 0;
    while !done() {
        spins += 1;
        if spins < SPINS {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}
