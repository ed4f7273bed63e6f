//! The error of everything between a file and a text, and the codes that pages switch over.

use ingle_engine::EngineError;
use ingle_formats::FormatError;
use ingle_graph::GraphError;
use ingle_graph::backend::BackendError;
use ingle_models::{LoadError, ModelError};
use ingle_text::TextError;

/// Why bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReadError {
    pub message: String,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    #[error("reading the model: {0}")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error("{field}: expected {expected}, found {found}")]
    Unsupported {
        field: &'static str,
        expected: String,
        found: String,
    },
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Load(#[from] LoadError<BackendError>),
    #[error(transparent)]
    Text(#[from] TextError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{field}: expected {expected}, found {found}")]
    Input {
        field: &'static str,
        expected: String,
        found: String,
    },
    #[error("cancelled")]
    Cancelled,
}

impl ChatError {
    /// The code of the error, from the list in `web/src/errors.ts`.
    pub fn code(&self) -> &'static str {
        match self {
            ChatError::Read(_) => "source",
            ChatError::Format(_) | ChatError::Model(ModelError::Format(_)) => "format",
            ChatError::Unsupported { .. } | ChatError::Model(_) | ChatError::Graph(_) => {
                "unsupported"
            }
            ChatError::Load(LoadError::Write(error)) | ChatError::Backend(error) => {
                backend_code(error)
            }
            ChatError::Load(_) => "format",
            ChatError::Text(error) => text_code(error),
            ChatError::Engine(EngineError::Backend(error)) => backend_code(error),
            ChatError::Engine(EngineError::ContextFull { .. } | EngineError::PoolFull { .. }) => {
                "context_full"
            }
            ChatError::Engine(EngineError::NonFinite { .. }) => "non_finite",
            ChatError::Engine(EngineError::Input { .. }) | ChatError::Input { .. } => "invalid",
            ChatError::Engine(EngineError::Plan { .. }) => "internal",
            ChatError::Cancelled => "abort",
        }
    }
}

fn backend_code(error: &BackendError) -> &'static str {
    match error {
        BackendError::NoDevice { .. } => "no_device",
        BackendError::DeviceLost { .. }
        | BackendError::OutOfMemory { .. }
        | BackendError::Limit { .. }
        | BackendError::Device { .. } => "device",
        BackendError::Kernel { .. } | BackendError::Input { .. } => "internal",
    }
}

fn text_code(error: &TextError) -> &'static str {
    match error {
        TextError::TemplateSyntax { .. }
        | TextError::TemplateRaised { .. }
        | TextError::TemplateFailed { .. }
        | TextError::TemplateFuel { .. }
        | TextError::TemplateOutput { .. }
        | TextError::TemplateName { .. }
        | TextError::NoTemplate => "template",
        TextError::Encode { .. } | TextError::Unencodable { .. } => "invalid",
        TextError::Unsupported { .. } => "unsupported",
        _ => "format",
    }
}
