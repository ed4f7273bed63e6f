//! What the tests share.

#![allow(dead_code)] // Each test binary uses a part of it.

pub mod executor;
pub mod random;
pub mod wrong;

use ingle_graph::kernel::{KernelSpec, MatmulSpec, WeightLayout};
use ingle_graph::ops::{
    Argmax, Attention, Binary, EltOp, Embedding, KV_BLOCK, Matmul, Op, Pairing, RmsNorm, Rope,
    StateWrite, Swiglu, TakeRows,
};
use ingle_graph::passes::{Choice, RowRange, Target};
use ingle_graph::plan::Size;
use ingle_graph::{Data, Dim, Graph, Recipe, Symbol, Tensor, ValueId, ValueType, shape};
use ingle_quant::{ElementType, GgmlType, LayoutRequest, PackedLayout, Placement, Storage};

/// A target that takes everything.
pub struct AnyTarget;

impl Target for AnyTarget {
    fn name(&self) -> String {
        "any".into()
    }

    fn layout(&self, storage: Storage, _rows: usize, _k: usize) -> Result<WeightLayout, String> {
        match storage {
            Storage::Element(_) => Ok(WeightLayout::Dense(ElementType::F32)),
            Storage::Quant(scheme) => {
                let request = LayoutRequest {
                    rows: 8,
                    placement: Placement::Inline,
                };
                PackedLayout::for_scheme(&scheme, request)
                    .map(WeightLayout::Packed)
                    .ok_or_else(|| "no layout".into())
            }
        }
    }

    fn weight_bytes(&self, layout: WeightLayout, rows: usize, k: usize) -> Option<u64> {
        match layout {
            WeightLayout::Dense(e) => rows
                .checked_mul(k)?
                .checked_mul(e.bytes())
                .map(|b| b as u64),
            WeightLayout::Packed(p) => p.bytes(rows, k).ok().map(|b| b as u64),
        }
    }

    fn fuses_norm(&self, _spec: &MatmulSpec, rows: RowRange) -> bool {
        rows.high == 1
    }

    fn max_extras(&self) -> usize {
        2
    }

    fn select(&self, _spec: &KernelSpec, _rows: RowRange) -> Result<Choice, String> {
        Ok(Choice {
            candidate: "any".into(),
            why: "the only one".into(),
            text: None,
            workspace: None,
        })
    }
}

/// [`AnyTarget`] with other answers about what a matmul computes itself.
#[derive(Clone, Copy, Debug)]
pub struct Fusing {
    pub norm: bool,
    pub quantize: bool,
    /// Whether every kernel asks for a workspace.
    pub workspace: bool,
}

impl Fusing {
    /// All that lowering can make of a matmul with its norm and its quantisation.
    pub const ALL: [Fusing; 3] = [
        Fusing {
            norm: true,
            quantize: true,
            workspace: true,
        },
        Fusing {
            norm: false,
            quantize: true,
            workspace: false,
        },
        Fusing {
            norm: false,
            quantize: false,
            workspace: true,
        },
    ];
}

impl Target for Fusing {
    fn name(&self) -> String {
        format!("{self:?}")
    }

    fn layout(&self, storage: Storage, rows: usize, k: usize) -> Result<WeightLayout, String> {
        AnyTarget.layout(storage, rows, k)
    }

    fn weight_bytes(&self, layout: WeightLayout, rows: usize, k: usize) -> Option<u64> {
        AnyTarget.weight_bytes(layout, rows, k)
    }

    fn fuses_norm(&self, _spec: &MatmulSpec, _rows: RowRange) -> bool {
        self.norm
    }

    fn fuses_quantize(&self, _spec: &MatmulSpec, _rows: RowRange) -> bool {
        self.quantize
    }

    fn max_extras(&self) -> usize {
        AnyTarget.max_extras()
    }

    fn select(&self, spec: &KernelSpec, rows: RowRange) -> Result<Choice, String> {
        let workspace = Size {
            constant: 4,
            per: 12,
            symbol: Symbol::Tokens,
        };
        let choice = AnyTarget.select(spec, rows)?;
        Ok(Choice {
            workspace: self.workspace.then_some(workspace),
            ..choice
        })
    }
}

