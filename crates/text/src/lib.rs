//! Tokenizers, the streaming decoder and chat templates.
//!
//! # Tokens
//!
//! [`Tokenizer::from_gguf`] and [`Tokenizer::from_json`] read a tokenizer; [`Tokenizer::encode`] and
//! [`Tokenizer::decode`] use it. [`StreamDecoder`] turns the ids that a model emits into text as they come. A kind of
//! tokenizer that is not supported is refused by name.
//!
//! # Chats
//!
//! [`ChatTemplate`] renders messages with the model's own Jinja template. What it makes is encoded with
//! [`EncodeOptions::TEMPLATE`].
//!
//! # What holds here
//!
//! - The crate is pure: bytes and values in, values out. A template that asks for the time gets what the caller gave.
//! - Files are hostile: what a file says is checked before memory is taken for it, and running a template ends
//!   ([`Limits`]).
//! - The `tokenizers` crate does the work, with the same regular expressions natively and in the browser, so that
//!   ids are the same everywhere.

mod chat;
mod end_of_generation;
mod error;
mod gguf;
mod json;
mod pipeline;
mod pre_tokenizer;
mod sentencepiece;
mod spelling;
mod stream;
mod table;
mod tokenizer;

pub use chat::{Builtin, ChatTemplate, Limits, Message, Now, RenderInput, TemplateTokens};
pub use error::TextError;
pub use gguf::GgufTokenizer;
pub use json::TokenizerConfig;
pub use stream::StreamDecoder;
pub use table::TokenKind;
pub use tokenizer::{
    ControlTokens, EncodeOptions, Framing, Missing, Roles, SpecialTokens, Tokenizer,
};
