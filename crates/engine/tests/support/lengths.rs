//! Prompts of many lengths against the same tokens one at a time.

use ingle_engine::{Engine, EngineOptions, SequenceId, SequenceSlice};
use ingle_graph::ops::KV_BLOCK;

use super::reference::relative_error;

/// The longest prompt.
pub const LONGEST: usize = 2048;

/// Dense where variants change, and powers of two with their neighbours and odd sizes up to the longest.
pub fn lengths() -> Vec<usize> {
    let dense = 1..=64;
    let powers = (7..=11).flat_map(|p| [(1 << p) - 1, 1 << p, (1 << p) + 1]);
    let odd = [
        77, 100, 191, 300, 333, 511, 700, 777, 1000, 1333, 1500, 1919,
    ];
    let all = dense.chain(powers).chain(odd);
    all.filter(|n| *n <= LONGEST).collect()
}

pub fn options() -> EngineOptions {
    // The pool is as large as it gets from the start: the lengths shall differ in nothing else.
    let blocks = 2 * LONGEST / KV_BLOCK;
    EngineOptions {
        context: LONGEST,
        batch: 1,
        outputs: 1,
        growth: blocks,
        blocks,
    }
}

/// Appends in chunks of at most `chunk`; gives the logits after the last token.
fn append(
    engine: &mut Engine,
    sequence: SequenceId,
    tokens: &[u32],
    chunk: usize,
    logits: &impl Fn(&mut Engine) -> Vec<f32>,
) -> Vec<f32> {
    let mut chunks = tokens.chunks(chunk).peekable();
    while let Some(tokens) = chunks.next() {
        let last = [tokens.len() - 1];
        let outputs: &[usize] = if chunks.peek().is_none() { &last } else { &[] };
        let slice = SequenceSlice {
            sequence,
            tokens,
            outputs,
        };
        engine.forward(&[slice]).expect("the step fits");
    }
    logits(engine)
}

/// Runs all lengths. `made` says how many things have been made so far: none may be after the first few steps.
pub fn check(
    engine: &mut Engine,
    tolerance: f64,
    logits: impl Fn(&mut Engine) -> Vec<f32>,
    made: impl Fn() -> usize,
) {
    let vocabulary = engine.vocabulary() as u32;
    let tokens: Vec<u32> = (0..LONGEST as u32)
        .map(|i| i.wrapping_mul(2_654_435_761) % vocabulary)
        .collect();
    let (one, many) = (engine.create(), engine.create());
    let mut wanted = vec![append(engine, one, &tokens[..1], 1, &logits)];
    let before = made();
    for &token in &tokens[1..] {
        wanted.push(append(engine, one, &[token], 1, &logits));
    }
    let chunk = engine.chunk();
    for n in lengths() {
        engine.truncate(many, 0).expect("it exists");
        let found = append(engine, many, &tokens[..n], chunk, &logits);
        let error = relative_error(&found, &wanted[n - 1]);
        assert!(error <= tolerance, "a prompt of {n}: off by {error:e}");
        assert_eq!(made(), before, "a prompt of {n} made something");
    }
}
