//! The wasm-bindgen surface of Ingle.
