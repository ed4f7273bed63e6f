//! A decoder shaped like llama, with random weights, and its answers by the reference interpreter.

use std::collections::HashMap;

use ingle_graph::kernel::Activations;
use ingle_graph::ops::{
    Argmax, Attention, Embedding, KV_BLOCK, Matmul, Pairing, RmsNorm, Rope, StateWrite, Swiglu,
    TakeRows,
};
use ingle_graph::ops::{Binary, EltOp};
use ingle_graph::passes::{Options, Target, compile};
use ingle_graph::plan::Plan;
use ingle_graph::suite::{Case, Random, Source};
use ingle_graph::{Dims, Graph, Recipe, Symbol, Tensor, ValueId, ValueType, shape};
use ingle_quant::{ElementType, GgmlType, quantize};

pub const LAYERS: usize = 2;
pub const VOCABULARY: usize = 3072;
const WIDTH: usize = 64;
const HEADS: usize = 2;
const HEAD_DIM: usize = 32;
const FEED_FORWARD: usize = 2048;
/// The tokens of a prefill chunk.
pub const CHUNK: usize = 16;

/// One row of tokens: id, position, slot, sequence.
pub type Row = [i32; 4];

/// The decoder as a case: its sources load any plan of it.
pub fn decoder() -> Case {
    let mut model = Model {
        graph: Graph::new("decoder"),
        sources: HashMap::new(),
        random: Random(7),
    };
    model.build();
    Case {
        name: "decoder".into(),
        graph: model.graph,
        dims: Dims::default(),
        inputs: vec![],
        sources: model.sources,
        activations: Activations::F32,
        tolerance: 1e-4,
    }
}

pub fn plan(case: &Case, target: &dyn Target) -> Plan {
    compile(
        &case.graph,
        &Options::decoder(case.activations, CHUNK),
        target,
    )
    .expect("the decoder compiles")
}

/// The bytes of a step's inputs.
pub fn inputs(rows: &[Row], table: &[i32], output_rows: &[i32]) -> Vec<Vec<u8>> {
    let column = |i: usize| rows.iter().map(|r| r[i]).collect::<Vec<i32>>();
    let columns = [
        column(0),
        column(1),
        column(2),
        column(3),
        table.to_vec(),
        output_rows.to_vec(),
    ];
    columns
        .map(|c| c.iter().flat_map(|v| v.to_le_bytes()).collect())
        .to_vec()
}

pub fn dims(tokens: usize, outputs: usize, batch: usize, table: usize, pool: usize) -> Dims {
    Dims::default()
        .with(Symbol::Tokens, tokens)
        .with(Symbol::Outputs, outputs)
        .with(Symbol::Batch, batch)
        .with(Symbol::Table, table)
        .with(Symbol::Pool, pool)
}

/// The logits of the last row of a whole sequence, by the reference.
pub fn reference(case: &Case, ids: &[i32]) -> Vec<f32> {
    let blocks = ids.len().div_ceil(KV_BLOCK);
    let n = ids.len();
    let count = |n: usize| (0..n as i32).collect::<Vec<i32>>();
    let case = Case {
        dims: dims(n, 1, 1, blocks, blocks),
        inputs: vec![
            Tensor::i32(&[n], ids.to_vec()),
            Tensor::i32(&[n], count(n)),
            Tensor::i32(&[n], count(n)),
            Tensor::i32(&[n], vec![0; n]),
            Tensor::i32(&[1, blocks], count(blocks)),
            Tensor::i32(&[1], vec![n as i32 - 1]),
        ],
        ..case.clone()
    };
    let results = case.expected().expect("the reference runs");
    results[1].as_f32().to_vec()
}

pub fn argmax(logits: &[f32]) -> i32 {
    let best = (0..logits.len()).reduce(|a, b| if logits[b] > logits[a] { b } else { a });
    best.expect("there are logits") as i32
}

struct Model {
    graph: Graph,
    sources: HashMap<String, Source>,
    random: Random,
}

