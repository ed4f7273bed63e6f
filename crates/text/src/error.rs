//! `TextError`: one enum for tokenizers and chat templates, and how text out of a file is shown in it.

use ingle_formats::FormatError;

/// Why a tokenizer or a template was refused, or could not do what was asked. Text that comes from a file is escaped
/// and cut to 64 characters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    #[error(transparent)]
    Format(#[from] FormatError),

    #[error("{field}: expected one of {expected}, found {found}")]
    Unsupported {
        field: &'static str,
        expected: &'static str,
        found: String,
    },
    #[error("{field}: expected {expected}, found {found}")]
    Field {
        field: &'static str,
        expected: &'static str,
        found: String,
    },
    #[error("{field}: expected {expected} elements, one for each token, found {found}")]
    Length {
        field: &'static str,
        expected: usize,
        found: usize,
    },
    #[error("{field}: expected at most {limit}, found {found}")]
    Limit {
        field: &'static str,
        limit: usize,
        found: usize,
    },
    #[error("{field}: expected a token id below {vocabulary}, found {found}")]
    TokenId {
        field: &'static str,
        vocabulary: usize,
        found: u64,
    },
    #[error("{field}: expected each token once, found {token} as {first} and as {second}")]
    DuplicateToken {
        field: &'static str,
        token: String,
        first: u32,
        second: u32,
    },
    #[error("{field}: expected one token for each id, found {first} and {second} for {id}")]
    DuplicateId {
        field: &'static str,
        id: u32,
        first: String,
        second: String,
    },
    #[error("merge {index}: expected {expected}, found {found}")]
    Merge {
        index: usize,
        expected: &'static str,
        found: String,
    },
    #[error("{field}: expected JSON of the documented form")]
    Json {
        field: &'static str,
        source: serde_json::Error,
    },
    #[error("{field}: expected a regular expression, found {found}")]
    Regex {
        field: &'static str,
        found: String,
        source: Box<fancy_regex::Error>,
    },
    #[error("building the tokenizer failed: {message}")]
    Build { message: String },

    #[error("encoding failed: {message}")]
    Encode { message: String },
    #[error("the vocabulary has no token for {found}")]
    Unencodable { found: String },
    #[error("the tokenizer has no {role} token")]
    MissingRole { role: &'static str },

    #[error("chat template: syntax error in line {line}: {message}")]
    TemplateSyntax { line: usize, message: String },
    #[error("chat template: {message}")]
    TemplateRaised { message: String },
    #[error("chat template: failed in line {line}: {message}")]
    TemplateFailed { line: usize, message: String },
    #[error("chat template: expected it to end within {limit} steps, found it still running")]
    TemplateFuel { limit: u64 },
    #[error("chat template: expected at most {limit} bytes of output, found more")]
    TemplateOutput { limit: usize },
    #[error("chat template: expected one named {wanted}, found {found}")]
    TemplateName { wanted: String, found: String },
    #[error("the model has no chat template")]
    NoTemplate,
}

/// Text of a file as an error shows it: quoted, escaped, at most 64 characters.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 64;
    let mut out = String::from("\"");
    out.extend(text.chars().take(MOST).flat_map(char::escape_debug));
    out.push_str(if text.chars().nth(MOST).is_some() {
        "…\""
    } else {
        "\""
    });
    out
}
