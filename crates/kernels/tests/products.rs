//! Matrix products against the slow obvious way, on every format, shape and fusion.

mod common;

use common::Gpu;
use common::data::{Matrix, Random, assert_close, bits, floats, formats};
use ingle_kernels::params::ProjectionParams;
use ingle_kernels::step::{self, StepLayout, StepRows};
use ingle_kernels::{
    Activations, DeviceLimits, EltArg, EltInput, EltOp, EltProgram, KernelKey, MatMulKey,
    MatMulTile, MatVecKey, MatVecShape, Projection, WeightFormat,
};
use ingle_quant::ScaleType;

const Q4_1: WeightFormat = WeightFormat::Packed {
    bits: 4,
    offset: 0,
    group: 32,
    scale: ScaleType::F16,
    min: true,
    tile: 1,
};

/// One product: `tokens` rows of `x` against `rows` columns.
struct Case {
    projection: Projection,
    rows: usize,
    k: usize,
    tokens: usize,
    seed: u64,
}

impl Case {
    fn new(weights: WeightFormat, rows: usize, k: usize, tokens: usize) -> Self {
        let projection = Projection {
            weights,
            activations: Activations::F32,
            norm: false,
            epilogue: EltProgram::identity(),
        };
        Case {
            projection,
            rows,
            k,
            tokens,
            seed: 1,
        }
    }

    /// Runs the kernel over random data and compares. Columns lie at an offset in wider output rows.
    fn check(&self, gpu: &Gpu, key: &KernelKey, grid: [u32; 3], tolerance: f32) {
        let Case {
            projection,
            rows,
            k,
            tokens,
            seed,
        } = self;
        let (rows, k, tokens) = (*rows, *k, *tokens);
        let program = &projection.epilogue;
        let accumulators = program.accumulators().max(1);
        let mut random = Random::new(*seed);
        let matrix = Matrix::random(projection.weights, accumulators * rows, k, &mut random);
        let x_stride = k + 8;
        let x = random.floats(4 + tokens * x_stride);
        let norm_weight = random.floats(k);
        let (out_stride, out_offset) = (rows + 5, 3);
        let inputs: Vec<Vec<f32>> = program
            .inputs
            .iter()
            .map(|kind| match kind {
                EltInput::Same => random.floats(tokens * out_stride),
                EltInput::Column => random.floats(out_stride),
                EltInput::Row => random.floats(tokens),
                EltInput::Scalar => random.floats(1),
            })
            .collect();
        let params = ProjectionParams {
            k: k as u32,
            rows: rows as u32,
            pair_rows: rows as u32,
            scales_word: projection
                .weights
                .scales_word((accumulators * rows) as u32, k as u32),
            x_stride: x_stride as u32,
            x_offset: 4,
            out_stride: out_stride as u32,
            out_offset,
            eps: 1e-5,
            count_word: step::N_TOKENS,
        };
        let names: Vec<String> = match inputs.len() {
            1 => vec!["input".into()],
            n => (0..n).map(|i| format!("input{i}")).collect(),
        };
        let untouched = f32::from_bits(0x7fc0_1234);
        let mut buffers: Vec<(&str, Vec<u32>)> = vec![("x", bits(&x))];
        if projection.norm {
            buffers.push(("norm_weight", bits(&norm_weight)));
        }
        buffers.push(("weights", matrix.words.clone()));
        buffers.extend(
            names
                .iter()
                .zip(&inputs)
                .map(|(name, input)| (name.as_str(), bits(input))),
        );
        let out_at = buffers.len();
        buffers.push(("out", bits(&vec![untouched; tokens * out_stride])));
        buffers.push(("step", step_words(tokens)));
        buffers.push(("params", params.words()));
        let out = floats(&gpu.run(key, &buffers, grid)[out_at]);

        let mut found = Vec::new();
        let mut expected = Vec::new();
        for t in 0..tokens {
            let row_of_x = self.activations(&x[4 + t * x_stride..][..k], &norm_weight);
            for c in 0..out_stride {
                let at = t * out_stride + c;
                let Some(row) = c.checked_sub(out_offset as usize).filter(|row| *row < rows) else {
                    assert_eq!(
                        out[at].to_bits(),
                        untouched.to_bits(),
                        "{} wrote outside its columns",
                        key.id()
                    );
                    continue;
                };
                let sums: Vec<f32> = (0..accumulators)
                    .map(|a| matrix.dot(a * rows + row, &row_of_x) as f32)
                    .collect();
                let extras: Vec<f32> = program
                    .inputs
                    .iter()
                    .zip(&inputs)
                    .map(|(kind, input)| match kind {
                        EltInput::Same => input[at],
                        EltInput::Column => input[c],
                        EltInput::Row => input[t],
                        EltInput::Scalar => input[0],
                    })
                    .collect();
                found.push(out[at]);
                expected.push(program.evaluate(&sums, &extras));
            }
        }
        assert_close(&key.id(), &found, &expected, tolerance);
    }

