//! `state_read kv, seq[rows], table[batch, blocks]`: the keys or the values that the sequence of each row has in the KV
//! pool, position by position, as `f32[rows, kv_heads, context, head_dim]`.
//!
//! Position `p` of sequence `s` lies in block `table[s, p / 32]`, place `p % 32`. What a table says about positions that
//! were never written is arbitrary: a block outside the pool reads as zeros, and [`super::CausalMask`] hides it.

use ingle_quant::ElementType;
use serde::{Deserialize, Serialize};

use super::state_write::pool;
use super::{KV_BLOCK, Operation, Runs, arity, indices, wrong};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// Which half of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Keys,
    Values,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateRead {
    pub part: Part,
}

impl Operation for StateRead {
    const NAME: &'static str = "state_read";
    const RUNS: Runs = Runs::Interpreted;

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [kv, seq, table] = arity(Self::NAME, inputs)?;
        let (heads, head_dim) = pool(Self::NAME, 0, kv)?;
        indices(Self::NAME, 1, seq, 1)?;
        let context = context(Self::NAME, 2, table)?;
        let shape = vec![seq.shape[0], heads.into(), context, head_dim.into()];
        Ok(vec![ValueType::f32(shape)])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (kv, seq, table) = (inputs[0], inputs[1].as_i32(), inputs[2]);
        let [blocks, _, heads, _, d] = kv.shape[..] else {
            unreachable!("the rank was checked")
        };
        let which = self.part as usize;
        let context = table.shape[1] * KV_BLOCK;
        let mut out = vec![0.0; seq.len() * heads * context * d];
        let places = (0..seq.len()).flat_map(|r| (0..heads).map(move |h| (r, h)));
        for ((r, h), head) in places.zip(out.chunks_exact_mut((context * d).max(1))) {
            let row = usize::try_from(seq[r]).ok().filter(|&s| s < table.shape[0]);
            let entries = row.map_or(&[][..], |s| {
                &table.as_i32()[s * table.shape[1]..(s + 1) * table.shape[1]]
            });
            for (&entry, to) in entries.iter().zip(head.chunks_exact_mut(KV_BLOCK * d)) {
                if let Some(block) = usize::try_from(entry).ok().filter(|&b| b < blocks) {
                    let from = ((block * 2 + which) * heads + h) * KV_BLOCK * d;
                    to.copy_from_slice(&kv.as_f32()[from..from + KV_BLOCK * d]);
                }
            }
        }
        vec![Tensor::f32(&[seq.len(), heads, context, d], out)]
    }

    fn cases(suite: &mut Suite) {
        for part in [Part::Keys, Part::Values] {
            let mut c = suite.case(format!("state_read {part:?}"));
            c = c.dims(&[
                (Symbol::Tokens, 3),
                (Symbol::Batch, 2),
                (Symbol::Table, 2),
                (Symbol::Pool, 3),
            ]);
            let kv = c.state("kv", ElementType::F16, 2, 4);
            let k = c.f32("k", shape![Symbol::Tokens, 8], 1.0);
            let v = c.f32("v", shape![Symbol::Tokens, 8], 1.0);
            let slots = c.i32("slots", shape![Symbol::Tokens], vec![64, 65, 3]);
            let seq = c.i32("seq", shape![Symbol::Tokens], vec![0, 0, 1]);
            let table = c.i32(
                "table",
                shape![Symbol::Batch, Symbol::Table],
                vec![2, -1, 0, 7],
            );
            let kv = c.push(super::StateWrite {}, &[kv, k, v, slots]);
            let y = c.push(StateRead { part }, &[kv, seq, table]);
            c.build(&[y, kv]);
        }
    }
}

/// Checks that `ty` is a block table and gives how many positions it reaches.
pub(super) fn context(op: &'static str, input: usize, ty: &ValueType) -> Result<Dim, GraphError> {
    indices(op, input, ty, 2)?;
    let constant = |n: usize| n.checked_mul(KV_BLOCK).map(Dim::Const);
    let context = match ty.shape[1] {
        Dim::Sym(Symbol::Table) => Some(Symbol::Context.into()),
        Dim::Const(n) => constant(n),
        Dim::Sym(_) => None,
    };
    context.ok_or_else(|| wrong(op, input, "i32[batch, table]", ty))
}
