//! The one error type of this crate.

use ingle_graph::backend::BackendError;

/// What can go wrong while tokens are computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The plan is not one of a decoder.
    #[error("plan: {field}: expected {expected}, found {found}")]
    Plan {
        field: &'static str,
        expected: String,
        found: String,
    },
    /// Something that the caller gave.
    #[error("{field}: expected {expected}, found {found}")]
    Input {
        field: &'static str,
        expected: String,
        found: String,
    },
    /// The sequence would be longer than the context.
    #[error("the sequence would have {needed} tokens, the context holds {context}")]
    ContextFull { needed: usize, context: usize },
    /// All KV blocks that the options allow are in use.
    #[error(
        "the KV cache is full: {needed} more blocks of 32 positions are needed, {limit} are allowed in all"
    )]
    PoolFull { needed: usize, limit: usize },
    /// The model computed infinities or NaN.
    #[error(
        "the logits at position {position} are not finite: the model or a kernel computed nonsense"
    )]
    NonFinite { position: usize },
}
