//! Measures the matrix products of one SmolLM2-135M token (30 layers and the head), for a set of kernel variants.
//!
//! `bench_products native [FILTER]` runs them on the first Vulkan device; `bench_products json [FILTER]` prints what
//! `bench/browser.mjs` runs in Chromium. Weights are random; every matrix has its own buffer, as in a real model.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::data::Random;
use ingle_kernels::compile::compile;
use ingle_kernels::params::ProjectionParams;
use ingle_kernels::step::{self, StepLayout, StepRows};
use ingle_kernels::{
    Activations, DeviceLimits, EltProgram, KernelKey, KernelText, MatMulKey, MatMulTile, MatVecKey,
    MatVecShape, Projection, WeightFormat,
};
use ingle_quant::ScaleType;
use serde_json::json;

const LAYERS: usize = 30;

/// One product of the model.
struct Product {
    name: &'static str,
    format: WeightFormat,
    rows: u32,
    k: u32,
    norm: bool,
    epilogue: EltProgram,
    count: usize,
}

fn model(bare: bool, scale: ScaleType, tile: u8) -> Vec<Product> {
    let q4 = WeightFormat::Packed {
        bits: 4,
        offset: 0,
        group: 32,
        scale,
        min: true,
        tile,
    };
    let q8 = WeightFormat::Packed {
        bits: 8,
        offset: 0,
        group: 32,
        scale,
        min: false,
        tile,
    };
    let product = |name, format, rows, k, norm, epilogue, count| Product {
        name,
        format,
        rows,
        k,
        norm: norm && !bare,
        epilogue: if bare {
            EltProgram::identity()
        } else {
            epilogue
        },
        count,
    };
    vec![
        product("qkv", q4, 960, 576, true, EltProgram::identity(), LAYERS),
        product("o", q4, 576, 576, false, EltProgram::add_residual(), LAYERS),
        product(
            "gate_up",
            q4,
            if bare { 3072 } else { 1536 },
            576,
            true,
            EltProgram::swiglu(),
            LAYERS,
        ),
        product(
            "down",
            q4,
            576,
            1536,
            false,
            EltProgram::add_residual(),
            LAYERS,
        ),
        product("head", q8, 49152, 576, true, EltProgram::identity(), 1),
    ]
}

#[derive(Clone, Copy)]
enum Variant {
    Vec {
        tokens: u8,
        shape: MatVecShape,
        int8: bool,
    },
    Mat(MatMulTile),
}

/// One kernel variant for the whole token.
struct Config {
    name: String,
    bare: bool,
    scale: ScaleType,
    tile: u8,
    tokens: u32,
    variant: Variant,
}

fn configs() -> Vec<Config> {
    let mut configs = Vec::new();
    let layouts = [
        (ScaleType::F16, 1),
        (ScaleType::F16, 16),
        (ScaleType::F32, 16),
    ];
    let kinds = [
        (false, false, "f32"),
        (true, false, "int8"),
        (true, true, "dot4"),
    ];
    for (scale, tile) in layouts {
        let layout = format!(
            "{}x{tile}",
            if scale == ScaleType::F16 {
                "half"
            } else {
                "float"
            }
        );
        for (int8, packed_dot, kind) in kinds {
            for bare in [true, false] {
                for threads in [4, 8, 16, 32, 64, 128] {
                    for lanes in [1, 2, 4, 8, 16] {
                        for rows in [1, 2, 4, 8, 16] {
                            let shape = MatVecShape {
                                threads,
                                lanes,
                                rows,
                                packed_dot,
                            };
                            let fused = if bare { "bare" } else { "fused" };
                            let name =
                                format!("{layout} {kind} {fused} t{threads} l{lanes} r{rows}");
                            let variant = Variant::Vec {
                                tokens: 1,
                                shape,
                                int8,
                            };
                            configs.push(Config {
                                name,
                                bare,
                                scale,
                                tile,
                                tokens: 1,
                                variant,
                            });
                        }
                    }
                }
            }
            for tokens in [2, 4, 8] {
                for threads in [4, 8, 16, 64] {
                    for lanes in [1, 8] {
                        for rows in [1, 2, 4, 8] {
                            let shape = MatVecShape {
                                threads,
                                lanes,
                                rows,
                                packed_dot,
                            };
                            let name = format!(
                                "{layout} {kind} prefill n{tokens} t{threads} l{lanes} r{rows}"
                            );
                            let variant = Variant::Vec {
                                tokens,
                                shape,
                                int8,
                            };
                            configs.push(Config {
                                name,
                                bare: false,
                                scale,
                                tile,
                                tokens: 32,
                                variant,
                            });
                        }
                    }
                }
            }
        }
        for (tokens, rows, thread_tokens, thread_rows) in [
            (32, 32, 4, 4),
            (32, 64, 4, 8),
            (32, 64, 8, 8),
            (32, 32, 8, 8),
            (32, 16, 8, 8),
            (16, 16, 8, 4),
            (16, 32, 8, 8),
            (32, 64, 16, 8),
        ] {
            let mat = MatMulTile {
                tokens,
                rows,
                thread_tokens,
                thread_rows,
            };
            let name =
                format!("{layout} f32 prefill tile {tokens}x{rows} {thread_tokens}x{thread_rows}");
            configs.push(Config {
                name,
                bare: false,
                scale,
                tile,
                tokens: 32,
                variant: Variant::Mat(mat),
            });
        }
    }
    configs
}

