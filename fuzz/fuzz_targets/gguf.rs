//! The input is the start of a GGUF file, which is as long as the input or a little or much longer.

#![no_main]

mod common;

use common::{exercise, within_limit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let length = bytes.len() as u64;
    for file_size in [length, length + 4096, 1 << 40] {
        within_limit(bytes.len(), || ingle_formats::gguf::parse(bytes, file_size));
        exercise::gguf(bytes, file_size);
    }
});
