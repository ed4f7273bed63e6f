//! Writes the pack of kernel texts that the browser's module holds: `ingle-browser-pack PACK`.
//!
//! The axes are what changes a kernel's text: the weights' format, how activations enter, the size class of the rows that
//! are quantised in workgroup memory, the size of a head, the rotary pairing and biases. A small decoder of each
//! combination is compiled, and the kernels that it takes are kept; sizes of real models are run-time parameters. What is
//! not here (unusual formats and epilogues, most of what suits software devices) comes from the compiler module.

mod shorten;

use std::cell::RefCell;
use std::rc::Rc;

use ingle_gpu::device::Limits;
use ingle_gpu::{Compiler, GpuTarget, KernelSource, SourceError};
use ingle_graph::kernel::Activations;
use ingle_graph::ops::{
    Argmax, Attention, Binary, EltOp, Embedding, KV_BLOCK, Matmul, Pairing, RmsNorm, Rope,
    StateWrite, Swiglu, TakeRows,
};
use ingle_graph::passes::{Options, compile};
use ingle_graph::{Graph, GraphError, Recipe, Symbol, ValueId, ValueType, shape};
use ingle_kernels::shapes::DeviceClass;
use ingle_kernels::{DeviceLimits, Feature, KernelKey, KernelText, Pack};
use ingle_quant::{ElementType, GgmlType};

/// The formats of a layer's weights and of its embedding.
const TYPES: [(GgmlType, GgmlType); 7] = [
    (GgmlType::Q4_1, GgmlType::Q8_0),
    (GgmlType::Q4_0, GgmlType::Q8_0),
    (GgmlType::Q8_0, GgmlType::Q8_0),
    (GgmlType::Q4_K, GgmlType::Q6_K),
    (GgmlType::Q6_K, GgmlType::Q6_K),
    (GgmlType::Q4_0, GgmlType::Q6_K),
    (GgmlType::F16, GgmlType::F16),
];
const HEADS: [usize; 4] = [64, 80, 96, 128];
/// One width of each size class of quantised rows.
const WIDTHS: [usize; 3] = [1024, 2048, 4096];

/// The compiler, which keeps what it made.
#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Pack>>);

impl KernelSource for Recorder {
    fn text(&self, key: &KernelKey, limits: &DeviceLimits) -> Result<KernelText, SourceError> {
        if let Some(text) = self.0.borrow().get(key) {
            return Ok(text.clone());
        }
        let text = Compiler.text(key, limits)?;
        self.0.borrow_mut().insert(text.clone());
        Ok(text)
    }
}

impl Recorder {
    fn compile(&self, decoder: &Decoder, class: DeviceClass) -> Result<(), GraphError> {
        let features = [Feature::PackedIntegerDot];
        let target =
            GpuTarget::new("webgpu", Limits::default(), &features, self.clone()).with_class(class);
        for activations in [Activations::F32, Activations::Int8] {
            compile(
                &decoder.graph()?,
                &Options::decoder(activations, 256),
                &target,
            )?;
        }
        Ok(())
    }
}

/// A decoder to compile.
struct Decoder {
    types: (GgmlType, GgmlType),
    head_dim: usize,
    width: usize,
    pairing: Pairing,
    bias: bool,
    factors: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("usage: ingle-browser-pack PACK")?;
    let recorder = Recorder::default();
    for decoder in decoders() {
        recorder.compile(&decoder, DeviceClass::Hardware)?;
    }
    for width in WIDTHS {
        let decoder = Decoder {
            width,
            ..Decoder::plain(TYPES[0])
        };
        recorder.compile(&decoder, DeviceClass::Software)?;
    }
    let mut pack = Pack::default();
    for text in recorder.0.borrow().texts() {
        pack.insert(shorten::shorten(text)?);
    }
    std::fs::write(path, pack.to_bytes()?)?;
    Ok(())
}

fn decoders() -> Vec<Decoder> {
    let mut all = Vec::new();
    for width in WIDTHS {
        all.extend(TYPES.map(|types| Decoder {
            width,
            ..Decoder::plain(types)
        }));
    }
    all.push(Decoder {
        bias: true,
        pairing: Pairing::Halves,
        ..Decoder::plain(TYPES[0])
    });
    for head_dim in HEADS {
        for pairing in [Pairing::Interleaved, Pairing::Halves] {
            all.extend([false, true].map(|factors| Decoder {
                head_dim,
                pairing,
                factors,
                ..Decoder::plain(TYPES[0])
            }));
        }
    }
    all
}

impl Decoder {
    fn plain(types: (GgmlType, GgmlType)) -> Self {
        let (head_dim, width, pairing) = (64, 1024, Pairing::Interleaved);
        Decoder {
            types,
            head_dim,
            width,
            pairing,
            bias: false,
            factors: false,
        }
    }

