//! GGUF: what well-formed files say, and that a header is asked for until it is whole.

mod support;

use ingle_formats::gguf::{self, Endian, Manifest, Value};
use ingle_formats::{FormatError, Optional, Parsed};
use ingle_quant::GgmlType;
use serde_json::Value as Json;
use support::{exercise, writer::Writer};

const TINY: &str = include_str!("data/tiny.json");
const TINY_LE: &[u8] = include_bytes!("data/tiny-le.gguf");
const TINY_BE: &[u8] = include_bytes!("data/tiny-be.gguf");

fn parse(bytes: &[u8]) -> Manifest {
    match gguf::parse(bytes, bytes.len() as u64) {
        Ok(Parsed::Done(manifest)) => manifest,
        other => panic!("{other:?}"),
    }
}

/// A value as gguf-py prints it.
fn as_json(value: Value) -> Json {
    match value {
        Value::String(text) => text.into(),
        Value::Bool(flag) => flag.into(),
        Value::Array(array) => array.iter().map(as_json).collect(),
        other => match other.as_integer() {
            Some(integer) => serde_json::from_str(&integer.to_string()).expect("a number"),
            None => other.as_float().expect("a float").into(),
        },
    }
}

/// gguf-py's names of a value's type and of its elements' type.
fn type_names(value: Value) -> Vec<String> {
    let long = |name: &str| match name.split_at(1) {
        ("u", bits) if bits.parse::<u8>().is_ok() => format!("UINT{bits}"),
        ("i", bits) => format!("INT{bits}"),
        ("f", bits) => format!("FLOAT{bits}"),
        _ => name.to_uppercase(),
    };
    let mut names = vec![long(value.value_type().name())];
    names.extend(value.as_array().map(|a| long(a.element_type().name())));
    names
}

#[test]
fn agrees_with_gguf_py() {
    let facts: Json = serde_json::from_str(TINY).expect("facts");
    for (name, bytes, endian) in [
        ("le", TINY_LE, Endian::Little),
        ("be", TINY_BE, Endian::Big),
    ] {
        let manifest = parse(bytes);
        let facts = &facts[name];
        assert_eq!((manifest.version, manifest.endian), (3, endian));
        assert_eq!(Json::from(manifest.alignment), facts["alignment"]);
        assert_eq!(Json::from(manifest.data_start), facts["data_start"]);
        assert_eq!(Json::from(manifest.file_size), facts["file_size"]);

        let expected = facts["metadata"].as_object().expect("metadata");
        assert_eq!(manifest.metadata.len(), expected.len());
        for (key, fact) in expected {
            let value = manifest.metadata.get(key).expect(key);
            // Compared as text: the numbers of the file keep their spelling in tests.
            assert_eq!(
                number_text(&as_json(value)),
                number_text(&fact["value"]),
                "{key}"
            );
            assert_eq!(Json::from(type_names(value)), fact["types"], "{key}");
        }
        let expected = facts["tensors"].as_array().expect("tensors");
        assert_eq!(manifest.tensors.len(), expected.len());
        for (tensor, fact) in manifest.tensors.iter().zip(expected) {
            let ne: Vec<u64> = tensor.shape.iter().rev().copied().collect();
            assert_eq!(Json::from(tensor.name.as_str()), fact["name"]);
            assert_eq!(Json::from(tensor.ty.name()), fact["type"]);
            assert_eq!(Json::from(ne), fact["ne"]);
            assert_eq!(Json::from(tensor.range.start), fact["start"]);
            assert_eq!(Json::from(tensor.byte_count()), fact["bytes"]);
        }
    }
}

