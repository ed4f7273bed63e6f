//! `take_rows x[rows, k], index[outputs]`: `y[i] = x[index[i]]`, so that the head runs only where logits are wanted.

use serde::{Deserialize, Serialize};

use super::embedding::gather;
use super::{Operation, arity, indices, matrix};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakeRows {}

impl Operation for TakeRows {
    const NAME: &'static str = "take_rows";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x, index] = arity(Self::NAME, inputs)?;
        let k = matrix(Self::NAME, 0, x)?;
        indices(Self::NAME, 1, index, 1)?;
        Ok(vec![ValueType::f32(vec![index.shape[0], Dim::Const(k)])])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        vec![gather(inputs[0], inputs[1].as_i32())]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite
            .case("take_rows 3 of 5")
            .dims(&[(Symbol::Tokens, 5), (Symbol::Outputs, 3)]);
        let x = c.f32("x", shape![Symbol::Tokens, 96], 1.0);
        let index = c.i32("index", shape![Symbol::Outputs], vec![4, 0, 2]);
        let y = c.push(TakeRows {}, &[x, index]);
        c.build(&[y]);
    }
}
