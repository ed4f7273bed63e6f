//! What can go wrong, and the exit code that says so.

use std::path::{Path, PathBuf};

use ingle_chat::ChatError;
use ingle_engine::EngineError;
use ingle_graph::GraphError;
use ingle_graph::backend::BackendError;

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{path}: {source}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path}: expected {expected}, found {found}")]
    Model {
        path: PathBuf,
        expected: String,
        found: String,
    },
    #[error("{field}: expected {expected}, found {found}")]
    Usage {
        field: &'static str,
        expected: String,
        found: String,
    },
    /// A JSON file that is not the model's.
    #[error("{path}: {source}")]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("gguf-rs: {0}")]
    GgufRs(String),
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error("cancelled")]
    Cancelled,
}

impl CliError {
    pub fn file(path: &Path, source: std::io::Error) -> Self {
        CliError::File {
            path: path.to_owned(),
            source,
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage { .. } => 2,
            CliError::File { .. }
            | CliError::Model { .. }
            | CliError::Json { .. }
            | CliError::GgufRs(_) => 3,
            CliError::Output(_) => 1,
            CliError::Cancelled => 130,
            CliError::Chat(error) => match error.code() {
                "invalid" | "context_full" => 2,
                "source" | "format" | "unsupported" | "template" => 3,
                "no_device" | "device" => 4,
                "non_finite" => 5,
                "abort" => 130,
                _ => 1,
            },
        }
    }

    /// What to try next.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CliError::Chat(error) => match error.code() {
                "template" => Some("--raw continues a text without a template"),
                "no_device" => Some("--device cpu always works"),
                "context_full" => Some(
                    "--context allows a longer conversation, up to what the model was trained for",
                ),
                _ => None,
            },
            _ => None,
        }
    }
}

impl From<BackendError> for CliError {
    fn from(error: BackendError) -> Self {
        CliError::Chat(error.into())
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        CliError::Chat(error.into())
    }
}

impl From<GraphError> for CliError {
    fn from(error: GraphError) -> Self {
        CliError::Chat(error.into())
    }
}
