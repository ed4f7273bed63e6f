//! The ops: one file, one row, one name each.
//!
//! An op's file holds its formula, its attributes, shape inference, the slow obvious reference and its test cases; a
//! composite op also says how it decomposes into more primitive ones, and that is how it is recognised among them. The
//! row in `ops!` gives it a place in [`Op`], in the text form, in the suite and in the passes: see
//! `docs/adding-an-op.md`.

mod argmax;
mod attention;
mod causal_mask;
mod constant;
mod elementwise;
mod embedding;
mod fused;
mod geglu;
mod head_mix;
mod head_scores;
mod matmul;
mod quantize_activations;
mod reduce;
mod rms_norm;
mod rope;
mod rotary_angles;
mod rotate;
mod slice;
mod softcap;
mod softmax;
mod state_read;
mod state_write;
mod swiglu;
mod take_rows;

pub use elementwise::EltOp;
pub use reduce::Reduction;
pub use rope::Pairing;
pub use state_read::Part;

use ingle_quant::{ElementType, Storage};
use serde::{Deserialize, Serialize};

use crate::suite::Suite;
use crate::{Graph, GraphError, Tensor, ValueId, ValueType};

/// Positions per block of the KV pool.
pub const KV_BLOCK: usize = 32;

/// How a backend comes to compute an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Lowering has a kernel, or a step of an element-wise program, for it.
    Kernel,
    /// It is decomposed before fusion, so that backends need to know nothing of it.
    Decomposed,
    /// No backend computes it: others decompose into it, and are recognised from it. Lowering refuses what is left.
    Interpreted,
}

/// One shape that the decomposition of a composite op takes, for the pass `recognise`.
///
/// The example decomposed is the pattern; where nodes of a graph are the same ops in the same arrangement, `read` gives
/// the op from them. Nothing has to be checked there: the pass decomposes that op too, and it must give those nodes.
#[derive(Clone, Debug)]
pub struct Pattern {
    pub example: Op,
    /// Types of the example's inputs; only their ranks and what the arrangement depends on count.
    pub inputs: Vec<ValueType>,
    /// Reads the op's attributes off the nodes, which come in the order of the decomposition.
    pub read: fn(&[&Op]) -> Option<Op>,
}

/// What an op's file provides.
pub trait Operation: Sized + Into<Op> {
    /// The op's name in text, kernels, suites and traces.
    const NAME: &'static str;

    /// How a backend comes to compute it.
    const RUNS: Runs = Runs::Kernel;

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

    /// The shapes of its decomposition, if it is to be recognised.
    fn patterns() -> Vec<Pattern> {
        vec![]
    }

    /// Adds the op's cases to the suite that every backend runs.
    fn cases(suite: &mut Suite);
}

macro_rules! ops {
    ($($file:ident: $variant:ident;)*) => {
        $(pub use $file::$variant;)*

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

            /// How a backend comes to compute it.
            pub fn runs(&self) -> Runs {
                match self { $(Op::$variant(_) => $variant::RUNS,)* }
            }

            /// See [`Operation::infer`].
            pub fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
                match self { $(Op::$variant(op) => op.infer(inputs),)* }
            }

            /// See [`Operation::reference`].
            pub fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
                match self { $(Op::$variant(op) => op.reference(inputs),)* }
            }

            /// See [`Operation::decompose`].
            pub fn decompose(
                &self,
                graph: &mut Graph,
                inputs: &[ValueId],
            ) -> Result<Option<Vec<ValueId>>, GraphError> {
                match self { $(Op::$variant(op) => op.decompose(graph, inputs),)* }
            }

            /// The patterns of all ops.
            pub(crate) fn patterns() -> Vec<Pattern> {
                let mut all = vec![];
                $(all.extend($variant::patterns());)*
                all
            }

            /// Adds the cases of all ops that `wanted` admits.
            pub(crate) fn cases(suite: &mut Suite, wanted: impl Fn(Runs) -> bool) {
                $(if wanted($variant::RUNS) { $variant::cases(suite) })*
            }
        }
    };
}

ops! {
    argmax: Argmax;
    attention: Attention;
    elementwise: Binary;
    causal_mask: CausalMask;
    constant: Constant;
    embedding: Embedding;
    fused: Fused;
    geglu: Geglu;
    head_mix: HeadMix;
    head_scores: HeadScores;
    matmul: Matmul;
    quantize_activations: QuantizeActivations;
    reduce: Reduce;
    rms_norm: RmsNorm;
    rope: Rope;
    rotary_angles: RotaryAngles;
    rotate: Rotate;
    slice: Slice;
    softcap: Softcap;
    softmax: Softmax;
    state_read: StateRead;
    state_write: StateWrite;
    swiglu: Swiglu;
    take_rows: TakeRows;
    elementwise: Unary;
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

/// Checks that an input is `f32` of any shape, and no state.
pub(crate) fn float(op: &'static str, input: usize, ty: &ValueType) -> Result<(), GraphError> {
    if ty.element() == Some(ElementType::F32) && !ty.state {
        Ok(())
    } else {
        Err(wrong(op, input, "f32", ty))
    }
}

/// An error about an attribute.
pub(crate) fn attribute(
    op: &'static str,
    name: &str,
    expected: impl Into<String>,
    found: impl ToString,
) -> GraphError {
    GraphError::Attribute {
        op: op.into(),
        name: name.into(),
        expected: expected.into(),
        found: found.to_string(),
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
    let plain = ty.element() == Some(ElementType::F32) && !ty.state;
    if plain && ty.shape == [crate::Dim::Const(len)] {
        Ok(())
    } else {
        Err(wrong(op, input, format!("f32[{len}]"), ty))
    }
}
