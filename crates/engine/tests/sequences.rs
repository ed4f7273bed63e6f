//! Chunks, batches, forks, rollback and growth give what running the whole sequence at once gives.

mod common;

use common::reference::{expected, relative_error};
use common::*;
use ingle_engine::{Engine, EngineError, EngineOptions, SequenceId, SequenceSlice};
use pollster::block_on;

/// Appends `tokens` in chunks of `chunk`; gives the logits after the last.
fn append(engine: &mut Engine, sequence: SequenceId, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut chunks = tokens.chunks(chunk).peekable();
    while let Some(tokens) = chunks.next() {
        let last = [tokens.len() - 1];
        let outputs: &[usize] = if chunks.peek().is_none() { &last } else { &[] };
        engine
            .forward(&[SequenceSlice {
                sequence,
                tokens,
                outputs,
            }])
            .unwrap();
    }
    block_on(engine.logits(0..1)).unwrap().to_vec()
}

/// The logits after `tokens`, by an engine of its own, one token at a time.
fn alone(tokens: &[u32]) -> Vec<f32> {
    let (mut engine, _) = tiny_engine(options());
    let sequence = engine.create();
    append(&mut engine, sequence, tokens, 1)
}

fn same(found: &[f32], wanted: &[f32]) {
    let error = relative_error(found, wanted);
    assert!(error < 1e-6, "{error:e}");
}

#[test]
fn logits_are_those_of_the_reference() {
    let expected = expected();
    let (mut engine, _) = tiny_engine(options());
    let sequence = engine.create();
    for (&position, wanted) in expected.positions.iter().zip(&expected.default) {
        engine.truncate(sequence, 0).unwrap();
        let found = append(&mut engine, sequence, &expected.tokens[..=position], 7);
        assert!(relative_error(&found, wanted) < 2e-6);
    }
}

#[test]
fn chunks_of_any_size_are_the_same() {
    let tokens = tokens(50);
    let wanted = alone(&tokens);
    for chunk in [2, 5, 16] {
        let (mut engine, _) = tiny_engine(options());
        let sequence = engine.create();
        same(&append(&mut engine, sequence, &tokens, chunk), &wanted);
    }
}

#[test]
fn two_sequences_of_different_length_in_one_batch() {
    let (mut engine, _) = tiny_engine(options());
    let (long, short) = (tokens(70), vec![5, 4, 3]);
    let (a, b) = (engine.create(), engine.create());
    append(&mut engine, a, &long[..60], 16);
    let slices = [
        SequenceSlice {
            sequence: a,
            tokens: &long[60..],
            outputs: &[9],
        },
        SequenceSlice {
            sequence: b,
            tokens: &short,
            outputs: &[0, 2],
        },
    ];
    engine.forward(&slices).unwrap();
    assert_eq!(engine.output_count(), 3);
    let rows: Vec<Vec<f32>> = block_on(engine.logits(0..3))
        .unwrap()
        .chunks_exact(96)
        .map(<[f32]>::to_vec)
        .collect();
    same(&rows[0], &alone(&long));
    same(&rows[1], &alone(&short[..1]));
    same(&rows[2], &alone(&short));
}

#[test]
fn forks_share_what_they_can_and_diverge() {
    let (mut engine, calls) = tiny_engine(options());
    let stem = tokens(40);
    let a = engine.create();
    append(&mut engine, a, &stem, 16);
    assert_eq!(engine.blocks(), (2, 2));
    let b = engine.fork(a).unwrap();
    assert_eq!(
        engine.blocks().0,
        2,
        "a fork takes no block before someone writes"
    );
    calls.borrow_mut().clear();

    let (left, right) = ([7, 8, 9], [60, 61, 62, 63]);
    let found = append(&mut engine, a, &left, 16);
    same(&found, &alone(&[&stem[..], &left].concat()));
    assert_eq!(
        calls
            .borrow()
            .iter()
            .filter(|c| matches!(c, Call::CopyBlocks(p) if p.len() == 1))
            .count(),
        1
    );
    let found = append(&mut engine, b, &right, 16);
    same(&found, &alone(&[&stem[..], &right].concat()));
    assert_eq!(
        engine.blocks().0,
        3,
        "the full block is shared, the partial one is not"
    );
    let found = append(&mut engine, a, &[1], 1);
    same(&found, &alone(&[&stem[..], &left, &[1]].concat()));

    engine.release(b).unwrap();
    assert_eq!(engine.blocks().0, 2);
    assert!(matches!(
        engine.tokens(b),
        Err(EngineError::Input {
            field: "sequence",
            ..
        })
    ));
    let c = engine.create();
    assert_ne!(c, b, "a released sequence's id is not given out again");
}

