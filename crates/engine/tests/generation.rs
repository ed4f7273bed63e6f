//! Generations: what they give, and every way in which they end.

mod common;

use common::reference::tiny_gguf;
use common::*;
use ingle_engine::{
    CancelToken, Engine, EngineError, EngineOptions, Event, Finish, GenerateOptions, Generation,
    Sampling, SequenceSlice,
};
use pollster::block_on;

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        sampling: Sampling::default(),
        max_tokens,
        stop_tokens: vec![],
    }
}

/// Runs to the end.
fn run(engine: &mut Engine, prompt: &[u32], options: GenerateOptions) -> (Vec<u32>, Finish) {
    let sequence = engine.create();
    let mut generation =
        Generation::new(engine, sequence, prompt, options, CancelToken::new()).unwrap();
    let mut tokens = Vec::new();
    loop {
        match block_on(generation.next(engine)).unwrap() {
            Event::Prefill { done, total } => assert!(done < total && total == prompt.len()),
            Event::Token(token) => tokens.push(token),
            Event::Finished(finish) => return (tokens, finish),
        }
    }
}

/// Greedy tokens by reading the logits of the whole sequence, again for each token.
fn obvious(prompt: &[u32], count: usize) -> Vec<u32> {
    let mut all = prompt.to_vec();
    for _ in 0..count {
        let (mut engine, _) = tiny_engine(options());
        let sequence = engine.create();
        for chunk in all.chunks(CHUNK) {
            engine
                .forward(&[SequenceSlice {
                    sequence,
                    tokens: chunk,
                    outputs: &[chunk.len() - 1],
                }])
                .unwrap();
        }
        let logits = block_on(engine.logits(0..1)).unwrap();
        let best = (0..logits.len())
            .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
            .unwrap();
        all.push(best as u32);
    }
    all.split_off(prompt.len())
}

#[test]
fn greedy_is_the_likeliest_token_each_time() {
    let prompt = tokens(21);
    assert!(
        obvious(&prompt, 6).windows(2).any(|w| w[0] != w[1]),
        "the tiny model repeats itself"
    );
    let (mut engine, calls) = tiny_engine(options());
    let (found, finish) = run(&mut engine, &prompt, greedy(6));
    assert_eq!((found, finish), (obvious(&prompt, 6), Finish::Length));
    let calls = calls.borrow();
    let decodes = calls
        .iter()
        .filter(|c| matches!(c, Call::Run { entry, .. } if entry == "decode"))
        .count();
    let read: usize = calls
        .iter()
        .map(|c| if let Call::Read(n) = c { *n } else { 0 })
        .sum();
    assert_eq!(
        (decodes, read),
        (5, 6 * 4),
        "tokens are fed back on the device, and 4 bytes are read for each"
    );
}

#[test]
fn a_stop_token_ends_it_and_is_not_reported() {
    let prompt = tokens(9);
    let all = obvious(&prompt, 4);
    let at = all.iter().position(|t| *t == all[3]).unwrap();
    let (mut engine, _) = tiny_engine(options());
    let stop_tokens = vec![all[3]];
    let found = run(
        &mut engine,
        &prompt,
        GenerateOptions {
            stop_tokens,
            ..greedy(10)
        },
    );
    assert_eq!(found, (all[..at].to_vec(), Finish::Stop));
}

#[test]
fn no_tokens_wanted_still_fills_the_cache() {
    let (mut engine, _) = tiny_engine(options());
    assert_eq!(
        run(&mut engine, &tokens(20), greedy(0)),
        (vec![], Finish::Length)
    );
}

#[test]
fn a_full_context_ends_it() {
    let (mut engine, _) = tiny_engine(EngineOptions {
        context: 24,
        ..options()
    });
    let (found, finish) = run(&mut engine, &tokens(20), greedy(50));
    // The last token needs no place in the cache.
    assert_eq!((found.len(), finish), (5, Finish::ContextFull));
    let sequence = engine.create();
    let error = Generation::new(
        &engine,
        sequence,
        &tokens(25),
        greedy(1),
        CancelToken::new(),
    )
    .err();
    assert_eq!(
        error,
        Some(EngineError::ContextFull {
            needed: 25,
            context: 24
        })
    );
}

#[test]
fn cancel_ends_it_between_chunks_and_between_tokens() {
    let (mut engine, _) = tiny_engine(options());
    for events in [0, 1, 3] {
        let (sequence, cancel) = (engine.create(), CancelToken::new());
        let mut generation =
            Generation::new(&engine, sequence, &tokens(20), greedy(9), cancel.clone()).unwrap();
        for _ in 0..events {
            block_on(generation.next(&mut engine)).unwrap();
        }
        cancel.cancel();
        for _ in 0..2 {
            let event = block_on(generation.next(&mut engine)).unwrap();
            assert_eq!(event, Event::Finished(Finish::Cancelled));
        }
        assert_eq!(
            engine.tokens(sequence).unwrap().len(),
            [0, 16, 0, 21][events]
        );
        engine.release(sequence).unwrap();
    }
}

#[test]
fn a_seed_repeats_its_tokens() {
    let sampled = |seed, temperature, top_k| {
        let (mut engine, _) = tiny_engine(options());
        let sampling = Sampling {
            temperature,
            top_k,
            top_p: 0.95,
            seed,
        };
        run(
            &mut engine,
            &tokens(5),
            GenerateOptions {
                sampling,
                ..greedy(12)
            },
        )
        .0
    };
    assert_eq!(sampled(3, 3.0, 0), sampled(3, 3.0, 0));
    assert_ne!(sampled(3, 3.0, 0), sampled(4, 3.0, 0));
    assert_eq!(
        sampled(3, 3.0, 1),
        obvious(&tokens(5), 12),
        "the best one of the best one"
    );
    assert_eq!(
        sampled(3, 1e-6, 0),
        obvious(&tokens(5), 12),
        "as cold as can be"
    );
}

#[test]
fn what_is_not_finite_is_an_error_and_not_gibberish() {
    for greedily in [true, false] {
        let mut backend = ReferenceBackend::new(&tiny_gguf());
        backend.spoil("blk.1.ffn_norm.weight");
        let mut engine = Engine::new(Box::new(backend), options()).unwrap();
        let sequence = engine.create();
        let sampling = Sampling {
            temperature: if greedily { 0.0 } else { 1.0 },
            ..Sampling::default()
        };
        let options = GenerateOptions {
            sampling,
            ..greedy(5)
        };
        let mut generation =
            Generation::new(&engine, sequence, &[1, 2, 3], options, CancelToken::new()).unwrap();
        let error = block_on(generation.next(&mut engine)).unwrap_err();
        assert_eq!(error, EngineError::NonFinite { position: 2 });
    }
}
