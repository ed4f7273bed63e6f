//! `softmax x[…, n]`: `exp(x − max) / Σ exp(x − max)` over the last dimension.

use serde::{Deserialize, Serialize};

use super::{Binary, EltOp, Operation, Pattern, Reduce, Reduction, Unary, arity, float, wrong};
use crate::suite::Suite;
use crate::{Graph, GraphError, Symbol, Tensor, ValueId, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Softmax {}

impl Operation for Softmax {
    const NAME: &'static str = "softmax";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x] = arity(Self::NAME, inputs)?;
        float(Self::NAME, 0, x)?;
        if x.shape.is_empty() || x.last() == Some(0) {
            return Err(wrong(Self::NAME, 0, "f32 of rank ≥ 1, rows not empty", x));
        }
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let x = inputs[0];
        let mut out = Vec::with_capacity(x.len());
        for row in x.as_f32().chunks_exact(x.row_len()) {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp: Vec<f64> = row.iter().map(|&v| f64::from(v - max).exp()).collect();
            let sum: f64 = exp.iter().sum();
            out.extend(exp.iter().map(|e| (e / sum) as f32));
        }
        vec![Tensor::f32(&x.shape, out)]
    }

    fn decompose(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        let max = g.push(
            Reduce {
                kind: Reduction::Max,
            },
            &[inputs[0]],
        )?;
        let shifted = g.push(Binary { kind: EltOp::Sub }, &[inputs[0], max])?;
        let exp = g.push(Unary { kind: EltOp::Exp }, &[shifted])?;
        let sum = g.push(
            Reduce {
                kind: Reduction::Sum,
            },
            &[exp],
        )?;
        Ok(Some(vec![
            g.push(Binary { kind: EltOp::Div }, &[exp, sum])?,
        ]))
    }

    fn patterns() -> Vec<Pattern> {
        vec![Pattern {
            example: Softmax {}.into(),
            inputs: vec![ValueType::f32(shape![2, 2])],
            read: |_| Some(Softmax {}.into()),
        }]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("softmax").tokens(3);
        let x = c.f32("x", shape![Symbol::Tokens, 100], 30.0);
        let y = c.push(Softmax {}, &[x]);
        c.build(&[y]);
    }
}
