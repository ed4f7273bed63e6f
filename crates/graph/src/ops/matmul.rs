//! `matmul x[rows, k], weight[n, k]`: `y[r, i] = Σ_k x[r, k] · weight[i, k]`, of shape `[rows, n]`.
//!
//! The weight may be quantised; its value is then what its scheme says.

use ingle_quant::{ElementType, GgmlType, Storage};
use serde::{Deserialize, Serialize};

use super::{Operation, arity, matrix, wrong};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matmul {}

impl Operation for Matmul {
    const NAME: &'static str = "matmul";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let [x, weight] = arity(Self::NAME, inputs)?;
        let k = matrix(Self::NAME, 0, x)?;
        let n = weight_rows(Self::NAME, weight, k)?;
        Ok(vec![ValueType::f32(vec![x.shape[0], Dim::Const(n)])])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (x, weight) = (inputs[0], inputs[1]);
        let (n, k) = (weight.shape[0], weight.shape[1]);
        let mut out = Vec::with_capacity(x.rows() * n);
        for row in x.as_f32().chunks_exact(k) {
            for w in weight.as_f32().chunks_exact(k) {
                out.push(
                    row.iter()
                        .zip(w)
                        .map(|(&a, &b)| f64::from(a) * f64::from(b))
                        .sum::<f64>() as f32,
                );
            }
        }
        vec![Tensor::f32(&[x.rows(), n], out)]
    }

    fn cases(suite: &mut Suite) {
        for ty in TYPES {
            for (rows, n, k) in [(1, 70, 512), (3, 33, 256), (40, 96, 512)] {
                for int8 in [false, true] {
                    let policy = if int8 { "int8" } else { "f32" };
                    let mut c = suite
                        .case(format!("matmul {} {rows}x{n}x{k} {policy}", ty.name()))
                        .tokens(rows);
                    if int8 {
                        c = c.int8();
                    }
                    let x = c.f32("x", shape![Symbol::Tokens, k], 2.0);
                    let w = c.weight("w", ty, n, k);
                    let y = c.push(Matmul {}, &[x, w]);
                    c.build(&[y]);
                }
            }
        }
    }
}

/// The file types that kernels are tested with.
pub(super) const TYPES: [GgmlType; 11] = [
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
];

/// Checks that `ty` is a weight `[n, k]` of floats or a quantised scheme, and gives `n`.
pub(crate) fn weight_rows(op: &'static str, ty: &ValueType, k: usize) -> Result<usize, GraphError> {
    let float = matches!(
        ty.storage,
        Storage::Quant(_)
            | Storage::Element(ElementType::F32 | ElementType::F16 | ElementType::Bf16)
    );
    match ty.shape[..] {
        [Dim::Const(n), Dim::Const(found)] if float && !ty.state && found == k && n > 0 => Ok(n),
        _ => Err(wrong(op, 1, format!("a weight [n, {k}]"), ty)),
    }
}
