//! `argmax x[rows, n]`: the index of each row's largest element, the first of equals, as `i32[rows]`.
//!
//! A row that holds anything not finite gives −1: the engine turns it into a typed error instead of gibberish.

use serde::{Deserialize, Serialize};

use super::{Operation, arity, matrix};
use crate::{GraphError, Tensor, ValueType};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Argmax {}

impl Operation for Argmax {
    const NAME: &'static str = "argmax";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x] = arity(Self::NAME, inputs)?;
        matrix(Self::NAME, 0, x)?;
        Ok(vec![ValueType::i32(vec![x.shape[0]])])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let x = inputs[0];
        let best = |row: &[f32]| -> i32 {
            let mut best = 0;
            for (i, &v) in row.iter().enumerate() {
                if !v.is_finite() {
                    return -1;
                }
                if v > row[best] {
                    best = i;
                }
            }
            best as i32
        };
        let data: Vec<i32> = x.as_f32().chunks_exact(x.shape[1]).map(best).collect();
        vec![Tensor::i32(&[data.len()], data)]
    }
}
