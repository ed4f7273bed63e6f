//! `embedding ids[rows], weight[vocabulary, k]`: row `ids[r]` of the weight, as `f32[rows, k]`.
//!
//! An id outside the vocabulary gives a row of NaN, which the engine reports: it is never read out of bounds.

use ingle_quant::GgmlType;
use serde::{Deserialize, Serialize};

use super::matmul::weight_rows;
use super::{Operation, arity, indices, wrong};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding {}

impl Operation for Embedding {
    const NAME: &'static str = "embedding";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [ids, weight] = arity(Self::NAME, inputs)?;
        indices(Self::NAME, 0, ids, 1)?;
        let k = weight
            .last()
            .ok_or_else(|| wrong(Self::NAME, 1, "a weight [vocabulary, k]", weight))?;
        weight_rows(Self::NAME, weight, k)?;
        Ok(vec![ValueType::f32(vec![ids.shape[0], Dim::Const(k)])])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (ids, weight) = (inputs[0], inputs[1]);
        vec![gather(weight, ids.as_i32())]
    }

    fn cases(suite: &mut Suite) {
        for ty in super::matmul::TYPES {
            let mut c = suite
                .case(format!("embedding {}", ty.name()))
                .tokens(5)
                .tolerance(1e-6);
            let ids = c.i32("ids", shape![Symbol::Tokens], vec![0, 36, 7, 7, 1]);
            let w = c.weight("w", ty, 37, 512);
            let y = c.push(Embedding {}, &[ids, w]);
            c.build(&[y]);
        }
        let mut c = suite
            .case("embedding outside the vocabulary is NaN")
            .tokens(3);
        let ids = c.i32("ids", shape![Symbol::Tokens], vec![-1, 3, 8]);
        let w = c.weight("w", GgmlType::Q8_0, 8, 32);
        let y = c.push(Embedding {}, &[ids, w]);
        c.build(&[y]);
    }
}

/// Rows `ids` of a matrix; NaN where there is no such row.
pub(super) fn gather(matrix: &Tensor, ids: &[i32]) -> Tensor {
    let k = matrix.shape[1];
    let mut out = Vec::with_capacity(ids.len() * k);
    for &id in ids {
        match usize::try_from(id).ok().filter(|&i| i < matrix.shape[0]) {
            Some(i) => out.extend_from_slice(&matrix.as_f32()[i * k..(i + 1) * k]),
            None => out.extend(std::iter::repeat_n(f32::NAN, k)),
        }
    }
    Tensor::f32(&[ids.len(), k], out)
}
