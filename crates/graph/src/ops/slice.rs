//! `slice x[rows, k]`: columns `start..end`.

use serde::{Deserialize, Serialize};

use super::{Operation, arity, matrix};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    pub start: usize,
    pub end: usize,
}

impl Operation for Slice {
    const NAME: &'static str = "slice";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x] = arity(Self::NAME, inputs)?;
        let k = matrix(Self::NAME, 0, x)?;
        if self.start >= self.end || self.end > k {
            return Err(GraphError::Attribute {
                op: Self::NAME.into(),
                name: "start..end".into(),
                expected: format!("a part of 0..{k}"),
                found: format!("{}..{}", self.start, self.end),
            });
        }
        Ok(vec![ValueType::f32(vec![
            x.shape[0],
            Dim::Const(self.end - self.start),
        ])])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let x = inputs[0];
        let rows = x.as_f32().chunks_exact(x.shape[1]);
        let data = rows
            .flat_map(|row| row[self.start..self.end].iter().copied())
            .collect();
        vec![Tensor::f32(&[x.rows(), self.end - self.start], data)]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("slice 8..40 of 96").tokens(3);
        let x = c.f32("x", shape![Symbol::Tokens, 96], 1.0);
        let y = c.push(Slice { start: 8, end: 40 }, &[x]);
        c.build(&[y]);
    }
}
