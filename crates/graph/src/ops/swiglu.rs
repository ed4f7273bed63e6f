//! `swiglu gate[rows, n], up[rows, n]`: `silu(gate) · up` (Shazeer 2020, arXiv 2002.05202).

use serde::{Deserialize, Serialize};

use super::{Binary, EltOp, Operation, Pattern, Unary, arity, matrix, wrong};
use crate::suite::Suite;
use crate::{Graph, GraphError, Symbol, Tensor, ValueId, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swiglu {}

impl Operation for Swiglu {
    const NAME: &'static str = "swiglu";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [gate, up] = arity(Self::NAME, inputs)?;
        matrix(Self::NAME, 0, gate)?;
        if up != gate {
            return Err(wrong(Self::NAME, 1, gate.to_string(), up));
        }
        Ok(vec![gate.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let pairs = inputs[0].as_f32().iter().zip(inputs[1].as_f32());
        let data = pairs
            .map(|(&g, &u)| (f64::from(g) / (1.0 + (-f64::from(g)).exp()) * f64::from(u)) as f32);
        vec![Tensor::f32(&inputs[0].shape, data.collect())]
    }

    fn decompose(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        let gate = g.push(Unary { kind: EltOp::Silu }, &[inputs[0]])?;
        Ok(Some(vec![
            g.push(Binary { kind: EltOp::Mul }, &[gate, inputs[1]])?,
        ]))
    }

    fn patterns() -> Vec<Pattern> {
        vec![Pattern {
            example: Swiglu {}.into(),
            inputs: vec![ValueType::f32(shape![2, 2]); 2],
            read: |_| Some(Swiglu {}.into()),
        }]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("swiglu").tokens(3);
        let gate = c.f32("gate", shape![Symbol::Tokens, 100], 20.0);
        let up = c.f32("up", shape![Symbol::Tokens, 100], 2.0);
        let y = c.push(Swiglu {}, &[gate, up]);
        c.build(&[y]);
    }
}
