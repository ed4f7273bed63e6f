//! `ingle bench`: how fast a prompt is read and tokens are generated.

use std::time::Instant;

use ingle_chat::CancelToken;
use ingle_engine::{Engine, EngineError, GenerateOptions, Generation, Sampling, SequenceSlice};
use ingle_graph::backend::DeviceInfo;
use serde::Serialize;

use crate::args::BenchArgs;
use crate::error::CliError;
use crate::load::load;

#[derive(Debug, Serialize)]
struct Figures {
    device: DeviceInfo,
    load_s: f64,
    prompt: usize,
    #[serde(rename = "gen")]
    generate: usize,
    rounds: usize,
    prefill_tok_s: f64,
    decode_tok_s: f64,
}

pub fn run(args: &BenchArgs) -> Result<(), CliError> {
    let field = |field, found: usize| CliError::Usage {
        field,
        expected: "at least 1".into(),
        found: found.to_string(),
    };
    for (name, value) in [
        ("--prompt", args.prompt),
        ("--gen", args.generate),
        ("--rounds", args.rounds),
    ] {
        if value == 0 {
            return Err(field(name, value));
        }
    }
    let mut loaded = load(&args.model, &args.target, None, &CancelToken::new())?;
    let engine = loaded.chat.engine_mut();
    // Tokens that differ, so that no cache is kinder than real text.
    let vocabulary = engine.vocabulary();
    let tokens: Vec<u32> = (0..args.prompt)
        .map(|i| (i * 7919 % vocabulary) as u32)
        .collect();

    // The first round warms caches, clocks and pipelines, and does not count.
    pollster::block_on(prefill(engine, &tokens))?;
    pollster::block_on(decode(engine, args.generate.min(8)))?;
    let (mut prefills, mut decodes) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        prefills.push(args.prompt as f64 / pollster::block_on(prefill(engine, &tokens))?);
        decodes.push(args.generate as f64 / pollster::block_on(decode(engine, args.generate))?);
    }
    let figures = Figures {
        device: loaded.device,
        load_s: loaded.seconds,
        prompt: args.prompt,
        generate: args.generate,
        rounds: args.rounds,
        prefill_tok_s: median(prefills),
        decode_tok_s: median(decodes),
    };
    if args.json {
        println!(
            "{}",
            serde_json::to_string(&figures).map_err(std::io::Error::from)?
        );
    } else {
        let device = &figures.device;
        println!(
            "{}: {} ({})",
            device.kind,
            device.name,
            device.details.join(", ")
        );
        println!("load     {:>10.2} s", figures.load_s);
        println!(
            "prefill  {:>10.1} tok/s  ({} tokens)",
            figures.prefill_tok_s, figures.prompt
        );
        println!(
            "decode   {:>10.1} tok/s  ({} tokens)",
            figures.decode_tok_s, figures.generate
        );
    }
    Ok(())
}

/// Seconds to read the prompt, until the first token is known.
async fn prefill(engine: &mut Engine, tokens: &[u32]) -> Result<f64, EngineError> {
    let sequence = engine.create();
    let (begun, mut next) = (Instant::now(), Vec::new());
    let chunk = engine.chunk();
    let mut chunks = tokens.chunks(chunk).peekable();
    while let Some(tokens) = chunks.next() {
        let last = [tokens.len() - 1];
        let outputs: &[usize] = if chunks.peek().is_none() { &last } else { &[] };
        engine.forward(&[SequenceSlice {
            sequence,
            tokens,
            outputs,
        }])?;
    }
    engine.next_tokens(0..1, &mut next).await?;
    let seconds = begun.elapsed().as_secs_f64();
    engine.release(sequence)?;
    Ok(seconds)
}

/// Seconds to generate `count` tokens after a first one, each fed back.
async fn decode(engine: &mut Engine, count: usize) -> Result<f64, EngineError> {
    let sequence = engine.create();
    let options = GenerateOptions {
        sampling: Sampling::default(),
        max_tokens: count + 1,
        stop_tokens: vec![],
    };
    let mut generation = Generation::new(engine, sequence, &[0], options, CancelToken::new())?;
    generation.next(engine).await?;
    let begun = Instant::now();
    for _ in 0..count {
        generation.next(engine).await?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    engine.release(sequence)?;
    Ok(seconds)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
