//! The input is a `model.safetensors.index.json`.

#![no_main]

mod common;

use common::{exercise, within_limit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    within_limit(bytes.len(), || ingle_formats::index::parse(bytes));
    exercise::index(bytes);
});