    /// A row of `x` as the product sees it.
    fn activations(&self, x: &[f32], norm_weight: &[f32]) -> Vec<f32> {
        let mut row = x.to_vec();
        if self.projection.norm {
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean + 1e-5).sqrt();
            row = x
                .iter()
                .zip(norm_weight)
                .map(|(v, w)| (f64::from(*v) * scale * f64::from(*w)) as f32)
                .collect();
        }
        if self.projection.activations == Activations::Int8 {
            ingle_quant::fake_quantize(&mut row);
        }
        row
    }

    fn matvec(&self, gpu: &Gpu, tokens: u8, shape: MatVecShape, tolerance: f32) {
        let int8 = self.projection.activations == Activations::Int8;
        let stage_k = if int8 {
            (self.k as u32).next_multiple_of(256)
        } else {
            0
        };
        let key = MatVecKey {
            projection: self.projection.clone(),
            tokens,
            shape,
            stage_k,
        };
        let grid = key.grid(
            self.rows as u32,
            self.tokens as u32,
            &DeviceLimits::default(),
        );
        self.check(gpu, &KernelKey::MatVec(key), grid, tolerance);
    }

    fn matmul(&self, gpu: &Gpu, tile: MatMulTile, tolerance: f32) {
        let key = MatMulKey {
            projection: self.projection.clone(),
            tile,
        };
        let grid = key.grid(
            self.rows as u32,
            self.tokens as u32,
            &DeviceLimits::default(),
        );
        self.check(gpu, &KernelKey::MatMul(key), grid, tolerance);
    }
}

fn step_words(tokens: usize) -> Vec<u32> {
    let layout = StepLayout {
        tokens: 64,
        output_rows: 64,
        sequences: 1,
        max_blocks: 1,
    };
    let rows = vec![0; tokens];
    let mut words = vec![0; layout.words() as usize];
    let step = StepRows {
        ids: &rows,
        positions: &rows,
        slots: &rows,
        sequences: &rows,
        output_rows: &[],
    };
    layout.write(&step, &mut words).expect("it fits");
    words
}

const fn shape(threads: u16, lanes: u16, rows: u8) -> MatVecShape {
    MatVecShape {
        threads,
        lanes,
        rows,
        packed_dot: false,
    }
}

#[test]
fn matvec_reads_every_format() {
    let gpu = Gpu::new();
    for format in formats() {
        Case::new(format, 37, 96, 1).matvec(&gpu, 1, shape(64, 4, 2), 1e-5);
    }
}

#[test]
fn matvec_takes_every_shape() {
    let gpu = Gpu::new();
    for shape in [
        shape(64, 1, 1),
        shape(64, 64, 1),
        shape(32, 8, 4),
        shape(128, 16, 2),
        shape(1, 1, 3),
        shape(256, 2, 1),
    ] {
        Case::new(Q4_1, 70, 160, 1).matvec(&gpu, 1, shape, 1e-5);
    }
}

#[test]
fn matvec_takes_several_rows_of_x() {
    let gpu = Gpu::new();
    for (per_workgroup, tokens) in [(2, 2), (8, 8), (4, 7), (8, 3), (1, 3)] {
        Case::new(Q4_1, 19, 64, tokens).matvec(&gpu, per_workgroup, shape(64, 8, 1), 1e-5);
    }
}

#[test]
fn int8_matvec_reads_every_packed_format() {
    let gpu = Gpu::new();
    let packed = formats()
        .into_iter()
        .filter(|f| matches!(f, WeightFormat::Packed { .. }));
    for (n, format) in packed.enumerate() {
        let mut case = Case::new(format, 37, if format.group() == 32 { 96 } else { 80 }, 1);
        case.projection.activations = Activations::Int8;
        let packed_dot = n % 3 == 0;
        let shape = MatVecShape {
            packed_dot,
            ..shape(64, 4, 1)
        };
        case.matvec(&gpu, 1, shape, 1e-5);
    }
}

#[test]
fn int8_matvec_takes_norms_and_several_rows() {
    let gpu = Gpu::new();
    for packed_dot in [false, true] {
        for tokens in [1, 3] {
            let mut case = Case::new(Q4_1, 37, 192, tokens);
            case.projection.activations = Activations::Int8;
            case.projection.norm = true;
            let shape = MatVecShape {
                packed_dot,
                ..shape(16, 2, 2)
            };
            // A code on the edge between two may fall on the other side after a fused norm.
            case.matvec(&gpu, 2, shape, 3e-5);
        }
    }
}

