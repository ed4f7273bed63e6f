//! Matmuls of every layout × instruction set × thread count against `f64`.

mod common;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use common::{Random, assert_close, layouts, levels, machines, packed};
use half::{bf16, f16};
use ingle_cpu::kernels::matmul::{DenseMatrix, Epilogue, Input, PackedMatrix, Weight, matmul};
use ingle_cpu::kernels::program::{ExtraInput, Prepared};
use ingle_cpu::kernels::quantize_activations::{QuantizedRows, quantize_rows};
use ingle_cpu::{CpuError, Machine, Rows, RowsMut};
use ingle_graph::ops::EltOp;
use ingle_graph::{Extra, Operand, Program, Step};
use ingle_quant::{ElementType, PackedLayout, ScaleType, unpack};

/// Sums in `f64`, and the sums of magnitudes that errors are measured by.
fn reference(weight: &[f32], x: &[f32], k: usize) -> (Vec<f64>, Vec<f64>) {
    let mut out = (Vec::new(), Vec::new());
    for x in x.chunks_exact(k) {
        for w in weight.chunks_exact(k) {
            let products = || w.iter().zip(x).map(|(&a, &b)| f64::from(a) * f64::from(b));
            out.0.push(products().sum());
            out.1.push(products().map(f64::abs).sum());
        }
    }
    out
}

fn identity() -> Prepared {
    Prepared::new(&Program::identity()).expect("a valid program")
}

struct Case<'a> {
    weight: Weight<'a>,
    x: &'a [f32],
    rows: usize,
    int8: bool,
    n: usize,
}

impl Case<'_> {
    fn run(&self, machine: &Machine, epilogue: Epilogue<'_>) -> Result<Vec<f32>, CpuError> {
        let k = self.x.len() / self.rows;
        let x = Rows::new(self.x, self.rows, k)?;
        let mut y = vec![f32::NAN; self.rows * self.n];
        let mut out = RowsMut::new(&mut y, self.rows, self.n)?;
        if self.int8 {
            let words = QuantizedRows::row_words(k)?;
            let mut quantised = vec![0.0; words * self.rows];
            quantize_rows(
                machine,
                x,
                None,
                &mut RowsMut::new(&mut quantised, self.rows, words)?,
            )?;
            let x = Input::Int8(QuantizedRows::new(&quantised, self.rows, k)?);
            matmul(machine, self.weight, x, epilogue, &mut out)?;
        } else {
            matmul(machine, self.weight, Input::F32(x), epilogue, &mut out)?;
        }
        Ok(y)
    }
}

fn check_packed(layout: PackedLayout, machine: &Machine, n: usize, k: usize, seed: u64) {
    let mut random = Random::new(seed);
    let bytes = packed(layout, n, k, &mut random);
    let mut weight = vec![0.0; n * k];
    unpack(&layout, &bytes, n, k, &mut weight).expect("a valid matrix");
    let packed = Weight::Packed(PackedMatrix::new(layout, &bytes, n, k).expect("a valid matrix"));
    let program = identity();
    let epilogue = Epilogue {
        program: &program,
        extras: &[],
    };
    let x = random.floats(7 * k);
    let mut on_grid = x.clone();
    on_grid
        .chunks_exact_mut(k)
        .for_each(ingle_quant::fake_quantize);
    for int8 in [false, true] {
        let (expected, sizes) = reference(&weight, if int8 { &on_grid } else { &x }, k);
        // Sums in another order, and a product more for each group; min terms can be larger than what they add up to.
        let tolerance = if int8 { 4e-6 } else { 1e-6 };
        let what = format!(
            "{layout:?} {} int8 {int8} n {n} k {k}",
            machine.level().name()
        );
        let all = Case {
            weight: packed,
            x: &x,
            rows: 7,
            int8,
            n,
        }
        .run(machine, epilogue)
        .expect("shapes fit");
        assert_close(&all, &expected, &sizes, tolerance, &what);
        for rows in 1..7 {
            let some = Case {
                weight: packed,
                x: &x[..rows * k],
                rows,
                int8,
                n,
            }
            .run(machine, epilogue);
            assert_eq!(
                some.expect("shapes fit"),
                all[..rows * n],
                "{what}: {rows} rows differ from 7"
            );
        }
    }
}