/// A target that chooses like one of the backends, by rules short enough to see through.
pub struct LikeTarget {
    name: &'static str,
    request: LayoutRequest,
    /// Whether attention runs in two passes, with a workspace between them, when there are few rows.
    split_attention: bool,
}

impl LikeTarget {
    /// Tiles of eight rows with their scales beside them.
    pub fn cpu() -> Self {
        LikeTarget {
            name: "cpu-like",
            request: LayoutRequest {
                rows: 8,
                placement: Placement::Inline,
            },
            split_attention: false,
        }
    }

    /// Rows one by one, all scales behind all codes.
    pub fn gpu() -> Self {
        LikeTarget {
            name: "gpu-like",
            request: LayoutRequest {
                rows: 1,
                placement: Placement::Apart,
            },
            split_attention: true,
        }
    }
}

impl Target for LikeTarget {
    fn name(&self) -> String {
        self.name.into()
    }

    fn layout(&self, storage: Storage, _rows: usize, _k: usize) -> Result<WeightLayout, String> {
        match storage {
            Storage::Element(e) => Ok(WeightLayout::Dense(e)),
            Storage::Quant(scheme) => PackedLayout::for_scheme(&scheme, self.request)
                .map(WeightLayout::Packed)
                .ok_or_else(|| format!("no layout for {scheme}")),
        }
    }

    fn weight_bytes(&self, layout: WeightLayout, rows: usize, k: usize) -> Option<u64> {
        AnyTarget.weight_bytes(layout, rows, k)
    }

    fn fuses_norm(&self, _spec: &MatmulSpec, rows: RowRange) -> bool {
        rows.high <= 1
    }

    fn max_extras(&self) -> usize {
        3
    }

    fn select(&self, spec: &KernelSpec, rows: RowRange) -> Result<Choice, String> {
        let few = rows.high <= 8;
        let (candidate, why) = match spec {
            KernelSpec::Matmul(_) if few => ("matvec", "at most 8 rows"),
            KernelSpec::Matmul(_) => ("tiled", "many rows"),
            KernelSpec::Attention(_) if few && self.split_attention => ("split", "at most 8 rows"),
            _ => ("plain", "the only one"),
        };
        let workspace = match spec {
            KernelSpec::Attention(a) if candidate == "split" => Some(Size {
                constant: 0,
                per: 4 * 8 * (a.op.heads * (a.head_dim + 2)) as u64,
                symbol: Symbol::Tokens,
            }),
            _ => None,
        };
        Ok(Choice {
            candidate: candidate.into(),
            why: why.into(),
            text: None,
            workspace,
        })
    }
}

/// The graph of a small llama with this many layers, as frontends build it.
pub fn llama(layers: usize) -> Graph {
    let mut l = Llama::new();
    let ids = l.integers("ids", shape![Symbol::Tokens]);
    let [pos, slots, seq] = ["pos", "slots", "seq"].map(|n| l.integers(n, shape![Symbol::Tokens]));
    let table = l.integers("table", shape![Symbol::Batch, Symbol::Table]);
    let rows = l.integers("output_rows", shape![Symbol::Outputs]);
    let pool = shape![Symbol::Pool, 2, KV_HEADS, KV_BLOCK, HEAD_DIM];
    let pool = ValueType::state(ElementType::F16, pool);
    let states: Vec<ValueId> = (0..layers)
        .map(|i| l.g.input(format!("kv.{i}"), pool.clone()))
        .collect();
    let tokens = l.matrix("token_embd.weight".into(), 100, EMBED);
    let mut x = l.push(Embedding {}, &[ids, tokens]);
    let mut last = Vec::new();
    for (i, kv) in states.into_iter().enumerate() {
        let (y, kv) = l.attention(i, x, [kv, pos, slots, seq, table]);
        x = l.feed_forward(i, y);
        last.push(kv);
    }
    let x = l.push(TakeRows {}, &[x, rows]);
    let x = l.norm("output_norm.weight".into(), x);
    let logits = l.push(Matmul {}, &[x, tokens]);
    let next = l.push(Argmax {}, &[logits]);
    l.g.result("logits", logits);
    l.g.result("next", next);
    for (i, kv) in last.into_iter().enumerate() {
        l.g.result(format!("kv.{i}.next"), kv);
    }
    l.g
}

const EMBED: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 16;
const FEED_FORWARD: usize = 96;

struct Llama {
    g: Graph,
}

