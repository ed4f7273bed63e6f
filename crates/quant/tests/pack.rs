//! Packing: reading a packed matrix gives the values of the blocks, bit for bit, and the bytes lie where they should.

use ingle_quant::{
    GgmlType, LayoutRequest, PackedLayout, Placement, QuantError, ScaleType, dequantize, pack_rows,
    pack_tile, unpack, unpack_row,
};
use proptest::prelude::*;

const TYPES: [GgmlType; 8] = [
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
];

const REQUESTS: [LayoutRequest; 5] = [
    request(1, Placement::Apart),
    request(1, Placement::Inline),
    request(4, Placement::Inline),
    request(8, Placement::Inline),
    request(16, Placement::Inline),
];

const fn request(rows: u8, placement: Placement) -> LayoutRequest {
    LayoutRequest { rows, placement }
}

fn layout(ty: GgmlType, request: LayoutRequest) -> PackedLayout {
    PackedLayout::for_type(ty, request).unwrap()
}

/// Bytes that repeat only after a long time.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

/// Packs `[rows, k]` in pieces of `tiles` tiles, each written to its ranges, as a loader does.
fn pack(
    ty: GgmlType,
    src: &[u8],
    rows: usize,
    k: usize,
    layout: &PackedLayout,
    tiles: usize,
) -> Vec<u8> {
    let row_bytes = ty.row_bytes(k).unwrap();
    let mut out = vec![0xAA; layout.bytes(rows, k).unwrap()];
    let piece = tiles * usize::from(layout.rows);
    for first in (0..rows).step_by(piece) {
        let count = piece.min(rows - first);
        let ranges = layout.ranges(rows, k, first, count).unwrap();
        let mut codes = vec![0x55; ranges.codes.len()];
        let mut scales = vec![0x55; ranges.scales.len()];
        let src = &src[first * row_bytes..][..count * row_bytes];
        pack_rows(ty, src, k, layout, &mut codes, &mut scales).unwrap();
        out[ranges.codes].copy_from_slice(&codes);
        out[ranges.scales].copy_from_slice(&scales);
    }
    out
}

fn assert_same_bits(what: &str, found: &[f32], expected: &[f32]) {
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let same = f.to_bits() == e.to_bits() || (f.is_nan() && e.is_nan());
        assert!(same, "{what}: element {i}: expected {e:?}, found {f:?}");
    }
}

fn check_round_trip(
    ty: GgmlType,
    request: LayoutRequest,
    src: &[u8],
    rows: usize,
    k: usize,
    tiles: usize,
) {
    let layout = layout(ty, request);
    let mut expected = vec![0.0; rows * k];
    dequantize(ty, src, &mut expected).unwrap();
    let packed = pack(ty, src, rows, k, &layout, tiles);
    let mut found = vec![0.0; rows * k];
    unpack(&layout, &packed, rows, k, &mut found).unwrap();
    let what = format!("{} {request:?} [{rows}, {k}]", ty.name());
    assert_same_bits(&what, &found, &expected);
    let mut row = vec![0.0; k];
    unpack_row(&layout, &packed, rows, rows - 1, &mut row).unwrap();
    assert_same_bits(&what, &row, &expected[(rows - 1) * k..]);
}

