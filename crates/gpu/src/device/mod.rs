//! `Device`: the few things the executor asks of a GPU, and who implements them.
//!
//! Only this module names wgpu or JavaScript. Calls that make or submit things return at once and report errors through
//! the scope around them, as WebGPU does; futures are polled on the thread that made them.

#[cfg(all(feature = "native", not(target_arch = "wasm32")))]
pub mod native;
#[cfg(all(feature = "web", target_arch = "wasm32"))]
pub mod web;

use ingle_graph::backend::{BackendError, DeviceInfo, LocalFuture};
use ingle_graph::plan::KernelText;
use ingle_kernels::shapes::DeviceClass;
use ingle_kernels::{DeviceLimits, Feature};

/// What a device allows. The default is WebGPU's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub kernel: DeviceLimits,
    /// Bytes of the largest buffer.
    pub max_buffer_size: u64,
    /// Bytes of the largest part of a buffer that a kernel may see.
    pub max_storage_buffer_binding_size: u64,
    /// What the offset of a binding is a multiple of.
    pub min_storage_buffer_offset_alignment: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            kernel: DeviceLimits::default(),
            max_buffer_size: 256 << 20,
            max_storage_buffer_binding_size: 128 << 20,
            min_storage_buffer_offset_alignment: 256,
        }
    }
}

/// What to ask of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Ask for the adapter's largest buffers and bindings instead of WebGPU's default limits.
    pub large_buffers: bool,
}

/// What a buffer is for. Every buffer can be written from the host and copied from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Kernels bind it.
    Storage,
    /// The host maps it for reading; kernels cannot bind it.
    Staging,
}

/// A part of a buffer that a kernel binds: `offset`, `bytes`.
#[derive(Debug)]
pub struct Binding<'a, D: Device> {
    pub buffer: &'a D::Buffer,
    pub offset: u64,
    pub bytes: u64,
}

/// One launch.
#[derive(Debug)]
pub struct Dispatch<'a, D: Device> {
    pub pipeline: &'a D::Pipeline,
    pub bind_group: &'a D::BindGroup,
    pub grid: [u32; 3],
}

/// A copy between two buffers. Offsets and `bytes` are multiples of 4.
#[derive(Debug)]
pub struct Copy<'a, D: Device> {
    pub from: &'a D::Buffer,
    pub from_offset: u64,
    pub to: &'a D::Buffer,
    pub to_offset: u64,
    pub bytes: u64,
}

/// A GPU.
pub trait Device: Sized + 'static {
    type Buffer: 'static;
    /// Which bindings a pipeline has.
    type Layout: 'static;
    type Pipeline: 'static;
    type BindGroup: 'static;

    fn info(&self) -> DeviceInfo;

    /// Whether the "GPU" is the processor: other kernels are fast there.
    fn class(&self) -> DeviceClass;

    fn limits(&self) -> Limits;

    /// Features that kernels may use.
    fn features(&self) -> &[Feature];

    /// A zeroed buffer of `bytes`, a multiple of 4.
    fn create_buffer(&self, label: &str, bytes: u64, usage: Usage) -> Self::Buffer;

    /// Frees the memory; work that was submitted earlier still sees it.
    fn destroy_buffer(&self, buffer: &Self::Buffer);

    /// Writes before anything that is submitted later. `offset` and the length are multiples of 4.
    fn write_buffer(&self, buffer: &Self::Buffer, offset: u64, bytes: &[u8]);

    /// The layout of pipelines with these storage bindings: for each, whether the kernel writes it.
    fn create_layout(&self, writes: &[bool]) -> Self::Layout;

    /// Starts making a pipeline at once; the future gives it, or what the device's compiler said.
    fn create_pipeline(
        &self,
        label: &str,
        layout: &Self::Layout,
        text: &KernelText,
    ) -> LocalFuture<'static, Result<Self::Pipeline, BackendError>>;

    fn create_bind_group(
        &self,
        layout: &Self::Layout,
        bindings: &[Binding<'_, Self>],
    ) -> Self::BindGroup;

    /// Submits copies, then launches in one pass, then copies, as one piece of work.
    fn submit<'a>(
        &self,
        before: impl Iterator<Item = Copy<'a, Self>>,
        launches: impl Iterator<Item = Dispatch<'a, Self>>,
        after: impl Iterator<Item = Copy<'a, Self>>,
    );

    /// Starts to map a part of a [`Usage::Staging`] buffer; it is mapped once everything submitted before has run. `offset`
    /// is a multiple of 8, `bytes` of 4. Until [`Device::unmap`] the buffer may not be copied to.
    fn map(
        &self,
        buffer: &Self::Buffer,
        offset: u64,
        bytes: u64,
    ) -> LocalFuture<'static, Result<(), BackendError>>;

    /// Reads from a part that is mapped.
    fn read_mapped(
        &self,
        buffer: &Self::Buffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError>;

    /// Ends a mapping, also one that has only been started.
    fn unmap(&self, buffer: &Self::Buffer);

    /// Starts collecting errors: of every kind, or only of validation, which is cheaper.
    fn begin_scope(&self, scope: Scope);

    /// Ends the scope that was begun last; the future gives the first error in it.
    fn end_scope(&self, scope: Scope) -> LocalFuture<'static, Result<(), BackendError>>;

    /// What went wrong outside of scopes, or why the device was lost, if either happened.
    fn fault(&self) -> Option<BackendError>;

    /// Lets the device get on with writes that have been handed to it.
    fn flush(&self) {}
}

/// Which errors a scope collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Validation, out of memory, internal.
    Everything,
    /// Validation; the other kinds reach [`Device::fault`].
    Validation,
}