#[test]
fn int8_sums_survive_the_largest_codes() {
    // The doubled sums of the integer path are exact as long as their halves fit; these come closest to not fitting.
    let gpu = Gpu::new();
    // The scale is 1; the first has the largest high term, the others the largest low one beside a large high one.
    let mut x = [32131.0f32; 32];
    x[0] = 32258.0;
    for (width, code) in [(4, 0xffff_ffffu32), (8, 0x8080_8080)] {
        for sign in [1.0f32, -1.0] {
            let format = WeightFormat::Packed {
                bits: width,
                offset: 0,
                group: 32,
                scale: ScaleType::F32,
                min: false,
                tile: 1,
            };
            let key = MatVecKey {
                projection: Projection {
                    weights: format,
                    activations: Activations::Int8,
                    norm: false,
                    epilogue: EltProgram::identity(),
                },
                tokens: 1,
                shape: shape(1, 1, 1),
                stage_k: 32,
            };
            let params = ProjectionParams {
                k: 32,
                rows: 1,
                scales_word: format.scales_word(1, 32),
                x_stride: 32,
                out_stride: 1,
                ..Default::default()
            };
            let mut weights = vec![code; format.group_words() as usize];
            weights.resize(format.scales_word(1, 32) as usize, 0);
            weights.push(1.0f32.to_bits());
            let buffers = [
                ("x", bits(&x.map(|x| sign * x))),
                ("weights", weights),
                ("out", vec![0]),
                ("step", step_words(1)),
                ("params", params.words()),
            ];
            let out = gpu.run(&KernelKey::MatVec(key), &buffers, [1, 1, 1]);
            let weight = if width == 4 { 15.0 } else { -128.0 };
            assert_eq!(
                f32::from_bits(out[2][0]),
                (sign * x.iter().sum::<f32>()) * weight,
                "{width} bits"
            );
        }
    }
}

#[test]
fn norm_fuses_into_matvec() {
    let gpu = Gpu::new();
    for lanes in [1, 8] {
        let mut case = Case::new(Q4_1, 33, 96, 2);
        case.projection.norm = true;
        case.matvec(&gpu, 2, shape(32, lanes, 2), 1e-5);
    }
}

#[test]
fn programs_fuse_into_products() {
    let gpu = Gpu::new();
    // A bias, a soft cap and an element-wise op: 30 · tanh((acc + bias) / 30), then |·|.
    let mut unseen = EltProgram::identity();
    let bias = unseen.input(EltInput::Column);
    let biased = unseen.apply(EltOp::Add, &[EltArg::Acc(0), bias]);
    let scaled = unseen.apply(EltOp::Div, &[biased, EltArg::constant(30.0)]);
    let bent = unseen.apply(EltOp::Tanh, &[scaled]);
    let capped = unseen.apply(EltOp::Mul, &[bent, EltArg::constant(30.0)]);
    unseen.result = unseen.apply(EltOp::Abs, &[capped]);
    for program in [EltProgram::add_residual(), EltProgram::swiglu(), unseen] {
        let mut case = Case::new(Q4_1, 21, 64, 3);
        case.projection.epilogue = program;
        case.matvec(&gpu, 1, shape(32, 4, 2), 1e-5);
        case.matvec(&gpu, 4, shape(32, 4, 1), 1e-5);
        case.matmul(
            &gpu,
            MatMulTile {
                tokens: 16,
                rows: 16,
                thread_tokens: 4,
                thread_rows: 4,
            },
            1e-5,
        );
    }
}

#[test]
fn matmul_reads_every_format() {
    let gpu = Gpu::new();
    let tile = MatMulTile {
        tokens: 32,
        rows: 32,
        thread_tokens: 4,
        thread_rows: 4,
    };
    for format in formats() {
        // 37 and 40 leave a part of the last tiles empty; so does k where the format lets it.
        let k = if format.group() == 32 { 96 } else { 80 };
        Case::new(format, 37, k, 40).matmul(&gpu, tile, 1e-5);
    }
}

#[test]
fn matmul_takes_every_tile() {
    let gpu = Gpu::new();
    for (tokens, rows, thread_tokens, thread_rows) in
        [(64, 32, 8, 4), (16, 64, 4, 8), (32, 32, 8, 8), (4, 4, 4, 4)]
    {
        let tile = MatMulTile {
            tokens,
            rows,
            thread_tokens,
            thread_rows,
        };
        Case::new(Q4_1, 70, 64, 33).matmul(&gpu, tile, 1e-5);
    }
}
