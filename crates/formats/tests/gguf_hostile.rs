//! GGUF: files that must be refused, and the words they are refused with.

mod support;

use ingle_formats::gguf::{self, Endian};
use support::{exercise, writer::Writer};

const F32: u32 = 0;
const Q4_0: u32 = 2;

/// The header is refused with this error, given all of a file with 4 KiB of data, or just its header.
#[track_caller]
fn refused(writer: Writer, expected: &str) {
    let bytes = writer.file(4096);
    let header = writer.header().len();
    for prefix in [&bytes[..], &bytes[..header]] {
        let error = gguf::parse(prefix, bytes.len() as u64)
            .map(|_| ())
            .expect_err("refused");
        assert_eq!(error.to_string(), expected);
    }
    exercise::gguf(&bytes, bytes.len() as u64);
}

#[track_caller]
fn refused_bytes(bytes: &[u8], expected: &str) {
    let error = gguf::parse(bytes, bytes.len() as u64 + 4096)
        .map(|_| ())
        .expect_err("refused");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn magic_and_version() {
    refused_bytes(
        b"GGML\x03\0\0\0",
        "not a GGUF file: expected \"GGUF\" at its start, found \"GGML\"",
    );
    refused_bytes(
        b"\xff\x00\n\"....",
        "not a GGUF file: expected \"GGUF\" at its start, found \"\u{fffd}\\0\\n\\\"\"",
    );
    for found in [0u32, 4, 0x0400_0000, u32::MAX] {
        refused_bytes(
            &[b"GGUF".as_slice(), &found.to_le_bytes()].concat(),
            &format!("GGUF version: expected 1, 2 or 3 in either byte order, found {found:#010x}"),
        );
    }
}

#[test]
fn counts_and_lengths_past_the_end() {
    let mut writer = Writer::v3().u32("a", 1);
    writer.pair_count = u64::MAX;
    refused(
        writer,
        &format!(
            "metadata count: found {}, expected at most 318 (what the bytes left in the file can hold)",
            u64::MAX
        ),
    );
    let mut writer = Writer::v3().u32("a", 1);
    writer.tensor_count = 1 << 40;
    refused(
        writer,
        &format!(
            "tensor count: found {}, expected at most 172 (what the bytes left in the file can hold)",
            1u64 << 40
        ),
    );
    let long = u64::MAX.to_le_bytes();
    refused(
        Writer::v3().raw("key", 8, &long),
        &format!(
            "file is cut off: metadata \"key\" ends at byte {}, the file at byte 4160",
            u64::MAX
        ),
    );
    for (ty, most) in [(0u32, 4109u64), (5, 1027), (8, 513), (9, 342), (12, 513)] {
        refused(
            Writer::v3().array_of("key", ty, 1 << 60, &[]),
            &format!(
                "metadata \"key\": found {}, expected at most {most} (what the bytes left in the file can hold)",
                1u64 << 60
            ),
        );
    }
}

#[test]
fn values() {
    refused(
        Writer::v3().raw("key", 13, &[0]),
        "metadata \"key\": expected a value type from 0 to 12, found 13",
    );
    refused(
        Writer::v3().array_of("key", 99, 0, &[]),
        "metadata \"key\": expected a value type from 0 to 12, found 99",
    );
    refused(
        Writer::v3().raw("key", 7, &[2]),
        "metadata \"key\": expected a bool of 0 or 1, found 2",
    );
    refused(
        Writer::v3().array_of("key", 7, 2, &[1, 255]),
        "metadata \"key\": expected a bool of 0 or 1, found 255",
    );
    refused(
        Writer::v3().str("key", b"a\xc3"),
        "metadata \"key\": expected UTF-8, found \"a\u{fffd}\"",
    );
    refused(
        Writer::v3().u32("ok", 1).raw(b"\xff", 0, &[0]),
        "key 1 of the metadata: expected UTF-8, found \"\u{fffd}\"",
    );
    let tokens = [Writer::v3().string("fine"), Writer::v3().string(b"\x80")];
    refused(
        Writer::v3().array("tokenizer.ggml.tokens", 8, &tokens),
        "metadata \"tokenizer.ggml.tokens\": expected UTF-8, found \"\u{fffd}\"",
    );
    refused(
        Writer::v3()
            .u32("twice", 1)
            .u32("other", 1)
            .str("twice", "x"),
        "metadata key \"twice\" occurs twice",
    );
}

#[test]
fn arrays_nested_too_deep() {
    let nest = |depth: usize| {
        let mut bytes = Vec::new();
        for _ in 1..depth {
            bytes.extend(9u32.to_le_bytes());
            bytes.extend(1u64.to_le_bytes());
        }
        bytes.extend([0; 12]);
        Writer::v3().raw("key", 9, &bytes)
    };
    let bytes = nest(4).file(0);
    assert!(gguf::parse(&bytes, bytes.len() as u64).is_ok());
    for depth in [5, 1000] {
        refused(
            nest(depth),
            "metadata \"key\": expected arrays nested at most 4 deep",
        );
    }
}

#[test]
fn alignment() {
    for found in [0, 3, 33] {
        refused(
            Writer::v3().u32("general.alignment", found),
            &format!("general.alignment: expected a power of two, found {found}"),
        );
    }
    refused(
        Writer::v3().str("general.alignment", "32"),
        "metadata general.alignment: expected u64, found string",
    );
    refused(
        Writer::v3()
            .raw("general.alignment", 10, &(1u64 << 63).to_le_bytes())
            .tensor("t", &[1], F32, 1 << 63),
        "range of tensor \"t\": size does not fit in 64 bits",
    );
}

#[test]
fn tensors() {
    refused(
        Writer::v3().tensor("t", &[1; 5], F32, 0),
        "tensor \"t\": expected at most 4 dimensions, found 5",
    );
    refused(
        Writer::v3().tensor("t", &[4, 0, 2], F32, 0),
        "tensor \"t\": expected dimensions of at least 1, found 0 in dimension 1",
    );
    for id in [4, 5, 1000] {
        refused(
            Writer::v3().tensor("t", &[32], id, 0),
            &format!("tensor \"t\": expected a known type, found {id}"),
        );
    }
    refused(
        Writer::v3().tensor("t", &[48, 2], Q4_0, 0),
        "tensor \"t\": expected rows of a multiple of 32 elements for Q4_0, found 48",
    );
    refused(
        Writer::v3().tensor("t", &[], Q4_0, 0),
        "tensor \"t\": expected rows of a multiple of 32 elements for Q4_0, found 1",
    );
    for ne in [[1 << 32, 1 << 32], [1 << 62, 1]] {
        refused(
            Writer::v3().tensor("t", &ne, F32, 0),
            "shape of tensor \"t\": size does not fit in 64 bits",
        );
    }
    refused(
        Writer::v3().tensor(b"a\xff", &[1], F32, 0),
        "name of tensor 0: expected UTF-8, found \"a\u{fffd}\"",
    );
    refused(
        Writer::v3()
            .tensor("t", &[1], F32, 0)
            .tensor("u", &[1], F32, 32)
            .tensor("t", &[1], F32, 64),
        "tensor \"t\" occurs twice",
    );
}

#[test]
fn ranges() {
    refused(
        Writer::v3().tensor("t", &[1], F32, 8),
        "tensor \"t\": expected an offset that is a multiple of 32, found 8",
    );
    refused(
        Writer::v3().tensor("t", &[1], F32, u64::MAX - 31),
        "range of tensor \"t\": size does not fit in 64 bits",
    );
    refused(
        Writer::v3().tensor("t", &[8], F32, 4096),
        "file is cut off: data of tensor \"t\" ends at byte 4192, the file at byte 4160",
    );
    refused(
        Writer::v3()
            .tensor("t", &[9], F32, 32)
            .tensor("u", &[1], F32, 64),
        "tensor \"u\": expected it to begin at or after byte 164, where \"t\" ends, found 160",
    );
    refused(
        Writer::v3()
            .tensor("t", &[1], F32, 0)
            .tensor("u", &[100], F32, 0),
        "tensor \"u\": expected it to begin at or after byte 100, where \"t\" ends, found 96",
    );
}

#[test]
fn long_names_are_cut_in_errors() {
    let name = "n\"".repeat(1000);
    let shown = "n\\\"".repeat(32);
    refused(
        Writer::v3().tensor(name, &[0], F32, 0),
        &format!("tensor \"{shown}…\": expected dimensions of at least 1, found 0 in dimension 0"),
    );
}

#[test]
fn a_header_longer_than_the_limit() {
    let writer = Writer::v3().raw("key", 8, &(1u64 << 30).to_le_bytes());
    let error = gguf::parse(&writer.header(), 1 << 40)
        .map(|_| ())
        .expect_err("refused");
    assert_eq!(
        error.to_string(),
        "header is too long: metadata \"key\" ends at byte 1073741871, expected at most 100000000"
    );
}

#[test]
fn both_byte_orders_are_checked() {
    let writer = Writer::new(2, Endian::Big);
    let long = writer.u64_bytes(u64::MAX);
    refused(
        writer.raw("key", 8, &long),
        &format!(
            "file is cut off: metadata \"key\" ends at byte {}, the file at byte 4160",
            u64::MAX
        ),
    );
}
