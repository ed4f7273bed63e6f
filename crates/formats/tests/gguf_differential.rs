//! GGUF: the same facts as gguf-rs 0.1.8 reads, on generated files of versions 1 to 3 in both byte orders.
//!
//! Where the two differ on purpose:
//! - gguf-rs expects a big-endian file to begin with "FUGG"; the specification and gguf-py write "GGUF".
//! - In version 1 dimensions take four bytes (as ggml wrote them then, and candle reads them); gguf-rs reads eight.
//!   Files of version 1 have no tensors here.
//! - gguf-rs takes the blocks of every type above 9 to hold 256 elements, which is wrong for BF16, IQ4_NL and the
//!   like. Their sizes are left out.

mod support;

use std::io::Cursor;

use gguf_rs::{ByteOrder, GGUFContainer, GGUFModel};
use ingle_formats::Parsed;
use ingle_formats::gguf::{self, Endian, Manifest, Value};
use ingle_quant::GgmlType;
use proptest::prelude::*;
use serde_json::Value as Json;
use support::writer::Writer;

/// Types whose block gguf-rs knows.
const TYPES: [GgmlType; 11] = [
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::Q2_K,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
];

#[derive(Clone, Debug)]
enum Scalar {
    Integer(u32, i64),
    Float(f32),
    Double(f64),
    Bool(bool),
    String(String),
}

#[derive(Clone, Debug)]
enum Item {
    One(Scalar),
    Integers(u32, Vec<i64>),
    Strings(Vec<String>),
}

/// Ids and widths in bytes of the integer types.
const INTEGERS: [(u32, usize); 8] = [
    (0, 1),
    (1, 1),
    (2, 2),
    (3, 2),
    (4, 4),
    (5, 4),
    (10, 8),
    (11, 8),
];

fn scalar() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        (0usize..8, any::<i64>()).prop_map(|(ty, value)| Scalar::Integer(INTEGERS[ty].0, value)),
        any::<f32>()
            .prop_filter("finite", |v| v.is_finite())
            .prop_map(Scalar::Float),
        any::<f64>()
            .prop_filter("finite", |v| v.is_finite())
            .prop_map(Scalar::Double),
        any::<bool>().prop_map(Scalar::Bool),
        ".{0,20}".prop_map(Scalar::String),
    ]
}

fn item() -> impl Strategy<Value = Item> {
    let integers = (0usize..8, prop::collection::vec(any::<i64>(), 0..9));
    prop_oneof![
        4 => scalar().prop_map(Item::One),
        1 => integers.prop_map(|(ty, values)| Item::Integers(INTEGERS[ty].0, values)),
        1 => prop::collection::vec(".{0,9}", 0..9).prop_map(Item::Strings),
    ]
}

fn integer_bytes(writer: &Writer, ty: u32, value: i64) -> Vec<u8> {
    match INTEGERS
        .iter()
        .find(|(id, _)| *id == ty)
        .expect("an integer")
        .1
    {
        1 => writer.number((value as i8).to_le_bytes()),
        2 => writer.number((value as i16).to_le_bytes()),
        4 => writer.number((value as i32).to_le_bytes()),
        _ => writer.number(value.to_le_bytes()),
    }
}

fn write_item(writer: Writer, key: &str, item: &Item) -> Writer {
    match item {
        Item::One(Scalar::Integer(ty, value)) => {
            let bytes = integer_bytes(&writer, *ty, *value);
            writer.raw(key, *ty, &bytes)
        }
        Item::One(Scalar::Float(value)) => {
            let bytes = writer.number(value.to_le_bytes());
            writer.raw(key, 6, &bytes)
        }
        Item::One(Scalar::Double(value)) => {
            let bytes = writer.number(value.to_le_bytes());
            writer.raw(key, 12, &bytes)
        }
        Item::One(Scalar::Bool(value)) => writer.raw(key, 7, &[u8::from(*value)]),
        Item::One(Scalar::String(value)) => writer.str(key, value),
        Item::Integers(ty, values) => {
            let elements: Vec<_> = values
                .iter()
                .map(|v| integer_bytes(&writer, *ty, *v))
                .collect();
            writer.array(key, *ty, &elements)
        }
        Item::Strings(values) => {
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            writer.strings(key, &values)
        }
    }
}

/// A tensor: the index of its type, blocks in a row, and the outer dimensions.
type Sketch = (usize, u64, Vec<u64>);

