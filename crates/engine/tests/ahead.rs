//! Steps enqueued before the last token is read: the same answers, and afterwards the same state as without them.

mod common;

use common::reference::{relative_error, tiny_gguf};
use common::*;
use ingle_engine::{
    CancelToken, Engine, EngineError, EngineOptions, Event, Finish, GenerateOptions, Generation,
    Sampling, SequenceId, SequenceSlice,
};
use pollster::block_on;

fn greedy(max_tokens: usize, stop_tokens: &[u32]) -> GenerateOptions {
    GenerateOptions {
        sampling: Sampling::default(),
        max_tokens,
        stop_tokens: stop_tokens.to_vec(),
    }
}

fn begin(
    engine: &Engine,
    sequence: SequenceId,
    prompt: &[u32],
    options: GenerateOptions,
) -> Generation {
    Generation::new(engine, sequence, prompt, options, CancelToken::new()).unwrap()
}

/// Runs to the end, or for so many events.
fn run(engine: &mut Engine, generation: &mut Generation, events: usize) -> Vec<Event> {
    let mut all = Vec::new();
    while all.len() < events && !matches!(all.last(), Some(Event::Finished(_))) {
        all.push(block_on(generation.next(engine)).unwrap());
    }
    all
}

/// The logits after these tokens have been appended.
fn continued(engine: &mut Engine, sequence: SequenceId, tokens: &[u32]) -> Vec<f32> {
    for &token in tokens {
        engine
            .forward(&[SequenceSlice {
                sequence,
                tokens: &[token],
                outputs: &[0],
            }])
            .unwrap();
    }
    block_on(engine.logits(0..1)).unwrap().to_vec()
}

/// What a generation leaves, and what a conversation that goes on from there computes.
fn check_end(prompt: &[u32], options: &GenerateOptions, events: usize) {
    let (mut plain, _) = tiny_engine(common::options());
    let (mut ahead, _) = asynchronous_engine(common::options());
    let (a, b) = (plain.create(), ahead.create());
    let mut generation = begin(&plain, a, prompt, options.clone());
    let expected = run(&mut plain, &mut generation, events);
    let mut generation = begin(&ahead, b, prompt, options.clone());
    assert_eq!(run(&mut ahead, &mut generation, events), expected);
    drop(generation);
    // The one may hold the last token already, the other not.
    let answer: Vec<u32> = expected
        .iter()
        .filter_map(|e| match e {
            Event::Token(token) => Some(*token),
            _ => None,
        })
        .collect();
    let whole = [prompt, &answer].concat();
    for (engine, sequence) in [(&plain, a), (&ahead, b)] {
        let held = engine.tokens(sequence).unwrap();
        assert!(whole.starts_with(held));
        assert!(held.len() + 1 >= whole.len() || answer.is_empty());
    }
    let turn = [&whole[..], &[5, 80, 3]].concat();
    let mut logits = Vec::new();
    for (engine, sequence) in [(&mut plain, a), (&mut ahead, b)] {
        let reused = engine.reuse(sequence, &turn).unwrap();
        logits.push(continued(engine, sequence, &turn[reused..]));
        assert_eq!(engine.tokens(sequence).unwrap(), turn);
    }
    let (mut fresh, _) = tiny_engine(common::options());
    let sequence = fresh.create();
    let wanted = continued(&mut fresh, sequence, &turn);
    for found in &logits {
        let error = relative_error(found, &wanted);
        assert!(error < 1e-6, "{error:e}");
    }
    assert_eq!(plain.blocks(), ahead.blocks());
    // And the generation after it.
    let mut further = Vec::new();
    for (engine, sequence) in [(&mut plain, a), (&mut ahead, b)] {
        engine.truncate(sequence, turn.len() - 1).unwrap();
        let mut generation = begin(engine, sequence, &turn[turn.len() - 1..], greedy(4, &[]));
        further.push(run(engine, &mut generation, 9));
    }
    assert_eq!(further[0], further[1]);
}

#[test]
fn every_end_leaves_what_it_leaves_without() {
    let prompt = tokens(29);
    let (mut engine, _) = tiny_engine(options());
    let sequence = engine.create();
    let mut generation = begin(&engine, sequence, &prompt, greedy(8, &[]));
    let answer: Vec<u32> = run(&mut engine, &mut generation, 99)
        .iter()
        .filter_map(|e| match e {
            Event::Token(token) => Some(*token),
            _ => None,
        })
        .collect();
    // Over a block's end, where the step ahead takes a block.
    for length in [0, 1, 2, 3, 8] {
        check_end(&prompt, &greedy(length, &[]), 99);
    }
    for stop in &answer {
        check_end(&prompt, &greedy(8, &[*stop]), 99);
    }
    for events in 0..8 {
        check_end(&prompt, &greedy(8, &[]), events);
    }
}

#[test]
fn the_next_step_is_enqueued_before_the_last_token_is_read() {
    let (mut engine, calls) = asynchronous_engine(options());
    let sequence = engine.create();
    let mut generation = begin(&engine, sequence, &tokens(5), greedy(4, &[]));
    let found = run(&mut engine, &mut generation, 99);
    assert_eq!(found.last(), Some(&Event::Finished(Finish::Length)));
    let names: Vec<&str> = calls
        .borrow()
        .iter()
        .filter_map(|call| match call {
            Call::Run { entry, .. } if entry == "decode" => Some("decode"),
            Call::Run { .. } => Some("prefill"),
            Call::Read(4) => Some("begin"),
            Call::Finish => Some("finish"),
            _ => None,
        })
        .collect();
    let one = ["decode", "begin", "finish"];
    // As many steps as without, and the last token is waited for alone.
    let all = [&["prefill", "begin"][..], &one, &one, &one, &["finish"]].concat();
    assert_eq!(names, all);
}

