//! The table of ggml types against gguf-py's.

use ingle_quant::{GgmlType, QuantError};
use serde::Deserialize;

#[derive(Deserialize)]
struct Row {
    id: u32,
    name: String,
    elements: usize,
    bytes: usize,
}

#[test]
fn the_table_equals_that_of_gguf_py() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("fixtures/types.json")).unwrap();
    assert!(rows.len() >= 34);
    for row in rows {
        let ty = GgmlType::from_id(row.id).unwrap();
        assert_eq!(ty.name(), row.name);
        assert_eq!(ty.id(), row.id);
        assert_eq!(ty.block_elements(), row.elements, "{}", row.name);
        assert_eq!(ty.block_bytes(), row.bytes, "{}", row.name);
    }
}

#[test]
fn names_and_serde_round_trip() {
    for &ty in GgmlType::ALL {
        assert_eq!(GgmlType::from_id(ty.id()), Ok(ty));
        assert_eq!(GgmlType::from_name(ty.name()), Some(ty));
        assert_eq!(
            GgmlType::from_name(&ty.name().to_ascii_lowercase()),
            Some(ty)
        );
        let json = serde_json::to_string(&ty).unwrap();
        assert_eq!(json, format!("\"{}\"", ty.name()));
        assert_eq!(serde_json::from_str::<GgmlType>(&json).unwrap(), ty);
    }
    assert_eq!(GgmlType::from_name("Q9"), None);
}

#[test]
fn unknown_ids_and_uneven_rows_are_named() {
    let unknown = GgmlType::from_id(4).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "ggml type: expected a known type id, found 4"
    );
    assert!(GgmlType::from_id(u32::MAX).is_err());
    assert_eq!(GgmlType::Q4_K.row_bytes(512), Ok(288));
    assert_eq!(
        GgmlType::Q4_K.row_bytes(300).unwrap_err().to_string(),
        "row length: expected a multiple of 256 (Q4_K), found 300"
    );
    let huge = usize::MAX - usize::MAX % 256;
    assert_eq!(
        GgmlType::F32.row_bytes(huge),
        Err(QuantError::TooLarge { field: "row bytes" })
    );
    assert!(GgmlType::IQ4_XS.storage().is_none());
}
