//! From files to a running model.

use std::ops::Range;

use ingle_engine::{CancelToken, Engine, EngineOptions};
use ingle_formats::Parsed;
use ingle_formats::gguf::{self, Endian};
use ingle_graph::Graph;
use ingle_graph::backend::{Backend, LocalFuture};
use ingle_graph::kernel::Activations;
use ingle_graph::passes::Options;
use ingle_models::{GraphOptions, Model, WeightLoader};
use ingle_text::{ChatTemplate, TemplateTokens, TextError, Tokenizer};

use crate::{Chat, ChatError, ReadError};

/// Bytes of a header that are asked for first.
const FIRST_READ: u64 = 256 << 10;

/// Rows of logits that one step may give; scoring a text runs in steps of this many tokens.
const OUTPUTS: usize = 32;

/// The files of a model, by range. Where they lie is the caller's business.
pub trait Files {
    /// Bytes of file number `file`.
    fn size(&self, file: usize) -> u64;

    /// Exactly the bytes `range` of file number `file`.
    fn read(
        &mut self,
        file: usize,
        range: Range<u64>,
    ) -> LocalFuture<'_, Result<Vec<u8>, ReadError>>;
}

/// A model whose header has been read, before any weight.
pub struct Opened {
    pub model: Model,
    pub tokenizer: Tokenizer,
    /// The model's own template; absent if it has none.
    pub template: Option<ChatTemplate>,
}

/// What loading depends on besides the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    pub activations: Activations,
    /// The most tokens of a conversation; the model's own limit if `None`.
    pub context: Option<usize>,
    /// The most tokens of a step.
    pub chunk: usize,
    pub graph: GraphOptions,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            activations: Activations::Int8,
            context: None,
            chunk: 256,
            graph: GraphOptions::default(),
        }
    }
}

/// How many bytes of the weights have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub loaded: u64,
    pub total: u64,
}

/// Reads the header of a GGUF file: as much of it as there is, and no more.
pub async fn open_gguf(files: &mut dyn Files) -> Result<Opened, ChatError> {
    let size = files.size(0);
    let mut prefix = files.read(0, 0..FIRST_READ.min(size)).await?;
    let manifest = loop {
        match gguf::parse(&prefix, size)? {
            Parsed::Done(manifest) => break manifest,
            Parsed::NeedMore { at_least } => {
                let have = prefix.len() as u64;
                prefix.extend(files.read(0, have..at_least.clamp(have, size)).await?);
            }
        }
    };
    drop(prefix);
    if manifest.endian != Endian::Little {
        return Err(ChatError::Unsupported {
            field: "byte order",
            expected: "a little-endian GGUF file; convert it with gguf-py's gguf_convert_endian"
                .into(),
            found: "a big-endian one".into(),
        });
    }
    let model = Model::from_gguf(&manifest)?;
    let tokenizer = Tokenizer::from_gguf(&manifest.metadata)?;
    let template =
        match ChatTemplate::from_gguf(&manifest.metadata, None, TemplateTokens::of(&tokenizer)) {
            Ok(template) => Some(template),
            Err(TextError::NoTemplate) => None,
            Err(error) => return Err(error.into()),
        };
    Ok(Opened {
        model,
        tokenizer,
        template,
    })
}

impl Opened {
    /// The graph to compile, and with which options.
    pub fn graph(&self, options: &LoadOptions) -> Result<(Graph, Options), ChatError> {
        Ok((
            self.model.graph(options.graph)?,
            Options::decoder(options.activations, options.chunk),
        ))
    }

    /// The most tokens of a conversation.
    pub fn context(&self, options: &LoadOptions) -> Result<usize, ChatError> {
        let own = self.model.config.context;
        match options.context {
            None => Ok(own),
            Some(n) if (1..=own).contains(&n) => Ok(n),
            Some(n) => Err(ChatError::Input {
                field: "context",
                expected: format!("1 to {own}, what the model was trained for"),
                found: n.to_string(),
            }),
        }
    }
}

/// Streams the weights into `backend`, which was made with the plan of [`Opened::graph`], and starts an engine on it.
///
/// Pipelines are made while weights arrive. `progress` is called after each read; between reads a cancel is seen.
pub async fn load(
    opened: Opened,
    options: &LoadOptions,
    mut backend: Box<dyn Backend>,
    files: &mut dyn Files,
    cancel: &CancelToken,
    progress: &mut dyn FnMut(Progress),
) -> Result<Chat, ChatError> {
    let context = opened.context(options)?;
    let mut loader = WeightLoader::new(backend.plan(), &opened.model.sources)?;
    let (mut loaded, total) = (0, loader.total_bytes());
    while let Some(read) = loader.next_read().cloned() {
        if cancel.is_cancelled() {
            return Err(ChatError::Cancelled);
        }
        let bytes = files.read(read.file, read.range.clone()).await?;
        loader.supply(&bytes, &mut |weight, offset, bytes| {
            backend.write_weight(weight, offset, bytes)
        })?;
        loaded += read.range.end - read.range.start;
        progress(Progress { loaded, total });
    }
    backend.ready().await?;
    let options = EngineOptions {
        outputs: OUTPUTS.min(options.chunk),
        ..EngineOptions::chat(context)
    };
    Ok(Chat::new(
        Engine::new(backend, options)?,
        opened.tokenizer,
        opened.template,
    ))
}
