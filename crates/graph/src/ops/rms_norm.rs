//! `rms_norm x[rows, k], weight[k]`: `y = x · weight / sqrt(mean(x²) + eps)` (Zhang and Sennrich 2019, arXiv 1910.07467).

use serde::{Deserialize, Serialize};

use super::elementwise::constant_of;
use super::{
    Binary, Constant, EltOp, Operation, Pattern, Reduce, Reduction, Unary, arity, attribute,
    matrix, vector,
};
use crate::suite::Suite;
use crate::{Graph, GraphError, Symbol, Tensor, ValueId, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNorm {
    pub eps: f32,
}

impl Operation for RmsNorm {
    const NAME: &'static str = "rms_norm";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x, weight] = arity(Self::NAME, inputs)?;
        let k = matrix(Self::NAME, 0, x)?;
        vector(Self::NAME, 1, weight, k)?;
        if !(self.eps.is_finite() && self.eps >= 0.0) {
            return Err(attribute(
                Self::NAME,
                "eps",
                "a finite number ≥ 0",
                self.eps,
            ));
        }
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (x, weight) = (inputs[0], inputs[1].as_f32());
        let mut out = Vec::with_capacity(x.len());
        for row in x.as_f32().chunks_exact(weight.len()) {
            let mean = row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean + f64::from(self.eps)).sqrt();
            out.extend(
                row.iter()
                    .zip(weight)
                    .map(|(&v, &w)| (f64::from(v) * scale * f64::from(w)) as f32),
            );
        }
        vec![Tensor::f32(&x.shape, out)]
    }

    fn decompose(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        let (x, weight) = (inputs[0], inputs[1]);
        let square = g.push(Binary { kind: EltOp::Mul }, &[x, x])?;
        let mean = g.push(
            Reduce {
                kind: Reduction::Mean,
            },
            &[square],
        )?;
        let eps = g.push(Constant { value: self.eps }, &[])?;
        let shifted = g.push(Binary { kind: EltOp::Add }, &[mean, eps])?;
        let scale = g.push(Unary { kind: EltOp::Rsqrt }, &[shifted])?;
        let normed = g.push(Binary { kind: EltOp::Mul }, &[x, scale])?;
        Ok(Some(vec![
            g.push(Binary { kind: EltOp::Mul }, &[normed, weight])?,
        ]))
    }

    fn patterns() -> Vec<Pattern> {
        vec![Pattern {
            example: RmsNorm { eps: 1.0 }.into(),
            inputs: vec![ValueType::f32(shape![2, 2]), ValueType::f32(shape![2])],
            read: |ops| constant_of(ops).map(|eps| RmsNorm { eps }.into()),
        }]
    }

    fn cases(suite: &mut Suite) {
        for (rows, k) in [(1, 576), (5, 64), (3, 100)] {
            let mut c = suite.case(format!("rms_norm {rows}x{k}")).tokens(rows);
            let x = c.f32("x", shape![Symbol::Tokens, k], 3.0);
            let w = c.vector("w", k);
            let y = c.push(RmsNorm { eps: 1e-5 }, &[x, w]);
            c.build(&[y]);
        }
    }
}