/// A product's kernel and its parameters in one configuration.
fn kernel(config: &Config, product: &Product) -> Option<(KernelText, [u32; 3], ProjectionParams)> {
    let limits = DeviceLimits::default();
    let mut projection = Projection {
        weights: product.format,
        activations: Activations::F32,
        norm: product.norm,
        epilogue: product.epilogue.clone(),
    };
    let (key, grid) = match config.variant {
        Variant::Vec {
            tokens,
            shape,
            int8,
        } => {
            if int8 {
                projection.activations = Activations::Int8;
            }
            let stage_k = if int8 {
                product.k.next_multiple_of(512)
            } else {
                0
            };
            let key = MatVecKey {
                projection,
                tokens,
                shape,
                stage_k,
            };
            let grid = key.grid(product.rows, config.tokens, &limits);
            (KernelKey::MatVec(key), grid)
        }
        Variant::Mat(tile) => {
            projection.norm = false;
            let key = MatMulKey { projection, tile };
            let grid = key.grid(product.rows, config.tokens, &limits);
            (KernelKey::MatMul(key), grid)
        }
    };
    let accumulators = product.epilogue.accumulators().max(1) as u32;
    let params = ProjectionParams {
        k: product.k,
        rows: product.rows,
        pair_rows: product.rows,
        scales_word: product
            .format
            .scales_word(accumulators * product.rows, product.k),
        x_stride: product.k,
        out_stride: product.rows,
        eps: 1e-5,
        count_word: step::N_TOKENS,
        ..Default::default()
    };
    Some((compile(&key, &limits).ok()?, grid, params))
}

fn matrix_words(product: &Product) -> u32 {
    let accumulators = product.epilogue.accumulators().max(1) as u32;
    (product
        .format
        .matrix_bytes(accumulators * product.rows, product.k)
        / 4) as u32
}

fn step_words(tokens: u32) -> Vec<u32> {
    let layout = StepLayout {
        tokens,
        output_rows: 0,
        sequences: 0,
        max_blocks: 0,
    };
    let zeros = vec![0; tokens as usize];
    let rows = StepRows {
        ids: &zeros,
        positions: &zeros,
        slots: &zeros,
        sequences: &zeros,
        output_rows: &[],
    };
    let mut words = vec![0; layout.words() as usize];
    layout.write(&rows, &mut words).expect("it fits");
    words
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters = arguments.get(1..).unwrap_or(&[]);
    let chosen: Vec<Config> = configs()
        .into_iter()
        .filter(|c| {
            filters.is_empty()
                || filters.iter().any(|f| {
                    f.split(' ')
                        .all(|part| c.name.split(' ').any(|p| p == part))
                })
        })
        .collect();
    match arguments.first().map(String::as_str) {
        Some("native") => native(&chosen),
        Some("json") => println!("{}", browser(&chosen)),
        _ => eprintln!("usage: bench_products native|json [FILTER …]"),
    }
}

/// Everything `bench/browser.mjs` needs, as JSON.
fn browser(configs: &[Config]) -> serde_json::Value {
    let mut out = Vec::new();
    for config in configs {
        let mut launches = Vec::new();
        for product in model(config.bare, config.scale, config.tile) {
            let Some((text, grid, params)) = kernel(config, &product) else {
                continue;
            };
            launches.push(json!({
                "name": product.name, "text": text, "grid": grid, "params": params.words(), "count": product.count,
                "matrix_words": matrix_words(&product), "scales_word": params.scales_word,
                "rows": product.rows, "k": product.k,
            }));
        }
        out.push(json!({ "name": config.name, "tokens": config.tokens, "step": step_words(config.tokens), "launches": launches }));
    }
    serde_json::Value::Array(out)
}

fn native(configs: &[Config]) {
    let gpu = common::Gpu::new();
    for config in configs {
        let mut all = Vec::new();
        let mut line = format!("{:36}", config.name);
        for product in model(config.bare, config.scale, config.tile) {
            let Some((text, grid, params)) = kernel(config, &product) else {
                continue;
            };
            let pipeline = gpu.pipeline(&text);
            let launches: Vec<_> = (0..product.count)
                .map(|_| {
                    let buffers: Vec<_> = text
                        .bindings
                        .iter()
                        .map(|binding| {
                            gpu.buffer(&contents(&binding.name, config, &product, &params))
                        })
                        .collect();
                    gpu.launch(&pipeline, &buffers.iter().collect::<Vec<_>>(), grid)
                })
                .collect();
            line += &format!(" {} {:7.2}", product.name, best(&gpu, &launches));
            all.extend(launches);
        }
        let ms = best(&gpu, &all);
        println!(
            "{line} | {ms:8.2} ms, {:7.2} tok/s",
            1000.0 * f64::from(config.tokens) / ms
        );
    }
}

fn contents(name: &str, config: &Config, product: &Product, params: &ProjectionParams) -> Vec<u32> {
    let mut random = Random::new(3);
    let tokens = config.tokens as usize;
    match name {
        "params" => params.words(),
        "step" => step_words(config.tokens),
        "weights" => {
            let scale = 0x1400_1400; // small whether it is two f16 or one f32
            let filler = |i| {
                if i < params.scales_word {
                    random.next()
                } else {
                    scale
                }
            };
            (0..matrix_words(product)).map(filler).collect()
        }
        "x" | "norm_weight" => common::data::bits(&random.floats(tokens * product.k as usize)),
        _ => vec![0; tokens * product.rows as usize],
    }
}

/// Milliseconds of the fastest of a few runs.
fn best(gpu: &common::Gpu, launches: &[common::Launch]) -> f64 {
    let run = || {
        let start = Instant::now();
        gpu.submit(launches);
        start.elapsed().as_secs_f64() * 1000.0
    };
    run();
    (0..5).map(|_| run()).fold(f64::MAX, f64::min)
}
