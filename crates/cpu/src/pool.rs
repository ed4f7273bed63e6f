//! `Pool`: threads that share one launch at a time.
//!
//! A launch is short (microseconds), so whoever waits spins for a while before it sleeps, and starting one takes a counter
//! and no allocation. A launch is open: threads that are awake join it and claim chunks of it until none is left, then it
//! closes, and the caller waits only for threads that are in it. One that the system has not scheduled in the meantime is
//! not waited for. What a kernel computes does not depend on how its work is split, so results are the same for any number
//! of threads. A pool of one thread starts none, which is what WebAssembly without threads uses.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crate::CpuError;

/// Polls before a waiting thread sleeps: tens of microseconds, longer than the gap between two launches of a step.
const SPINS: u32 = 2000;

/// Chunks that each thread gets on average, so that a thread that is held up does not hold up all.
const CHUNKS_PER_THREAD: usize = 4;

/// A fixed set of threads, the caller's included.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// The launch: [`INSIDE`], [`OPEN`], [`AWAITED`], and above them its number.
    state: AtomicU64,
    /// The launch's work: `&&(dyn Fn() + Sync)`, valid for a thread that counts as inside.
    work: AtomicPtr<Work<'static>>,
    /// Whether a launch is running.
    busy: AtomicBool,
    /// Workers that have started.
    started: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
    /// For each worker, whether it must be woken to see a launch.
    sleeping: Vec<AtomicBool>,
    /// Where a caller sleeps until all have left. Nobody holds the lock while a launch runs.
    lock: Mutex<()>,
    left: Condvar,
}

/// How many workers are inside the launch.
const INSIDE: u64 = (1 << 16) - 1;
/// Whether workers may still join.
const OPEN: u64 = 1 << 16;
/// Whether the caller sleeps until the last worker leaves.
const AWAITED: u64 = 1 << 17;
/// One launch more.
const LAUNCH: u64 = 1 << 18;

type Work<'a> = &'a (dyn Fn() + Sync);

impl Pool {
    /// A pool of `threads` threads; the caller is one of them.
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        let helpers = threads.saturating_sub(1).min(INSIDE as usize);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            work: AtomicPtr::new(std::ptr::null_mut()),
            busy: AtomicBool::new(false),
            started: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            sleeping: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
            lock: Mutex::new(()),
            left: Condvar::new(),
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
        // What a thread allocates when it starts is not to be part of a step.
        while pool.shared.started.load(Ordering::Relaxed) < helpers {
            thread::yield_now();
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
        self.run(total.div_ceil(chunk) - 1, &|| {
            loop {
                let start = next.fetch_add(chunk, Ordering::Relaxed);
                if start >= total {
                    break;
                }
                work(start..total.min(start + chunk));
            }
        });
    }

    /// Calls `work` on this thread and on every worker that joins before this thread is done with it, and waits for those;
    /// wakes up to `helpers` workers. While another launch runs, calls it only on this thread.
    fn run(&self, helpers: usize, work: Work<'_>) {
        let shared = &*self.shared;
        if shared.busy.swap(true, Ordering::Acquire) {
            return work();
        }
        // SAFETY: only the lifetime changes. Workers use the pointer only while they count as inside, and this function does
        // not return, nor unwind, before the launch is closed and nobody is inside.
        let mut work: Work<'static> =
            unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
        shared.work.store(&mut work, Ordering::Relaxed);
        // Nobody else changes the state of a launch that is closed and empty.
        let last = shared.state.load(Ordering::Relaxed) / LAUNCH;
        let launch = last.wrapping_add(1).wrapping_mul(LAUNCH);
        shared.state.store(launch | OPEN, Ordering::SeqCst);
        for (worker, sleeping) in self.workers.iter().zip(&shared.sleeping).take(helpers) {
            if sleeping.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        let mine = catch_unwind(AssertUnwindSafe(work));
        shared.close();
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
        self.started.fetch_add(1, Ordering::Relaxed);
        let mut seen = 0;
        loop {
            let state = self.await_launch(index, seen);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if state & OPEN == 0 {
                seen = state / LAUNCH;
                continue;
            }
            let joined =
                self.state
                    .compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed);
            // Otherwise another has joined or left, or the launch has closed.
            if joined.is_err() {
                continue;
            }
            seen = state / LAUNCH;
            // SAFETY: this worker counts as inside, and `run` keeps the work alive while anyone does.
            let work = unsafe { *self.work.load(Ordering::Relaxed) };
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.leave();
        }
    }

    /// Waits until another launch than `seen` has begun, or the pool ends; spins first, then sleeps. Gives the state.
    fn await_launch(&self, index: usize, seen: u64) -> u64 {
        let news = |order| {
            let state = self.state.load(order);
            (state / LAUNCH != seen || self.stop.load(order)).then_some(state)
        };
        if let Some(state) = spin(|| news(Ordering::Acquire)) {
            return state;
        }
        self.sleeping[index].store(true, Ordering::SeqCst);
        // The state is read again after the flag is set, and `run` reads the flag after it has changed the state: one of
        // the two sees the other, so no launch is slept through.
        let state = loop {
            match news(Ordering::SeqCst) {
                Some(state) => break state,
                None => thread::park(),
            }
        };
        self.sleeping[index].store(false, Ordering::SeqCst);
        state
    }

    /// Ends a worker's part of the launch.
    fn leave(&self) {
        let before = self.state.fetch_sub(1, Ordering::AcqRel);
        if before & INSIDE == 1 && before & AWAITED != 0 {
            // Whoever has the lock has looked at the state before; once it sleeps, it has given the lock back.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.left.notify_one();
        }
    }

    /// Lets no more workers in and waits until all have left; spins first, then sleeps.
    fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let empty = || self.state.load(Ordering::Acquire) & INSIDE == 0;
        if spin(|| empty().then_some(())).is_some() {
            return;
        }
        self.state.fetch_or(AWAITED, Ordering::AcqRel);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !empty() {
            guard = self
                .left
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Polls for a while.
fn spin<T>(poll: impl Fn() -> Option<T>) -> Option<T> {
    (0..SPINS).find_map(|_| {
        let found = poll();
        if found.is_none() {
            std::hint::spin_loop();
        }
        found
    })
}
