//! The input is the JSON of a safetensors header, so that its length need not be guessed, or a whole file.

#![no_main]

mod common;

use common::{exercise, within_limit};
use ingle_formats::safetensors::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    exercise::safetensors(bytes, bytes.len() as u64);
    let file = [&(bytes.len() as u64).to_le_bytes(), bytes].concat();
    let length = file.len() as u64;
    // Data without holes has one length only: that of the seeds, and of what grows out of them.
    for file_size in [length, length + 24, length + 26, length + 4096] {
        within_limit(file.len(), || parse(&file, file_size));
        exercise::safetensors(&file, file_size);
    }
});
