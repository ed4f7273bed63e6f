//! GraphTensor (what to compute) and Plan (how to compute it on one target).
//!
//! A frontend builds a [`Graph`]; [`passes::compile`] turns it into a [`plan::Plan`]; a [`backend::Backend`] executes
//! that. [`interpret`] gives the reference answer to every graph. Pure: no clock, thread, environment or IO.

pub mod backend;
mod error;
mod graph;
mod interpret;
pub mod kernel;
pub mod ops;
pub mod passes;
pub mod plan;
mod program;
mod recipe;
pub mod suite;
mod tensor;
mod text;
mod types;
mod verify;

pub use error::GraphError;
pub use graph::{Def, Graph, Leaf, LeafId, Node, NodeId, Role, Value, ValueId};
pub use interpret::interpret;
pub use program::{Extra, Operand, Program, Step};
pub use recipe::{Piece, Recipe};
pub use tensor::{Data, Tensor};
pub use text::parse;
pub use types::{Dim, Dims, Shape, Symbol, ValueType};
pub use verify::verify;
