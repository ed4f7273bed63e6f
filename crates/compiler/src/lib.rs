//! The kernel compiler as a wasm module of its own, which a page loads only when a plan needs a kernel that was not
//! generated when the package was built.
//!
//! On other targets the crate is empty: there the compiler is linked in.

#![cfg(target_arch = "wasm32")]

use ingle_kernels::{DeviceLimits, KernelKey, KernelText, compile::compile};
use wasm_bindgen::prelude::*;

unsafe extern "C" {
    fn __wasm_call_ctors();
}

/// Runs static constructors once. Without this call the linker would run them at every call of an export.
#[wasm_bindgen(start)]
pub fn start() {
    // SAFETY: the linker defines the function, and the start function runs once, before any other export.
    unsafe { __wasm_call_ctors() }
}

/// Compiles kernels for a device with WebGPU's default limits. `keys` is a JSON list of `KernelKey`; gives a JSON list of
/// `KernelText`.
#[wasm_bindgen]
pub fn compile_kernels(keys: &str) -> Result<String, JsValue> {
    let error = |message: String| JsValue::from_str(&message);
    let keys: Vec<KernelKey> = serde_json::from_str(keys).map_err(|e| error(e.to_string()))?;
    let limits = DeviceLimits::default();
    let texts = keys
        .iter()
        .map(|key| compile(key, &limits))
        .collect::<Result<Vec<KernelText>, _>>();
    let texts = texts.map_err(|e| error(e.to_string()))?;
    serde_json::to_string(&texts).map_err(|e| error(e.to_string()))
}
