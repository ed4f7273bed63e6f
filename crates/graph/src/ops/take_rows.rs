//! `take_rows x[rows, k], index[outputs]`: `y[i] = x[index[i]]`, so that the head runs only where logits are wanted.

use serde::{Deserialize, Serialize};

use super::embedding::gather;
use super::{Operation, arity, indices, matrix};
use crate::{Dim, GraphError, Tensor, ValueType};

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
}
