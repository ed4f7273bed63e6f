//! The matvecs of one SmolLM2-135M token alone, and the matmuls of a 256-token prefill: what the kernels can reach.
//!
//! `cargo run --release -p ingle-cpu --example bench_token [threads] [int8|f32]`

use std::ops::Range;
use std::time::{Duration, Instant};

use ingle_cpu::kernels::matmul::{Epilogue, Input, PackedMatrix, Weight, matmul};
use ingle_cpu::kernels::program::Prepared;
use ingle_cpu::kernels::quantize_activations::{QuantizedRows, quantize_rows};
use ingle_cpu::{Buffer, CpuError, Level, Machine, Rows, RowsMut};
use ingle_graph::ops::EltOp;
use ingle_graph::{Operand, Program, Step};
use ingle_quant::{GgmlType, LayoutRequest, PackedLayout, Placement};

const LAYERS: usize = 30;
const PREFILL: usize = 256;

struct Layer {
    layout: PackedLayout,
    bytes: Range<usize>,
    rows: usize,
    k: usize,
    gated: bool,
}

impl Layer {
    fn new(
        level: Level,
        ty: GgmlType,
        rows: usize,
        k: usize,
        gated: bool,
        end: &mut usize,
    ) -> Result<Self, CpuError> {
        let request = LayoutRequest {
            rows: level.tile_rows() as u8,
            placement: Placement::Inline,
        };
        let layout = PackedLayout::for_type(ty, request).expect("a type that packs");
        let start = end.next_multiple_of(64);
        *end = start + layout.bytes(rows, k)?;
        let bytes = start..*end;
        Ok(Layer {
            layout,
            bytes,
            rows,
            k,
            gated,
        })
    }
}

struct Bench {
    machine: Machine,
    weights: Buffer,
    int8: bool,
    plain: Prepared,
    gated: Prepared,
    x: Vec<f32>,
    words: Vec<f32>,
    y: Vec<f32>,
}

impl Bench {
    fn run(&mut self, layer: &Layer, rows: usize) -> Result<(), CpuError> {
        let machine = &self.machine;
        let weight = Weight::Packed(PackedMatrix::new(
            layer.layout,
            &self.weights.as_slice()[layer.bytes.clone()],
            layer.rows,
            layer.k,
        )?);
        let x = Rows::new(&self.x[..rows * layer.k], rows, layer.k)?;
        let words = QuantizedRows::row_words(layer.k)?;
        let input = if self.int8 {
            quantize_rows(
                machine,
                x,
                None,
                &mut RowsMut::new(&mut self.words[..rows * words], rows, words)?,
            )?;
            Input::Int8(QuantizedRows::new(
                &self.words[..rows * words],
                rows,
                layer.k,
            )?)
        } else {
            Input::F32(x)
        };
        let (program, n) = if layer.gated {
            (&self.gated, layer.rows / 2)
        } else {
            (&self.plain, layer.rows)
        };
        let mut y = RowsMut::new(&mut self.y[..rows * n], rows, n)?;
        matmul(
            machine,
            weight,
            input,
            Epilogue {
                program,
                extras: &[],
            },
            &mut y,
        )
    }
}

fn main() -> Result<(), CpuError> {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().and_then(|t| t.parse().ok()).unwrap_or(1);
    let int8 = arguments.next().is_none_or(|m| m == "int8");
    let machine = Machine::new(threads)?;
    let level = machine.level();
    let (mut layers, mut end) = (Vec::new(), 0);
    for _ in 0..LAYERS {
        layers.push(Layer::new(
            level,
            GgmlType::Q4_1,
            960,
            576,
            false,
            &mut end,
        )?);
        layers.push(Layer::new(
            level,
            GgmlType::Q4_1,
            576,
            576,
            false,
            &mut end,
        )?);
        layers.push(Layer::new(
            level,
            GgmlType::Q4_1,
            3072,
            576,
            true,
            &mut end,
        )?);
        layers.push(Layer::new(
            level,
            GgmlType::Q4_1,
            576,
            1536,
            false,
            &mut end,
        )?);
    }
    let head = Layer::new(level, GgmlType::Q8_0, 49152, 576, false, &mut end)?;
    let bytes = end;
    let mut weights = Buffer::zeroed(bytes)?;
    let mut state = 1u32;
    for b in weights.as_mut_slice() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Read as a half, any two of these are a scale of an ordinary size.
        *b = (state >> 24) as u8 & 0x0f | 0x20;
    }

    let swiglu = Program {
        accumulators: 2,
        extras: vec![],
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
        ],
        result: Operand::Step(1),
    };
    let mut bench = Bench {
        machine,
        weights,
        int8,
        plain: Prepared::new(&Program::identity())?,
        gated: Prepared::new(&swiglu)?,
        x: (0..PREFILL * 1536)
            .map(|i| (i as f32 * 0.37).sin())
            .collect(),
        words: vec![0.0; PREFILL * 1536],
        y: vec![0.0; (PREFILL * 3072).max(49152)],
    };

    let token = best(20, || {
        for layer in layers.iter().chain([&head]) {
            bench.run(layer, 1).expect("shapes fit");
        }
    });
    let head_time = best(20, || bench.run(&head, 1).expect("shapes fit"));
    let prefill = best(3, || {
        for layer in &layers {
            bench.run(layer, PREFILL).expect("shapes fit");
        }
    });
    let read = best(20, || {
        let sum = bench
            .weights
            .as_slice()
            .chunks_exact(8)
            .fold(0u64, |sum, b| {
                sum.wrapping_add(u64::from_le_bytes(b.try_into().expect("8 bytes")))
            });
        std::hint::black_box(sum);
    });
    let mode = if int8 { "int8" } else { "f32" };
    println!("{} {mode} activations, {threads} thread(s)", level.name());
    let seconds = token.as_secs_f64();
    println!(
        "decode  {:6.1} tok/s  {:5.2} GB/s  ({:.2} ms)",
        1.0 / seconds,
        bytes as f64 / seconds / 1e9,
        seconds * 1e3
    );
    let (bytes, seconds) = (head.bytes.len() as f64, head_time.as_secs_f64());
    println!(
        "head    {:6.2} ms     {:5.2} GB/s",
        seconds * 1e3,
        bytes / seconds / 1e9
    );
    println!(
        "reading {:5.2} GB/s (the same bytes, added up)",
        end as f64 / read.as_secs_f64() / 1e9
    );
    println!(
        "prefill {:6.1} tok/s",
        PREFILL as f64 / prefill.as_secs_f64()
    );
    Ok(())
}

/// The best of several runs.
fn best(runs: usize, mut f: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..runs {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed());
    }
    best
}
