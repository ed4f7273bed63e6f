//! The engine on Vulkan: what a token costs when the next step is enqueued ahead, what is left when it was in vain, and
//! that lengths of prompts make nothing.

mod support;

#[path = "../../engine/tests/support/lengths.rs"]
mod lengths;
#[path = "../../models/tests/reference/mod.rs"]
mod reference;

use std::cell::Cell;
use std::rc::Rc;

use ingle_engine::{
    CancelToken, Engine, EngineOptions, Event, Finish, GenerateOptions, Generation, Sampling,
    SequenceId, SequenceSlice,
};
use ingle_gpu::{Compiler, GpuBackend, GpuTarget, KernelSource, SourceError, block_on};
use ingle_graph::backend::Backend;
use ingle_graph::kernel::Activations;
use ingle_graph::passes::{Options, compile};
use ingle_kernels::{DeviceLimits, KernelKey, KernelText};
use ingle_models::GraphOptions;
use support::{Counts, Watched};

/// Counts the texts that the compiler is asked for.
struct Texts(Rc<Cell<usize>>);

impl KernelSource for Texts {
    fn text(&self, key: &KernelKey, limits: &DeviceLimits) -> Result<KernelText, SourceError> {
        self.0.update(|n| n + 1);
        Compiler.text(key, limits)
    }
}

/// What the tiny model's engine has been asked for so far.
struct Watch {
    counts: Rc<Cell<Counts>>,
    texts: Rc<Cell<usize>>,
}

fn tiny(options: EngineOptions, chunk: usize) -> (Engine, Watch) {
    let loaded = reference::tiny_gguf();
    let graph = loaded
        .model
        .graph(GraphOptions::default())
        .expect("a graph");
    let device = Watched::open(|_| {});
    let watch = Watch {
        counts: device.counts(),
        texts: Rc::default(),
    };
    let target = GpuTarget::of(&device, Texts(Rc::clone(&watch.texts)));
    let plan = compile(&graph, &Options::decoder(Activations::F32, chunk), &target)
        .expect("the model compiles");
    let weights = reference::load(&plan, &loaded);
    let mut backend = GpuBackend::new(device, plan).expect("the plan is sound");
    for (i, bytes) in weights.iter().enumerate() {
        backend
            .write_weight(i, 0, bytes)
            .expect("the weight is written");
    }
    block_on(backend.ready()).expect("the backend gets ready");
    let engine = Engine::new(Box::new(backend), options).expect("the plan is a decoder's");
    (engine, watch)
}

fn conversation() -> EngineOptions {
    EngineOptions {
        context: 128,
        batch: 1,
        outputs: 1,
        growth: 8,
        blocks: 8,
    }
}

fn greedy(max_tokens: usize, stop_tokens: &[u32]) -> GenerateOptions {
    GenerateOptions {
        sampling: Sampling::default(),
        max_tokens,
        stop_tokens: stop_tokens.to_vec(),
    }
}

fn logits(engine: &mut Engine) -> Vec<f32> {
    block_on(engine.logits(0..1))
        .expect("the logits can be read")
        .to_vec()
}

/// Generates to the end; gives the tokens and why it ended.
fn run(
    engine: &mut Engine,
    sequence: SequenceId,
    prompt: &[u32],
    options: GenerateOptions,
) -> (Vec<u32>, Finish) {
    let mut generation = Generation::new(engine, sequence, prompt, options, CancelToken::new())
        .expect("the prompt fits");
    let mut tokens = Vec::new();
    loop {
        match block_on(generation.next(engine)).expect("it goes on") {
            Event::Prefill { .. } => {}
            Event::Token(token) => tokens.push(token),
            Event::Finished(finish) => return (tokens, finish),
        }
    }
}

const PROMPT: [u32; 5] = [17, 42, 3, 90, 5];

#[test]
fn a_token_costs_one_submit_and_makes_nothing() {
    let (mut engine, watch) = tiny(conversation(), 16);
    assert!(engine.is_asynchronous());
    let sequence = engine.create();
    let options = greedy(90, &[]);
    let mut generation =
        Generation::new(&engine, sequence, &PROMPT, options, CancelToken::new()).expect("it fits");
    block_on(generation.next(&mut engine)).expect("the first token");
    for token in 1..90 {
        watch.counts.take();
        let event = block_on(generation.next(&mut engine)).expect("the next token");
        assert!(matches!(event, Event::Token(_)));
        let c = watch.counts.take();
        // The step ahead; the last token needs none.
        let steps = usize::from(token < 89);
        assert_eq!((c.created, c.submits), (0, steps), "token {token}: {c:?}");
        assert!(
            c.read <= 4 && c.written <= 256 && c.writes <= 2,
            "token {token}: {c:?}"
        );
    }
}

#[test]
fn a_step_in_vain_leaves_nothing() {
    let (mut engine, _) = tiny(conversation(), 16);
    let first = engine.create();
    let (answer, _) = run(&mut engine, first, &PROMPT, greedy(40, &[]));
    engine.release(first).expect("it exists");
    // The first place of each token, so that the answer up to there is known.
    for at in [0, 1, 26, 27, 28] {
        let stop = answer[at];
        let end = answer.iter().position(|t| *t == stop).expect("it is there");
        let sequence = engine.create();
        let found = run(&mut engine, sequence, &PROMPT, greedy(40, &[stop]));
        assert_eq!(found, (answer[..end].to_vec(), Finish::Stop));
        let whole = [&PROMPT[..], &answer[..end], &[7, 8]].concat();
        let reused = engine.reuse(sequence, &whole).expect("it exists");
        assert_eq!(reused, PROMPT.len() + end);
        let go_on = |engine: &mut Engine, sequence, tokens: &[u32]| {
            for chunk in tokens.chunks(16) {
                let slice = SequenceSlice {
                    sequence,
                    tokens: chunk,
                    outputs: &[chunk.len() - 1],
                };
                engine.forward(&[slice]).expect("the step fits");
            }
            logits(engine)
        };
        let found = go_on(&mut engine, sequence, &whole[reused..]);
        let (mut fresh, _) = tiny(conversation(), 16);
        let other = fresh.create();
        let wanted = go_on(&mut fresh, other, &whole);
        let error = reference::relative_error(&found, &wanted);
        assert!(error < 1e-3, "{error:e}");
        engine.release(sequence).expect("it exists");
    }
}

#[test]
fn lengths_of_prompts_make_nothing() {
    let (mut engine, watch) = tiny(lengths::options(), 256);
    assert!(watch.texts.get() > 0);
    // Keys and values are rounded to half precision, beside a border either way.
    lengths::check(&mut engine, 2e-3, logits, || {
        watch.counts.get().created + watch.texts.get()
    });
}