#[test]
fn a_cancel_leaves_what_was_reported() {
    for events in 0..6 {
        let (mut engine, _) = asynchronous_engine(options());
        let (sequence, cancel) = (engine.create(), CancelToken::new());
        let prompt = tokens(9);
        let mut generation =
            Generation::new(&engine, sequence, &prompt, greedy(9, &[]), cancel.clone()).unwrap();
        let mut wanted = Vec::new();
        for _ in 0..events {
            if let Event::Token(token) = block_on(generation.next(&mut engine)).unwrap() {
                wanted.push(token);
            }
        }
        cancel.cancel();
        let event = block_on(generation.next(&mut engine)).unwrap();
        assert_eq!(event, Event::Finished(Finish::Cancelled));
        if events > 0 {
            wanted.splice(0..0, prompt);
        }
        assert_eq!(engine.tokens(sequence).unwrap(), wanted);
        let (mut fresh, _) = tiny_engine(options());
        let other = fresh.create();
        let wanted = [&wanted[..], &[7]].concat();
        let wanted = continued(&mut fresh, other, &wanted);
        let found = continued(&mut engine, sequence, &[7]);
        assert!(relative_error(&found, &wanted) < 1e-6);
    }
}

#[test]
fn generations_may_take_turns() {
    let prompts = [tokens(11), tokens(30), vec![9, 9, 3]];
    let alone = |prompt: &[u32]| {
        let (mut engine, _) = tiny_engine(options());
        let sequence = engine.create();
        let mut generation = begin(&engine, sequence, prompt, greedy(7, &[]));
        run(&mut engine, &mut generation, 99)
    };
    let (mut engine, _) = asynchronous_engine(options());
    let mut all: Vec<(Generation, Vec<Event>)> = prompts
        .iter()
        .map(|prompt| {
            let sequence = engine.create();
            (begin(&engine, sequence, prompt, greedy(7, &[])), vec![])
        })
        .collect();
    for _ in 0..10 {
        for (generation, events) in &mut all {
            if !matches!(events.last(), Some(Event::Finished(_))) {
                events.extend(run(&mut engine, generation, 1));
            }
        }
    }
    for ((_, events), prompt) in all.iter().zip(&prompts) {
        assert_eq!(*events, alone(prompt));
    }
}

#[test]
fn a_context_and_a_pool_that_are_full_end_it_as_without() {
    let prompt = tokens(20);
    for (context, blocks) in [(24, 16), (128, 1)] {
        let small = EngineOptions {
            context,
            blocks,
            ..options()
        };
        let outcome = |(mut engine, _): (Engine, _)| {
            let sequence = engine.create();
            let mut generation = begin(&engine, sequence, &prompt, greedy(50, &[]));
            let mut all = Vec::new();
            loop {
                match block_on(generation.next(&mut engine)) {
                    Ok(Event::Finished(finish)) => return (all, Ok(finish)),
                    Ok(event) => all.push(event),
                    Err(error) => return (all, Err(error)),
                }
            }
        };
        let plain = outcome(tiny_engine(small.clone()));
        assert_eq!(outcome(asynchronous_engine(small)), plain);
        assert_eq!(plain.0.len(), if blocks == 1 { 14 } else { 6 });
    }
}

#[test]
fn what_is_not_finite_is_an_error_and_is_taken_back() {
    let mut backend = ReferenceBackend::new(&tiny_gguf());
    backend.spoil("blk.1.ffn_norm.weight");
    backend.asynchronous = true;
    let mut engine = Engine::new(Box::new(backend), options()).unwrap();
    let sequence = engine.create();
    let mut generation = begin(&engine, sequence, &[1, 2, 3], greedy(5, &[]));
    let error = block_on(generation.next(&mut engine)).unwrap_err();
    assert_eq!(error, EngineError::NonFinite { position: 2 });
    assert_eq!(engine.tokens(sequence).unwrap(), [1, 2, 3]);
}

#[test]
fn only_the_sequence_that_a_token_was_chosen_for_goes_on_with_it() {
    let (mut engine, _) = asynchronous_engine(options());
    let (a, b) = (engine.create(), engine.create());
    let refused = |engine: &mut Engine, sequence| {
        let error = engine.forward_chosen(sequence).unwrap_err();
        assert!(matches!(
            error,
            EngineError::Input {
                field: "sequence",
                ..
            }
        ));
    };
    refused(&mut engine, a);
    continued(&mut engine, a, &[1, 2]);
    refused(&mut engine, b);
    let first = engine.begin_chosen_token().unwrap();
    engine.forward_chosen(a).unwrap();
    // Until the token is known, its place holds none of the vocabulary, and nothing is appended to it.
    assert!(engine.tokens(a).unwrap()[2] as usize >= engine.vocabulary());
    refused(&mut engine, a);
    assert!(!engine.is_of_last_step(&first));
    let token = block_on(engine.chosen_token(first)).unwrap();
    assert_eq!(engine.tokens(a).unwrap(), [1, 2, token]);
    engine.truncate(a, 2).unwrap();
    refused(&mut engine, a);
}
