//! Mutated files: whatever happens to the bytes, nothing panics and a manifest is consistent.

mod support;

use ingle_formats::gguf::Endian;
use proptest::prelude::*;
use support::{exercise, writer::Writer};

const TINY_LE: &[u8] = include_bytes!("data/tiny-le.gguf");
const TINY_BE: &[u8] = include_bytes!("data/tiny-be.gguf");

/// One change to a file.
#[derive(Clone, Debug)]
enum Mutation {
    /// Sets a byte.
    Set(prop::sample::Index, u8),
    /// Writes a number that is likely to be a limit, little- or big-endian.
    Number(prop::sample::Index, u64, bool),
    /// Copies some bytes over others.
    Copy(prop::sample::Index, prop::sample::Index, usize),
    Cut(prop::sample::Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let near = prop_oneof![
        Just(0u64),
        Just(1 << 31),
        Just(1 << 32),
        Just(1 << 63),
        Just(u64::MAX)
    ];
    let number = (near, -2i64..3).prop_map(|(base, by)| base.wrapping_add_signed(by));
    prop_oneof![
        4 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, to)| Mutation::Set(at, to)),
        2 => (any::<prop::sample::Index>(), number, any::<bool>())
            .prop_map(|(at, to, big)| Mutation::Number(at, to, big)),
        2 => (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1usize..40)
            .prop_map(|(from, to, n)| Mutation::Copy(from, to, n)),
        1 => any::<prop::sample::Index>().prop_map(Mutation::Cut),
    ]
}

/// Applies mutations to the first `header` bytes, where they matter.
fn mutate(mut bytes: Vec<u8>, header: usize, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        let header = header.min(bytes.len());
        if header == 0 {
            break;
        }
        match mutation {
            Mutation::Set(at, to) => bytes[at.index(header)] = *to,
            Mutation::Number(at, to, big) => {
                let number = if *big {
                    to.to_be_bytes()
                } else {
                    to.to_le_bytes()
                };
                let at = at.index(header);
                for (byte, to) in bytes[at..].iter_mut().zip(number) {
                    *byte = to;
                }
            }
            Mutation::Copy(from, to, count) => {
                let (from, to) = (from.index(header), to.index(header));
                let count = (*count).min(header - from).min(header - to);
                bytes.copy_within(from..from + count, to);
            }
            Mutation::Cut(at) => bytes.truncate(at.index(header)),
        }
    }
    bytes
}

fn v1() -> (Vec<u8>, usize) {
    let writer = Writer::new(1, Endian::Big)
        .strings("tokens", &["a", "b", "c"])
        .u32("general.alignment", 32)
        .tensor("t", &[32, 2], 2, 0)
        .tensor("u", &[3], 0, 64);
    (writer.file(128), writer.header().len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn gguf(which in 0usize..3, mutations in prop::collection::vec(mutation(), 1..4)) {
        let (bytes, header) = match which {
            0 => (TINY_LE.to_vec(), 1120),
            1 => (TINY_BE.to_vec(), 1056),
            _ => v1(),
        };
        let bytes = mutate(bytes, header, &mutations);
        exercise::gguf(&bytes, bytes.len() as u64);
        exercise::gguf(&bytes, bytes.len() as u64 + 5000);
    }

    #[test]
    fn safetensors(mutations in prop::collection::vec(mutation(), 1..4)) {
        let json = br#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b\n":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}}"#;
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json);
        let header = bytes.len();
        bytes.extend([0; 26]);
        let bytes = mutate(bytes, header, &mutations);
        exercise::safetensors(&bytes, bytes.len() as u64);
        exercise::safetensors(&bytes, bytes.len() as u64 + 26);
    }

    #[test]
    fn index(mutations in prop::collection::vec(mutation(), 1..4)) {
        let json = br#"{"metadata":{"total_size":1},"weight_map":{"a":"x-1.safetensors","b":"x-2.safetensors","\u00e9":"x-1.safetensors"}}"#;
        exercise::index(&mutate(json.to_vec(), json.len(), &mutations));
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise::gguf(&bytes, bytes.len() as u64);
        exercise::gguf(&[b"GGUF\x03\0\0\0", &bytes[..]].concat(), bytes.len() as u64 + 8);
        exercise::safetensors(&bytes, bytes.len() as u64);
        exercise::index(&bytes);
    }
}
