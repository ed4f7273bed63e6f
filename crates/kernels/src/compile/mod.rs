//! The compiler: a key becomes WGSL, without a device.
//!
//! Each kernel file holds a `#[cube]` function and a `build` that declares its bindings in order. The parts they share
//! are [`common`], [`weights`] (reading a matrix), [`program`] (element-wise programs) and [`intrinsics`] (WGSL
//! built-ins that CubeCL has no operation for).

mod argmax;
mod attention;
mod builder;
mod common;
mod copy_blocks;
mod elementwise;
mod embedding;
mod intrinsics;
mod matmul;
mod matvec;
mod matvec_int8;
mod program;
mod quantize_activations;
mod reduce;
mod rms_norm;
mod rope_write;
mod slice;
mod softmax;
mod take_rows;
mod weights;

use crate::{DeviceLimits, KernelKey, KernelText, ProgramError};

/// Why a key has no kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    #[error("kernel `{kernel}`: {field} must be {expected}, found {found}")]
    Key {
        kernel: String,
        field: &'static str,
        expected: String,
        found: String,
    },
    #[error("kernel `{kernel}`: needs {found} {field}, the device allows {limit}")]
    Limit {
        kernel: String,
        field: &'static str,
        limit: u32,
        found: u32,
    },
    #[error("kernel `{kernel}`: {source}")]
    Program {
        kernel: String,
        source: ProgramError,
    },
    #[error("kernel `{kernel}`: CubeCL refused it: {message}")]
    Compiler { kernel: String, message: String },
}

/// Compiles a key for a device with these limits.
pub fn compile(key: &KernelKey, limits: &DeviceLimits) -> Result<KernelText, KernelError> {
    let id = key.id();
    match key {
        KernelKey::Embedding(key) => embedding::build(id, key, limits),
        KernelKey::RmsNorm(key) => rms_norm::build(id, key, limits),
        KernelKey::MatVec(key) => matvec::build(id, key, limits),
        KernelKey::RopeWrite(key) => rope_write::build(id, key, limits),
        KernelKey::Elementwise(key) => elementwise::build(id, key, limits),
        KernelKey::Argmax(key) => argmax::build(id, key, limits),
        KernelKey::TakeRows(key) => take_rows::build(id, key, limits),
        KernelKey::Attention(key) => attention::build(id, key, limits),
        KernelKey::MatMul(key) => matmul::build(id, key, limits),
        KernelKey::CopyBlocks(key) => copy_blocks::build(id, key, limits),
        KernelKey::QuantizeActivations(key) => quantize_activations::build(id, key, limits),
        KernelKey::Reduce(key) => reduce::build(id, key, limits),
        KernelKey::Slice(key) => slice::build(id, key, limits),
        KernelKey::Softmax(key) => softmax::build(id, key, limits),
    }
}

/// Refuses a key whose field is not as it must be.
fn require(
    ok: bool,
    kernel: &str,
    field: &'static str,
    expected: impl Into<String>,
    found: impl ToString,
) -> Result<(), KernelError> {
    if ok {
        return Ok(());
    }
    Err(KernelError::Key {
        kernel: kernel.into(),
        field,
        expected: expected.into(),
        found: found.to_string(),
    })
}

/// Refuses a workgroup that is not a power of two between `least` and what the device allows.
fn require_threads(
    kernel: &str,
    threads: u32,
    least: u32,
    limits: &DeviceLimits,
) -> Result<(), KernelError> {
    let ok = threads.is_power_of_two() && threads >= least;
    require(
        ok,
        kernel,
        "threads",
        format!("a power of two, at least {least}"),
        threads,
    )?;
    let limit = limits.max_compute_invocations_per_workgroup;
    if threads > limit {
        return Err(KernelError::Limit {
            kernel: kernel.into(),
            field: "invocations",
            limit,
            found: threads,
        });
    }
    Ok(())
}
