//! The ingle command.
//!
//! Loading and answering are in `ingle-chat` (`open_gguf`, `load`, `Chat::{start_chat, step, score}`), which the browser's
//! module uses too; here are the files, the choice of a backend, and what a terminal shows.
