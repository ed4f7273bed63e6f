//! Where the time of a step goes: `profile MODEL.gguf [f32|int8] [TOKENS]` on the first Vulkan device.
//!
//! Each launch is timed by itself; what the launches of one kernel take together is printed, and what the whole step
//! takes.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use ingle_formats::{Parsed, gguf};
use ingle_gpu::device::DeviceOptions;
use ingle_gpu::device::native::{Api, NativeDevice};
use ingle_gpu::{Compiler, GpuBackend, GpuTarget, block_on};
use ingle_graph::backend::{Backend, BackendError, ReadBack};
use ingle_graph::kernel::Activations;
use ingle_graph::passes::{Options, compile};
use ingle_graph::{Dims, Symbol};
use ingle_models::{GraphOptions, Model, WeightLoader};

const REPEATS: usize = 4;
const BLOCKS: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments
        .first()
        .ok_or("usage: profile MODEL.gguf [f32|int8] [TOKENS]")?;
    let activations = match arguments.get(1).map(String::as_str) {
        Some("int8") => Activations::Int8,
        _ => Activations::F32,
    };
    let tokens: usize = arguments.get(2).map_or(Ok(1), |n| n.parse())?;
    let file = std::fs::read(path)?;
    let Parsed::Done(manifest) = gguf::parse(&file, file.len() as u64)? else {
        return Err("the header is longer than the file".into());
    };
    let model = Model::from_gguf(&manifest)?;
    let mut backend = load(&model, &file, activations, tokens)?;
    let (dims, inputs) = step(tokens);
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let entries = &backend.plan().entries;
    let entry = entries
        .iter()
        .position(|e| e.name == "prefill")
        .ok_or("no prefill")?;
    let mut whole = f64::INFINITY;
    for _ in 0..REPEATS {
        let begun = Instant::now();
        backend.run(entry, &dims, &inputs)?;
        block_on(backend.read(0, 0, &mut [0; 4]))?;
        whole = whole.min(begun.elapsed().as_secs_f64());
    }
    let begun = Instant::now();
    let now = || begun.elapsed().as_secs_f64();
    let timings = block_on(backend.profile(entry, &dims, &inputs, REPEATS, &now))?;
    let mut sums: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for t in &timings {
        let sum = sums.entry(&t.kernel).or_default();
        *sum = (sum.0 + 1, sum.1 + t.seconds);
    }
    let total: f64 = timings.iter().map(|t| t.seconds).sum();
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    for (kernel, (count, seconds)) in rows {
        let share = 100.0 * seconds / total;
        println!(
            "{:8.2} ms {share:5.1} %  {count:4} × {kernel}",
            seconds * 1e3
        );
    }
    let (total, whole) = (total * 1e3, whole * 1e3);
    println!("{total:8.2} ms by launch, {whole:.2} ms as one step of {tokens} tokens");
    Ok(())
}

fn load(
    model: &Model,
    file: &[u8],
    activations: Activations,
    tokens: usize,
) -> Result<GpuBackend<NativeDevice>, Box<dyn Error>> {
    let begun = Instant::now();
    let graph = model.graph(GraphOptions::default())?;
    let device = NativeDevice::open(Api::Vulkan, DeviceOptions::default())?;
    let options = Options::decoder(activations, tokens.max(16));
    let plan = compile(&graph, &options, &GpuTarget::of(&device, Compiler))?;
    println!(
        "{:8.2} s to compile the plan",
        begun.elapsed().as_secs_f64()
    );
    let begun = Instant::now();
    let mut loader = WeightLoader::new::<BackendError>(&plan, &model.sources)?;
    let mut backend = GpuBackend::new(device, plan)?;
    while let Some(read) = loader.next_read().cloned() {
        let bytes = &file[read.range.start as usize..read.range.end as usize];
        loader.supply(bytes, &mut |weight, offset, bytes| {
            backend.write_weight(weight, offset, bytes)
        })?;
    }
    println!(
        "{:8.2} s to write the weights",
        begun.elapsed().as_secs_f64()
    );
    let begun = Instant::now();
    backend.set_bounds(bounds(tokens))?;
    backend.resize_pool(BLOCKS)?;
    block_on(backend.ready())?;
    println!("{:8.2} s until ready", begun.elapsed().as_secs_f64());
    Ok(backend)
}

fn bounds(tokens: usize) -> Dims {
    Dims::default()
        .with(Symbol::Tokens, tokens)
        .with(Symbol::Outputs, 1)
        .with(Symbol::Batch, 1)
        .with(Symbol::Table, BLOCKS)
}

/// A step of the first tokens of one sequence, in the order of a model's inputs.
fn step(tokens: usize) -> (Dims, Vec<Vec<u8>>) {
    let count: Vec<i32> = (0..tokens as i32).collect();
    let table = (0..BLOCKS as i32).collect();
    let last = vec![tokens as i32 - 1];
    let inputs: [Vec<i32>; 6] = [
        vec![1; tokens],
        count.clone(),
        count,
        vec![0; tokens],
        table,
        last,
    ];
    let bytes = |v: &Vec<i32>| v.iter().flat_map(|v| v.to_le_bytes()).collect();
    (bounds(tokens), inputs.iter().map(bytes).collect())
}