#[test]
fn a_fork_rolled_back_into_a_shared_block_does_not_change_the_other() {
    let (mut engine, _) = tiny_engine(options());
    let stem = tokens(64);
    let a = engine.create();
    append(&mut engine, a, &stem, 16);
    let b = engine.fork(a).unwrap();
    engine.truncate(b, 20).unwrap();
    let found = append(&mut engine, b, &[9, 9, 9], 16);
    same(&found, &alone(&[&stem[..20], &[9, 9, 9]].concat()));
    let found = append(&mut engine, a, &[1], 1);
    same(&found, &alone(&[&stem[..], &[1]].concat()));
}

#[test]
fn rollback_forgets_and_reuse_keeps_the_common_prefix() {
    let (mut engine, _) = tiny_engine(options());
    let tokens = tokens(50);
    let a = engine.create();
    append(&mut engine, a, &tokens, 16);
    engine.truncate(a, 33).unwrap();
    assert_eq!(engine.tokens(a).unwrap(), &tokens[..33]);
    let mut other = tokens.clone();
    other[30] = 95;
    assert_eq!(engine.reuse(a, &other).unwrap(), 30);
    assert_eq!(engine.blocks().0, 1);
    let found = append(&mut engine, a, &other[30..], 16);
    same(&found, &alone(&other));
    assert_eq!(
        engine.reuse(a, &other).unwrap(),
        49,
        "one token is left to run"
    );
}

#[test]
fn the_pool_grows_in_steps_and_keeps_what_it_held() {
    let (mut engine, calls) = tiny_engine(EngineOptions {
        growth: 2,
        ..options()
    });
    let tokens = tokens(128);
    let a = engine.create();
    let found = append(&mut engine, a, &tokens, 16);
    let grown: Vec<Call> = calls
        .borrow()
        .iter()
        .filter(|c| matches!(c, Call::ResizePool(_)))
        .cloned()
        .collect();
    assert_eq!(grown, [Call::ResizePool(2), Call::ResizePool(4)]);
    same(&found, &alone(&tokens));
}

#[test]
fn a_token_that_the_device_chose_is_not_sent_back() {
    let (mut engine, calls) = tiny_engine(options());
    let (a, mut next) = (engine.create(), Vec::new());
    append(&mut engine, a, &tokens(3), 16);
    block_on(engine.next_tokens(0..1, &mut next)).unwrap();
    let chosen = next[0];
    let other = (chosen + 1) % 96;
    calls.borrow_mut().clear();
    for token in [chosen, other] {
        engine
            .forward(&[SequenceSlice {
                sequence: a,
                tokens: &[token],
                outputs: &[0],
            }])
            .unwrap();
    }
    let entry = |name: &str| Call::Run {
        entry: name.into(),
        tokens: 1,
        outputs: 1,
    };
    assert_eq!(*calls.borrow(), [entry("decode"), entry("prefill")]);
    let found = block_on(engine.logits(0..1)).unwrap().to_vec();
    same(&found, &alone(&[&tokens(3)[..], &[chosen, other]].concat()));
}

#[test]
fn what_the_caller_gets_wrong_changes_nothing() {
    let (mut engine, _) = tiny_engine(EngineOptions {
        context: 40,
        blocks: 2,
        ..options()
    });
    let (a, b) = (engine.create(), engine.create());
    append(&mut engine, a, &tokens(20), 16);
    let mut refuse = |slices: &[SequenceSlice<'_>], says: &str| {
        let error = engine.forward(slices).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(
            (engine.tokens(a).unwrap().len(), engine.blocks().0),
            (20, 1)
        );
    };
    let slice = |sequence, tokens, outputs| SequenceSlice {
        sequence,
        tokens,
        outputs,
    };
    let (many, long) = (tokens(17), tokens(16));
    refuse(&[], "tokens of a step: expected 1 to 16, found 0");
    refuse(&[slice(a, &[], &[])], "tokens of a slice");
    refuse(&[slice(a, &[96], &[])], "token: expected one below 96");
    refuse(
        &[slice(a, &many, &[])],
        "tokens of a step: expected 1 to 16, found 17",
    );
    refuse(&[slice(a, &[1], &[1])], "outputs: expected indices below 1");
    refuse(
        &[slice(a, &[1], &[]), slice(a, &[1], &[])],
        "each sequence once",
    );
    append(&mut engine, b, &tokens(3), 16);
    let error = engine.forward(&[slice(a, &long, &[])]).unwrap_err();
    assert_eq!(
        error,
        EngineError::PoolFull {
            needed: 1,
            limit: 2
        }
    );
    engine.release(b).unwrap();
    engine.forward(&[slice(a, &long, &[])]).unwrap();
    let error = engine
        .forward(&[slice(a, &[1, 2, 3, 4, 5], &[])])
        .unwrap_err();
    assert_eq!(
        error,
        EngineError::ContextFull {
            needed: 41,
            context: 40
        }
    );
}