impl Llama {
    fn new() -> Self {
        Llama {
            g: Graph::new("llama"),
        }
    }

    fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.g.push(op, inputs).unwrap()
    }

    fn integers(&mut self, name: &str, shape: Vec<Dim>) -> ValueId {
        self.g.input(name, ValueType::i32(shape))
    }

    fn matrix(&mut self, name: String, rows: usize, k: usize) -> ValueId {
        let ty = ValueType {
            storage: GgmlType::Q4_1.storage().unwrap(),
            shape: shape![rows, k],
            state: false,
        };
        let recipe = Recipe::source(name.clone(), rows);
        self.g.leaf(name, ty, recipe).unwrap()
    }

    fn norm(&mut self, name: String, x: ValueId) -> ValueId {
        let recipe = Recipe::source(name.clone(), EMBED);
        let weight = self.g.leaf(name, ValueType::f32(shape![EMBED]), recipe);
        self.push(RmsNorm { eps: 1e-5 }, &[x, weight.unwrap()])
    }

    /// `x` times the weight `part` of layer `i`.
    fn project(&mut self, i: usize, part: &str, x: ValueId, rows: usize) -> ValueId {
        let k = self.g.ty(x).last().unwrap();
        let weight = self.matrix(format!("blk.{i}.{part}.weight"), rows, k);
        self.push(Matmul {}, &[x, weight])
    }

    fn attention(&mut self, i: usize, x: ValueId, at: [ValueId; 5]) -> (ValueId, ValueId) {
        let [kv, pos, slots, seq, table] = at;
        let n = self.norm(format!("blk.{i}.attn_norm.weight"), x);
        let q = self.project(i, "attn_q", n, HEADS * HEAD_DIM);
        let k = self.project(i, "attn_k", n, KV_HEADS * HEAD_DIM);
        let v = self.project(i, "attn_v", n, KV_HEADS * HEAD_DIM);
        let rope = Rope {
            head_dim: HEAD_DIM,
            rotary_dim: HEAD_DIM,
            base: 1e4,
            scale: 1.0,
            pairing: Pairing::Interleaved,
        };
        let [q, k] = [q, k].map(|x| self.push(rope.clone(), &[x, pos]));
        let kv = self.push(StateWrite {}, &[kv, k, v, slots]);
        let attention = Attention {
            heads: HEADS,
            scale: 0.25,
            softcap: None,
            window: None,
        };
        let a = self.push(attention, &[q, kv, pos, seq, table]);
        let o = self.project(i, "attn_output", a, EMBED);
        (self.push(Binary { kind: EltOp::Add }, &[x, o]), kv)
    }

    fn feed_forward(&mut self, i: usize, x: ValueId) -> ValueId {
        let n = self.norm(format!("blk.{i}.ffn_norm.weight"), x);
        let gate = self.project(i, "ffn_gate", n, FEED_FORWARD);
        let up = self.project(i, "ffn_up", n, FEED_FORWARD);
        let f = self.push(Swiglu {}, &[gate, up]);
        let down = self.project(i, "ffn_down", f, EMBED);
        self.push(Binary { kind: EltOp::Add }, &[x, down])
    }
}

/// What differs between two lists of results by more than `tolerance` of the largest magnitude.
pub fn differs(expected: &[Tensor], found: &[Tensor], tolerance: f32) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("{} results, found {}", expected.len(), found.len()));
    }
    for (i, (want, got)) in expected.iter().zip(found).enumerate() {
        if want.shape != got.shape {
            return Some(format!(
                "result {i}: shape {:?}, found {:?}",
                want.shape, got.shape
            ));
        }
        let (Data::F32(a), Data::F32(b)) = (&want.data, &got.data) else {
            if want != got {
                return Some(format!("result {i}: integers differ"));
            }
            continue;
        };
        let most = a
            .iter()
            .filter(|v| v.is_finite())
            .fold(0f32, |m, v| m.max(v.abs()));
        for (at, (x, y)) in a.iter().zip(b).enumerate() {
            let same = x.to_bits() == y.to_bits()
                || (x.is_nan() && y.is_nan())
                || x == y
                || (x - y).abs() <= tolerance * most;
            if !same {
                return Some(format!("result {i}, element {at}: expected {x}, found {y}"));
            }
        }
    }
    None
}