/// JSON with all numbers as floats of 64 bits, or as integers where they were written so.
fn number_text(json: &Json) -> String {
    match json {
        Json::Number(n) => n
            .as_i128()
            .map_or_else(|| format!("{:?}", n.as_f64()), |n| n.to_string()),
        Json::Array(all) => all.iter().map(number_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The same facts in every version and byte order, with an array in an array, a scalar and a type we cannot read.
fn rich(version: u32, endian: Endian) -> Writer {
    let writer = Writer::new(version, endian);
    let inner = [writer.u32_bytes(0), writer.size(2), vec![5, 6]].concat();
    let f64_bytes = writer.number(1e300f64.to_le_bytes());
    let i16s = [
        writer.number((-3i16).to_le_bytes()),
        writer.number(4i16.to_le_bytes()),
    ];
    writer
        .str("general.architecture", "llama")
        .u32("general.alignment", 64)
        .u32("llama.block_count", 30)
        .raw("flag", 7, &[1])
        .raw("huge", 12, &f64_bytes)
        .raw("byte", 1, &[0xff])
        .array("nested", 9, &[inner.clone(), inner])
        .array("shorts", 3, &i16s)
        .array("flags", 7, &[vec![0], vec![1]])
        .array("empty", 0, &[])
        .strings("tokens", &["a", "", "ü"])
        .tensor("a", &[32, 3], GgmlType::Q4_1.id(), 64)
        .tensor("scalar", &[], GgmlType::F32.id(), 0)
        .tensor("b", &[256, 2, 1, 2], GgmlType::IQ2_XXS.id(), 128)
}

#[test]
fn reads_every_version_and_byte_order() {
    for version in 1..=3 {
        for endian in [Endian::Little, Endian::Big] {
            let mut writer = rich(version, endian);
            writer.alignment = 64;
            let bytes = writer.file(128 + 4 * 66);
            let manifest = parse(&bytes);
            assert_eq!((manifest.version, manifest.endian), (version, endian));
            assert_eq!(manifest.alignment, 64);
            assert_eq!(
                manifest.data_start,
                (writer.header().len() as u64).next_multiple_of(64)
            );
            check_rich(&manifest);
            exercise::gguf(&bytes, bytes.len() as u64);
        }
    }
}

fn check_rich(manifest: &Manifest) {
    let metadata = &manifest.metadata;
    assert_eq!(metadata.str("general.architecture").ok(), Some("llama"));
    assert_eq!(metadata.u32("llama.block_count").ok(), Some(30));
    assert_eq!(metadata.i64("byte").ok(), Some(-1));
    assert_eq!(metadata.bool("flag").ok(), Some(true));
    let strings: Vec<_> = metadata.strings("tokens").expect("strings").collect();
    assert_eq!(strings, ["a", "", "ü"]);
    let shorts: Vec<_> = metadata.i32s("shorts").expect("shorts").collect();
    assert_eq!(shorts, [-3, 4]);
    let flags: Vec<_> = metadata.bools("flags").expect("flags").collect();
    assert_eq!(flags, [false, true]);
    assert_eq!(metadata.strings("empty").expect("empty").len(), 0);
    let nested = metadata.array("nested").expect("nested");
    let sums: Vec<i128> = nested
        .iter()
        .map(|inner| {
            inner
                .as_array()
                .expect("array")
                .iter()
                .filter_map(|v| v.as_integer())
                .sum()
        })
        .collect();
    assert_eq!(sums, [11, 11]);
    assert!(matches!(metadata.u32("absent").optional(), Ok(None)));

    let shape = |name| manifest.tensors.find(name).map(|t| t.shape.clone());
    assert_eq!(shape("a"), Some(vec![3, 32]));
    assert_eq!(shape("scalar"), Some(vec![]));
    assert_eq!(shape("b"), Some(vec![2, 1, 2, 256]));
    let b = manifest.tensors.require("b").expect("b");
    assert_eq!((b.ty, b.byte_count()), (GgmlType::IQ2_XXS, 4 * 66));
    assert_eq!(b.range.start, manifest.data_start + 128);
    assert!(matches!(
        manifest.tensors.require("c"),
        Err(FormatError::MissingTensor { .. })
    ));
}

#[test]
fn typed_access_names_what_it_expected() {
    let manifest = parse(&{
        let mut writer = rich(3, Endian::Little);
        writer.alignment = 64;
        writer.file(392)
    });
    let metadata = &manifest.metadata;
    let cases: [(Option<FormatError>, &str); 9] = [
        (
            metadata.u32("absent").err(),
            "metadata absent: expected a value, found none",
        ),
        (
            metadata.u32("flag").err(),
            "metadata flag: expected u32, found bool",
        ),
        (
            metadata.u32("byte").err(),
            "metadata byte: expected a value in the range of u32, found -1",
        ),
        (
            metadata.str("tokens").err(),
            "metadata tokens: expected string, found [string; 3]",
        ),
        (
            metadata.strings("shorts").err(),
            "metadata shorts: expected an array of string, found [i16; 2]",
        ),
        (
            metadata.strings("flag").err(),
            "metadata flag: expected an array of string, found bool",
        ),
        (
            metadata.u32s("shorts").err(),
            "metadata shorts: expected a value in the range of u32, found -3",
        ),
        (
            metadata.f32s("nested").err(),
            "metadata nested: expected an array of f32, found [array; 2]",
        ),
        (
            metadata.f32("byte").err(),
            "metadata byte: expected f32, found i8",
        ),
    ];
    for (error, expected) in cases {
        assert_eq!(error.map(|e| e.to_string()).as_deref(), Some(expected));
    }
    let huge = metadata.f32("huge").expect_err("out of range");
    assert!(matches!(huge, FormatError::OutOfRange { .. }), "{huge}");
}

#[test]
fn every_shorter_prefix_asks_for_more_and_every_shorter_file_is_cut_off() {
    for bytes in [
        TINY_LE.to_vec(),
        TINY_BE.to_vec(),
        rich(1, Endian::Big).header(),
    ] {
        let size = bytes.len() as u64 + 1000;
        let header_end = (1..=bytes.len())
            .find(|&n| !matches!(gguf::parse(&bytes[..n], size), Ok(Parsed::NeedMore { .. })))
            .expect("an end of the header");
        for length in 0..header_end {
            match gguf::parse(&bytes[..length], size) {
                Ok(Parsed::NeedMore { at_least }) => {
                    assert!(at_least > length as u64 && at_least <= size);
                    assert!(at_least >= 2 * length as u64 || at_least == size);
                }
                other => panic!("{length}: {other:?}"),
            }
            let cut = gguf::parse(&bytes[..length], length as u64);
            let expected = matches!(
                cut,
                Err(FormatError::Truncated { .. } | FormatError::CountPastEnd { .. })
            );
            assert!(expected, "{length}: {cut:?}");
        }
    }
}

#[test]
fn a_file_cut_within_its_data_names_the_tensor() {
    let end = parse(TINY_LE)
        .tensors
        .iter()
        .map(|t| t.range.end)
        .max()
        .expect("tensors");
    let error = gguf::parse(TINY_LE, end).expect_err("prefix longer than file");
    assert!(
        matches!(error, FormatError::PrefixTooLong { .. }),
        "{error}"
    );
    let error = gguf::parse(&TINY_LE[..end as usize - 1], end - 1).expect_err("cut");
    let expected = "file is cut off: data of tensor \"blk.0.ffn_up.weight\" ends at byte 4344, the file at byte 4343";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_file_without_tensors_or_metadata_is_whole() {
    let manifest = parse(&Writer::v3().header());
    assert!(manifest.tensors.is_empty() && manifest.metadata.is_empty());
    assert_eq!(manifest.data_start, 32);
}

#[test]
fn a_long_header_is_asked_for_in_few_steps() {
    let token = "a token of some length";
    let many = vec![token; 60_000];
    let bytes = Writer::v3().strings("tokens", &many).header();
    let (mut length, mut steps) = (0, 0);
    let manifest = loop {
        match gguf::parse(&bytes[..length], bytes.len() as u64).expect("valid") {
            Parsed::NeedMore { at_least } => length = at_least as usize,
            Parsed::Done(manifest) => break manifest,
        }
        steps += 1;
    };
    assert!(steps < 10, "{steps} steps");
    let tokens = manifest.metadata.strings("tokens").expect("tokens");
    assert_eq!(tokens.filter(|&t| t == token).count(), many.len());
}