fn write(version: u32, endian: Endian, items: &[Item], tensors: &[Sketch]) -> (Writer, usize) {
    let mut writer = Writer::new(version, endian).str("general.architecture", "llama");
    for (index, item) in items.iter().enumerate() {
        writer = write_item(writer, &format!("key.{index}"), item);
    }
    let mut end = 0u64;
    for (index, (ty, blocks, outer)) in tensors.iter().enumerate() {
        let ty = TYPES[*ty];
        let ne = [&[blocks * ty.block_elements() as u64], &outer[..]].concat();
        writer = writer.tensor(format!("tensor.{index}"), &ne, ty.id(), end);
        let bytes = blocks * outer.iter().product::<u64>() * ty.block_bytes() as u64;
        end = (end + bytes).next_multiple_of(32);
    }
    (writer, end as usize)
}

fn read_with_gguf_rs(bytes: &[u8], endian: Endian) -> GGUFModel {
    let order = match endian {
        Endian::Little => ByteOrder::LE,
        Endian::Big => ByteOrder::BE,
    };
    // Its container begins after the magic, which is how "FUGG" is got round.
    let rest = Cursor::new(bytes[4..].to_vec());
    let mut container = GGUFContainer::new(order, Box::new(rest), u64::MAX);
    container.decode().expect("gguf-rs reads it")
}

/// A value in the JSON that gguf-rs makes of it.
fn as_json(value: Value) -> Json {
    match value {
        Value::U8(v) => v.into(),
        Value::I8(v) => v.into(),
        Value::U16(v) => v.into(),
        Value::I16(v) => v.into(),
        Value::U32(v) => v.into(),
        Value::I32(v) => v.into(),
        Value::U64(v) => v.into(),
        Value::I64(v) => v.into(),
        Value::F32(v) => v.into(),
        Value::F64(v) => v.into(),
        Value::Bool(v) => v.into(),
        Value::String(v) => v.into(),
        Value::Array(v) => v.iter().map(as_json).collect(),
    }
}

fn compare(ours: &Manifest, theirs: &GGUFModel) {
    assert_eq!(format!("v{}", ours.version), theirs.get_version());
    assert_eq!(ours.metadata.len(), theirs.metadata().len());
    for (key, value) in ours.metadata.iter() {
        assert_eq!(Some(&as_json(value)), theirs.metadata().get(key), "{key}");
    }
    assert_eq!(ours.tensors.len(), theirs.tensors().len());
    for (ours_at, tensor) in ours.tensors.iter().zip(theirs.tensors()) {
        let ne: Vec<u64> = ours_at.shape.iter().rev().copied().collect();
        assert_eq!(ours_at.name, tensor.name);
        assert_eq!(ne, tensor.shape);
        assert_eq!(ours_at.ty.id(), tensor.kind);
        assert_eq!(ours_at.byte_count(), tensor.size);
        assert_eq!(ours_at.range.start, ours.data_start + tensor.offset);
    }
}

proptest! {
    #[test]
    fn the_same_facts_as_gguf_rs(
        version in 1u32..=3,
        big in any::<bool>(),
        items in prop::collection::vec(item(), 0..12),
        tensors in prop::collection::vec((0..TYPES.len(), 1u64..4, prop::collection::vec(1u64..5, 0..4)), 0..6),
    ) {
        let endian = if big { Endian::Big } else { Endian::Little };
        let tensors = if version == 1 { &[][..] } else { &tensors[..] };
        let (writer, data) = write(version, endian, &items, tensors);
        let bytes = writer.file(data);
        let Ok(Parsed::Done(ours)) = gguf::parse(&bytes, bytes.len() as u64) else {
            panic!("ours reads it");
        };
        compare(&ours, &read_with_gguf_rs(&bytes, endian));
        // Of a big-endian file it only aligns by the same rule when there is no alignment key, as here.
        prop_assert_eq!(ours.data_start, (writer.header().len() as u64).next_multiple_of(32));
    }
}

#[test]
fn the_same_facts_as_gguf_rs_on_the_files_of_gguf_py() {
    let files: [(&[u8], Endian); 2] = [
        (include_bytes!("data/tiny-le.gguf"), Endian::Little),
        (include_bytes!("data/tiny-be.gguf"), Endian::Big),
    ];
    for (bytes, endian) in files {
        let Ok(Parsed::Done(ours)) = gguf::parse(bytes, bytes.len() as u64) else {
            panic!("ours reads it");
        };
        compare(&ours, &read_with_gguf_rs(bytes, endian));
    }
}
