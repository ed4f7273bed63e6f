//! Kernels that work row by row: quantising activations, norms, element-wise programs.

mod common;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use common::{Random, machines};
use ingle_cpu::kernels::elementwise::elementwise;
use ingle_cpu::kernels::program::{ExtraInput, Prepared};
use ingle_cpu::kernels::quantize_activations::{QuantizedRows, fake_quantize_rows, quantize_rows};
use ingle_cpu::kernels::rms_norm::{Norm, rms_norm};
use ingle_cpu::{Level, Machine, Rows, RowsMut};
use ingle_graph::ops::EltOp;
use ingle_graph::{Extra, Operand, Program, Step};
use ingle_quant::HIGH_TERM;

/// Scales, sums of 32, sums of 16 and codes of one row, whatever the machine's own order is.
fn quantised(
    machine: &Machine,
    x: &[f32],
    norm: Option<Norm<'_>>,
) -> (Vec<f32>, Vec<f32>, Vec<f32>, Vec<i16>) {
    let k = x.len();
    let words = QuantizedRows::row_words(k).expect("whole groups");
    let mut out = vec![0.0f32; words];
    let rows = Rows::new(x, 1, k).expect("fits");
    quantize_rows(
        machine,
        rows,
        norm,
        &mut RowsMut::new(&mut out, 1, words).expect("fits"),
    )
    .expect("fits");
    let groups = k / 32;
    let bytes: Vec<u8> = out[4 * groups..]
        .iter()
        .flat_map(|w| w.to_ne_bytes())
        .collect();
    let codes = match machine.level() {
        Level::Simd128 => {
            let at = |i: usize| i16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]);
            (0..k)
                .map(|i| at(i / 4 * 4 + [0, 2, 1, 3][i % 4]))
                .collect()
        }
        Level::Avx2 => {
            let at = |i: usize| i16::from(bytes[i] as i8);
            (0..k)
                .map(|i| 8 * (i / 4) + i % 4)
                .map(|i| at(i) * HIGH_TERM as i16 + at(i + 4))
                .collect()
        }
        Level::Scalar => bytes
            .chunks_exact(2)
            .map(|b| i16::from_ne_bytes([b[0], b[1]]))
            .collect(),
    };
    (
        out[..groups].to_vec(),
        out[groups..2 * groups].to_vec(),
        out[2 * groups..4 * groups].to_vec(),
        codes,
    )
}

#[test]
fn quantised_activations_are_those_of_the_definition() {
    let mut random = Random::new(3);
    let mut rows: Vec<Vec<f32>> = (0..200).map(|_| random.floats(96)).collect();
    rows.push(vec![0.0; 96]);
    rows.push((0..96).map(|i| (i as f32 - 40.0) * 1e-40).collect());
    rows.push((0..96).map(|i| (i as f32 - 40.0) * 3e36).collect());
    // Halfway between two codes, where rounding to even shows.
    rows.push(
        (0..96)
            .map(|i| if i % 32 == 0 { 127.0 } else { i as f32 - 48.5 })
            .collect(),
    );
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut row = random.floats(96);
        row[33] = bad;
        rows.push(row);
    }
    for machine in machines() {
        for row in &rows {
            let (mut codes, mut scales) = (vec![0i16; 96], vec![0.0f32; 3]);
            ingle_quant::quantize_activations(row, &mut codes, &mut scales).expect("lengths fit");
            let (found, sums32, sums16, found_codes) = quantised(&machine, row, None);
            let bits = |v: &[f32]| {
                v.iter()
                    .map(|s| if s.is_nan() { u32::MAX } else { s.to_bits() })
                    .collect::<Vec<_>>()
            };
            assert_eq!(bits(&found), bits(&scales), "{row:?}");
            assert_eq!(found_codes, codes, "{row:?}");
            let sum = |c: &[i16]| c.iter().map(|&c| i32::from(c)).sum::<i32>() as f32;
            let expected: Vec<f32> = codes
                .chunks(32)
                .zip(&scales)
                .map(|(c, s)| s * sum(c))
                .collect();
            assert_eq!(bits(&sums32), bits(&expected));
            let expected: Vec<f32> = codes
                .chunks(16)
                .enumerate()
                .map(|(i, c)| scales[i / 2] * sum(c))
                .collect();
            assert_eq!(bits(&sums16), bits(&expected));
        }
    }
}