impl Model {
    fn build(&mut self) {
        let tokens = || shape![Symbol::Tokens];
        let ids = self.graph.input("ids", ValueType::i32(tokens()));
        let pos = self.graph.input("pos", ValueType::i32(tokens()));
        let slots = self.graph.input("slots", ValueType::i32(tokens()));
        let seq = self.graph.input("seq", ValueType::i32(tokens()));
        let table = self.graph.input(
            "table",
            ValueType::i32(shape![Symbol::Batch, Symbol::Table]),
        );
        let output_rows = self
            .graph
            .input("output_rows", ValueType::i32(shape![Symbol::Outputs]));
        let embedding = self.matrix("token_embd", GgmlType::Q8_0, VOCABULARY, WIDTH);
        let mut x = self.push(Embedding {}, &[ids, embedding]);
        let mut states = Vec::new();
        for i in 0..LAYERS {
            let pool = ValueType::state(
                ElementType::F16,
                shape![Symbol::Pool, 2, 1, KV_BLOCK, HEAD_DIM],
            );
            let kv = self.graph.input(format!("kv.{i}"), pool);
            let (y, state) = self.layer(i, x, kv, [pos, slots, seq, table]);
            (x, _) = (y, states.push(state));
        }
        let last = self.push(TakeRows {}, &[x, output_rows]);
        let last = self.norm("output_norm", last);
        let logits = self.push(Matmul {}, &[last, embedding]);
        let next = self.push(Argmax {}, &[logits]);
        self.graph.result("next", next);
        self.graph.result("logits", logits);
        for (i, state) in states.into_iter().enumerate() {
            self.graph.result(format!("kv_out.{i}"), state);
        }
    }

    fn layer(
        &mut self,
        i: usize,
        x: ValueId,
        kv: ValueId,
        [pos, slots, seq, table]: [ValueId; 4],
    ) -> (ValueId, ValueId) {
        let n = self.norm(&format!("{i}.attn_norm"), x);
        let rope = Rope {
            head_dim: HEAD_DIM,
            rotary_dim: HEAD_DIM,
            base: 1e4,
            scale: 1.0,
            pairing: Pairing::Interleaved,
        };
        let project = |model: &mut Self, name: &str, x, rows, k| {
            let weight = model.matrix(&format!("{i}.{name}"), GgmlType::Q4_1, rows, k);
            model.push(Matmul {}, &[x, weight])
        };
        let q = project(self, "attn_q", n, HEADS * HEAD_DIM, WIDTH);
        let k = project(self, "attn_k", n, HEAD_DIM, WIDTH);
        let v = project(self, "attn_v", n, HEAD_DIM, WIDTH);
        let q = self.push(rope.clone(), &[q, pos]);
        let k = self.push(rope, &[k, pos]);
        let kv = self.push(StateWrite {}, &[kv, k, v, slots]);
        let attention = Attention {
            heads: HEADS,
            scale: (HEAD_DIM as f32).sqrt().recip(),
            softcap: None,
            window: None,
        };
        let a = self.push(attention, &[q, kv, pos, seq, table]);
        let o = project(self, "attn_output", a, WIDTH, HEADS * HEAD_DIM);
        let h = self.push(Binary { kind: EltOp::Add }, &[x, o]);
        let n = self.norm(&format!("{i}.ffn_norm"), h);
        let gate = project(self, "ffn_gate", n, FEED_FORWARD, WIDTH);
        let up = project(self, "ffn_up", n, FEED_FORWARD, WIDTH);
        let f = self.push(Swiglu {}, &[gate, up]);
        let d = project(self, "ffn_down", f, WIDTH, FEED_FORWARD);
        (self.push(Binary { kind: EltOp::Add }, &[h, d]), kv)
    }

    fn push(&mut self, op: impl Into<ingle_graph::ops::Op>, inputs: &[ValueId]) -> ValueId {
        self.graph
            .push(op, inputs)
            .expect("the decoder is well typed")
    }

    fn norm(&mut self, name: &str, x: ValueId) -> ValueId {
        let bytes = (0..WIDTH)
            .flat_map(|_| (1.0 + 0.2 * self.random.unit()).to_le_bytes())
            .collect();
        self.sources.insert(
            name.into(),
            Source {
                ty: GgmlType::F32,
                rows: WIDTH,
                k: 1,
                bytes,
            },
        );
        let weight = self.graph.leaf(
            name,
            ValueType::f32(shape![WIDTH]),
            Recipe::source(name, WIDTH),
        );
        let weight = weight.expect("names are unique");
        self.push(RmsNorm { eps: 1e-5 }, &[x, weight])
    }

    fn matrix(&mut self, name: &str, ty: GgmlType, rows: usize, k: usize) -> ValueId {
        let values: Vec<f32> = (0..rows * k).map(|_| self.random.unit()).collect();
        let mut bytes = vec![0; ty.row_bytes(k).expect("rows are whole blocks") * rows];
        quantize(ty, &values, &mut bytes).expect("the type can be quantised to");
        self.sources
            .insert(name.into(), Source { ty, rows, k, bytes });
        let storage = ty.storage().expect("a readable type");
        let ty = ValueType {
            storage,
            shape: shape![rows, k],
            state: false,
        };
        self.graph
            .leaf(name, ty, Recipe::source(name, rows))
            .expect("names are unique")
    }
}
