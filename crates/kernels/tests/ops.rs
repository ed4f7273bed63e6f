//! Every kernel that is no matrix product, against the slow obvious way.

mod common;

use common::Gpu;
use common::data::{Matrix, Random, assert_close, bits, floats, formats, rows_only, step_words};
use ingle_kernels::params::{
    ArgmaxParams, CopyBlocksParams, ElementwiseParams, EmbeddingParams, RmsNormParams,
    TakeRowsParams,
};
use ingle_kernels::step::{self, StepRows};
use ingle_kernels::{
    ArgmaxKey, CopyBlocksKey, DeviceLimits, ElementwiseKey, EltArg, EltInput, EltOp, EltProgram,
    EmbeddingKey, KernelKey, RmsNormKey, TakeRowsKey, TokenSource,
};

#[test]
fn embedding_reads_every_format_and_poisons_wrong_ids() {
    let gpu = Gpu::new();
    let (vocabulary, k) = (11, 96);
    let ids = [3, 0, 10, 11, u32::MAX];
    for (n, format) in formats().into_iter().enumerate() {
        let feedback = n % 2 == 1;
        let mut random = Random::new(5);
        let matrix = Matrix::random(format, vocabulary, k, &mut random);
        let params = EmbeddingParams {
            k: k as u32,
            vocabulary: vocabulary as u32,
            scales_word: format.scales_word(vocabulary as u32, k as u32),
            scale: 2.0,
            first_row: 0,
            ids: vocabulary as u32,
        };
        let zeros = [0; 5];
        let in_step = if feedback { &zeros } else { &ids };
        let step = StepRows {
            ids: in_step,
            positions: &zeros,
            slots: &zeros,
            sequences: &zeros,
            output_rows: &[],
        };
        let source = if feedback {
            TokenSource::Feedback
        } else {
            TokenSource::Step
        };
        let key = EmbeddingKey {
            weights: format,
            source,
            threads: 32,
        };
        let mut buffers = vec![("weights", matrix.words.clone())];
        if feedback {
            buffers.push(("tokens", ids.to_vec()));
        }
        buffers.extend([
            ("out", vec![0; ids.len() * k]),
            ("step", step_words(&step, &[])),
            ("params", params.words()),
        ]);
        let grid = key.grid(ids.len() as u32);
        let out = gpu.run(&KernelKey::Embedding(key), &buffers, grid);
        let out = floats(&out[buffers.len() - 3]);
        for (row, id) in out.chunks(k).zip(ids) {
            match matrix.values.chunks(k).nth(id as usize) {
                Some(expected) => {
                    let expected: Vec<f32> = expected.iter().map(|v| v * 2.0).collect();
                    assert_close(&format.label(), row, &expected, 1e-6);
                }
                None => assert!(
                    row.iter().all(|v| v.is_nan()),
                    "{}: id {id}",
                    format.label()
                ),
            }
        }
    }
}

#[test]
fn embedding_shards_leave_each_others_rows_alone() {
    let gpu = Gpu::new();
    let format = formats()[0];
    let matrix = Matrix::random(format, 4, 8, &mut Random::new(5));
    let params = EmbeddingParams {
        k: 8,
        vocabulary: 4,
        scales_word: 0,
        scale: 1.0,
        first_row: 4,
        ids: 8,
    };
    let zeros = [0; 3];
    let step = StepRows {
        ids: &[1, 6, 9],
        positions: &zeros,
        slots: &zeros,
        sequences: &zeros,
        output_rows: &[],
    };
    let key = EmbeddingKey {
        weights: format,
        source: TokenSource::Step,
        threads: 32,
    };
    let buffers = [
        ("weights", matrix.words.clone()),
        ("out", vec![7; 3 * 8]),
        ("step", step_words(&step, &[])),
        ("params", params.words()),
    ];
    let out = gpu
        .run(&KernelKey::Embedding(key.clone()), &buffers, key.grid(3))
        .swap_remove(1);
    assert_eq!(out[..8], [7; 8]);
    assert_eq!(floats(&out[8..16]), matrix.values[16..24]);
    assert_eq!(out[16..], [7; 8]);
}

