//! `reduce`: sum, mean or max over the last dimension, which stays with size 1.

use serde::{Deserialize, Serialize};

use super::{Operation, arity, float, wrong};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// How the elements of a row are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    Sum,
    Mean,
    Max,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduce {
    pub kind: Reduction,
}

impl Operation for Reduce {
    const NAME: &'static str = "reduce";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x] = arity(Self::NAME, inputs)?;
        float(Self::NAME, 0, x)?;
        if x.shape.is_empty() || x.last() == Some(0) {
            return Err(wrong(Self::NAME, 0, "f32 of rank ≥ 1, rows not empty", x));
        }
        let mut shape = x.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = Dim::Const(1);
        }
        Ok(vec![ValueType::f32(shape)])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let x = inputs[0];
        let width = x.row_len();
        let data = x.as_f32().chunks_exact(width).map(|row| match self.kind {
            Reduction::Sum => row.iter().map(|&v| f64::from(v)).sum::<f64>() as f32,
            Reduction::Mean => {
                (row.iter().map(|&v| f64::from(v)).sum::<f64>() / width as f64) as f32
            }
            Reduction::Max => row.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        });
        let mut shape = x.shape.clone();
        *shape.last_mut().expect("rank was checked") = 1;
        vec![Tensor::f32(&shape, data.collect())]
    }

    fn cases(suite: &mut Suite) {
        for kind in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
            let mut c = suite.case(format!("reduce {kind:?}")).tokens(3);
            let x = c.f32("x", shape![Symbol::Tokens, 100], 3.0);
            let y = c.push(Reduce { kind }, &[x]);
            c.build(&[y]);
        }
    }
}
