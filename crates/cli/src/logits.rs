//! `ingle logits`: what a model makes of reference prompts, written for a judge. Judges nothing itself.

use std::collections::BTreeMap;
use std::path::Path;

use ingle_chat::{CancelToken, Chat, NoPause, Score};
use serde::{Deserialize, Serialize};

use crate::args::LogitsArgs;
use crate::error::CliError;
use crate::load::{Bar, load};
use crate::npy;

/// What is read of a reference.
#[derive(Deserialize)]
struct Reference {
    prompts: Vec<Prompt>,
    perplexity: Perplexity,
}

#[derive(Deserialize)]
struct Prompt {
    name: String,
    text: String,
    /// The reference's best token at each step and its lead over the runner-up.
    greedy_token_and_margin: Vec<(u32, f64)>,
}

#[derive(Deserialize)]
struct Perplexity {
    ids: Vec<u32>,
    /// Tokens of a window; windows do not overlap.
    window: usize,
}

pub fn run(args: &LogitsArgs) -> Result<(), CliError> {
    let text = std::fs::read(&args.prompts).map_err(|e| CliError::file(&args.prompts, e))?;
    let json = |source| CliError::Json {
        path: args.prompts.clone(),
        source,
    };
    let reference: Reference = serde_json::from_slice(&text).map_err(json)?;
    check(&reference, args)?;
    std::fs::create_dir_all(&args.out).map_err(|e| CliError::file(&args.out, e))?;
    let cancel = CancelToken::new();
    let mut chat = load(&args.model, &args.target, None, &cancel)?.chat;

    let window = reference.perplexity.window;
    let total = reference.prompts.len() + reference.perplexity.ids.len().div_ceil(window);
    let (mut bar, mut done) = (Bar::new("computing"), 0);
    let (mut ids, mut greedy, mut nll) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for prompt in &reference.prompts {
        let found = of_prompt(&mut chat, prompt, &cancel)?;
        let path = args.out.join(format!("{}.npy", prompt.name));
        std::fs::write(&path, npy::vector(&found.logits)).map_err(|e| CliError::file(&path, e))?;
        ids.insert(prompt.name.as_str(), found.ids);
        greedy.insert(prompt.name.as_str(), found.greedy);
        done += 1;
        bar.steps(done, total);
    }
    for ids in reference.perplexity.ids.chunks(window) {
        nll.extend(score(&mut chat, ids, &[], &cancel)?.nll);
        done += 1;
        bar.steps(done, total);
    }
    bar.end();
    write(&args.out, "ids.json", &ids)?;
    write(&args.out, "greedy.json", &greedy)?;
    write(&args.out, "nll.json", &nll)
}

struct OfPrompt {
    ids: Vec<u32>,
    greedy: Vec<u32>,
    logits: Vec<f32>,
}

/// Fed the reference's own continuation: the best token at each step, and the logits after the prompt.
fn of_prompt(chat: &mut Chat, prompt: &Prompt, cancel: &CancelToken) -> Result<OfPrompt, CliError> {
    let ids = chat.encode(&prompt.text)?;
    let last = ids.len().checked_sub(1).ok_or_else(|| CliError::Usage {
        field: "--prompts",
        expected: "prompts that have tokens".into(),
        found: format!("{:?}, which has none", prompt.name),
    })?;
    let fed = prompt.greedy_token_and_margin.iter().map(|step| step.0);
    let mut all: Vec<u32> = ids.iter().copied().chain(fed).collect();
    // The last step's token is only compared, not fed.
    all.truncate(
        (ids.len() + prompt.greedy_token_and_margin.len().saturating_sub(1)).max(ids.len()),
    );
    let mut score = score(chat, &all, &[last], cancel)?;
    let logits = score.logits.pop().unwrap_or_default();
    Ok(OfPrompt {
        greedy: score.best.split_off(last),
        ids,
        logits,
    })
}

fn score(
    chat: &mut Chat,
    ids: &[u32],
    at: &[usize],
    cancel: &CancelToken,
) -> Result<Score, CliError> {
    Ok(pollster::block_on(chat.score(
        ids,
        at,
        cancel,
        &mut NoPause,
    ))?)
}

/// Names become names of files.
fn check(reference: &Reference, args: &LogitsArgs) -> Result<(), CliError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let wrong = |expected: &str, found: String| CliError::Model {
        path: args.prompts.clone(),
        expected: expected.into(),
        found,
    };
    if let Some(p) = reference
        .prompts
        .iter()
        .find(|p| p.name.is_empty() || !p.name.chars().all(plain))
    {
        return Err(wrong(
            "names of letters, digits, dots and dashes",
            p.name.clone(),
        ));
    }
    if reference.perplexity.window == 0 {
        return Err(wrong("a window above 0", "0".into()));
    }
    Ok(())
}

fn write(folder: &Path, name: &str, value: &impl Serialize) -> Result<(), CliError> {
    let path = folder.join(name);
    let json = serde_json::to_vec(value).map_err(|source| CliError::Json {
        path: path.clone(),
        source,
    })?;
    std::fs::write(&path, json).map_err(|e| CliError::file(&path, e))
}
