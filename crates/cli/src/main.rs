//! The ingle command: runs models, looks into them, and measures.
//!
//! Loading and answering are in `ingle-chat`, which the browser's module uses too; here are the files, the choice of a
//! backend, and what a terminal shows. Results go to standard output, everything else to standard error.

mod args;
mod bench;
mod device;
mod error;
mod files;
mod folder;
mod graph;
mod inspect;
mod load;
mod logits;
mod npy;
mod run;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use error::CliError;

fn main() -> ExitCode {
    let args = Args::parse();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ingle: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("  {hint}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

fn dispatch(args: &Args) -> Result<(), CliError> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Graph(args) => graph::run(args),
        Command::Logits(args) => logits::run(args),
        Command::Bench(args) => bench::run(args),
    }
}
