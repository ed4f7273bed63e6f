//! GPU kernels: what they compute as data ([`KernelKey`]), their texts ([`KernelText`]), packs of texts made at build
//! time ([`Pack`]), and, behind the feature `compiler`, the CubeCL functions they are compiled from
//! ([`compile`](compile::compile)).
//!
//! Conventions every kernel follows, so that an executor needs to know nothing else:
//!
//! - All bindings are storage buffers of group 0, numbered in the order of [`KernelText::bindings`].
//! - Sizes, offsets and `f32` bit patterns that stay the same while a model is loaded come from the last binding,
//!   `params` (`array<u32>`, see [`params`]).
//! - What changes from step to step comes from the binding `step` (`array<u32>`, see [`step`]).
//! - No launch binds one buffer for reading and for writing.

mod key;
mod limits;
mod pack;
pub mod params;
mod program;
pub mod rope;
pub mod shapes;
pub mod step;
mod text;
mod weights;

#[cfg(feature = "compiler")]
pub mod compile;

pub use key::{
    Activations, ArgmaxKey, AttentionKey, CopyBlocksKey, ElementwiseKey, EmbeddingKey, KernelKey,
    KvElement, MatMulKey, MatMulTile, MatVecKey, MatVecShape, Projection, QuantizeActivationsKey,
    ReduceKey, Reduction, RmsNormKey, RopePairing, RopeWriteKey, SliceKey, SoftmaxKey, TakeRowsKey,
    TokenSource,
};
pub use limits::DeviceLimits;
pub use pack::{Pack, PackError};
pub use program::{EltArg, EltInput, EltInstruction, EltOp, EltProgram, ProgramError};
pub use text::{Access, BindingSpec, Feature, KernelText};
pub use weights::{WeightFormat, WeightFormatError};
