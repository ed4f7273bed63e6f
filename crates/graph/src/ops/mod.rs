//! The ops: one file, one row, one name each.
//!
//! An op's file holds its formula, its attributes, shape inference and the slow obvious reference; a composite op also
//! says how it decomposes into primitive ones. The row below gives it a place in [`Op`] and in the text form.

mod argmax;
mod attention;
mod constant;
mod elementwise;
mod embedding;
mod fused;
mod matmul;
mod quantize_activations;
mod reduce;
mod rms_norm;
mod rope;
mod slice;
mod softcap;
mod softmax;
mod state_write;
mod swiglu;
mod take_rows;

pub use argmax::Argmax;
pub use attention::Attention;
pub use constant::Constant;
pub use elementwise::{Binary, EltOp, Unary};
pub use embedding::Embedding;
pub use fused::Fused;
pub use matmul::Matmul;
pub use quantize_activations::QuantizeActivations;
pub use reduce::{Reduce, Reduction};
pub use rms_norm::RmsNorm;
pub use rope::{Pairing, Rope};
pub use slice::Slice;
pub use softcap::Softcap;
pub use softmax::Softmax;
pub use state_write::StateWrite;
pub use swiglu::Swiglu;
pub use take_rows::TakeRows;

use ingle_quant::{ElementType, Storage};
use serde::{Deserialize, Serialize};

use crate::{Graph, GraphError, Tensor, ValueId, ValueType};

/// Positions per block of the KV pool.
pub const KV_BLOCK: usize = 32;

/// What an op's file provides.
pub trait Operation: Sized + Into<Op> {
    /// The op's name in text, kernels, suites and traces.
    const NAME: &'static str;

    /// Checks the inputs and gives the outputs' types.
    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError>;

    /// The slow obvious answer; the inputs have been checked by `infer`.
    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor>;

    /// The same in more primitive ops, added to `graph`; `None` for a primitive op.
    fn decompose(
        &self,
        _graph: &mut Graph,
        _inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        Ok(None)
    }

    /// Adds the op's cases to the suite that every backend runs.
    fn cases(suite: &mut crate::suite::Suite);
}

macro_rules! ops {
    ($($variant:ident),* $(,)?) => {
        /// An operation with its attributes.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Op {
            $($variant($variant),)*
        }

        $(impl From<$variant> for Op {
            fn from(op: $variant) -> Self {
                Op::$variant(op)
            }
        })*

        impl Op {
            /// The names of all ops, one for each row.
            pub const NAMES: &'static [&'static str] = &[$($variant::NAME),*];

            /// The op's name; an element-wise op is named after what it computes.
            pub fn name(&self) -> &'static str {
                match self {
                    Op::Unary(u) => u.kind.name(),
                    Op::Binary(b) => b.kind.name(),
                    $(#[allow(unreachable_patterns)] Op::$variant(_) => $variant::NAME,)*
                }
            }

            pub fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
                match self { $(Op::$variant(op) => op.infer(inputs),)* }
            }

            pub fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
                match self { $(Op::$variant(op) => op.reference(inputs),)* }
            }

            pub fn decompose(
                &self,
                graph: &mut Graph,
                inputs: &[ValueId],
            ) -> Result<Option<Vec<ValueId>>, GraphError> {
                match self { $(Op::$variant(op) => op.decompose(graph, inputs),)* }
            }
        }
    };
}

ops! {
    Argmax,
    Attention,
    Binary,
    Constant,
    Embedding,
    Fused,
    Matmul,
    QuantizeActivations,
    Reduce,
    RmsNorm,
    Rope,
    Slice,
    Softcap,
    Softmax,
    StateWrite,
    Swiglu,
    TakeRows,
    Unary,
}

/// Checks that there are exactly `N` inputs.
pub(crate) fn arity<'a, const N: usize>(
    op: &'static str,
    inputs: &[&'a ValueType],
) -> Result<[&'a ValueType; N], GraphError> {
    <[&ValueType; N]>::try_from(inputs).map_err(|_| GraphError::Arity {
        op,
        expected: N.to_string(),
        found: inputs.len(),
    })
}

/// An error about input number `input`.
pub(crate) fn wrong(
    op: &'static str,
    input: usize,
    expected: impl Into<String>,
    found: &ValueType,
) -> GraphError {
    GraphError::Input {
        op,
        input,
        expected: expected.into(),
        found: found.to_string(),
    }
}

/// Checks that an input is an `f32` matrix `[rows, width]` and gives its width.
pub(crate) fn matrix(op: &'static str, input: usize, ty: &ValueType) -> Result<usize, GraphError> {
    match (ty.storage, &ty.shape[..]) {
        (Storage::Element(ElementType::F32), [_, _]) if !ty.state => ty
            .last()
            .filter(|&n| n > 0)
            .ok_or_else(|| wrong(op, input, "f32[rows, constant width > 0]", ty)),
        _ => Err(wrong(op, input, "f32[rows, width]", ty)),
    }
}

/// Checks that an input is `i32` of this rank.
pub(crate) fn indices(
    op: &'static str,
    input: usize,
    ty: &ValueType,
    rank: usize,
) -> Result<(), GraphError> {
    if ty.element() == Some(ElementType::I32) && ty.shape.len() == rank && !ty.state {
        Ok(())
    } else {
        Err(wrong(op, input, format!("i32 of rank {rank}"), ty))
    }
}

/// Checks that an input is a plain `f32` vector of `len` elements.
pub(crate) fn vector(
    op: &'static str,
    input: usize,
    ty: &ValueType,
    len: usize,
) -> Result<(), GraphError> {
    if ty.element() == Some(ElementType::F32) && ty.shape == [crate::Dim::Const(len)] {
        Ok(())
    } else {
        Err(wrong(op, input, format!("f32[{len}]"), ty))
    }
}
