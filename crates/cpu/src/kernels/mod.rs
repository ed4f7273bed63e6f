//! The kernels: one op, one file, one name.

pub mod argmax;
pub mod attention;
pub mod elementwise;
pub mod embedding;
pub mod kv_pool;
pub mod matmul;
pub mod program;
pub mod quantize_activations;
pub mod reduce;
pub mod rms_norm;
pub mod rope;
pub mod rope_write;
pub mod slice;
pub mod softmax;
pub mod state_write;
pub mod take_rows;
