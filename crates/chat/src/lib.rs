//! A whole model: files in, tokenizer, template, plan and engine out; conversations in, text out.
//!
//! ```text
//! Files ── open_gguf ──▶ Opened{model, tokenizer, template}
//!                            │ graph, compile, a backend (the caller's choice), weights streamed
//!                            ▼
//!                          Chat ── start_chat ── step, step, … ──▶ text, and why it ended
//! ```
//!
//! This is what the command line and the browser share; they bring the files and the backend, and show what comes.

mod chat;
mod error;
mod load;
mod score;

pub use chat::{Answer, Chat, Finish, Step};
pub use error::{ChatError, ReadError};
pub use load::{Files, LoadOptions, Opened, Progress, load, open_gguf};
pub use score::{AsyncBetween, NoPause, Score};

pub use ingle_engine::{CancelToken, Sampling};
pub use ingle_models::GraphOptions;
pub use ingle_text::Message;
