//! safetensors: agreement with the format's own crate, and what must be refused.

mod support;

use std::collections::HashMap;

use ::safetensors::tensor::{Dtype, TensorView, serialize};
use ingle_formats::safetensors::{self, Manifest};
use ingle_formats::{FormatError, Parsed};
use ingle_quant::GgmlType;
use proptest::prelude::*;
use support::exercise;

/// Types of elements: the format's, and ours.
const TYPES: [(Dtype, GgmlType); 8] = [
    (Dtype::F32, GgmlType::F32),
    (Dtype::F16, GgmlType::F16),
    (Dtype::BF16, GgmlType::BF16),
    (Dtype::F64, GgmlType::F64),
    (Dtype::I8, GgmlType::I8),
    (Dtype::I16, GgmlType::I16),
    (Dtype::I32, GgmlType::I32),
    (Dtype::I64, GgmlType::I64),
];

/// A file of this header and so many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn parse(bytes: &[u8], file_size: u64) -> Result<Manifest, FormatError> {
    match safetensors::parse(bytes, file_size)? {
        Parsed::Done(manifest) => Ok(manifest),
        Parsed::NeedMore { at_least } => panic!("asks for {at_least} of {}", bytes.len()),
    }
}

#[track_caller]
fn refused(header: &str, data: usize, expected: &str) {
    let bytes = file(header, data);
    let error = parse(&bytes, bytes.len() as u64).expect_err("refused");
    assert_eq!(error.to_string(), expected);
    exercise::safetensors(&bytes, bytes.len() as u64);
}

proptest! {
    #[test]
    fn reads_what_the_safetensors_crate_writes(
        tensors in prop::collection::hash_map(
            ".{1,12}",
            (0..TYPES.len(), prop::collection::vec(0usize..4, 0..4)),
            0..6,
        ),
    ) {
        let sized: Vec<_> = tensors
            .iter()
            .filter(|(name, _)| *name != "__metadata__")
            .map(|(name, (ty, shape))| {
                let (dtype, ty) = TYPES[*ty];
                let bytes = shape.iter().product::<usize>() * ty.block_bytes();
                (name.clone(), dtype, ty, shape.clone(), vec![0u8; bytes])
            })
            .collect();
        let views = sized.iter().map(|(name, dtype, _, shape, data)| {
            (name.clone(), TensorView::new(*dtype, shape.clone(), data).expect("a view"))
        });
        let metadata = HashMap::from([("format".to_owned(), "p\"t".to_owned())]);
        let bytes = serialize(views, Some(metadata)).expect("written");
        let ours = parse(&bytes, bytes.len() as u64).expect("read");
        prop_assert_eq!(ours.tensors.len(), sized.len());
        let (_, theirs) = ::safetensors::SafeTensors::read_metadata(&bytes).expect("read");
        for (name, _, ty, shape, _) in &sized {
            let tensor = ours.tensors.find(name).expect("found");
            let info = theirs.info(name).expect("found");
            let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
            prop_assert_eq!((tensor.ty, &tensor.shape), (*ty, &shape));
            prop_assert_eq!(tensor.range.start - ours.data_start, info.data_offsets.0 as u64);
            prop_assert_eq!(tensor.range.end - ours.data_start, info.data_offsets.1 as u64);
        }
        exercise::safetensors(&bytes, bytes.len() as u64);
    }

    /// What we read, the format's own crate reads as well: we are never laxer.
    #[test]
    fn is_no_laxer_than_the_safetensors_crate(
        start in 0u64..3, end in 20u64..28, shape in prop::collection::vec(0u64..4, 0..3), data in 20usize..28,
    ) {
        let header = format!(
            r#"{{"t":{{"dtype":"F16","shape":{shape:?},"data_offsets":[{start},{end}]}}}}"#
        );
        let bytes = file(&header, data);
        if parse(&bytes, bytes.len() as u64).is_ok() {
            prop_assert!(::safetensors::SafeTensors::read_metadata(&bytes).is_ok());
        }
    }
}

const ONE: &str = r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  "#;

#[test]
fn a_header_is_asked_for_once_its_length_is_known() {
    let bytes = file(ONE, 8);
    let size = bytes.len() as u64;
    let end = 8 + ONE.len();
    for length in 0..end {
        let expected = if length < 8 { 8 } else { end as u64 };
        match safetensors::parse(&bytes[..length], size) {
            Ok(Parsed::NeedMore { at_least }) => assert_eq!(at_least, expected),
            other => panic!("{length}: {other:?}"),
        }
        let cut = safetensors::parse(&bytes[..length], length as u64);
        assert!(
            matches!(cut, Err(FormatError::Truncated { .. })),
            "{length}: {cut:?}"
        );
    }
    let manifest = parse(&bytes[..end], size).expect("header");
    assert_eq!(manifest.tensors[0].range, end as u64..size);
    for cut in 1..8 {
        let error = parse(&bytes[..end], size - cut).expect_err("cut");
        assert!(matches!(error, FormatError::Truncated { .. }), "{error}");
    }
}

