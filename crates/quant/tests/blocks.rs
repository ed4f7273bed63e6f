//! Dequantising and quantising, against what gguf-py gives (`scripts/fixtures/quant.py` wrote the fixtures).

use ingle_quant::{ElementType, GgmlType, QuantError, convert_rows, dequantize, quantize};

struct Fixture {
    ty: GgmlType,
    blocks: &'static [u8],
    values: &'static [u8],
}

macro_rules! fixtures {
    ($folder:literal, $values:expr, $($ty:ident)*) => {
        [$(Fixture {
            ty: GgmlType::$ty,
            blocks: include_bytes!(concat!("fixtures/", $folder, "/", stringify!($ty), ".blocks")),
            values: $values(stringify!($ty)),
        },)*]
    };
}

fn dequantized(name: &str) -> &'static [u8] {
    match name {
        "Q4_0" => include_bytes!("fixtures/dequantize/Q4_0.f32"),
        "Q4_1" => include_bytes!("fixtures/dequantize/Q4_1.f32"),
        "Q5_0" => include_bytes!("fixtures/dequantize/Q5_0.f32"),
        "Q5_1" => include_bytes!("fixtures/dequantize/Q5_1.f32"),
        "Q8_0" => include_bytes!("fixtures/dequantize/Q8_0.f32"),
        "Q4_K" => include_bytes!("fixtures/dequantize/Q4_K.f32"),
        "Q5_K" => include_bytes!("fixtures/dequantize/Q5_K.f32"),
        "Q6_K" => include_bytes!("fixtures/dequantize/Q6_K.f32"),
        "F16" => include_bytes!("fixtures/dequantize/F16.f32"),
        "BF16" => include_bytes!("fixtures/dequantize/BF16.f32"),
        _ => panic!("no fixture for {name}"),
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect()
}

/// The same bits, except that any NaN equals any other: its payload depends on the machine that multiplied.
fn assert_same_bits(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let same = f.to_bits() == e.to_bits() || (f.is_nan() && e.is_nan());
        assert!(same, "{what}: element {i}: expected {e:?}, found {f:?}");
    }
}

#[test]
fn dequantizing_gives_the_bits_of_gguf_py() {
    for fixture in
        fixtures!("dequantize", dequantized, Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K F16 BF16)
    {
        let expected = floats(fixture.values);
        let mut found = vec![0.0; expected.len()];
        dequantize(fixture.ty, fixture.blocks, &mut found).unwrap();
        assert_same_bits(fixture.ty.name(), &found, &expected);

        let mut bytes = vec![0; 4 * expected.len()];
        convert_rows(fixture.ty, fixture.blocks, ElementType::F32, &mut bytes).unwrap();
        assert_same_bits("convert_rows", &floats(&bytes), &expected);
    }
}

#[test]
fn quantizing_gives_the_bytes_of_gguf_py() {
    let input = |_: &str| -> &'static [u8] { include_bytes!("fixtures/quantize/input.f32") };
    for fixture in fixtures!("quantize", input, Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 F16 BF16) {
        let values = floats(fixture.values);
        let mut found = vec![0; fixture.blocks.len()];
        quantize(fixture.ty, &values, &mut found).unwrap();
        let block = fixture.ty.row_bytes(32).unwrap();
        let rows = found.chunks(block).zip(fixture.blocks.chunks(block));
        for (row, (f, e)) in rows.enumerate() {
            let x = &values[32 * row..][..32];
            assert_eq!(f, e, "{} of row {row}: {x:?}", fixture.ty.name());
        }
    }
}

#[test]
fn bf16_keeps_a_nan_as_gguf_py_does() {
    let mut out = [0; 4];
    let signalling = f32::from_bits(0xFF80_0001);
    quantize(GgmlType::BF16, &[f32::NAN, signalling], &mut out).unwrap();
    assert_eq!(out, [0xC0, 0x7F, 0xC0, 0xFF]);
}

#[test]
fn values_that_are_not_finite_or_tiny_do_not_panic_and_are_not_hidden() {
    for ty in [
        GgmlType::Q4_0,
        GgmlType::Q4_1,
        GgmlType::Q5_0,
        GgmlType::Q5_1,
        GgmlType::Q8_0,
    ] {
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-45, f32::MAX] {
            let mut values = [0.25; 32];
            values[9] = special;
            let mut block = vec![0; ty.block_bytes()];
            quantize(ty, &values, &mut block).unwrap();
            let mut back = [0.0; 32];
            dequantize(ty, &block, &mut back).unwrap();
            if special.abs() > 65504.0 || special.is_nan() {
                assert!(!back[9].is_finite(), "{} of {special}", ty.name());
            }
            values = [special; 32];
            quantize(ty, &values, &mut block).unwrap();
        }
    }
}

#[test]
fn wrong_lengths_and_types_are_named() {
    let mut out = [0.0; 32];
    assert_eq!(
        dequantize(GgmlType::Q4_0, &[0; 17], &mut out),
        Err(QuantError::Length {
            field: "bytes to dequantize",
            expected: 18,
            found: 17
        })
    );
    assert!(dequantize(GgmlType::Q4_0, &[0; 18], &mut out[..31]).is_err());
    assert_eq!(
        dequantize(GgmlType::IQ4_NL, &[0; 18], &mut out)
            .unwrap_err()
            .to_string(),
        "ggml type: dequantizing is not supported for IQ4_NL"
    );
    assert!(dequantize(GgmlType::I32, &[0; 128], &mut out).is_err());
    assert!(quantize(GgmlType::Q4_0, &out, &mut [0; 19]).is_err());
    assert!(quantize(GgmlType::Q4_K, &[0.0; 256], &mut [0; 144]).is_err());
}

#[test]
fn conversions_are_exact_or_refused() {
    let halves = [0x00, 0x3C, 0x01, 0x80];
    let mut same = [0; 4];
    convert_rows(GgmlType::F16, &halves, ElementType::F16, &mut same).unwrap();
    assert_eq!(same, halves);
    let mut wide = [0; 8];
    convert_rows(GgmlType::F16, &halves, ElementType::F32, &mut wide).unwrap();
    assert_eq!(floats(&wide), [1.0, -(2f32.powi(-24))]);
    convert_rows(GgmlType::BF16, &halves, ElementType::F32, &mut wide).unwrap();
    assert_eq!(floats(&wide)[0], 0.007_812_5);

    assert_eq!(
        convert_rows(GgmlType::F32, &[0; 4], ElementType::F16, &mut [0; 2])
            .unwrap_err()
            .to_string(),
        "conversion: expected an exact conversion to f16, found F32 (it would round)"
    );
    assert!(convert_rows(GgmlType::F16, &halves[..3], ElementType::F32, &mut wide).is_err());
    assert!(convert_rows(GgmlType::F16, &halves, ElementType::F32, &mut wide[..7]).is_err());
    assert!(convert_rows(GgmlType::Q2_K, &[0; 84], ElementType::F32, &mut [0; 1024]).is_err());
}
