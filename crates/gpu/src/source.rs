//! Where kernel texts come from: a pack made at build time, or the compiler linked in.

use ingle_kernels::{DeviceLimits, KernelKey, KernelText, Pack};

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error("no text for kernel {id}")]
    Missing { id: String },
    #[error("kernel {id} cannot be compiled for this device: {reason}")]
    Refused { id: String, reason: String },
}

/// Gives the text of a kernel for a device with these limits.
pub trait KernelSource {
    fn text(&self, key: &KernelKey, limits: &DeviceLimits) -> Result<KernelText, SourceError>;
}

impl KernelSource for Pack {
    fn text(&self, key: &KernelKey, _limits: &DeviceLimits) -> Result<KernelText, SourceError> {
        self.get(key)
            .cloned()
            .ok_or_else(|| SourceError::Missing { id: key.id() })
    }
}

/// The kernel compiler.
#[cfg(feature = "compiler")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Compiler;

#[cfg(feature = "compiler")]
impl KernelSource for Compiler {
    fn text(&self, key: &KernelKey, limits: &DeviceLimits) -> Result<KernelText, SourceError> {
        ingle_kernels::compile::compile(key, limits).map_err(|e| SourceError::Refused {
            id: key.id(),
            reason: e.to_string(),
        })
    }
}
