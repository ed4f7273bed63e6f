//! The table of rotary angles that `rope_write` reads.
//!
//! WGSL only promises an absolute error of 2⁻¹¹ for `sin` and `cos`, and only near zero. So the angles come from a
//! table made on the host in `f64`. A position is split as `p = 256·high + low`; the table holds the rows of all `low`
//! and all `high`, and the kernel adds the two angles by
//! `cos(a+b) = cos a cos b − sin a sin b`, `sin(a+b) = sin a cos b + cos a sin b`. Thus 131,072 positions of 32 pairs
//! take 192 KiB instead of 32 MiB.

/// Positions that share a `high` row.
pub const LOW_ROWS: u32 = 256;

/// The table for positions `0 .. positions`: rows `low = 0 .. 256`, then rows `high = 0 ..`, each row one
/// `(cos, sin)` per pair. `frequencies[i]` is the angle of pair `i` per position, in radians; `magnitude` scales the
/// rotated vectors (1 unless the model's context extension says otherwise).
pub fn table(frequencies: &[f64], positions: u32, magnitude: f64) -> Vec<f32> {
    let high_rows = positions.div_ceil(LOW_ROWS).max(1);
    let low = (0..LOW_ROWS).map(|row| (f64::from(row), magnitude));
    let high = (0..high_rows).map(|row| (f64::from(row) * f64::from(LOW_ROWS), 1.0));
    let mut out = Vec::with_capacity((LOW_ROWS + high_rows) as usize * frequencies.len() * 2);
    for (position, magnitude) in low.chain(high) {
        for frequency in frequencies {
            let (sin, cos) = (position * frequency).sin_cos();
            out.extend([(cos * magnitude) as f32, (sin * magnitude) as f32]);
        }
    }
    out
}

/// `base^(−2i/rotary_dim)` for each pair `i`.
pub fn frequencies(base: f64, rotary_dim: u32) -> Vec<f64> {
    (0..rotary_dim / 2)
        .map(|pair| base.powf(-2.0 * f64::from(pair) / f64::from(rotary_dim)))
        .collect()
}
