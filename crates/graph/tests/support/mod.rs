//! What the tests share.

#![allow(dead_code)] // Each test binary uses a part of it.

pub mod executor;
pub mod random;
pub mod wrong;

use ingle_graph::kernel::{KernelSpec, MatmulSpec, WeightLayout};
use ingle_graph::ops::{
    Argmax, Attention, Binary, EltOp, Embedding, KV_BLOCK, Matmul, Pairing, RmsNorm, Rope,
    StateWrite, Swiglu, TakeRows,
};
use ingle_graph::passes::{Choice, RowRange, Target};
use ingle_graph::plan::Size;
use ingle_graph::{Data, Graph, Recipe, Symbol, Tensor, ValueId, ValueType, shape};
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
    let (embed, heads, kv_heads, d, ffn, vocabulary) = (64, 4, 2, 16, 96, 100);
    let mut g = Graph::new("llama");
    let quantised = GgmlType::Q4_1.storage().unwrap();
    let matrix = |g: &mut Graph, name: String, rows: usize, k: usize| {
        let ty = ValueType {
            storage: quantised,
            shape: shape![rows, k],
            state: false,
        };
        g.leaf(name.clone(), ty, Recipe::source(name, rows))
            .unwrap()
    };
    let vector = |g: &mut Graph, name: String, n: usize| {
        let ty = ValueType::f32(shape![n]);
        g.leaf(name.clone(), ty, Recipe::source(name, n)).unwrap()
    };
    let tokens = |g: &mut Graph, name: &str| g.input(name, ValueType::i32(shape![Symbol::Tokens]));
    let ids = tokens(&mut g, "ids");
    let [pos, slots, seq] = ["pos", "slots", "seq"].map(|name| tokens(&mut g, name));
    let table = g.input(
        "table",
        ValueType::i32(shape![Symbol::Batch, Symbol::Table]),
    );
    let rows = g.input("output_rows", ValueType::i32(shape![Symbol::Outputs]));
    let pool = shape![Symbol::Pool, 2, kv_heads, KV_BLOCK, d];
    let states: Vec<ValueId> = (0..layers)
        .map(|i| {
            g.input(
                format!("kv.{i}"),
                ValueType::state(ElementType::F16, pool.clone()),
            )
        })
        .collect();
    let table_weight = matrix(&mut g, "token_embd.weight".into(), vocabulary, embed);
    let mut x = g.push(Embedding {}, &[ids, table_weight]).unwrap();
    let mut last = Vec::new();
    let rope = Rope {
        head_dim: d,
        rotary_dim: d,
        base: 1e4,
        scale: 1.0,
        pairing: Pairing::Interleaved,
    };
    for (i, &kv) in states.iter().enumerate() {
        let name = |part: &str| format!("blk.{i}.{part}.weight");
        let norm = vector(&mut g, name("attn_norm"), embed);
        let n = g.push(RmsNorm { eps: 1e-5 }, &[x, norm]).unwrap();
        let project = |g: &mut Graph, part: &str, x, rows, k| {
            let w = matrix(g, name(part), rows, k);
            g.push(Matmul {}, &[x, w]).unwrap()
        };
        let q = project(&mut g, "attn_q", n, heads * d, embed);
        let k = project(&mut g, "attn_k", n, kv_heads * d, embed);
        let v = project(&mut g, "attn_v", n, kv_heads * d, embed);
        let q = g.push(rope.clone(), &[q, pos]).unwrap();
        let k = g.push(rope.clone(), &[k, pos]).unwrap();
        let kv = g.push(StateWrite {}, &[kv, k, v, slots]).unwrap();
        last.push(kv);
        let attention = Attention {
            heads,
            scale: 0.25,
            softcap: None,
            window: None,
        };
        let a = g.push(attention, &[q, kv, pos, seq, table]).unwrap();
        let o = project(&mut g, "attn_output", a, embed, heads * d);
        x = g.push(Binary { kind: EltOp::Add }, &[x, o]).unwrap();
        let norm = vector(&mut g, name("ffn_norm"), embed);
        let n = g.push(RmsNorm { eps: 1e-5 }, &[x, norm]).unwrap();
        let gate = project(&mut g, "ffn_gate", n, ffn, embed);
        let up = project(&mut g, "ffn_up", n, ffn, embed);
        let f = g.push(Swiglu {}, &[gate, up]).unwrap();
        let down = project(&mut g, "ffn_down", f, embed, ffn);
        x = g.push(Binary { kind: EltOp::Add }, &[x, down]).unwrap();
    }
    let x = g.push(TakeRows {}, &[x, rows]).unwrap();
    let norm = vector(&mut g, "output_norm.weight".into(), embed);
    let x = g.push(RmsNorm { eps: 1e-5 }, &[x, norm]).unwrap();
    let logits = g.push(Matmul {}, &[x, table_weight]).unwrap();
    let next = g.push(Argmax {}, &[logits]).unwrap();
    g.result("logits", logits);
    g.result("next", next);
    for (i, kv) in last.into_iter().enumerate() {
        g.result(format!("kv.{i}.next"), kv);
    }
    g
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
