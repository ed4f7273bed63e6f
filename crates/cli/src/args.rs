//! What the command line takes.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use ingle_graph::kernel::Activations;
use ingle_quant::ElementType;

const EXIT_CODES: &str = "\
A MODEL is a .gguf file, or a Hugging Face folder with config.json, *.safetensors and tokenizer.json.

Exit codes:
  0    done
  1    something else went wrong
  2    the command line asks for what is not possible
  3    the model cannot be read, or is not supported
  4    there is no such device, or it failed
  5    the model computed infinities or NaN
  130  ended by Ctrl-C";

/// Runs language models: the same engine natively and in the browser.
#[derive(Parser, Debug)]
#[command(name = "ingle", version, after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Answers a prompt and streams the answer to standard output.
    ///
    /// The prompt goes through the model's own chat template unless --raw is given. Ctrl-C ends the answer, a second one
    /// ends the command.
    #[command(after_help = "Example: ingle run model.gguf -p 'What is the capital of France?'")]
    Run(RunArgs),
    /// Shows what a model's files say: configuration, metadata, tensors.
    Inspect(InspectArgs),
    /// Shows the graph of a model, after any pass, or the plan for a device; or checks a graph's text.
    #[command(
        after_help = "Example: ingle graph model.gguf --dump-after fuse | ingle graph --check -"
    )]
    Graph(GraphArgs),
    /// Writes what the model makes of reference prompts, for a judge to compare.
    ///
    /// Writes ids.json, NAME.npy (the logits after prompt NAME), greedy.json (the best token at each step, fed the
    /// reference's tokens) and nll.json (negative log likelihoods of the perplexity text).
    Logits(LogitsArgs),
    /// Measures how fast a prompt is read and tokens are generated.
    Bench(BenchArgs),
}

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// A GPU if there is one, else the CPU; says which.
    Auto,
    Cpu,
    Vulkan,
    Metal,
    Dx12,
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ActivationsKind {
    F32,
    Int8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KvKind {
    F16,
    F32,
}

/// What a plan is compiled for.
#[derive(clap::Args, Debug)]
pub struct TargetArgs {
    /// Where to run.
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: DeviceKind,
    /// Threads of the CPU [default: as many as it has].
    #[arg(long)]
    pub threads: Option<usize>,
    /// How activations enter products with quantised weights: as two 8-bit terms (fast; logits within about 0.1 %), or as
    /// they are (exact).
    #[arg(long, value_enum, default_value = "int8")]
    pub activations: ActivationsKind,
    /// Element of the KV cache [default: f32 with --activations f32, else f16].
    #[arg(long, value_enum)]
    pub kv: Option<KvKind>,
    /// The most tokens of a step.
    #[arg(long, default_value_t = 256)]
    pub chunk: usize,
}

#[derive(clap::Args, Debug)]
pub struct RunArgs {
    pub model: PathBuf,
    /// The prompt; `-` reads it from standard input.
    #[arg(short, long)]
    pub prompt: String,
    /// A system message before the prompt.
    #[arg(long, conflicts_with = "raw")]
    pub system: Option<String>,
    /// Continue the prompt as it is, without the chat template.
    #[arg(long)]
    pub raw: bool,
    /// The most tokens of the answer [default: as many as fit].
    #[arg(short = 'n', long)]
    pub max_tokens: Option<usize>,
    /// 0 takes the likeliest token each time.
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f32,
    /// Sample from so many of the likeliest tokens; 0 for all.
    #[arg(long, default_value_t = 0)]
    pub top_k: usize,
    /// Sample from the likeliest tokens that together reach this probability.
    #[arg(long, default_value_t = 1.0)]
    pub top_p: f32,
    /// The same seed gives the same answer.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The most tokens of the conversation [default: what the model was trained for].
    #[arg(long)]
    pub context: Option<usize>,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Print one JSON object with the answer and the figures instead of streaming.
    #[arg(long)]
    pub json: bool,
}

/// Which reader looks at a GGUF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reader {
    /// Ours: checks every length before it is used.
    Ingle,
    /// The crate gguf-rs, which shares no code with ours.
    GgufRs,
}

#[derive(clap::Args, Debug)]
pub struct InspectArgs {
    pub model: PathBuf,
    /// The reader to look with.
    #[arg(long, value_enum, default_value = "ingle")]
    pub with: Reader,
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args, Debug)]
pub struct GraphArgs {
    #[arg(required_unless_present = "check")]
    pub model: Option<PathBuf>,
    /// Stop after this pass: fold, recognise, quantize, merge, fuse [default: before any]. How many launches the finished
    /// plan takes is said on standard error.
    #[arg(long, value_name = "PASS", conflicts_with_all = ["plan", "check"])]
    pub dump_after: Option<String>,
    /// Show the plan instead: every launch, its kernel and why, and what it binds.
    #[arg(long, conflicts_with = "check")]
    pub plan: bool,
    /// Parse and verify the text of a graph; `-` reads it from standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub check: Option<PathBuf>,
    #[command(flatten)]
    pub target: TargetArgs,
    /// With --plan: the serialised plan. With --check: counts.
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args, Debug)]
pub struct LogitsArgs {
    pub model: PathBuf,
    /// The reference: prompts and the perplexity text.
    #[arg(long)]
    pub prompts: PathBuf,
    /// The folder to write to; it is created.
    #[arg(long)]
    pub out: PathBuf,
    #[command(flatten)]
    pub target: TargetArgs,
}

#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    pub model: PathBuf,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 256)]
    pub prompt: usize,
    /// Tokens to generate, from an empty context.
    #[arg(long = "gen", value_name = "GEN", default_value_t = 64)]
    pub generate: usize,
    /// Rounds, of which the median counts.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    #[command(flatten)]
    pub target: TargetArgs,
    #[arg(long)]
    pub json: bool,
}

impl TargetArgs {
    pub fn activations(&self) -> Activations {
        match self.activations {
            ActivationsKind::F32 => Activations::F32,
            ActivationsKind::Int8 => Activations::Int8,
        }
    }

    pub fn kv(&self) -> ElementType {
        match (self.kv, self.activations) {
            (Some(KvKind::F32), _) | (None, ActivationsKind::F32) => ElementType::F32,
            (Some(KvKind::F16), _) | (None, ActivationsKind::Int8) => ElementType::F16,
        }
    }

    pub fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(all)
    }
}
