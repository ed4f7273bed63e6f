//! The input is the text form of a graph. What parses and verifies prints a text that parses back to the same text.

#![no_main]

mod common;

use common::within_limit;
use libfuzzer_sys::fuzz_target;

/// Bytes of a graph for each byte of its text: a line of 15 bytes declares a value with its type, name and place.
const PER_BYTE: usize = 64;

fuzz_target!(|text: &str| {
    let mut parsed = None;
    within_limit(text.len() * PER_BYTE, || {
        parsed = ingle_graph::parse(text).ok();
    });
    let Some(graph) = parsed.filter(|g| ingle_graph::verify(g).is_ok()) else {
        return;
    };
    let printed = graph.to_string();
    let back = ingle_graph::parse(&printed).expect("what a verified graph prints parses back");
    assert_eq!(back.to_string(), printed);
});