#[test]
fn rms_norm_normalises_rows() {
    let gpu = Gpu::new();
    for (threads, k) in [(64, 576), (256, 100), (1, 8)] {
        let mut random = Random::new(7);
        let (x, weight) = (random.floats(3 * k), random.floats(k));
        let params = RmsNormParams {
            k: k as u32,
            eps: 1e-5,
            count_word: step::N_TOKENS,
        };
        let key = RmsNormKey { threads };
        let buffers = [
            ("x", bits(&x)),
            ("norm_weight", bits(&weight)),
            ("out", vec![0; 3 * k]),
            ("step", rows_only(3)),
            ("params", params.words()),
        ];
        let out = gpu
            .run(&KernelKey::RmsNorm(key.clone()), &buffers, key.grid(3))
            .swap_remove(2);
        let mut expected = Vec::new();
        for row in x.chunks(k) {
            let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / k as f64;
            let scale = 1.0 / (mean + 1e-5).sqrt();
            expected.extend(
                row.iter()
                    .zip(&weight)
                    .map(|(v, w)| (f64::from(*v) * scale) as f32 * w),
            );
        }
        assert_close("rms_norm", &floats(&out), &expected, 1e-6);
    }
}

#[test]
fn elementwise_runs_every_op() {
    let gpu = Gpu::new();
    let ops = [
        EltOp::Add,
        EltOp::Sub,
        EltOp::Mul,
        EltOp::Div,
        EltOp::Max,
        EltOp::Min,
        EltOp::Neg,
        EltOp::Abs,
        EltOp::Exp,
        EltOp::Log,
        EltOp::Tanh,
        EltOp::Sigmoid,
        EltOp::Silu,
        EltOp::GeluTanh,
        EltOp::GeluErf,
        EltOp::Relu,
        EltOp::Sqrt,
        EltOp::Rsqrt,
        EltOp::Sin,
        EltOp::Cos,
        EltOp::Recip,
        EltOp::Erf,
    ];
    let (rows, columns) = (3, 25);
    for op in ops {
        for second in [
            EltInput::Same,
            EltInput::Column,
            EltInput::Row,
            EltInput::Scalar,
        ] {
            if op.arity() == 1 && second != EltInput::Same {
                continue;
            }
            let mut program = EltProgram {
                inputs: vec![],
                instructions: vec![],
                result: EltArg::Const(0),
            };
            let a = program.input(EltInput::Same);
            let mut args = vec![a];
            if op.arity() == 2 {
                args.push(program.input(second));
            }
            program.result = program.apply(op, &args);
            let positive = matches!(op, EltOp::Log | EltOp::Sqrt | EltOp::Rsqrt | EltOp::Recip);
            let mut random = Random::new(11);
            let x: Vec<f32> = random
                .floats(rows * columns)
                .into_iter()
                .map(|v| {
                    if positive {
                        v.abs() * 4.0 + 0.1
                    } else {
                        v * 4.0
                    }
                })
                .collect();
            let y: Vec<f32> = random
                .floats(rows * columns)
                .into_iter()
                .map(|v| v.abs() + 0.5)
                .collect();
            let params = ElementwiseParams {
                columns: columns as u32,
                count_word: step::N_TOKENS,
            };
            let key = ElementwiseKey {
                program: program.clone(),
                threads: 32,
            };
            let mut buffers = vec![];
            if op.arity() == 2 {
                buffers.extend([("input0", bits(&x)), ("input1", bits(&y))]);
            } else {
                buffers.push(("input", bits(&x)));
            }
            let at = buffers.len();
            buffers.extend([
                ("out", vec![0; rows * columns]),
                ("step", rows_only(rows)),
                ("params", params.words()),
            ]);
            let grid = key.grid((rows * columns) as u32, &DeviceLimits::default());
            let out = floats(&gpu.run(&KernelKey::Elementwise(key.clone()), &buffers, grid)[at]);
            let expected: Vec<f32> = (0..rows * columns)
                .map(|i| {
                    let other = match second {
                        EltInput::Same => y[i],
                        EltInput::Column => y[i % columns],
                        EltInput::Row => y[i / columns],
                        EltInput::Scalar => y[0],
                    };
                    program.evaluate(&[], &[x[i], other])
                })
                .collect();
            // WGSL promises little for sin and cos.
            let tolerance = if matches!(op, EltOp::Sin | EltOp::Cos) {
                5e-4
            } else {
                2e-6
            };
            assert_close(
                &KernelKey::Elementwise(key).id(),
                &out,
                &expected,
                tolerance,
            );
        }
    }
}