#[test]
fn every_type_and_layout_keeps_every_value() {
    for ty in TYPES {
        for request in REQUESTS {
            for rows in [1, 3, 16, 17, 37] {
                let k = 2 * ty.block_elements();
                let src = noise(rows * ty.row_bytes(k).unwrap());
                check_round_trip(ty, request, &src, rows, k, 1);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_keep_their_values(
        ty in prop::sample::select(&TYPES[..]),
        request in prop::sample::select(&REQUESTS[..]),
        rows in 1_usize..40,
        blocks in 1_usize..4,
        tiles in 1_usize..4,
        seed in prop::collection::vec(any::<u8>(), 40 * 3 * 210),
    ) {
        let k = blocks * ty.block_elements();
        let src = &seed[..rows * ty.row_bytes(k).unwrap()];
        check_round_trip(ty, request, src, rows, k, tiles);
    }

    #[test]
    fn any_layout_and_size_gives_an_answer_or_an_error(
        bits in prop::sample::select(&[0_u8, 4, 8, 8, 255][..]), offset in 0_u8..20,
        group in prop::sample::select(&[0_u16, 16, 32, 32, 33][..]),
        rows in prop::sample::select(&[0_u8, 1, 1, 4, 8, 16, 17][..]),
        min in any::<bool>(), apart in any::<bool>(),
        n in any::<usize>(), k in (any::<usize>(), 0_u32..64).prop_map(|(k, shift)| k >> shift & !31),
    ) {
        let layout = PackedLayout {
            bits, offset, group, rows, scale: ScaleType::F32, min,
            placement: if apart { Placement::Apart } else { Placement::Inline },
        };
        let _ = (layout.bytes(n, k), layout.tiles(n), layout.ranges(n, k, n / 2, n / 3));
        prop_assert!(unpack(&layout, &[0; 3], 1, 32, &mut [0.0; 32]).is_err());
        prop_assert!(unpack_row(&layout, &[0; 3], 1, 0, &mut [0.0; 32]).is_err());
    }
}

/// The code of row `r`, element `k` of a tile of one group, found by the words of `PackedLayout`'s description.
fn code_by_description(layout: &PackedLayout, codes: &[u8], r: usize, k: usize) -> u8 {
    let (rows, half) = (usize::from(layout.rows), usize::from(layout.group) / 2);
    let byte = if layout.bits == 8 { k } else { k % half };
    let (chunk, within) = (byte / 4, byte % 4);
    let stored = codes[(chunk * rows + r) * 4 + within];
    match (layout.bits, k / half) {
        (8, _) => stored,
        (_, 0) => stored & 15,
        _ => stored >> 4,
    }
}

#[test]
fn codes_lie_where_the_layout_says() {
    // Q8_0: element k of row r is r + 8k. Q4_1: it is (r + k) mod 16.
    for request in REQUESTS {
        let rows = usize::from(request.rows);
        let eight = layout(GgmlType::Q8_0, request);
        let four = layout(GgmlType::Q4_1, request);
        let mut eight_rows = Vec::new();
        let mut four_rows = Vec::new();
        for r in 0..rows {
            eight_rows.extend([r as u8, 0x3C]);
            eight_rows.extend((0..32).map(|k| (r + 8 * k) as u8));
            four_rows.extend([r as u8, 0x3C, r as u8, 0xBC]);
            four_rows.extend((0..16).map(|b| (((r + b) % 16) | (((r + b + 16) % 16) << 4)) as u8));
        }
        let eight_packed = pack(GgmlType::Q8_0, &eight_rows, rows, 32, &eight, 1);
        let four_packed = pack(GgmlType::Q4_1, &four_rows, rows, 32, &four, 1);
        let (eight_scales, four_scales) = (32 * rows, 16 * rows);
        for r in 0..rows {
            for k in 0..32 {
                let code = code_by_description(&eight, &eight_packed, r, k);
                assert_eq!(code, (r + 8 * k) as u8);
                let code = code_by_description(&four, &four_packed, r, k);
                assert_eq!(code, ((r + k) % 16) as u8);
            }
            let r_byte = r as u8;
            assert_eq!(
                eight_packed[eight_scales + 2 * r..][..2],
                [r_byte, 0x3C],
                "scale"
            );
            assert_eq!(
                four_packed[four_scales + 2 * r..][..2],
                [r_byte, 0x3C],
                "scale"
            );
            let mins = four_scales + 2 * rows;
            assert_eq!(four_packed[mins + 2 * r..][..2], [r_byte, 0xBC], "min");
        }
    }
}

#[test]
fn scales_apart_start_at_16_bytes_and_alternate_with_mins() {
    let layout = layout(GgmlType::Q4_K, request(1, Placement::Apart));
    assert_eq!(layout.codes_bytes(3, 256), Ok(384));
    assert_eq!(layout.scales_offset(3, 256), Ok(384));
    assert_eq!(layout.bytes(3, 256), Ok(384 + 3 * 8 * 8));
    let ranges = layout.ranges(3, 256, 1, 2).unwrap();
    assert_eq!((ranges.codes, ranges.scales), (128..384, 448..576));

    // d = 1, dmin = 2, scale of group 0 = 3, min of group 0 = 5.
    let mut block = [0; 144];
    block[..4].copy_from_slice(&[0x00, 0x3C, 0x00, 0x40]);
    (block[4], block[8]) = (3, 5);
    let packed = pack(GgmlType::Q4_K, &block, 1, 256, &layout, 1);
    assert_eq!(packed[128..132], 3f32.to_le_bytes());
    assert_eq!(packed[132..136], (-10f32).to_le_bytes());
}

#[test]
fn the_layout_of_each_type_is_the_agreed_one() {
    let apart = request(1, Placement::Apart);
    let fields = |ty| {
        let l = layout(ty, apart);
        (l.bits, l.offset, l.group, l.scale, l.min)
    };
    assert_eq!(fields(GgmlType::Q4_0), (4, 8, 32, ScaleType::F16, false));
    assert_eq!(fields(GgmlType::Q4_1), (4, 0, 32, ScaleType::F16, true));
    assert_eq!(fields(GgmlType::Q5_0), (8, 0, 32, ScaleType::F16, false));
    assert_eq!(fields(GgmlType::Q5_1), (8, 0, 32, ScaleType::F16, true));
    assert_eq!(fields(GgmlType::Q8_0), (8, 0, 32, ScaleType::F16, false));
    assert_eq!(fields(GgmlType::Q4_K), (4, 0, 32, ScaleType::F32, true));
    assert_eq!(fields(GgmlType::Q5_K), (8, 0, 32, ScaleType::F32, true));
    assert_eq!(fields(GgmlType::Q6_K), (8, 0, 16, ScaleType::F32, false));
    for ty in [GgmlType::F16, GgmlType::Q2_K, GgmlType::IQ4_NL] {
        assert_eq!(PackedLayout::for_type(ty, apart), None);
    }
    for bad in [
        request(0, Placement::Inline),
        request(3, Placement::Inline),
        request(8, Placement::Apart),
    ] {
        assert_eq!(PackedLayout::for_type(GgmlType::Q4_0, bad), None);
    }
}

#[test]
fn rows_of_a_tile_may_come_in_any_order_and_missing_ones_are_zero() {
    let ty = GgmlType::Q6_K;
    let layout = layout(ty, request(4, Placement::Inline));
    let src = noise(3 * 210);
    let rows: Vec<&[u8]> = src.chunks(210).collect();
    let mut packed = vec![0xFF; layout.bytes(3, 256).unwrap()];
    let order = [rows[2], rows[0], rows[1]];
    pack_tile(ty, &order, 256, &layout, &mut packed, &mut []).unwrap();
    let mut found = [0.0; 3 * 256];
    unpack(&layout, &packed, 3, 256, &mut found).unwrap();
    let mut expected = [0.0; 3 * 256];
    dequantize(ty, &order.concat(), &mut expected).unwrap();
    assert_same_bits("permuted", &found, &expected);
    // The fourth row's last run and scale of the first group of 16.
    assert_eq!(packed[60..64], [0; 4]);
    assert_eq!(packed[76..80], [0; 4]);
}

#[test]
fn wrong_lengths_and_layouts_are_named() {
    let ty = GgmlType::Q4_0;
    let l = layout(ty, request(4, Placement::Inline));
    let mut out = vec![0; l.bytes(4, 32).unwrap()];
    let src = [0; 4 * 18];
    assert!(pack_rows(ty, &src, 32, &l, &mut out, &mut []).is_ok());
    assert!(pack_rows(ty, &src[1..], 32, &l, &mut out, &mut []).is_err());
    assert!(pack_rows(ty, &src, 33, &l, &mut out, &mut []).is_err());
    assert!(pack_rows(ty, &src, 32, &l, &mut out[1..], &mut []).is_err());
    assert!(pack_rows(ty, &src, 32, &l, &mut out, &mut [0]).is_err());
    assert!(pack_rows(ty, &src, 0, &l, &mut [], &mut []).is_err());
    assert!(pack_rows(ty, &[], 0, &l, &mut [], &mut []).is_ok());
    assert!(unpack(&l, &[], 5, 0, &mut []).is_ok());
    let row: &[u8] = &src[..18];
    assert!(pack_tile(ty, &[row; 5], 32, &l, &mut out, &mut []).is_err());
    assert!(pack_tile(ty, &[row, &row[1..]], 32, &l, &mut out, &mut []).is_err());

    assert_eq!(
        pack_rows(GgmlType::Q4_1, &[0; 80], 32, &l, &mut out, &mut []),
        Err(QuantError::LayoutMismatch { ty: GgmlType::Q4_1 })
    );
    let bad = PackedLayout { rows: 5, ..l };
    assert_eq!(
        bad.bytes(1, 32).unwrap_err().to_string(),
        "packed layout: rows: expected 1, 4, 8 or 16, found 5"
    );
    assert!(l.ranges(10, 32, 2, 4).is_err());
    assert!(l.ranges(10, 32, 4, 2).is_err());
    assert!(l.ranges(10, 32, 8, 3).is_err());
    assert!(l.ranges(10, 32, 8, 2).is_ok());
    assert!(l.bytes(usize::MAX, 32).is_err());
}
