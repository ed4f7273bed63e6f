//! How fast blocks are packed: `cargo run --release -p ingle-quant --example pack_speed`.
//!
//! Prints MB/s of source bytes, on one thread, of a 4096 × 4096 matrix; the best of five.

use std::time::Instant;

use ingle_quant::{GgmlType, LayoutRequest, PackedLayout, Placement, QuantError, pack_rows};

const ROWS: usize = 4096;
const K: usize = 4096;

fn main() -> Result<(), QuantError> {
    println!("type   placement  rows  MB/s");
    for &ty in GgmlType::ALL.iter().filter(|ty| ty.is_quantized()) {
        for (placement, rows) in [
            (Placement::Apart, 1),
            (Placement::Inline, 1),
            (Placement::Inline, 4),
            (Placement::Inline, 8),
            (Placement::Inline, 16),
        ] {
            let request = LayoutRequest { rows, placement };
            let Some(layout) = PackedLayout::for_type(ty, request) else {
                continue;
            };
            let rate = megabytes_per_second(ty, &layout)?;
            println!("{:6} {placement:?}\t{rows:6} {rate:6.0}", ty.name());
        }
    }
    Ok(())
}

fn megabytes_per_second(ty: GgmlType, layout: &PackedLayout) -> Result<f64, QuantError> {
    let bytes = ROWS * ty.row_bytes(K)?;
    let src: Vec<u8> = (0..bytes)
        .map(|i| ((i * 2_654_435_761) >> 11) as u8)
        .collect();
    let mut codes = vec![0; layout.codes_bytes(ROWS, K)?];
    let mut scales = vec![0; layout.scales_bytes(ROWS, K)?];
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        pack_rows(ty, &src, K, layout, &mut codes, &mut scales)?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(bytes as f64 / best / 1e6)
}
