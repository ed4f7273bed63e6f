//! Chat templates: messages to the text a model was trained on, by the model's own Jinja template.
//!
//! Templates see what Hugging Face's `apply_chat_template` shows them: `messages`, `tools`, `documents`,
//! `add_generation_prompt`, `bos_token` and the like, `raise_exception`, `strftime_now`, and Python's methods on
//! strings, lists and dictionaries. Whitespace around blocks is trimmed as there.

mod json;
mod message;
mod python;
mod time;

use std::borrow::Cow;
use std::error::Error as _;
use std::io;

use ingle_formats::Optional;
use ingle_formats::gguf::Metadata;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

pub use message::{Message, RenderInput};
pub use time::Now;

use crate::error::shown;
use crate::{TextError, Tokenizer};

/// The name of the one template in its environment.
const NAME: &str = "chat";

/// A compiled template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    tokens: TemplateTokens,
    limits: Limits,
    source: String,
}

/// The tokens that templates write by name. One that the model lacks is undefined in the template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTokens {
    pub bos: Option<String>,
    pub eos: Option<String>,
    pub unknown: Option<String>,
    pub padding: Option<String>,
}

/// How much a template may do: it comes with the model, from a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps, where each takes or makes at most 64 bytes.
    pub fuel: u64,
    pub output_bytes: usize,
}

/// Templates for models that come without one. They are never chosen silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `<|im_start|>role`, a new line, the content, `<|im_end|>`, a new line.
    ChatMl,
}

impl Default for Limits {
    /// Enough for a hundred thousand messages, and about a second.
    fn default() -> Self {
        Limits {
            fuel: 10_000_000,
            output_bytes: 16 << 20,
        }
    }
}

impl TemplateTokens {
    /// The tokens of a tokenizer.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let name = |id: Option<u32>| {
            let bytes = tokenizer.token_bytes(id?).ok()?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let roles = tokenizer.roles();
        TemplateTokens {
            bos: name(roles.bos),
            eos: name(roles.eos),
            unknown: name(roles.unknown),
            padding: name(roles.padding),
        }
    }
}

