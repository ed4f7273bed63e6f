//! `constant`: one `f32` that does not depend on anything, of rank 0.

use serde::{Deserialize, Serialize};

use super::{Binary, EltOp, Operation, arity};
use crate::suite::Suite;
use crate::{GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    pub value: f32,
}

impl Operation for Constant {
    const NAME: &'static str = "constant";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [] = arity(Self::NAME, inputs)?;
        if !self.value.is_finite() {
            return Err(GraphError::Attribute {
                op: Self::NAME.into(),
                name: "value".into(),
                expected: "a finite number".into(),
                found: self.value.to_string(),
            });
        }
        Ok(vec![ValueType::f32(vec![])])
    }

    fn reference(&self, _inputs: &[&Tensor]) -> Vec<Tensor> {
        vec![Tensor::f32(&[], vec![self.value])]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("constant in a chain").tokens(2);
        let x = c.f32("x", shape![Symbol::Tokens, 40], 1.0);
        let two = c.push(Constant { value: 2.5 }, &[]);
        let y = c.push(Binary { kind: EltOp::Mul }, &[x, two]);
        c.build(&[y]);
    }
}