#[test]
fn norm_before_quantising_is_the_norm() {
    let mut random = Random::new(4);
    let (x, weight) = (random.floats(64), random.floats(64));
    let norm = Norm {
        weight: &weight,
        eps: 1e-5,
    };
    for machine in machines() {
        let mut y = vec![0.0; 64];
        let mut out = RowsMut::new(&mut y, 1, 64).expect("fits");
        rms_norm(
            &machine,
            Rows::new(&x, 1, 64).expect("fits"),
            norm,
            &mut out,
        )
        .expect("fits");
        assert_eq!(
            quantised(&machine, &x, Some(norm)),
            quantised(&machine, &y, None)
        );
    }
}

#[test]
fn fake_quantised_rows_are_those_of_the_definition() {
    let x = Random::new(8).floats(3 * 50);
    let mut expected = x.clone();
    expected
        .chunks_exact_mut(50)
        .for_each(ingle_quant::fake_quantize);
    for machine in machines() {
        let mut y = vec![0.0; 150];
        let mut out = RowsMut::new(&mut y, 3, 50).expect("fits");
        fake_quantize_rows(&machine, Rows::new(&x, 3, 50).expect("fits"), &mut out).expect("fits");
        assert_eq!(y, expected);
    }
}

#[test]
fn rms_norm_matches_f64() {
    let mut random = Random::new(2);
    for (rows, k) in [(1, 1), (3, 37), (9, 576)] {
        let (x, weight) = (random.floats(rows * k), random.floats(k));
        for machine in machines() {
            let mut y = vec![0.0; rows * k];
            let mut out = RowsMut::new(&mut y, rows, k).expect("fits");
            let norm = Norm {
                weight: &weight,
                eps: 1e-5,
            };
            rms_norm(
                &machine,
                Rows::new(&x, rows, k).expect("fits"),
                norm,
                &mut out,
            )
            .expect("fits");
            for (x, y) in x.chunks_exact(k).zip(y.chunks_exact(k)) {
                let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / k as f64;
                let factor = 1.0 / (mean + f64::from(1e-5f32)).sqrt();
                for i in 0..k {
                    let expected = f64::from(x[i]) * factor * f64::from(weight[i]);
                    assert!(
                        (f64::from(y[i]) - expected).abs() <= 4e-7 * expected.abs(),
                        "{} for {expected}",
                        y[i]
                    );
                }
            }
        }
    }
}

/// Errors in ulp of the result, or of `floor` where the result is smaller.
fn worst_ulp(machine: &Machine, op: EltOp, x: &[f32], floor: f32) -> (f64, f32) {
    let step = Step {
        op,
        a: Operand::Extra(0),
        b: Operand::Extra(0),
    };
    let program = Program {
        accumulators: 0,
        extras: vec![Extra::Full],
        steps: vec![step],
        result: Operand::Step(0),
    };
    let prepared = Prepared::new(&program).expect("valid");
    let mut y = vec![0.0; x.len()];
    let mut out = RowsMut::new(&mut y, 1, x.len()).expect("fits");
    let extras = [ExtraInput::Full(Rows::new(x, 1, x.len()).expect("fits"))];
    elementwise(machine, &prepared, &extras, &mut out).expect("fits");
    let mut worst = (0.0, 0.0);
    for (&x, &found) in x.iter().zip(&y) {
        let expected = op.apply(x, x);
        if expected.is_nan() || expected.is_infinite() {
            assert!(
                found == expected || expected.is_nan() && found.is_nan(),
                "{}({x}) = {found}",
                op.name()
            );
            continue;
        }
        let size = expected.abs().max(floor);
        let ulp = f64::from(f32::from_bits(size.to_bits() + 1)) - f64::from(size);
        let error = (f64::from(found) - f64::from(expected)).abs() / ulp;
        assert!(
            !error.is_nan(),
            "{}({x}) = {found}, expected {expected}",
            op.name()
        );
        if error > worst.0 {
            worst = (error, x);
        }
    }
    worst
}