impl Builtin {
    pub fn source(self) -> &'static str {
        match self {
            Builtin::ChatMl => include_str!("chatml.jinja"),
        }
    }
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    ///
    /// [`TextError::TemplateSyntax`].
    pub fn new(source: &str, tokens: TemplateTokens) -> Result<Self, TextError> {
        let limits = Limits::default();
        let mut environment = environment()?;
        let compiled = without_generation_tags(source).into_owned();
        environment
            .add_template_owned(NAME, compiled)
            .map_err(|error| template_error(&error, limits))?;
        Ok(ChatTemplate {
            environment,
            tokens,
            limits,
            source: source.to_owned(),
        })
    }

    /// The template in a GGUF file: the one without a name, or one of `tokenizer.chat_template.NAME`.
    ///
    /// # Errors
    ///
    /// [`TextError::NoTemplate`] where the file has none.
    pub fn from_gguf(
        metadata: &Metadata,
        name: Option<&str>,
        tokens: TemplateTokens,
    ) -> Result<Self, TextError> {
        const KEY: &str = "tokenizer.chat_template";
        let key = match name {
            None => Cow::Borrowed(KEY),
            Some(name) => Cow::Owned(format!("{KEY}.{name}")),
        };
        match (metadata.str(&key).optional()?, name) {
            (Some(source), _) => ChatTemplate::new(source, tokens),
            (None, None) => Err(TextError::NoTemplate),
            (None, Some(wanted)) => {
                let named = |(key, _)| str::strip_prefix(key, KEY)?.strip_prefix('.');
                let found: Vec<String> = metadata.iter().filter_map(named).map(shown).collect();
                Err(TextError::TemplateName {
                    wanted: shown(wanted),
                    found: match found.is_empty() {
                        true => "none with a name".to_owned(),
                        false => found.join(", "),
                    },
                })
            }
        }
    }

    /// A template that Ingle brings.
    pub fn builtin(builtin: Builtin, tokens: TemplateTokens) -> Result<Self, TextError> {
        ChatTemplate::new(builtin.source(), tokens)
    }

    /// The same template with other limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text of a chat. Encode it with [`EncodeOptions::TEMPLATE`](crate::EncodeOptions::TEMPLATE).
    ///
    /// # Errors
    ///
    /// [`TextError::TemplateRaised`] where the template refuses the messages, with its own words,
    /// [`TextError::TemplateFuel`] and [`TextError::TemplateOutput`] where it does too much,
    /// [`TextError::TemplateFailed`] where it goes wrong.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, TextError> {
        // Cloning shares the template, and lets each call have its own fuel.
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(self.limits.fuel));
        let mut out = LimitedWriter::new(self.limits.output_bytes);
        let context = self.context(input);
        let result = environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(context, &mut out).map(drop));
        match result {
            Ok(()) => String::from_utf8(out.bytes).map_err(|error| TextError::TemplateFailed {
                line: 0,
                message: error.to_string(),
            }),
            Err(_) if out.overrun => Err(TextError::TemplateOutput {
                limit: self.limits.output_bytes,
            }),
            Err(error) => Err(template_error(&error, self.limits)),
        }
    }

    fn context(&self, input: &RenderInput<'_>) -> Value {
        let mut pairs = input.context();
        for (name, token) in [
            ("bos_token", &self.tokens.bos),
            ("eos_token", &self.tokens.eos),
            ("unk_token", &self.tokens.unknown),
            ("pad_token", &self.tokens.padding),
        ] {
            if let Some(token) = token {
                pairs.push((name.to_owned(), Value::from(token.as_str())));
            }
        }
        Value::from_pairs(pairs)
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("source", &self.source)
            .field("tokens", &self.tokens)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The environment that `apply_chat_template` sets up.
fn environment() -> Result<Environment<'static>, TextError> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| template_error(&error, Limits::default()))?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(python::method);
    environment.set_formatter(python::formatter);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("string", python::string);
    environment.add_filter("int", python::int);
    environment.add_filter("float", python::float);
    environment.add_test("sequence", python::is_sequence);
    environment.add_test("iterable", python::is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("cycler", minijinja_contrib::globals::cycler);
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    Ok(environment)
}

/// What a template says when it refuses its input.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let raised = Raised(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(raised))
}

fn template_error(error: &Error, limits: Limits) -> TextError {
    let line = error.line().unwrap_or(0);
    let sources = std::iter::successors(error.source(), |&source| source.source());
    if let Some(raised) = sources.into_iter().find_map(|s| s.downcast_ref::<Raised>()) {
        return TextError::TemplateRaised {
            message: raised.0.clone(),
        };
    }
    let message = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    match error.kind() {
        ErrorKind::SyntaxError | ErrorKind::BadEscape | ErrorKind::InvalidDelimiter => {
            TextError::TemplateSyntax { line, message }
        }
        ErrorKind::OutOfFuel => TextError::TemplateFuel { limit: limits.fuel },
        _ => TextError::TemplateFailed { line, message },
    }
}

/// `{% generation %}` marks what is trained on, and shows what is in it: it becomes `{% if true %}`.
fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inside = &tag[..end];
        match inside.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+') {
            "generation" => out.push_str(&inside.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&inside.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(inside),
        }
        rest = &tag[end..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Takes bytes up to a limit, and fails beyond it.
struct LimitedWriter {
    bytes: Vec<u8>,
    limit: usize,
    overrun: bool,
}

impl LimitedWriter {
    fn new(limit: usize) -> Self {
        LimitedWriter {
            bytes: Vec::new(),
            limit,
            overrun: false,
        }
    }
}

impl io::Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.bytes.len() {
            self.overrun = true;
            return Err(io::Error::other("too much output"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_conditions() {
        for (source, expected) in [
            (
                "{% generation %}x{% endgeneration %}",
                "{% if true %}x{% endif %}",
            ),
            (
                "{%- generation -%}x{%-endgeneration+%}",
                "{%- if true -%}x{%-endif+%}",
            ),
            (
                "{% if add_generation_prompt %}{{ '{%' }}",
                "{% if add_generation_prompt %}{{ '{%' }}",
            ),
        ] {
            assert_eq!(without_generation_tags(source), expected);
        }
    }
}
