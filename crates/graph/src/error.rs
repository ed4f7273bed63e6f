//! The one error type of this crate.

/// What can be wrong with a graph, a plan, or their text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GraphError {
    #[error("{op}: input {input} must be {expected}, found {found}")]
    Input {
        op: &'static str,
        input: usize,
        expected: String,
        found: String,
    },
    #[error("{op}: {expected} inputs expected, found {found}")]
    Arity {
        op: &'static str,
        expected: String,
        found: usize,
    },
    #[error("{op}: attribute {name} must be {expected}, found {found}")]
    Attribute {
        op: String,
        name: String,
        expected: String,
        found: String,
    },
    #[error("recipe: {found}")]
    Recipe { found: String },
    #[error("graph {graph}: {invariant}: {found}")]
    Invariant {
        graph: String,
        invariant: &'static str,
        found: String,
    },
    #[error("line {line}, column {column}: expected {expected}, found {found}")]
    Text {
        line: usize,
        column: usize,
        expected: String,
        found: String,
    },
    #[error("{what}: no value for leaf {name}")]
    MissingLeaf { what: &'static str, name: String },
    #[error("cannot lower {node}: {reason}")]
    Lower { node: String, reason: String },
    #[error("plan: {field}: expected {expected}, found {found}")]
    Plan {
        field: String,
        expected: String,
        found: String,
    },
}
