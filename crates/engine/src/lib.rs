//! Sequences, the KV cache, sampling and stepping: token ids in, token ids out.
//!
//! ```text
//! Engine      one backend with its weights; a pool of KV blocks; any number of sequences
//!   forward   one step: slices of sequences in, logits of the rows that ask for them out
//! Generation  prompt in chunks, then one token after the other, until something ends it
//! ```
//!
//! A sequence is a list of tokens whose keys and values lie in blocks of 32 positions. Blocks are counted: forks share
//! them, and whoever writes to a shared one gets a copy first. The pool grows in steps without compiling anything anew.
//! Everything that waits for the device is `async`; nothing here blocks, sleeps or looks at a clock.

mod cancel;
mod engine;
mod error;
mod generate;
mod inputs;
mod pool;
mod sample;
mod step;

pub use cancel::CancelToken;
pub use engine::{Engine, EngineOptions, SequenceId};
pub use error::EngineError;
pub use generate::{Event, Finish, GenerateOptions, Generation};
pub use sample::{Sampler, Sampling};
pub use step::{ChosenToken, SequenceSlice};