#[test]
fn headers_that_are_no_headers() {
    refused(
        "",
        0,
        "not a safetensors file: expected \"{\" at byte 8, found \"\"",
    );
    refused(
        " {}",
        0,
        "not a safetensors file: expected \"{\" at byte 8, found \" {}\"",
    );
    for header in ["{", "{}x", "{\"a\":1,}", "{\"a\"}"] {
        let bytes = file(header, 0);
        let error = parse(&bytes, bytes.len() as u64).expect_err("refused");
        assert!(
            matches!(error, FormatError::Json { .. }),
            "{header}: {error}"
        );
    }
    let mut bytes = file("{\"a\":1}", 0);
    bytes[10] = 0xff;
    let error = parse(&bytes, bytes.len() as u64).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "header: expected UTF-8, found \"\u{fffd}\\\":1}\""
    );
    let deep = format!("{{\"a\":{{\"x\":{}", "[".repeat(1 << 20));
    refused(&deep, 0, "header: expected arrays nested at most 32 deep");
    let error = safetensors::parse(&u64::MAX.to_le_bytes(), 1 << 40).expect_err("refused");
    assert!(
        matches!(error, FormatError::HeaderTooLong { .. }),
        "{error}"
    );
}

#[test]
fn entries() {
    let entry = |body: &str| format!("{{\"t\":{{{body}}}}}");
    refused(
        &entry(r#""shape":[],"data_offsets":[0,4]"#),
        4,
        "tensor \"t\": expected dtype to be given",
    );
    refused(
        &entry(r#""dtype":"F32","data_offsets":[0,4]"#),
        4,
        "tensor \"t\": expected shape to be given",
    );
    refused(
        &entry(r#""dtype":"F32","shape":[]"#),
        4,
        "tensor \"t\": expected data_offsets to be given",
    );
    for found in ["F8_E4M3", "BOOL", "f32", ""] {
        refused(
            &entry(&format!(
                r#""dtype":"{found}","shape":[],"data_offsets":[0,4]"#
            )),
            4,
            &format!("tensor \"t\": expected a known type, found \"{found}\""),
        );
    }
    refused(
        &entry(r#""dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]"#),
        4,
        "tensor \"t\": expected at most 8 dimensions, found 9",
    );
    for offsets in ["0,5", "4,0", "0,18446744073709551615"] {
        let (start, end) = offsets.split_once(',').expect("two");
        refused(
            &entry(&format!(
                r#""dtype":"F32","shape":[],"data_offsets":[{offsets}]"#
            )),
            4,
            &format!(
                "tensor \"t\": expected 4 bytes from its type and shape, found the range {start}..{end}"
            ),
        );
    }
    refused(
        &entry(r#""dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]"#),
        4,
        "shape of tensor \"t\": size does not fit in 64 bits",
    );
    for wrong in [
        r#""dtype":1,"shape":[],"data_offsets":[0,4]"#,
        r#""dtype":"F32","shape":[-1],"data_offsets":[0,4]"#,
        r#""dtype":"F32","shape":[1.5],"data_offsets":[0,4]"#,
        r#""dtype":"F32","shape":[],"data_offsets":[0,4,8]"#,
        r#""dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]"#,
    ] {
        let bytes = file(&entry(wrong), 4);
        let error = parse(&bytes, bytes.len() as u64).expect_err("refused");
        assert!(
            matches!(error, FormatError::Json { .. }),
            "{wrong}: {error}"
        );
    }
}

#[test]
fn tensors_against_each_other() {
    let two = |name: &str, start: u64, end: u64| {
        format!(
            r#"{{"t":{{"dtype":"I8","shape":[4],"data_offsets":[0,4]}},"{name}":{{"dtype":"I8","shape":[4],"data_offsets":[{start},{end}]}}}}"#
        )
    };
    let start = |header: &str| 8 + header.len() as u64;
    refused(&two("t", 4, 8), 8, "tensor \"t\" occurs twice");
    let header = two("u", 2, 6);
    let (at, end) = (start(&header) + 2, start(&header) + 4);
    refused(
        &header,
        8,
        &format!(
            "tensor \"u\": expected it to begin at or after byte {end}, where \"t\" ends, found {at}"
        ),
    );
    let header = two("u", 6, 10);
    let (from, to) = (start(&header) + 4, start(&header) + 6);
    refused(
        &header,
        10,
        &format!("data: expected tensors without holes, found bytes {from}..{to} in none"),
    );
    let header = two("u", 4, 8);
    let (from, to) = (start(&header) + 8, start(&header) + 9);
    refused(
        &header,
        9,
        &format!("data: expected tensors without holes, found bytes {from}..{to} in none"),
    );
}

#[test]
fn metadata_is_a_map_of_strings() {
    let long = "\\n".repeat(1 << 16);
    let header = format!(r#"{{"__metadata__":{{"a":"{long}"}}}}"#);
    let bytes = file(&header, 0);
    assert!(parse(&bytes, bytes.len() as u64).is_ok());
    refused(
        r#"{"__metadata__":{"a":1}}"#,
        0,
        "metadata \"a\": expected string, found \"1\"",
    );
    refused(
        r#"{"__metadata__":{},"__metadata__":{}}"#,
        0,
        "metadata key \"__metadata__\" occurs twice",
    );
}

#[test]
fn names_may_have_escapes() {
    let header = r#"{"a\u00e9\n":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}"#;
    let bytes = file(header, 1);
    let manifest = parse(&bytes, bytes.len() as u64).expect("read");
    assert!(manifest.tensors.find("aé\n").is_some());
}
