//! The thread pool: every piece of work once, panics reach the caller, launches inside launches and from several threads.

#![cfg(not(target_arch = "wasm32"))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use ingle_cpu::{Buffer, Pool};

#[test]
fn every_piece_is_done_once() {
    for threads in 1..=5 {
        let pool = Pool::new(threads).expect("threads start");
        assert_eq!(pool.threads(), threads);
        for total in [0, 1, 7, 64, 1000] {
            for grain in [1, 3, 64, 5000] {
                let counts: Vec<AtomicU32> = (0..total).map(|_| AtomicU32::new(0)).collect();
                pool.split(total, grain, &|range| {
                    range.for_each(|i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }
}

#[test]
fn sleeping_threads_wake() {
    let pool = Pool::new(3).expect("threads start");
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        let sum = AtomicUsize::new(0);
        pool.split(100, 1, &|range| {
            sum.fetch_add(range.sum(), Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 4950);
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let pool = Pool::new(4).expect("threads start");
    for bad in [0, 50, 99] {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.split(100, 1, &|range| assert!(!range.contains(&bad)));
        }));
        assert!(result.is_err());
        let sum = AtomicUsize::new(0);
        pool.split(100, 1, &|range| {
            sum.fetch_add(range.sum(), Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 4950);
    }
}

#[test]
fn launches_may_nest_and_come_from_several_threads() {
    let pool = Pool::new(3).expect("threads start");
    let sum = AtomicUsize::new(0);
    pool.split(8, 1, &|outer| {
        for _ in outer {
            pool.split(10, 1, &|inner| {
                sum.fetch_add(inner.len(), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), 80);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.split(10, 1, &|range| {
                        sum.fetch_add(range.len(), Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), 80 + 8000);
}

#[test]
fn buffers_are_zeroed_and_aligned_whatever_their_size() {
    for len in [0, 1, 63, 4 << 20, (9 << 20) + 5] {
        let mut buffer = Buffer::zeroed(len).expect("there is memory");
        assert_eq!((buffer.len(), buffer.as_slice().len()), (len, len));
        assert!(buffer.as_slice().iter().all(|&b| b == 0));
        assert_eq!(buffer.as_slice().as_ptr() as usize % 64, 0);
        buffer.as_mut_slice().fill(7);
    }
    assert!(Buffer::zeroed(usize::MAX).is_err());
}

/// Far more threads than cores, so that some are not scheduled for whole launches.
#[test]
fn more_threads_than_cores_finish_and_agree() {
    let work = |pool: &Pool| {
        let sums: Vec<AtomicU64> = (0..257).map(|_| AtomicU64::new(0)).collect();
        for launch in 0..2000u64 {
            pool.split(sums.len(), 1, &|range| {
                for i in range {
                    // Depends on the launch before, so that a launch that ended early shows.
                    let before = sums[i].load(Ordering::Relaxed);
                    let after = before.rotate_left(7).wrapping_add(launch ^ i as u64);
                    sums[i].store(after, Ordering::Relaxed);
                }
            });
        }
        sums.into_iter()
            .map(AtomicU64::into_inner)
            .collect::<Vec<_>>()
    };
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let wanted = work(&Pool::new(1).expect("threads start"));
    for threads in [2, 8, 4 * cores] {
        assert_eq!(work(&Pool::new(threads).expect("threads start")), wanted);
    }
}

/// A launch that ends while a worker sleeps, wakes or joins: the pool goes through many such moments.
#[test]
fn threads_come_and_go_between_launches() {
    let pool = Pool::new(4).expect("threads start");
    for round in 0..300 {
        for _ in 0..round % 7 {
            std::thread::yield_now();
        }
        if round % 3 == 0 {
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        let sum = AtomicUsize::new(0);
        pool.split(2 + round % 5, 1, &|range| {
            sum.fetch_add(range.len(), Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 2 + round % 5);
    }
}

#[test]
fn a_pool_ends_whatever_its_threads_do() {
    for round in 0..100 {
        let pool = Pool::new(1 + round % 9).expect("threads start");
        if round % 2 == 0 {
            pool.split(round, 1, &|_| {});
        }
    }
}
