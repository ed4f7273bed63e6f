//! The wasm-bindgen surface of Ingle: thin. JavaScript brings the source and the loop, `ingle-chat` does the work.
//!
//! On other targets the crate is empty.

#![cfg(target_arch = "wasm32")]

mod device;
mod error;
mod model;
mod source;
mod types;

pub use model::Model;
