//! `softcap x`: `cap · tanh(x / cap)`, which keeps values inside `±cap` (Gemma 2, arXiv 2408.00118).

use serde::{Deserialize, Serialize};

use super::elementwise::constant_of;
use super::{Binary, Constant, EltOp, Operation, Pattern, Unary, arity, attribute, float};
use crate::suite::Suite;
use crate::{Graph, GraphError, Symbol, Tensor, ValueId, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Softcap {
    pub cap: f32,
}

impl Operation for Softcap {
    const NAME: &'static str = "softcap";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x] = arity(Self::NAME, inputs)?;
        float(Self::NAME, 0, x)?;
        if !(self.cap.is_finite() && self.cap > 0.0) {
            return Err(attribute(
                Self::NAME,
                "cap",
                "a finite number > 0",
                self.cap,
            ));
        }
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let cap = f64::from(self.cap);
        let data = inputs[0]
            .as_f32()
            .iter()
            .map(|&v| (cap * (f64::from(v) / cap).tanh()) as f32)
            .collect();
        vec![Tensor::f32(&inputs[0].shape, data)]
    }

    fn decompose(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        let cap = g.push(Constant { value: self.cap }, &[])?;
        let scaled = g.push(Binary { kind: EltOp::Div }, &[inputs[0], cap])?;
        let bent = g.push(Unary { kind: EltOp::Tanh }, &[scaled])?;
        Ok(Some(vec![
            g.push(Binary { kind: EltOp::Mul }, &[bent, cap])?,
        ]))
    }

    fn patterns() -> Vec<Pattern> {
        vec![Pattern {
            example: Softcap { cap: 2.0 }.into(),
            inputs: vec![ValueType::f32(shape![2, 2])],
            read: |ops| constant_of(ops).map(|cap| Softcap { cap }.into()),
        }]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("softcap").tokens(3);
        let x = c.f32("x", shape![Symbol::Tokens, 100], 60.0);
        let y = c.push(Softcap { cap: 30.0 }, &[x]);
        c.build(&[y]);
    }
}
