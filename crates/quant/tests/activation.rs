//! Activations in two 8-bit terms, against the formula and its edges.

use ingle_quant::{
    HIGH_TERM, LARGEST_CODE, activation_groups, dequantize_activations, fake_quantize,
    quantize_activations,
};
use proptest::prelude::*;

fn quantized(x: &[f32]) -> (Vec<i16>, Vec<f32>) {
    let mut codes = vec![99; x.len()];
    let mut scales = vec![99.0; activation_groups(x.len())];
    quantize_activations(x, &mut codes, &mut scales).unwrap();
    (codes, scales)
}

/// The values both ways; they must agree to the bit.
fn values(x: &[f32]) -> Vec<f32> {
    let (codes, scales) = quantized(x);
    let mut out = vec![0.0; x.len()];
    dequantize_activations(&codes, &scales, &mut out).unwrap();
    let mut fake = x.to_vec();
    fake_quantize(&mut fake);
    for (a, b) in out.iter().zip(&fake) {
        assert!(
            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            "{a:?} and {b:?}"
        );
    }
    out
}

#[test]
fn halves_round_to_even_and_the_last_group_may_be_short() {
    let mut x = [0.0; 35];
    let step = 1.0 / 512.0; // times 254: 127/256
    x[..8].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, step, 1.0 + 2.0 * step, -127.0]);
    x[32..].copy_from_slice(&[-64516.0, 1.0, 3.0]);
    let (codes, scales) = quantized(&x);
    assert_eq!(codes[..8], [32258, 127, 381, 635, -127, 0, 255, -32258]);
    // 1 and 3 are half a step and a step and a half.
    assert_eq!(codes[32..], [-32258, 0, 2]);
    assert_eq!(scales, [127.0 / 32258.0, 2.0]);
    assert_eq!(values(&x)[32..], [-64516.0, 0.0, 4.0]);
}

#[test]
fn zero_and_vanishing_groups_are_zero() {
    for tiny in [0.0, -0.0, f32::from_bits(1), -1e-40, 3.7e-37] {
        let mut x = [0.0; 32];
        x[5] = tiny;
        assert_eq!(quantized(&x), (vec![0; 32], vec![0.0]), "{tiny}");
        assert!(values(&x).iter().all(|v| v.to_bits() == 0));
    }
    let x = [3.8e-37; 32];
    assert_eq!(quantized(&x).0, [32258; 32]);
}

#[test]
fn what_is_not_finite_makes_its_group_nan_and_no_other() {
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = [1.0; 64];
        x[40] = bad;
        let (codes, scales) = quantized(&x);
        assert_eq!(codes[32..], [0; 32]);
        assert!(scales[1].is_nan());
        let values = values(&x);
        assert!(values[..32].iter().all(|v| (v - 1.0).abs() < 1e-6));
        assert!(values[32..].iter().all(|v| v.is_nan()));
    }
}

#[test]
fn the_largest_float_does_not_overflow() {
    let (codes, scales) = quantized(&[f32::MAX, f32::MIN, 0.0]);
    assert_eq!(codes, [32258, -32258, 0]);
    assert_eq!(scales, [f32::MAX / 32258.0]);
}

#[test]
fn wrong_lengths_are_named() {
    assert!(quantize_activations(&[0.0; 33], &mut [0; 33], &mut [0.0; 1]).is_err());
    assert!(quantize_activations(&[0.0; 33], &mut [0; 32], &mut [0.0; 2]).is_err());
    assert_eq!(
        dequantize_activations(&[0; 33], &[0.0; 3], &mut [0.0; 33])
            .unwrap_err()
            .to_string(),
        "activation scales: expected 2, found 3"
    );
    assert!(quantize_activations(&[], &mut [], &mut []).is_ok());
}

proptest! {
    #[test]
    fn values_are_within_half_a_step(x in prop::collection::vec(-1e6_f32..1e6, 1..100)) {
        let (_, scales) = quantized(&x);
        for (i, (x, v)) in x.iter().zip(values(&x)).enumerate() {
            prop_assert!((x - v).abs() <= 0.51 * scales[i / 32], "{} {}", x, v);
        }
    }

    #[test]
    fn a_code_is_two_signed_bytes(x in prop::collection::vec(-1e6_f32..1e6, 1..100)) {
        for code in quantized(&x).0.into_iter().map(i32::from) {
            prop_assert!(code.abs() <= LARGEST_CODE);
            let high = (code as f32 / HIGH_TERM as f32).round_ties_even() as i32;
            prop_assert!(high.abs() <= 127 && (code - HIGH_TERM * high).abs() <= 127);
        }
    }

    #[test]
    fn any_bits_give_an_answer(bits in prop::collection::vec(any::<u32>(), 0..70)) {
        let x: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        let values = values(&x);
        for (group, values) in x.chunks(32).zip(values.chunks(32)) {
            let finite = group.iter().all(|x| x.is_finite());
            prop_assert!(values.iter().all(|v| v.is_nan() != finite));
        }
    }
}
