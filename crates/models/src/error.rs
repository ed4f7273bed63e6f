//! The one error type of reading models.

use ingle_formats::FormatError;
use ingle_graph::GraphError;

/// What can be wrong with a model's description.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A value of the metadata or of `config.json`.
    #[error("{field}: expected {expected}, found {found}")]
    Field {
        field: String,
        expected: String,
        found: String,
    },
    #[error("tensor {name}: expected {expected}, found {found}")]
    Tensor {
        name: String,
        expected: String,
        found: String,
    },
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl ModelError {
    pub(crate) fn field(
        field: impl Into<String>,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Self {
        ModelError::Field {
            field: field.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    pub(crate) fn tensor(
        name: impl Into<String>,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Self {
        ModelError::Tensor {
            name: name.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}
