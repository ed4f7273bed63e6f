//! The CPU backend: SIMD kernels over one ISA trait, and the executor of CPU plans.
//!
//! A kernel is a function over slices: it takes a [`Machine`] (instruction set and threads), checks every shape against the
//! slices it was given, and allocates nothing. What it computes does not depend on the number of threads, nor on how many
//! rows are computed at a time.

mod backend;
mod error;
mod isa;
pub mod kernels;
mod machine;
mod math;
mod memory;
mod pool;
mod rows;
mod target;

pub use backend::CpuBackend;
pub use error::CpuError;
pub use isa::Level;
pub use machine::Machine;
pub use memory::Buffer;
pub use pool::Pool;
pub use rows::{Rows, RowsMut};
pub use target::CpuTarget;
