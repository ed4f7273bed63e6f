//! `rotate x[rows, heads · head_dim]`: a quarter turn of every pair of [`super::Rope`], `(u, v)` becomes `(−v, u)`.
//!
//! Elements that turn with no other, those from `rotary_dim` of their head on, become 0. `rope` is then
//! `x · cos(angle) + rotate(x) · sin(angle)`.

use serde::{Deserialize, Serialize};

use super::rope::pair_of;
use super::{Operation, Pairing, Runs, arity, attribute, matrix, wrong};
use crate::suite::Suite;
use crate::{GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rotate {
    pub head_dim: usize,
    pub rotary_dim: usize,
    pub pairing: Pairing,
}

impl Operation for Rotate {
    const NAME: &'static str = "rotate";
    const RUNS: Runs = Runs::Interpreted;

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x] = arity(Self::NAME, inputs)?;
        let even = self.rotary_dim.is_multiple_of(2);
        if self.rotary_dim == 0 || !even || self.rotary_dim > self.head_dim {
            return Err(attribute(
                Self::NAME,
                "rotary_dim",
                "even, at most head_dim",
                self.rotary_dim,
            ));
        }
        if !matrix(Self::NAME, 0, x)?.is_multiple_of(self.head_dim) {
            let expected = format!("rows of heads of {}", self.head_dim);
            return Err(wrong(Self::NAME, 0, expected, x));
        }
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let x = inputs[0];
        let mut data = vec![0.0; x.len()];
        let heads = x.as_f32().chunks_exact(self.head_dim);
        for (from, to) in heads.zip(data.chunks_exact_mut(self.head_dim)) {
            for i in 0..self.rotary_dim / 2 {
                let (a, b) = pair_of(self.pairing, self.rotary_dim, i);
                (to[a], to[b]) = (-from[b], from[a]);
            }
        }
        vec![Tensor::f32(&x.shape, data)]
    }

    fn cases(suite: &mut Suite) {
        for pairing in [Pairing::Interleaved, Pairing::Halves] {
            let mut c = suite.case(format!("rotate {pairing:?}")).tokens(3);
            let x = c.f32("x", shape![Symbol::Tokens, 16], 1.0);
            let rotate = Rotate {
                head_dim: 8,
                rotary_dim: 6,
                pairing,
            };
            let y = c.push(rotate, &[x]);
            c.build(&[y]);
        }
    }
}