    /// One layer between an embedding and a tied head.
    fn graph(&self) -> Result<Graph, GraphError> {
        let mut g = Graph::new("decoder");
        let rows = ValueType::i32(shape![Symbol::Tokens]);
        let [ids, pos, slots, seq] =
            ["ids", "pos", "slots", "seq"].map(|name| g.input(name, rows.clone()));
        let table = g.input(
            "table",
            ValueType::i32(shape![Symbol::Batch, Symbol::Table]),
        );
        let output_rows = g.input("output_rows", ValueType::i32(shape![Symbol::Outputs]));
        let pool = shape![Symbol::Pool, 2, 2, KV_BLOCK, self.head_dim];
        let kv = g.input("kv.0", ValueType::state(ElementType::F16, pool));
        let embedding = matrix(&mut g, self.types.1, "embedding", 512, self.width)?;
        let x = g.push(Embedding {}, &[ids, embedding])?;
        let (x, kv) = self.attention(&mut g, x, kv, [pos, slots, seq, table])?;
        let x = self.feed_forward(&mut g, x)?;
        let x = g.push(TakeRows {}, &[x, output_rows])?;
        let n = norm(&mut g, x, "output_norm", self.width)?;
        let logits = g.push(Matmul {}, &[n, embedding])?;
        let next = g.push(Argmax {}, &[logits])?;
        g.result("next", next);
        g.result("logits", logits);
        g.result("kv.0.next", kv);
        Ok(g)
    }

    fn attention(
        &self,
        g: &mut Graph,
        x: ValueId,
        kv: ValueId,
        [pos, slots, seq, table]: [ValueId; 4],
    ) -> Result<(ValueId, ValueId), GraphError> {
        let (head_dim, pairing) = (self.head_dim, self.pairing);
        // As wide as the model, so that the output projection is of the same size class.
        let heads = (self.width / head_dim / 2 * 2).max(2);
        let n = norm(g, x, "attn_norm", self.width)?;
        let q = self.projection(g, n, "q", heads * head_dim)?;
        let k = self.projection(g, n, "k", 2 * head_dim)?;
        let v = self.projection(g, n, "v", 2 * head_dim)?;
        let rope = Rope {
            head_dim,
            rotary_dim: head_dim,
            base: 1e4,
            scale: 1.0,
            pairing,
        };
        let factors = if self.factors {
            Some(vector(g, "rope_freqs", head_dim / 2)?)
        } else {
            None
        };
        let turned = |x| {
            [x, pos]
                .into_iter()
                .chain(factors)
                .collect::<Vec<ValueId>>()
        };
        let q = g.push(rope.clone(), &turned(q))?;
        let k = g.push(rope, &turned(k))?;
        let kv = g.push(StateWrite {}, &[kv, k, v, slots])?;
        let attention = Attention {
            heads,
            scale: 0.125,
            softcap: None,
            window: None,
        };
        let a = g.push(attention, &[q, kv, pos, seq, table])?;
        let o = matrix(g, self.types.0, "o", self.width, heads * head_dim)?;
        Ok((residual(g, x, a, o)?, kv))
    }

    fn feed_forward(&self, g: &mut Graph, x: ValueId) -> Result<ValueId, GraphError> {
        let n = norm(g, x, "ffn_norm", self.width)?;
        let mut half = |name| -> Result<ValueId, GraphError> {
            let weight = matrix(g, self.types.0, name, self.width, self.width)?;
            g.push(Matmul {}, &[n, weight])
        };
        let (gate, up) = (half("gate")?, half("up")?);
        let f = g.push(Swiglu {}, &[gate, up])?;
        let down = matrix(g, self.types.0, "down", self.width, self.width)?;
        // The other way round than after attention: both orders occur in models.
        let down = g.push(Matmul {}, &[f, down])?;
        g.push(Binary { kind: EltOp::Add }, &[x, down])
    }

    fn projection(
        &self,
        g: &mut Graph,
        x: ValueId,
        name: &str,
        rows: usize,
    ) -> Result<ValueId, GraphError> {
        let weight = matrix(g, self.types.0, name, rows, self.width)?;
        let y = g.push(Matmul {}, &[x, weight])?;
        if !self.bias {
            return Ok(y);
        }
        let bias = vector(g, &format!("{name}.bias"), rows)?;
        g.push(Binary { kind: EltOp::Add }, &[y, bias])
    }
}

fn matrix(
    g: &mut Graph,
    ty: GgmlType,
    name: &str,
    rows: usize,
    k: usize,
) -> Result<ValueId, GraphError> {
    let storage = ty.storage().ok_or_else(|| GraphError::Recipe {
        found: ty.name().into(),
    })?;
    g.leaf(
        name,
        ValueType {
            storage,
            shape: shape![rows, k],
            state: false,
        },
        Recipe::source(name, rows),
    )
}

fn vector(g: &mut Graph, name: &str, n: usize) -> Result<ValueId, GraphError> {
    g.leaf(name, ValueType::f32(shape![n]), Recipe::source(name, n))
}

fn norm(g: &mut Graph, x: ValueId, name: &str, k: usize) -> Result<ValueId, GraphError> {
    let weight = vector(g, name, k)?;
    g.push(RmsNorm { eps: 1e-5 }, &[x, weight])
}

/// `x + weight · y`
fn residual(g: &mut Graph, x: ValueId, y: ValueId, weight: ValueId) -> Result<ValueId, GraphError> {
    let y = g.push(Matmul {}, &[y, weight])?;
    g.push(Binary { kind: EltOp::Add }, &[y, x])
}
