//! `head_scores q[rows, heads · head_dim], keys[rows, kv_heads, context, head_dim]`: the dot product of every head of `q`
//! with every key of its row, as `f32[rows, heads, context]`.
//!
//! Queries are grouped: head `h` meets key head `h / (heads / kv_heads)`.

use serde::{Deserialize, Serialize};

use super::{Operation, Runs, arity, attribute, matrix, wrong};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadScores {
    pub heads: usize,
}

impl Operation for HeadScores {
    const NAME: &'static str = "head_scores";
    const RUNS: Runs = Runs::Interpreted;

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [q, keys] = arity(Self::NAME, inputs)?;
        let width = matrix(Self::NAME, 0, q)?;
        let (rows, kv_heads, context, head_dim) = per_row(Self::NAME, 1, keys)?;
        grouped(Self::NAME, self.heads, kv_heads)?;
        if rows != q.shape[0] || self.heads.checked_mul(head_dim) != Some(width) {
            let expected = format!("keys of {} heads for each row of {q}", self.heads);
            return Err(wrong(Self::NAME, 1, expected, keys));
        }
        Ok(vec![ValueType::f32(vec![rows, self.heads.into(), context])])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (q, keys) = (inputs[0], inputs[1]);
        let [rows, kv_heads, context, d] = keys.shape[..] else {
            unreachable!("the rank was checked")
        };
        let mut out = Vec::with_capacity(rows * self.heads * context);
        for (i, query) in q.as_f32().chunks_exact(d).enumerate() {
            let (row, head) = (i / self.heads, i % self.heads);
            let start = (row * kv_heads + head / (self.heads / kv_heads)) * context * d;
            for key in keys.as_f32()[start..start + context * d].chunks_exact(d) {
                let products = query.iter().zip(key);
                out.push(
                    products
                        .map(|(&a, &b)| f64::from(a) * f64::from(b))
                        .sum::<f64>() as f32,
                );
            }
        }
        vec![Tensor::f32(&[rows, self.heads, context], out)]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("head_scores").tokens(3);
        let q = c.f32("q", shape![Symbol::Tokens, 24], 1.0);
        let keys = c.f32("keys", shape![Symbol::Tokens, 2, 5, 4], 1.0);
        let y = c.push(HeadScores { heads: 6 }, &[q, keys]);
        c.build(&[y]);
    }
}

/// Checks that `ty` is `f32[rows, kv_heads, context, head_dim]` with constant heads, and gives the four.
pub(super) fn per_row(
    op: &'static str,
    input: usize,
    ty: &ValueType,
) -> Result<(Dim, usize, Dim, usize), GraphError> {
    super::float(op, input, ty)?;
    match ty.shape[..] {
        [rows, Dim::Const(heads), context, Dim::Const(head_dim)] if heads > 0 && head_dim > 0 => {
            Ok((rows, heads, context, head_dim))
        }
        _ => Err(wrong(
            op,
            input,
            "f32[rows, kv_heads, context, head_dim]",
            ty,
        )),
    }
}

/// Checks that heads form groups of equal size, one for each key head.
pub(super) fn grouped(op: &'static str, heads: usize, kv_heads: usize) -> Result<(), GraphError> {
    if heads > 0 && heads.is_multiple_of(kv_heads) {
        return Ok(());
    }
    let expected = format!("a multiple of the {kv_heads} key heads");
    Err(attribute(op, "heads", expected, heads))
}
