//! `quantize_activations x[rows, k]`: each value becomes the sum of two 8-bit terms.
//!
//! Groups are 32 consecutive values of a row: `t = x · 127 / max|x|`, `high = round_ties_even(t)`,
//! `low = round_ties_even(254 · (t − high))`, `y = (254 · high + low) · max|x| / 32258`; [`fake_quantize`] says what happens
//! at zero and beyond the finite. The policy `--activations int8` puts it before matmuls of quantised weights; every
//! backend then computes integer dot products of the codes, and this op says exactly what they must give.

use ingle_quant::fake_quantize;
use serde::{Deserialize, Serialize};

use super::{Operation, arity, matrix};
use crate::suite::Suite;
use crate::{GraphError, Symbol, Tensor, ValueType, shape};

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
        data.chunks_exact_mut(x.shape[1]).for_each(fake_quantize);
        vec![Tensor::f32(&x.shape, data)]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("quantize_activations").tokens(3).tolerance(1e-6);
        let x = c.f32("x", shape![Symbol::Tokens, 96], 3.0);
        let y = c.push(QuantizeActivations {}, &[x]);
        c.build(&[y]);
    }
}
