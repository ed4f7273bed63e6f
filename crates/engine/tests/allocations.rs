//! No allocation per token: neither in executing a plan on the CPU, nor in the engine's steps around it.
//!
//! One test alone in its program: the counter sees all threads.

#[path = "../../models/tests/reference/mod.rs"]
mod reference;

use std::alloc::{GlobalAlloc, Layout, System};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use ingle_cpu::{CpuBackend, CpuTarget, Machine};
use ingle_engine::{
    CancelToken, Engine, EngineOptions, Event, Finish, GenerateOptions, Generation, Sampling,
};
use ingle_graph::backend::{Backend, ReadBack};
use ingle_graph::kernel::Activations;
use ingle_graph::passes::{Options, compile};
use ingle_graph::{Dims, Symbol};
use ingle_models::GraphOptions;

/// Counts what all threads allocate.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator unchanged; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` allocates.
fn count<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = COUNT.load(Ordering::Relaxed);
    let value = work();
    (COUNT.load(Ordering::Relaxed) - before, value)
}

/// The value of a future that does not wait. Executors allocate; this does not.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the CPU never keeps anyone waiting"),
    }
}

const CHUNK: usize = 16;
const CONTEXT: usize = 128;

/// The tiny model on the CPU.
fn backend(activations: Activations, threads: usize) -> CpuBackend {
    let loaded = reference::tiny_gguf();
    let graph = loaded.model.graph(GraphOptions::default()).unwrap();
    let machine = Machine::new(threads).unwrap();
    let plan = compile(
        &graph,
        &Options::decoder(activations, CHUNK),
        &CpuTarget::new(&machine),
    )
    .unwrap();
    let weights = reference::load(&plan, &loaded);
    let mut backend = CpuBackend::new(machine, plan).unwrap();
    for (i, bytes) in weights.iter().enumerate() {
        backend.write_weight(i, 0, bytes).unwrap();
    }
    backend
}

/// Executing the plan, from its second step of a kind on.
fn check_backend(mut backend: CpuBackend) {
    let dims = |tokens, outputs| {
        Dims::default()
            .with(Symbol::Tokens, tokens)
            .with(Symbol::Outputs, outputs)
            .with(Symbol::Batch, 1)
            .with(Symbol::Table, 1)
            .with(Symbol::Pool, 1)
    };
    backend.set_bounds(dims(CHUNK, 1)).unwrap();
    backend.resize_pool(1).unwrap();
    let words = |values: std::ops::Range<usize>| -> Vec<u8> {
        values.flat_map(|v| (v as i32).to_le_bytes()).collect()
    };
    let (prefill, decode) = (1, 0);
    assert_eq!(backend.plan().entries[decode].name, "decode");
    let zeros = [0; CHUNK * 4];
    for tokens in [CHUNK, 3, 1] {
        let (rows, last) = (words(0..tokens), words(tokens - 1..tokens));
        let inputs = [
            &rows,
            &rows,
            &rows,
            &zeros[..tokens * 4],
            &zeros[..4],
            &last,
        ];
        let mut run = || backend.run(prefill, &dims(tokens, 1), &inputs).unwrap();
        run();
        assert_eq!(count(run).0, 0, "a step of {tokens} tokens");
    }
    for position in CHUNK..32 {
        let at = words(position..position + 1);
        let inputs = [&zeros[..4], &at, &at, &zeros[..4], &zeros[..4], &zeros[..4]];
        let (count, ()) = count(|| {
            backend.run(decode, &dims(1, 1), &inputs).unwrap();
            now(backend.read(0, 0, &mut [0; 4])).unwrap();
        });
        assert_eq!(count, 0, "the token at {position}");
    }
}

/// The engine's step, from the second token of an answer to the last that the context holds.
fn check_engine(backend: CpuBackend, sampling: &Sampling) {
    let options = EngineOptions {
        context: CONTEXT,
        batch: 1,
        outputs: 1,
        // All at once: only a pool that grows allocates.
        growth: CONTEXT / 32,
        blocks: CONTEXT / 32,
    };
    let mut engine = Engine::new(Box::new(backend), options).unwrap();
    let sequence = engine.create();
    let generate = GenerateOptions {
        sampling: sampling.clone(),
        max_tokens: usize::MAX,
        stop_tokens: vec![],
    };
    let prompt: Vec<u32> = (0..20).collect();
    let cancel = CancelToken::new();
    let mut generation = Generation::new(&engine, sequence, &prompt, generate, cancel).unwrap();
    let mut tokens = 0;
    loop {
        let (count, event) = count(|| now(generation.next(&mut engine)).unwrap());
        match event {
            Event::Prefill { .. } => {}
            Event::Token(_) => {
                tokens += 1;
                assert!(tokens == 1 || count == 0, "{count} for token {tokens}");
            }
            Event::Finished(finish) => {
                assert_eq!((finish, count), (Finish::ContextFull, 0));
                break;
            }
        }
    }
    assert_eq!(tokens, CONTEXT - prompt.len() + 1);
}

#[test]
fn a_token_allocates_nothing() {
    assert!(count(|| vec![0u8; 10]).0 > 0, "the counter counts");
    let sampled = Sampling {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.9,
        seed: 1,
    };
    for activations in [Activations::F32, Activations::Int8] {
        for threads in [1, 2] {
            check_backend(backend(activations, threads));
            for sampling in [&Sampling::default(), &sampled] {
                check_engine(backend(activations, threads), sampling);
            }
        }
    }
}
