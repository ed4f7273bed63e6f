//! `attention q[rows, heads · head_dim], kv, pos[rows], seq[rows], table[batch, blocks]`: causal attention over a paged
//! KV pool (Vaswani et al. 2017, arXiv 1706.03762; grouped queries: Ainslie et al. 2023, arXiv 2305.13245).
//!
//! Row `r` of sequence `seq[r]` sees positions `0 ..= pos[r]` (the last `window` of them, if there is one). Position `p`
//! lies in block `table[seq[r], p / 32]`, place `p % 32`. `y = softmax(cap(scale · q kᵀ)) v`, head by head; query head
//! `h` reads key head `h / (heads / kv_heads)`; `cap` is the soft cap of [`super::Softcap`]. The host never asks for a
//! position, sequence or block that does not exist; the reference then gives a row of NaN.

use ingle_quant::ElementType;
use serde::{Deserialize, Serialize};

use super::elementwise::{constant_of, with_constant};
use super::head_scores::grouped;
use super::state_read::context;
use super::state_write::pool;
use super::{
    CausalMask, EltOp, HeadMix, HeadScores, KV_BLOCK, Op, Operation, Part, Pattern, Softcap,
    Softmax, StateRead, arity, attribute, indices, matrix, wrong,
};
use crate::suite::Suite;
use crate::{Graph, GraphError, Symbol, Tensor, ValueId, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    pub heads: usize,
    pub scale: f32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
}

impl Operation for Attention {
    const NAME: &'static str = "attention";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [q, kv, pos, seq, table] = arity(Self::NAME, inputs)?;
        let (kv_heads, head_dim) = pool(Self::NAME, 1, kv)?;
        grouped(Self::NAME, self.heads, kv_heads)?;
        if self.window == Some(0)
            || !self.scale.is_finite()
            || self.softcap.is_some_and(|c| !(c.is_finite() && c > 0.0))
        {
            let found = format!("{}, {:?}, {:?}", self.scale, self.softcap, self.window);
            return Err(attribute(
                Self::NAME,
                "scale, softcap, window",
                "finite, positive",
                found,
            ));
        }
        if self.heads.checked_mul(head_dim) != Some(matrix(Self::NAME, 0, q)?) {
            let expected = format!("f32[rows, {} heads of {head_dim}]", self.heads);
            return Err(wrong(Self::NAME, 0, expected, q));
        }
        for (i, per_row) in [(2, pos), (3, seq)] {
            indices(Self::NAME, i, per_row, 1)?;
            if per_row.shape[0] != q.shape[0] {
                let expected = format!("one for each row of {q}");
                return Err(wrong(Self::NAME, i, expected, per_row));
            }
        }
        context(Self::NAME, 4, table)?;
        Ok(vec![q.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (q, kv) = (inputs[0], inputs[1]);
        let d = kv.shape[4];
        let mut out = vec![f32::NAN; q.len()];
        let rows = q.as_f32().chunks_exact(q.shape[1]);
        for (r, (row, y)) in rows.zip(out.chunks_exact_mut(q.shape[1])).enumerate() {
            let Some(seen) = self.seen(r, &inputs[1..]) else {
                continue;
            };
            let heads = row.chunks_exact(d).zip(y.chunks_exact_mut(d));
            for (h, (query, y)) in heads.enumerate() {
                self.head(h, query, kv, &seen, y);
            }
        }
        vec![Tensor::f32(&q.shape, out)]
    }

    fn decompose(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        let [q, kv, pos, seq, table] = inputs[..] else {
            let types: Vec<&ValueType> = inputs.iter().map(|v| g.ty(*v)).collect();
            return arity::<5>(Self::NAME, &types).map(|_| None);
        };
        let read = |part| StateRead { part };
        let keys = g.push(read(Part::Keys), &[kv, seq, table])?;
        let scores = g.push(HeadScores { heads: self.heads }, &[q, keys])?;
        let mut scores = with_constant(g, EltOp::Mul, scores, self.scale)?;
        if let Some(cap) = self.softcap {
            scores = g.push(Softcap { cap }, &[scores])?;
        }
        let window = self.window;
        let seen = g.push(CausalMask { window }, &[scores, pos])?;
        let weights = g.push(Softmax {}, &[seen])?;
        let values = g.push(read(Part::Values), &[kv, seq, table])?;
        Ok(Some(vec![g.push(HeadMix {}, &[weights, values])?]))
    }

    fn patterns() -> Vec<Pattern> {
        let with = |softcap| Pattern {
            example: Attention {
                heads: 1,
                scale: 1.0,
                softcap,
                window: None,
            }
            .into(),
            inputs: vec![
                ValueType::f32(shape![2, 2]),
                ValueType::state(ElementType::F32, shape![1, 2, 1, KV_BLOCK, 2]),
                ValueType::i32(shape![2]),
                ValueType::i32(shape![2]),
                ValueType::i32(shape![1, 1]),
            ],
            read: read_attention,
        };
        vec![with(None), with(Some(1.0))]
    }

    fn cases(suite: &mut Suite) {
        let plain = Attention {
            heads: 6,
            scale: 0.125,
            softcap: None,
            window: None,
        };
        attention_case(
            suite,
            "attention, two sequences",
            plain.clone(),
            ElementType::F32,
            64,
        );
        attention_case(suite, "attention f16", plain.clone(), ElementType::F16, 64);
        attention_case(
            suite,
            "attention, heads of 80",
            plain.clone(),
            ElementType::F32,
            80,
        );
        let capped = Attention {
            softcap: Some(5.0),
            ..plain.clone()
        };
        attention_case(suite, "attention, soft cap", capped, ElementType::F32, 32);
        let window = Attention {
            window: Some(9),
            ..plain
        };
        attention_case(suite, "attention, window", window, ElementType::F32, 32);
    }
}

impl Attention {
    /// Where what row `r` sees lies: block and place of each position. `None` if its sequence, its position or a block
    /// is none that there is.
    fn seen(&self, r: usize, inputs: &[&Tensor]) -> Option<Vec<(usize, usize)>> {
        let (kv, table) = (inputs[0], inputs[3]);
        let (rows, blocks) = (table.shape[0], table.shape[1]);
        let last = usize::try_from(inputs[1].as_i32()[r]).ok()?;
        let seq = usize::try_from(inputs[2].as_i32()[r]).ok()?;
        if seq >= rows || last >= blocks * KV_BLOCK {
            return None;
        }
        let entries = &table.as_i32()[seq * blocks..(seq + 1) * blocks];
        let first = self.window.map_or(0, |w| (last + 1).saturating_sub(w));
        let place = |p: usize| {
            let block = usize::try_from(entries[p / KV_BLOCK]).ok();
            let block = block.filter(|&b| b < kv.shape[0]);
            block.map(|b| (b, p % KV_BLOCK))
        };
        (first..=last).map(place).collect()
    }

