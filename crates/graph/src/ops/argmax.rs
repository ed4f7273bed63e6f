//! `argmax x[rows, n]`: the index of each row's largest element, the first of equals, as `i32[rows]`.
//!
//! A row that holds anything not finite gives −1: the engine turns it into a typed error instead of gibberish.

use serde::{Deserialize, Serialize};

use super::{Operation, arity, matrix};
use crate::suite::Suite;
use crate::{GraphError, Symbol, Tensor, ValueType, shape};

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

    fn cases(suite: &mut Suite) {
        for (rows, n) in [(1, 7), (3, 1000), (2, 49152)] {
            let mut c = suite.case(format!("argmax {rows}x{n}")).tokens(rows);
            let x = c.f32("x", shape![Symbol::Tokens, n], 4.0);
            let y = c.push(Argmax {}, &[x]);
            c.build(&[y]);
        }
        let mut c = suite
            .case("argmax of ties and what is not finite")
            .tokens(3);
        let values = vec![1.0, 2.0, 2.0, 0.0, f32::NAN, 5.0, f32::INFINITY, 1.0, 0.0];
        let x = c.given(
            "x",
            ValueType::f32(shape![Symbol::Tokens, 3]),
            Tensor::f32(&[3, 3], values),
        );
        let y = c.push(Argmax {}, &[x]);
        c.build(&[y]);
    }
}
