//! `ingle run`: one answer.

use std::io::{Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ingle_chat::{Answer, CancelToken, Chat, Finish, Message, Sampling};
use ingle_graph::backend::DeviceInfo;
use ingle_text::Now;
use serde::Serialize;

use crate::args::RunArgs;
use crate::error::CliError;
use crate::load::{Loaded, load};

/// What an answer took.
#[derive(Debug, Serialize)]
struct Figures {
    device: DeviceInfo,
    load_s: f64,
    first_token_s: Option<f64>,
    /// Tokens a second after the first token.
    decode_tok_s: Option<f64>,
    prompt_tokens: usize,
    completion_tokens: usize,
    finish: &'static str,
}

pub fn run(args: &RunArgs) -> Result<(), CliError> {
    let prompt = prompt(&args.prompt)?;
    let cancel = cancel_on_signal()?;
    let Loaded {
        mut chat,
        device,
        seconds,
    } = load(&args.model, &args.target, args.context, &cancel)?;
    let answer = Answer {
        sampling: Sampling {
            temperature: args.temperature,
            top_k: args.top_k,
            top_p: args.top_p,
            seed: args.seed,
        },
        max_tokens: args.max_tokens,
        now: Some(now()),
    };
    let begun = Instant::now();
    if args.raw {
        chat.start_completion(&prompt, answer, cancel)?;
    } else {
        let system = args
            .system
            .iter()
            .map(|text| Message::new("system", text.as_str()));
        let messages: Vec<Message> = system
            .chain([Message::new("user", prompt.as_str())])
            .collect();
        chat.start_chat(&messages, answer, cancel)?;
    }
    let mut answered = answer_to(&mut chat, begun, !args.json)?;
    let (prompt_tokens, _, completion_tokens) = chat.usage();
    let rate =
        |t: Times| (t.tokens > 1).then(|| (t.tokens - 1) as f64 / (t.last - t.first).as_secs_f64());
    let figures = Figures {
        device,
        load_s: seconds,
        first_token_s: answered.times.map(|t| (t.first - begun).as_secs_f64()),
        decode_tok_s: answered.times.and_then(rate),
        prompt_tokens,
        completion_tokens,
        finish: name(answered.finish),
    };
    if args.json {
        #[derive(Serialize)]
        struct Output<'a> {
            text: &'a str,
            #[serde(flatten)]
            figures: &'a Figures,
        }
        let output = Output {
            text: &std::mem::take(&mut answered.text),
            figures: &figures,
        };
        println!(
            "{}",
            serde_json::to_string(&output).map_err(std::io::Error::from)?
        );
    } else {
        println!();
        eprintln!("{}", line(&figures));
    }
    match answered.finish {
        Finish::Cancelled => Err(CliError::Cancelled),
        _ => Ok(()),
    }
}

/// When the first and the last token came, and how many.
#[derive(Clone, Copy, Debug)]
struct Times {
    first: Instant,
    last: Instant,
    tokens: usize,
}

struct Answered {
    text: String,
    finish: Finish,
    times: Option<Times>,
}

/// Drives an answer to its end, printing what comes if `stream`.
fn answer_to(chat: &mut Chat, begun: Instant, stream: bool) -> Result<Answered, CliError> {
    let (mut text, mut times) = (String::new(), None::<Times>);
    let mut out = std::io::stdout().lock();
    loop {
        let step = pollster::block_on(chat.step())?;
        if step.token.is_some() {
            let now = Instant::now();
            let times = times.get_or_insert(Times {
                first: now,
                last: begun,
                tokens: 0,
            });
            times.last = now;
            times.tokens += 1;
        }
        if stream && !step.text.is_empty() {
            out.write_all(step.text.as_bytes())?;
            out.flush()?;
        }
        text += &step.text;
        if let Some(finish) = step.finish {
            return Ok(Answered {
                text,
                finish,
                times,
            });
        }
    }
}

fn name(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ContextFull => "context full",
        Finish::Cancelled => "cancelled",
    }
}

fn line(f: &Figures) -> String {
    let details = if f.device.details.is_empty() {
        String::new()
    } else {
        format!(" ({})", f.device.details.join(", "))
    };
    let mut line = format!(
        "\n{}: {}{details}: load {:.2} s",
        f.device.kind, f.device.name, f.load_s
    );
    if let Some(seconds) = f.first_token_s {
        line += &format!(", first token {seconds:.2} s");
    }
    if let Some(rate) = f.decode_tok_s {
        line += &format!(", {rate:.1} tok/s");
    }
    line + &format!(
        ", {} + {} tokens, {}",
        f.prompt_tokens, f.completion_tokens, f.finish
    )
}

fn prompt(argument: &str) -> Result<String, CliError> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| CliError::file("standard input".as_ref(), e))?;
    Ok(text)
}

/// The token that Ctrl-C sets; a second Ctrl-C ends the command at once.
fn cancel_on_signal() -> Result<CancelToken, CliError> {
    let cancel = CancelToken::new();
    let shared = cancel.clone();
    let handler = move || {
        if shared.is_cancelled() {
            std::process::exit(130);
        }
        shared.cancel();
    };
    ctrlc::set_handler(handler).map_err(std::io::Error::other)?;
    Ok(cancel)
}

fn now() -> Now {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    // Local time would need the system's time zone: UTC is a date that is never far off.
    Now {
        unix_seconds: since.as_secs() as i64,
        utc_offset_seconds: 0,
    }
}
