//! `state_write kv, k[rows, kv_heads · head_dim], v[…], slots[rows]`: the next version of a layer's KV pool.
//!
//! The pool is `[pool, 2, kv_heads, 32, head_dim]`: blocks of 32 positions, first the keys of every head, then the
//! values. Row `r` goes to slot `slots[r] = block · 32 + place`. Each version is written at most once, and every read of
//! a version comes before the next write, so a backend writes in place. The host never gives a slot outside the pool; the
//! reference then writes nothing.

use ingle_quant::ElementType;
use serde::{Deserialize, Serialize};

use super::{KV_BLOCK, Operation, arity, indices, matrix, wrong};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateWrite {}

impl Operation for StateWrite {
    const NAME: &'static str = "state_write";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [kv, k, v, slots] = arity(Self::NAME, inputs)?;
        let (heads, head_dim) = pool(Self::NAME, 0, kv)?;
        indices(Self::NAME, 3, slots, 1)?;
        for (i, x) in [(1, k), (2, v)] {
            let width = matrix(Self::NAME, i, x)?;
            if heads.checked_mul(head_dim) != Some(width) || x.shape[0] != slots.shape[0] {
                let expected = format!("f32[one row for each slot, {heads} heads of {head_dim}]");
                return Err(wrong(Self::NAME, i, expected, x));
            }
        }
        Ok(vec![kv.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (kv, slots) = (inputs[0], inputs[3].as_i32());
        let [heads, _, head_dim] = kv.shape[2..] else {
            unreachable!("the rank was checked")
        };
        let mut data = kv.as_f32().to_vec();
        for (which, x) in inputs[1..3].iter().enumerate() {
            for (row, &slot) in x.as_f32().chunks_exact(heads * head_dim).zip(slots) {
                let slot = usize::try_from(slot).ok();
                let Some(slot) = slot.filter(|s| *s < kv.shape[0] * KV_BLOCK) else {
                    continue;
                };
                let (block, place) = (slot / KV_BLOCK, slot % KV_BLOCK);
                for (h, head) in row.chunks_exact(head_dim).enumerate() {
                    let at = (((block * 2 + which) * heads + h) * KV_BLOCK + place) * head_dim;
                    data[at..at + head_dim].copy_from_slice(head);
                }
            }
        }
        vec![Tensor::f32(&kv.shape, data)]
    }

    fn cases(suite: &mut Suite) {
        // What was written is read back through attention: queries of zero weigh all values alike.
        for element in [ElementType::F32, ElementType::F16] {
            let mut c = suite.case(format!("state_write {}", element.name()));
            c = c.dims(&[(Symbol::Tokens, 3), (Symbol::Pool, 3), (Symbol::Table, 2)]);
            let kv = c.state("kv", element, 2, 32);
            let k = c.f32("k", shape![Symbol::Tokens, 64], 1.0);
            let v = c.f32("v", shape![Symbol::Tokens, 64], 1.0);
            let slots = c.i32("slots", shape![Symbol::Tokens], vec![64, 65, 66]);
            let q = c.f32("q", shape![Symbol::Tokens, 64], 0.0);
            let pos = c.i32("pos", shape![Symbol::Tokens], vec![0, 1, 2]);
            let seq = c.i32("seq", shape![Symbol::Tokens], vec![0, 0, 0]);
            let table = c.i32("table", shape![Symbol::Batch, Symbol::Table], vec![2, 0]);
            let kv = c.push(StateWrite {}, &[kv, k, v, slots]);
            let attention = super::Attention {
                heads: 2,
                scale: 0.125,
                softcap: None,
                window: None,
            };
            let y = c.push(attention, &[q, kv, pos, seq, table]);
            c.build(&[y, kv]);
        }
    }
}

/// Checks that `ty` is a KV pool and gives `(kv_heads, head_dim)`.
pub(super) fn pool(
    op: &'static str,
    input: usize,
    ty: &ValueType,
) -> Result<(usize, usize), GraphError> {
    let float = matches!(ty.element(), Some(ElementType::F32 | ElementType::F16));
    match ty.shape[..] {
        [
            _,
            Dim::Const(2),
            Dim::Const(heads),
            Dim::Const(KV_BLOCK),
            Dim::Const(head_dim),
        ] if ty.state && float && heads > 0 && head_dim > 0 => Ok((heads, head_dim)),
        _ => Err(wrong(
            op,
            input,
            "state f16 or f32 [pool, 2, kv_heads, 32, head_dim]",
            ty,
        )),
    }
}
