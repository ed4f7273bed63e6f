//! `quantize_activations x[rows, k]`: each value becomes the nearest on its group's 8-bit grid.
//!
//! Groups are 32 consecutive values of a row: `scale = max|x| / 127`, `code = round_ties_even(x · 127 / max|x|)`,
//! `y = scale · code`. The policy `--activations int8` puts it before matmuls of quantised weights; every backend then
//! computes integer dot products of the codes, and this op says exactly what they must give.

use serde::{Deserialize, Serialize};

use super::{Operation, arity, matrix};
use crate::{GraphError, Tensor, ValueType};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuantizeActivations {}

impl Operation for QuantizeActivations {
    const NAME: &'static str = "quantize_activations";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x] = arity(Self::NAME, inputs)?;
        matrix(Self::NAME, 0, x)?;
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let x = inputs[0];
        let mut data = x.as_f32().to_vec();
        for row in data.chunks_exact_mut(x.shape[1]) {
            row.chunks_mut(32).for_each(quantize_group);
        }
        vec![Tensor::f32(&x.shape, data)]
    }
}

fn quantize_group(group: &mut [f32]) {
    if group.iter().any(|v| !v.is_finite()) {
        group.fill(f32::NAN);
        return;
    }
    let max = group.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let (scale, inverse) = if max == 0.0 { (0.0, 0.0) } else { (max / 127.0, 127.0 / max) };
    for v in group {
        *v = scale * (*v * inverse).round_ties_even().clamp(-127.0, 127.0);
    }
}
