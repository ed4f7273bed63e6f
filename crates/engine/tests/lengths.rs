//! A plan is compiled once, whatever the lengths of prompts, and every length gives what one token at a time gives.

#[path = "../../models/tests/reference/mod.rs"]
mod reference;
#[path = "support/lengths.rs"]
mod support;

use std::cell::Cell;

use ingle_cpu::{CpuBackend, CpuTarget, Machine};
use ingle_engine::Engine;
use ingle_graph::backend::Backend;
use ingle_graph::kernel::{Activations, KernelSpec, MatmulSpec, WeightLayout};
use ingle_graph::passes::{Choice, Options, RowRange, Target, compile};
use ingle_models::GraphOptions;
use ingle_quant::{ElementType, Storage};
use pollster::block_on;

/// Counts how often a kernel or a layout is chosen.
struct Counting<'a> {
    inner: CpuTarget<'a>,
    chosen: &'a Cell<usize>,
}

impl Target for Counting<'_> {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn layout(&self, storage: Storage, rows: usize, k: usize) -> Result<WeightLayout, String> {
        self.chosen.update(|n| n + 1);
        self.inner.layout(storage, rows, k)
    }

    fn weight_bytes(&self, layout: WeightLayout, rows: usize, k: usize) -> Option<u64> {
        self.inner.weight_bytes(layout, rows, k)
    }

    fn fuses_norm(&self, spec: &MatmulSpec, rows: RowRange) -> bool {
        self.inner.fuses_norm(spec, rows)
    }

    fn fuses_quantize(&self, spec: &MatmulSpec, rows: RowRange) -> bool {
        self.inner.fuses_quantize(spec, rows)
    }

    fn max_extras(&self) -> usize {
        self.inner.max_extras()
    }

    fn select(&self, spec: &KernelSpec, rows: RowRange) -> Result<Choice, String> {
        self.chosen.update(|n| n + 1);
        self.inner.select(spec, rows)
    }
}

#[test]
fn lengths_of_prompts_compile_once() {
    let loaded = reference::tiny_gguf();
    let kv = ElementType::F32;
    let graph = loaded.model.graph(GraphOptions { kv }).unwrap();
    let machine = Machine::new(1).unwrap();
    let chosen = Cell::new(0);
    let target = Counting {
        inner: CpuTarget::new(&machine),
        chosen: &chosen,
    };
    let plan = compile(&graph, &Options::decoder(Activations::F32, 256), &target).unwrap();
    assert!(chosen.get() > 0);
    let weights = reference::load(&plan, &loaded);
    let mut backend = CpuBackend::new(Machine::new(1).unwrap(), plan).unwrap();
    for (i, bytes) in weights.iter().enumerate() {
        backend.write_weight(i, 0, bytes).unwrap();
    }
    let mut engine = Engine::new(Box::new(backend), support::options()).unwrap();
    let logits = |engine: &mut Engine| block_on(engine.logits(0..1)).unwrap().to_vec();
    support::check(&mut engine, 1e-5, logits, || chosen.get());
}
