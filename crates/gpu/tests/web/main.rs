//! The op suite on WebGPU, in a browser: `wasm-bindgen-test-runner` opens it with the flags in `webdriver.json`.
#![cfg_attr(target_arch = "wasm32", no_main)]

#[cfg(not(target_arch = "wasm32"))]
fn main() {}

#[cfg(target_arch = "wasm32")]
mod web;