    /// One head of one row.
    fn head(&self, h: usize, q: &[f32], kv: &Tensor, seen: &[(usize, usize)], y: &mut [f32]) {
        let (kv_heads, d) = (kv.shape[2], kv.shape[4]);
        let head = h / (self.heads / kv_heads);
        let at = |which: usize, (block, place): (usize, usize)| {
            let start = (((block * 2 + which) * kv_heads + head) * KV_BLOCK + place) * d;
            &kv.as_f32()[start..start + d]
        };
        let scores: Vec<f64> = seen.iter().map(|&p| self.score(q, at(0, p))).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for (i, y) in y.iter_mut().enumerate() {
            let values = seen.iter().map(|&p| f64::from(at(1, p)[i]));
            let mixed: f64 = weights.iter().zip(values).map(|(w, v)| w * v).sum();
            *y = (mixed / sum) as f32;
        }
    }

    fn score(&self, q: &[f32], k: &[f32]) -> f64 {
        let dot: f64 = q
            .iter()
            .zip(k)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum();
        let score = dot * f64::from(self.scale);
        self.softcap.map_or(score, |cap| {
            f64::from(cap) * (score / f64::from(cap)).tanh()
        })
    }
}

fn read_attention(ops: &[&Op]) -> Option<Op> {
    let mut attention = Attention {
        heads: 0,
        scale: constant_of(ops)?,
        softcap: None,
        window: None,
    };
    for op in ops {
        match op {
            Op::HeadScores(scores) => attention.heads = scores.heads,
            Op::Softcap(softcap) => attention.softcap = Some(softcap.cap),
            Op::CausalMask(mask) => attention.window = mask.window,
            _ => {}
        }
    }
    Some(attention.into())
}

/// Two sequences of 40 and 5 positions whose blocks lie apart, all rows in one step.
fn attention_case(
    suite: &mut Suite,
    name: &str,
    op: Attention,
    element: ElementType,
    head_dim: usize,
) {
    let mut c = suite.case(name);
    c = c.dims(&[
        (Symbol::Tokens, 45),
        (Symbol::Batch, 2),
        (Symbol::Table, 2),
        (Symbol::Pool, 4),
    ]);
    let kv_heads = op.heads / 3;
    let kv = c.state("kv", element, kv_heads, head_dim);
    let k = c.f32("k", shape![Symbol::Tokens, kv_heads * head_dim], 2.0);
    let v = c.f32("v", shape![Symbol::Tokens, kv_heads * head_dim], 1.0);
    let q = c.f32("q", shape![Symbol::Tokens, op.heads * head_dim], 2.0);
    let rows = (0..40).map(|p| (0, p)).chain((0..5).map(|p| (1, p)));
    let table = [[3, 1], [0, 0]];
    let (mut pos, mut seq, mut slots) = (vec![], vec![], vec![]);
    for (s, p) in rows {
        pos.push(p);
        seq.push(s);
        slots
            .push(table[s as usize][p as usize / KV_BLOCK] * KV_BLOCK as i32 + p % KV_BLOCK as i32);
    }
    let slots = c.i32("slots", shape![Symbol::Tokens], slots);
    let pos = c.i32("pos", shape![Symbol::Tokens], pos);
    let seq = c.i32("seq", shape![Symbol::Tokens], seq);
    let table = c.i32(
        "table",
        shape![Symbol::Batch, Symbol::Table],
        table.concat(),
    );
    let kv = c.push(super::StateWrite {}, &[kv, k, v, slots]);
    let y = c.push(op, &[q, kv, pos, seq, table]);
    c.build(&[y, kv]);
}