#[test]
fn tanh_and_sigmoid_stay_finite_and_keep_nan() {
    let gpu = Gpu::new();
    let x = [-1e30, -100.0, 100.0, 1e30, f32::NAN];
    for (op, expected) in [
        (EltOp::Tanh, [-1.0, -1.0, 1.0, 1.0]),
        (EltOp::Sigmoid, [0.0, 0.0, 1.0, 1.0]),
        (EltOp::Silu, [0.0, 0.0, 100.0, 1e30]),
    ] {
        let mut program = EltProgram {
            inputs: vec![],
            instructions: vec![],
            result: EltArg::Const(0),
        };
        let a = program.input(EltInput::Same);
        program.result = program.apply(op, &[a]);
        let params = ElementwiseParams {
            columns: 5,
            count_word: step::N_TOKENS,
        };
        let key = ElementwiseKey {
            program,
            threads: 32,
        };
        let buffers = [
            ("input", bits(&x)),
            ("out", vec![0; 5]),
            ("step", rows_only(1)),
            ("params", params.words()),
        ];
        let out = gpu
            .run(&KernelKey::Elementwise(key), &buffers, [1, 1, 1])
            .swap_remove(1);
        let out = floats(&out);
        for (found, expected) in out.iter().zip(expected) {
            assert!(
                (found - expected).abs() <= expected.abs() * 1e-6 + 1e-30,
                "{op:?}: {out:?}"
            );
        }
        assert!(out[4].is_nan(), "{op:?}: {out:?}");
    }
}

#[test]
fn argmax_takes_the_lowest_of_equals_and_refuses_poison() {
    let gpu = Gpu::new();
    for threads in [1, 64, 256] {
        let columns = 300;
        let mut random = Random::new(13);
        let mut x = random.floats(6 * columns);
        x[17] = 2.0;
        x[16] = 2.0;
        x[299] = 2.0;
        x[columns + 299] = 2.0;
        x[2 * columns + 120] = f32::NAN;
        x[3 * columns + 290] = f32::INFINITY;
        x[4 * columns..5 * columns].fill(f32::MIN);
        x[5 * columns + 3] = f32::NEG_INFINITY;
        let params = ArgmaxParams {
            columns: columns as u32,
            count_word: step::N_TOKENS,
        };
        let key = ArgmaxKey { threads };
        let buffers = [
            ("x", bits(&x)),
            ("out", vec![9; 6]),
            ("step", rows_only(6)),
            ("params", params.words()),
        ];
        let out = gpu
            .run(&KernelKey::Argmax(key.clone()), &buffers, key.grid(6))
            .swap_remove(1);
        assert_eq!(
            out,
            [16, 299, u32::MAX, u32::MAX, 0, u32::MAX],
            "{threads} threads"
        );
    }
}