#[test]
fn packed_matches_f64() {
    for level in levels() {
        let machine = Machine::with_level(level, 1).expect("available");
        for (i, layout) in layouts(level.tile_rows()).into_iter().enumerate() {
            for (n, k) in [(8, 32), (29, 96), (200, 576)] {
                check_packed(layout, &machine, n, k, i as u64);
            }
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
#[test]
fn scalar_takes_tiles_of_4() {
    let machine = Machine::with_level(ingle_cpu::Level::Scalar, 1).expect("available");
    for layout in layouts(4) {
        check_packed(layout, &machine, 30, 64, 3);
    }
}

#[test]
fn threads_do_not_change_results() {
    for group in [16, 32] {
        let mut results: Vec<(ingle_cpu::Level, Vec<f32>)> = Vec::new();
        for machine in machines() {
            let rows = machine.level().tile_rows();
            let layout = layouts(rows)
                .into_iter()
                .find(|l| l.group == group && l.min)
                .expect("in the list");
            let mut random = Random::new(9);
            let (n, k) = (777, 1536);
            let bytes = packed(layout, n, k, &mut random);
            let x = random.floats(6 * k);
            let weight = Weight::Packed(PackedMatrix::new(layout, &bytes, n, k).expect("valid"));
            let program = identity();
            let epilogue = Epilogue {
                program: &program,
                extras: &[],
            };
            let y = Case {
                weight,
                x: &x,
                rows: 6,
                int8: true,
                n,
            }
            .run(&machine, epilogue)
            .expect("shapes fit");
            match results.iter().find(|(level, _)| *level == machine.level()) {
                Some((_, first)) => assert_eq!(*first, y, "{} threads", machine.threads()),
                None => results.push((machine.level(), y)),
            }
        }
    }
}

#[test]
fn dense_matches_f64() {
    let mut random = Random::new(5);
    for (n, k) in [(1, 1), (9, 37), (130, 200)] {
        let values = random.floats(n * k);
        let x = random.floats(7 * k);
        for element in [ElementType::F32, ElementType::F16, ElementType::Bf16] {
            let bytes: Vec<u8> = match element {
                ElementType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
                ElementType::F16 => values
                    .iter()
                    .flat_map(|&v| f16::from_f32(v).to_le_bytes())
                    .collect(),
                _ => values
                    .iter()
                    .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
                    .collect(),
            };
            let weight: Vec<f32> = match element {
                ElementType::F32 => values.clone(),
                ElementType::F16 => values.iter().map(|&v| f16::from_f32(v).to_f32()).collect(),
                _ => values.iter().map(|&v| bf16::from_f32(v).to_f32()).collect(),
            };
            let (expected, sizes) = reference(&weight, &x, k);
            let weight = Weight::Dense(DenseMatrix::new(element, &bytes, n, k).expect("valid"));
            let program = identity();
            let epilogue = Epilogue {
                program: &program,
                extras: &[],
            };
            for machine in machines() {
                let what = format!("{} {} n {n} k {k}", element.name(), machine.level().name());
                let all = Case {
                    weight,
                    x: &x,
                    rows: 7,
                    int8: false,
                    n,
                }
                .run(&machine, epilogue)
                .expect("fits");
                assert_close(&all, &expected, &sizes, 1e-6, &what);
                for rows in 1..7 {
                    let some = Case {
                        weight,
                        x: &x[..rows * k],
                        rows,
                        int8: false,
                        n,
                    }
                    .run(&machine, epilogue);
                    assert_eq!(
                        some.expect("fits"),
                        all[..rows * n],
                        "{what}: {rows} rows differ from 7"
                    );
                }
            }
        }
    }
}

/// Gate and up with a residual, a bias, a scale per row and a constant: the epilogue sees both accumulators and every kind
/// of extra input.
#[test]
fn epilogue_sees_two_accumulators_and_extras() {
    let (n, k, rows) = (40, 64, 5);
    let program = Program {
        accumulators: 2,
        extras: vec![Extra::Full, Extra::Column, Extra::Row, Extra::Scalar],
        steps: vec![
            Step {
                op: EltOp::Silu,
                a: Operand::Acc(0),
                b: Operand::Acc(0),
            },
            Step {
                op: EltOp::Mul,
                a: Operand::Step(0),
                b: Operand::Acc(1),
            },
            Step {
                op: EltOp::Add,
                a: Operand::Step(1),
                b: Operand::Extra(0),
            },
            Step {
                op: EltOp::Add,
                a: Operand::Step(2),
                b: Operand::Extra(1),
            },
            Step {
                op: EltOp::Mul,
                a: Operand::Step(3),
                b: Operand::Extra(2),
            },
            Step {
                op: EltOp::Sub,
                a: Operand::Step(4),
                b: Operand::Extra(3),
            },
            Step {
                op: EltOp::Mul,
                a: Operand::Step(5),
                b: Operand::Const(0.5),
            },
        ],
        result: Operand::Step(6),
    };
    let prepared = Prepared::new(&program).expect("valid");
    for machine in machines() {
        let mut random = Random::new(11);
        let layout = layouts(machine.level().tile_rows())[1];
        let bytes = packed(layout, 2 * n, k, &mut random);
        let mut values = vec![0.0; 2 * n * k];
        unpack(&layout, &bytes, 2 * n, k, &mut values).expect("valid");
        let x = random.floats(rows * k);
        let (full, column, row) = (
            random.floats(rows * n),
            random.floats(n),
            random.floats(rows),
        );
        let extras = [
            ExtraInput::Full(Rows::new(&full, rows, n).expect("fits")),
            ExtraInput::Column(&column),
            ExtraInput::Row(&row),
            ExtraInput::Scalar(0.25),
        ];
        let weight = Weight::Packed(PackedMatrix::new(layout, &bytes, 2 * n, k).expect("valid"));
        let case = Case {
            weight,
            x: &x,
            rows,
            int8: false,
            n,
        };
        let y = case
            .run(
                &machine,
                Epilogue {
                    program: &prepared,
                    extras: &extras,
                },
            )
            .expect("fits");
        let (sums, _) = reference(&values, &x, k);
        for r in 0..rows {
            for c in 0..n {
                let acc = [sums[r * 2 * n + c] as f32, sums[r * 2 * n + n + c] as f32];
                let expected = program.evaluate(&acc, &[full[r * n + c], column[c], row[r], 0.25]);
                let found = y[r * n + c];
                assert!(
                    (found - expected).abs() < 1e-5,
                    "({r}, {c}): {found}, expected {expected}"
                );
            }
        }
    }
}

/// Scales of every kind that a half can be: subnormal, the largest, infinite, NaN.
#[test]
fn odd_scales_keep_their_value() {
    let (n, k) = (16, 32);
    let halves = [
        0x0001u16, 0x83ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x8000,
    ];
    for machine in machines() {
        let rows = machine.level().tile_rows();
        let layout = layouts(rows)
            .into_iter()
            .find(|l| l.bits == 8 && l.group == 32 && l.scale == ScaleType::F16)
            .expect("in the list");
        let mut bytes = vec![1u8; layout.bytes(n, k).expect("valid")];
        for (t, tile) in bytes.chunks_exact_mut(rows * 34).enumerate() {
            for (r, scale) in tile[rows * 32..].chunks_exact_mut(2).enumerate() {
                scale.copy_from_slice(&halves[(t * rows + r) % 8].to_le_bytes());
            }
        }
        let weight = Weight::Packed(PackedMatrix::new(layout, &bytes, n, k).expect("valid"));
        let program = identity();
        let epilogue = Epilogue {
            program: &program,
            extras: &[],
        };
        let x = vec![0.5; k];
        for int8 in [false, true] {
            let y = Case {
                weight,
                x: &x,
                rows: 1,
                int8,
                n,
            }
            .run(&machine, epilogue)
            .expect("fits");
            for (i, y) in y.iter().enumerate() {
                let expected = 16.0 * f16::from_bits(halves[i % 8]).to_f32();
                let same = (y - expected).abs() <= 1e-6 * expected.abs() || *y == expected;
                assert!(
                    same || y.is_nan() && !expected.is_finite(),
                    "{y}, expected {expected}"
                );
            }
        }
    }
}

#[test]
fn wrong_shapes_are_refused() {
    let machine = Machine::new(1).expect("one thread");
    let layout = layouts(machine.level().tile_rows())[0];
    let bytes = packed(layout, 8, 64, &mut Random::new(1));
    assert!(PackedMatrix::new(layout, &bytes[1..], 8, 64).is_err());
    assert!(PackedMatrix::new(layout, &bytes, 8, 0).is_err());
    assert!(PackedMatrix::new(layout, &bytes, usize::MAX, 64).is_err());
    let weight = Weight::Packed(PackedMatrix::new(layout, &bytes, 8, 64).expect("valid"));
    let program = identity();
    let epilogue = Epilogue {
        program: &program,
        extras: &[],
    };
    let x = vec![0.0; 96];
    let narrow = Case {
        weight,
        x: &x[..32],
        rows: 1,
        int8: false,
        n: 8,
    }
    .run(&machine, epilogue);
    assert!(matches!(
        narrow,
        Err(CpuError::Length {
            expected: 64,
            found: 32,
            ..
        })
    ));
    let short = Case {
        weight,
        x: &x[..64],
        rows: 1,
        int8: true,
        n: 9,
    }
    .run(&machine, epilogue);
    assert!(matches!(
        short,
        Err(CpuError::Length {
            expected: 9,
            found: 8,
            ..
        })
    ));
    let extra = [ExtraInput::Scalar(1.0)];
    let case = Case {
        weight,
        x: &x[..64],
        rows: 1,
        int8: false,
        n: 8,
    };
    assert!(
        case.run(
            &machine,
            Epilogue {
                program: &program,
                extras: &extra
            }
        )
        .is_err()
    );
    let other = PackedLayout { rows: 16, ..layout };
    let bytes = packed(other, 16, 64, &mut Random::new(1));
    let weight = Weight::Packed(PackedMatrix::new(other, &bytes, 16, 64).expect("valid"));
    let case = Case {
        weight,
        x: &x[..64],
        rows: 1,
        int8: false,
        n: 16,
    };
    assert!(matches!(
        case.run(&machine, epilogue),
        Err(CpuError::Level { lanes: 16, .. })
    ));
}
