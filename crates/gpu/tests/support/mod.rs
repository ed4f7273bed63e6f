//! A Vulkan device that counts what is asked of it and may claim smaller limits, and a small decoder to run on it.
#![allow(dead_code, reason = "each test uses a part")]

pub mod decoder;

use std::cell::Cell;
use std::rc::Rc;

use ingle_gpu::device::native::{Api, NativeDevice};
use ingle_gpu::device::{Binding, Copy, Device, DeviceOptions, Dispatch, Limits, Scope, Usage};
use ingle_graph::backend::{BackendError, DeviceInfo, LocalFuture};
use ingle_graph::plan::KernelText;
use ingle_kernels::Feature;
use ingle_kernels::shapes::DeviceClass;

/// What was asked of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub created: usize,
    pub submits: usize,
    pub launches: usize,
    pub writes: usize,
    pub written: u64,
    pub read: u64,
}

/// See the module.
pub struct Watched {
    inner: NativeDevice,
    class: DeviceClass,
    limits: Limits,
    counts: Rc<Cell<Counts>>,
}

impl Watched {
    /// Opens a device that claims its limits with `change` applied.
    pub fn open(change: impl FnOnce(&mut Limits)) -> Self {
        let inner = NativeDevice::open(Api::Vulkan, DeviceOptions::default())
            .expect("these tests need a Vulkan device");
        let mut limits = inner.limits();
        change(&mut limits);
        Watched {
            class: inner.class(),
            inner,
            limits,
            counts: Rc::default(),
        }
    }

    /// The same, with the kernels for another class of device.
    pub fn with_class(self, class: DeviceClass) -> Self {
        Watched { class, ..self }
    }

    pub fn counts(&self) -> Rc<Cell<Counts>> {
        Rc::clone(&self.counts)
    }

    pub fn lose(&self) {
        self.inner.lose();
    }

    fn count(&self, f: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        f(&mut counts);
        self.counts.set(counts);
    }
}

fn copy(c: Copy<'_, Watched>) -> Copy<'_, NativeDevice> {
    Copy {
        from: c.from,
        from_offset: c.from_offset,
        to: c.to,
        to_offset: c.to_offset,
        bytes: c.bytes,
    }
}

impl Device for Watched {
    type Buffer = <NativeDevice as Device>::Buffer;
    type Layout = <NativeDevice as Device>::Layout;
    type Pipeline = <NativeDevice as Device>::Pipeline;
    type BindGroup = <NativeDevice as Device>::BindGroup;

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn class(&self) -> DeviceClass {
        self.class
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn features(&self) -> &[Feature] {
        self.inner.features()
    }

    fn create_buffer(&self, label: &str, bytes: u64, usage: Usage) -> Self::Buffer {
        self.count(|c| c.created += 1);
        self.inner.create_buffer(label, bytes, usage)
    }

    fn destroy_buffer(&self, buffer: &Self::Buffer) {
        self.inner.destroy_buffer(buffer);
    }

    fn write_buffer(&self, buffer: &Self::Buffer, offset: u64, bytes: &[u8]) {
        self.count(|c| {
            c.writes += 1;
            c.written += bytes.len() as u64;
        });
        self.inner.write_buffer(buffer, offset, bytes);
    }

    fn create_layout(&self, writes: &[bool]) -> Self::Layout {
        self.count(|c| c.created += 1);
        self.inner.create_layout(writes)
    }

    fn create_pipeline(
        &self,
        label: &str,
        layout: &Self::Layout,
        text: &KernelText,
    ) -> LocalFuture<'static, Result<Self::Pipeline, BackendError>> {
        self.count(|c| c.created += 1);
        self.inner.create_pipeline(label, layout, text)
    }

    fn create_bind_group(
        &self,
        layout: &Self::Layout,
        bindings: &[Binding<'_, Self>],
    ) -> Self::BindGroup {
        self.count(|c| c.created += 1);
        let inner = |b: &Binding<'_, Self>| b.bytes;
        assert!(
            bindings
                .iter()
                .all(|b| inner(b) <= self.limits.max_storage_buffer_binding_size)
        );
        let bindings: Vec<Binding<'_, NativeDevice>> = bindings
            .iter()
            .map(|b| Binding {
                buffer: b.buffer,
                offset: b.offset,
                bytes: b.bytes,
            })
            .collect();
        self.inner.create_bind_group(layout, &bindings)
    }

    fn submit<'a>(
        &self,
        before: impl Iterator<Item = Copy<'a, Self>>,
        launches: impl Iterator<Item = Dispatch<'a, Self>>,
        after: impl Iterator<Item = Copy<'a, Self>>,
    ) {
        self.count(|c| c.submits += 1);
        let launches = launches.map(|l| {
            self.count(|c| c.launches += 1);
            Dispatch {
                pipeline: l.pipeline,
                bind_group: l.bind_group,
                grid: l.grid,
            }
        });
        self.inner
            .submit(before.map(copy), launches, after.map(copy));
    }

    fn map(
        &self,
        buffer: &Self::Buffer,
        offset: u64,
        bytes: u64,
    ) -> LocalFuture<'static, Result<(), BackendError>> {
        self.count(|c| c.read += bytes);
        self.inner.map(buffer, offset, bytes)
    }

    fn read_mapped(
        &self,
        buffer: &Self::Buffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        self.inner.read_mapped(buffer, offset, out)
    }

    fn unmap(&self, buffer: &Self::Buffer) {
        self.inner.unmap(buffer);
    }

    fn begin_scope(&self, scope: Scope) {
        self.inner.begin_scope(scope);
    }

    fn end_scope(&self, scope: Scope) -> LocalFuture<'static, Result<(), BackendError>> {
        self.inner.end_scope(scope)
    }

    fn fault(&self) -> Option<BackendError> {
        self.inner.fault()
    }

    fn flush(&self) {
        self.inner.flush();
    }
}
