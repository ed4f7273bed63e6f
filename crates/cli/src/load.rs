//! Loads a model onto a device, with a progress bar where it takes longer than a second.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ingle_chat::{CancelToken, Chat, LoadOptions, Progress};
use ingle_graph::backend::DeviceInfo;
use ingle_models::GraphOptions;

use crate::args::TargetArgs;
use crate::device::Device;
use crate::error::CliError;
use crate::files;

/// A model on a device.
pub struct Loaded {
    pub chat: Chat,
    pub device: DeviceInfo,
    pub seconds: f64,
}

/// Loads `model`. Ctrl-C ends it through `cancel`.
pub fn load(
    model: &Path,
    args: &TargetArgs,
    context: Option<usize>,
    cancel: &CancelToken,
) -> Result<Loaded, CliError> {
    let begun = Instant::now();
    if args.chunk == 0 {
        return Err(CliError::Usage {
            field: "--chunk",
            expected: "at least 1".into(),
            found: "0".into(),
        });
    }
    let (mut files, opened) = files::open(model)?;
    let options = LoadOptions {
        activations: args.activations(),
        context,
        chunk: args.chunk,
        graph: GraphOptions { kv: args.kv() },
    };
    let (graph, passes) = opened.graph(&options)?;
    let backend = Device::open(args)?.backend(&graph, &passes)?;
    let mut bar = Bar::new("loading");
    let mut show = |progress| bar.show(progress);
    let loading = ingle_chat::load(opened, &options, backend, &mut files, cancel, &mut show);
    let chat = pollster::block_on(loading)?;
    bar.end();
    let device = chat.engine().device();
    Ok(Loaded {
        chat,
        device,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// A bar that appears when something takes longer than a second.
pub struct Bar {
    begun: Instant,
    what: &'static str,
    bar: Option<ProgressBar>,
}

impl Bar {
    pub fn new(what: &'static str) -> Self {
        Bar {
            begun: Instant::now(),
            what,
            bar: None,
        }
    }

    /// Shows how many bytes are done.
    fn show(&mut self, progress: Progress) {
        self.at(
            progress.loaded,
            progress.total,
            "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}",
        );
    }

    /// Shows how many steps are done.
    pub fn steps(&mut self, done: usize, total: usize) {
        self.at(done as u64, total as u64, "{msg} {bar:30} {pos} of {len}");
    }

    fn at(&mut self, done: u64, total: u64, template: &str) {
        if self.bar.is_none() && self.begun.elapsed() > Duration::from_secs(1) {
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            self.bar = Some(
                ProgressBar::new(total)
                    .with_style(style)
                    .with_message(self.what),
            );
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