#[test]
fn take_rows_and_copy_blocks_copy() {
    let gpu = Gpu::new();
    let x: Vec<u32> = (0..5 * 7).collect();
    let zeros = [0; 5];
    let rows = StepRows {
        ids: &zeros,
        positions: &zeros,
        slots: &zeros,
        sequences: &zeros,
        output_rows: &[4, 0, 2],
    };
    let buffers = [
        ("x", x.clone()),
        ("out", vec![0; 3 * 7]),
        ("step", step_words(&rows, &[])),
        ("params", TakeRowsParams { k: 7 }.words()),
    ];
    let out = gpu
        .run(
            &KernelKey::TakeRows(TakeRowsKey { threads: 4 }),
            &buffers,
            [3, 1, 1],
        )
        .swap_remove(1);
    assert_eq!(out, [&x[28..35], &x[..7], &x[14..21]].concat());

    let buffers = [
        ("kv", x.clone()),
        ("pairs", vec![0, 3, 1, 4]),
        ("params", CopyBlocksParams { block_words: 7 }.words()),
    ];
    let out = gpu
        .run(
            &KernelKey::CopyBlocks(CopyBlocksKey { threads: 4 }),
            &buffers,
            [2, 1, 1],
        )
        .swap_remove(0);
    assert_eq!(out, [&x[..21], &x[..14]].concat());
}

#[test]
fn row_kernels_agree_with_the_slow_way() {
    use ingle_kernels::params::{
        QuantizeActivationsParams, ReduceParams, SliceParams, SoftmaxParams,
    };
    use ingle_kernels::{QuantizeActivationsKey, ReduceKey, Reduction, SliceKey, SoftmaxKey};

    let gpu = Gpu::new();
    let (rows, k, count_word) = (5usize, 100usize, step::N_TOKENS);
    let mut random = Random::new(8);
    let x: Vec<f32> = (0..rows * k).map(|_| random.float() * 3.0).collect();
    let run = |key: KernelKey, out: usize, params: Vec<u32>| {
        let buffers = [
            ("x", bits(&x)),
            ("out", vec![0; out]),
            ("step", rows_only(rows)),
            ("params", params),
        ];
        floats(&gpu.run(&key, &buffers, [rows as u32, 1, 1])[1])
    };
    let each = |f: &dyn Fn(&[f32]) -> Vec<f32>| -> Vec<f32> { x.chunks(k).flat_map(f).collect() };
    let params = ReduceParams {
        k: k as u32,
        count_word,
    }
    .words();
    for (kind, name) in [
        (Reduction::Sum, "sum"),
        (Reduction::Mean, "mean"),
        (Reduction::Max, "max"),
    ] {
        let found = run(
            KernelKey::Reduce(ReduceKey { kind, threads: 64 }),
            rows,
            params.clone(),
        );
        let expected = each(&|row| match kind {
            Reduction::Sum => vec![row.iter().sum()],
            Reduction::Mean => vec![row.iter().sum::<f32>() / k as f32],
            Reduction::Max => vec![row.iter().copied().fold(f32::MIN, f32::max)],
        });
        assert_close(name, &found, &expected, 1e-5);
    }
    let params = SoftmaxParams {
        k: k as u32,
        count_word,
    }
    .words();
    let found = run(
        KernelKey::Softmax(SoftmaxKey { threads: 64 }),
        rows * k,
        params,
    );
    let expected = each(&|row| {
        let max = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = row.iter().map(|v| (v - max).exp()).sum();
        row.iter().map(|v| (v - max).exp() / sum).collect()
    });
    assert_close("softmax", &found, &expected, 1e-5);
    let params = SliceParams {
        k: k as u32,
        start: 7,
        columns: 30,
        count_word,
    }
    .words();
    let found = run(
        KernelKey::Slice(SliceKey { threads: 64 }),
        rows * 30,
        params,
    );
    assert_eq!(found, each(&|row| row[7..37].to_vec()));
    let params = QuantizeActivationsParams {
        k: k as u32,
        count_word,
    }
    .words();
    let key = KernelKey::QuantizeActivations(QuantizeActivationsKey { threads: 64 });
    let found = run(key, rows * k, params);
    let expected = each(&|row| {
        let mut row = row.to_vec();
        ingle_quant::fake_quantize(&mut row);
        row
    });
    assert_close("quantize_activations", &found, &expected, 1e-6);
}
