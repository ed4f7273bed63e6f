//! A compiled kernel: text and everything an executor must know to launch it.

use serde::{Deserialize, Serialize};

/// How a kernel uses a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    Read,
    ReadWrite,
}

/// One storage buffer that a kernel binds. Its binding number is its place in [`KernelText::bindings`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BindingSpec {
    /// What the buffer is: `x`, `weights`, `params`, …
    pub name: String,
    pub access: Access,
}

/// What a device must offer beyond core WebGPU for a kernel to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// The WGSL language feature `packed_4x8_integer_dot_product`.
    PackedIntegerDot,
}

/// A kernel as WGSL, with its interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelText {
    /// [`crate::KernelKey::id`] of the key it was compiled from.
    pub id: String,
    pub wgsl: String,
    /// Name of the entry point.
    pub entry: String,
    pub workgroup: [u32; 3],
    /// Storage buffers of group 0, in the order of their binding numbers.
    pub bindings: Vec<BindingSpec>,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    pub features: Vec<Feature>,
}
