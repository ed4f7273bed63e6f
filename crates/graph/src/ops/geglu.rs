//! `geglu gate[rows, n], up[rows, n]`: `gelu_tanh(gate) · up` (Shazeer 2020, arXiv 2002.05202; with the tanh form of GELU
//! as in Gemma, arXiv 2403.08295).

use serde::{Deserialize, Serialize};

use super::{Binary, EltOp, Operation, Runs, Unary, arity, matrix, wrong};
use crate::suite::Suite;
use crate::{Graph, GraphError, Symbol, Tensor, ValueId, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Geglu {}

impl Operation for Geglu {
    const NAME: &'static str = "geglu";
    const RUNS: Runs = Runs::Decomposed;

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [gate, up] = arity(Self::NAME, inputs)?;
        matrix(Self::NAME, 0, gate)?;
        if up != gate {
            return Err(wrong(Self::NAME, 1, gate.to_string(), up));
        }
        Ok(vec![gate.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let factor = (2.0 / std::f64::consts::PI).sqrt();
        let pairs = inputs[0].as_f32().iter().zip(inputs[1].as_f32());
        let data = pairs.map(|(&gate, &up)| {
            let x = f64::from(gate);
            let bent = (factor * (x + 0.044715 * x.powi(3))).tanh();
            (0.5 * x * (1.0 + bent) * f64::from(up)) as f32
        });
        vec![Tensor::f32(&inputs[0].shape, data.collect())]
    }

    fn decompose(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        let kind = EltOp::GeluTanh;
        let gate = g.push(Unary { kind }, &[inputs[0]])?;
        let kind = EltOp::Mul;
        Ok(Some(vec![g.push(Binary { kind }, &[gate, inputs[1]])?]))
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("geglu").tokens(3);
        let gate = c.f32("gate", shape![Symbol::Tokens, 100], 6.0);
        let up = c.f32("up", shape![Symbol::Tokens, 100], 2.0);
        let y = c.push(Geglu {}, &[gate, up]);
        c.build(&[y]);
    }
}
