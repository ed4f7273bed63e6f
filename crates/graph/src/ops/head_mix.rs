//! `head_mix weights[rows, heads, context], values[rows, kv_heads, context, head_dim]`: for each head the sum of the
//! values of its row by their weights, as `f32[rows, heads · head_dim]`.
//!
//! Queries are grouped: head `h` mixes the values of head `h / (heads / kv_heads)`.

use serde::{Deserialize, Serialize};

use super::head_scores::{grouped, per_row};
use super::{Operation, Runs, arity, float, wrong};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadMix {}

impl Operation for HeadMix {
    const NAME: &'static str = "head_mix";
    const RUNS: Runs = Runs::Interpreted;

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [weights, values] = arity(Self::NAME, inputs)?;
        float(Self::NAME, 0, weights)?;
        let (rows, kv_heads, context, head_dim) = per_row(Self::NAME, 1, values)?;
        let heads = match weights.shape[..] {
            [r, Dim::Const(heads), c] if r == rows && c == context => heads,
            _ => {
                let expected = format!("f32[rows, heads, context] for {values}");
                return Err(wrong(Self::NAME, 0, expected, weights));
            }
        };
        grouped(Self::NAME, heads, kv_heads)?;
        match heads.checked_mul(head_dim) {
            Some(width) => Ok(vec![ValueType::f32(vec![rows, width.into()])]),
            None => Err(wrong(Self::NAME, 1, "heads that fit in memory", values)),
        }
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (weights, values) = (inputs[0], inputs[1]);
        let [rows, kv_heads, context, d] = values.shape[..] else {
            unreachable!("the rank was checked")
        };
        let heads = weights.shape[1];
        let mut out = Vec::with_capacity(rows * heads * d);
        for (row, head) in (0..rows).flat_map(|r| (0..heads).map(move |h| (r, h))) {
            let weights = &weights.as_f32()[(row * heads + head) * context..][..context];
            let start = (row * kv_heads + head / (heads / kv_heads)) * context * d;
            for i in 0..d {
                let column = (0..context).map(|p| values.as_f32()[start + p * d + i]);
                let terms = weights.iter().zip(column);
                let sum: f64 = terms.map(|(&w, v)| f64::from(w) * f64::from(v)).sum();
                out.push(sum as f32);
            }
        }
        vec![Tensor::f32(&[rows, heads * d], out)]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("head_mix").tokens(3);
        let weights = c.f32("weights", shape![Symbol::Tokens, 6, 5], 1.0);
        let values = c.f32("values", shape![Symbol::Tokens, 2, 5, 4], 1.0);
        let y = c.push(HeadMix {}, &[weights, values]);
        c.build(&[y]);
    }
}
