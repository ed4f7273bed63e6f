//! `causal_mask scores[rows, heads, context], pos[rows]`: −∞ where a row would see the future, else the score.
//!
//! Row `r` sees positions `0 ..= pos[r]`, and if there is a window only the last `window` of them.

use serde::{Deserialize, Serialize};

use super::{Operation, Runs, arity, attribute, float, indices, wrong};
use crate::suite::Suite;
use crate::{GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CausalMask {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
}

impl Operation for CausalMask {
    const NAME: &'static str = "causal_mask";
    const RUNS: Runs = Runs::Interpreted;

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [scores, pos] = arity(Self::NAME, inputs)?;
        float(Self::NAME, 0, scores)?;
        indices(Self::NAME, 1, pos, 1)?;
        if scores.shape.len() != 3 || scores.shape[0] != pos.shape[0] {
            let expected = format!("f32[rows, heads, context] for {pos}");
            return Err(wrong(Self::NAME, 0, expected, scores));
        }
        if self.window == Some(0) {
            return Err(attribute(Self::NAME, "window", "1 or more", 0));
        }
        Ok(vec![scores.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (scores, pos) = (inputs[0], inputs[1].as_i32());
        let [_, heads, context] = scores.shape[..] else {
            unreachable!("the rank was checked")
        };
        let mut data = scores.as_f32().to_vec();
        for (i, row) in data.chunks_exact_mut(context.max(1)).enumerate() {
            let last = i64::from(pos[i / heads]);
            let first = match self.window {
                Some(window) => last.saturating_sub_unsigned(window as u64),
                None => -1,
            };
            for (p, score) in (0i64..).zip(row) {
                if p > last || p <= first {
                    *score = f32::NEG_INFINITY;
                }
            }
        }
        vec![Tensor::f32(&scores.shape, data)]
    }

    fn cases(suite: &mut Suite) {
        for window in [None, Some(2)] {
            let mut c = suite.case(format!("causal_mask {window:?}")).tokens(3);
            let scores = c.f32("scores", shape![Symbol::Tokens, 2, 5], 1.0);
            let pos = c.i32("pos", shape![Symbol::Tokens], vec![0, 4, 2]);
            let y = c.push(CausalMask { window }, &[scores, pos]);
            c.build(&[y]);
        }
    }
}
