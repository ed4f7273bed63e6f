//! The kernels: one op, one file, one name.

pub mod elementwise;
pub mod matmul;
pub mod program;
pub mod quantize_activations;
pub mod rms_norm;