#[test]
fn functions_are_accurate() {
    let mut random = Random::new(6);
    let mut x: Vec<f32> = (0..20_001).map(|i| (i as f32 - 10_000.0) * 0.01).collect();
    x.extend((0..20_001).map(|i| (i as f32 - 10_000.0) * 0.0005));
    x.extend((0..10_000).map(|_| random.float() * 10f32.powi(random.below(12) as i32 - 8)));
    x.extend([
        0.0,
        -0.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
    ]);
    for machine in machines().iter().filter(|m| m.threads() == 1) {
        for &op in EltOp::ALL {
            let limit = match op {
                EltOp::Exp | EltOp::Tanh | EltOp::Erf => 2.0,
                EltOp::Sigmoid | EltOp::Silu => 3.0,
                EltOp::Gelu | EltOp::GeluTanh => 4.0,
                _ => 1.0,
            };
            // GELU's tails are differences of nearly equal numbers: only their absolute error is small, as in PyTorch.
            let floor = if matches!(op, EltOp::Gelu | EltOp::GeluTanh) {
                0.5
            } else {
                f32::MIN_POSITIVE
            };
            let inputs: Vec<f32> = match op {
                // GELU of −∞ is ∞ · 0, and the argument reduction of large angles is the library's business.
                EltOp::Gelu | EltOp::GeluTanh => x
                    .iter()
                    .copied()
                    .filter(|v| v.abs() < 1e12 || v.is_nan())
                    .collect(),
                EltOp::Sin | EltOp::Cos => x.iter().copied().filter(|v| v.abs() < 1e5).collect(),
                // Beyond, results that only subnormals could hold are zero.
                EltOp::Sigmoid | EltOp::Silu => x
                    .iter()
                    .copied()
                    .filter(|v| *v > -87.0 || v.is_nan())
                    .collect(),
                _ => x.clone(),
            };
            let (worst, at) = worst_ulp(machine, op, &inputs, floor);
            assert!(
                worst <= limit,
                "{} {}: {worst} ulp at {at}",
                machine.level().name(),
                op.name()
            );
        }
    }
}

/// Chains longer than the slots, results that are not the last step, values that live long.
#[test]
fn programs_match_their_reference() {
    let mut random = Random::new(12);
    let ops = [
        EltOp::Add,
        EltOp::Sub,
        EltOp::Mul,
        EltOp::Max,
        EltOp::Tanh,
        EltOp::Sigmoid,
        EltOp::Neg,
    ];
    for case in 0..60 {
        let steps: Vec<Step> = (0..1 + case % 30)
            .map(|i| {
                let mut operand = || match random.below(4) {
                    0 => Operand::Extra(random.below(3) as u8),
                    1 => Operand::Const(random.float()),
                    _ if i > 0 => Operand::Step((i - 1 - random.below(i.min(6))) as u16),
                    _ => Operand::Extra(0),
                };
                let (a, b) = (operand(), operand());
                Step {
                    op: ops[random.below(ops.len())],
                    a,
                    b,
                }
            })
            .collect();
        let result = Operand::Step(random.below(steps.len()) as u16);
        let extras = vec![Extra::Full, Extra::Column, Extra::Row];
        let program = Program {
            accumulators: 0,
            extras,
            steps,
            result,
        };
        let prepared = Prepared::new(&program).expect("fits");
        let (rows, n) = (3, 70);
        let (full, column, row) = (
            random.floats(rows * n),
            random.floats(n),
            random.floats(rows),
        );
        let inputs = [
            ExtraInput::Full(Rows::new(&full, rows, n).expect("fits")),
            ExtraInput::Column(&column),
            ExtraInput::Row(&row),
        ];
        for machine in machines() {
            let mut y = vec![0.0; rows * n];
            elementwise(
                &machine,
                &prepared,
                &inputs,
                &mut RowsMut::new(&mut y, rows, n).expect("fits"),
            )
            .expect("fits");
            for i in 0..rows * n {
                let expected = program.evaluate(&[], &[full[i], column[i % n], row[i / n]]);
                assert!(
                    (y[i] - expected).abs() <= 1e-4 * expected.abs().max(1.0),
                    "{} for {expected}",
                    y[i]
                );
            }
        }
    }
}
