//! Vulkan, Metal and DX12 through wgpu.
//!
//! The futures block when they are first polled: natively there is no event loop to give way to.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ingle_graph::backend::{BackendError, DeviceInfo, LocalFuture};
use ingle_graph::plan::KernelText;
use ingle_kernels::shapes::DeviceClass;
use ingle_kernels::{DeviceLimits, Feature};

use super::{Binding, Copy, Device, DeviceOptions, Dispatch, Limits, Scope, Usage};
use crate::block_on;

/// A wgpu device with its queue.
pub struct NativeDevice {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: DeviceInfo,
    class: DeviceClass,
    limits: Limits,
    features: Vec<Feature>,
    fault: Arc<Mutex<Option<BackendError>>>,
    scopes: RefCell<Vec<wgpu::ErrorScopeGuard>>,
    /// The last submission: what a mapping waits for, and no longer.
    submitted: RefCell<Option<wgpu::SubmissionIndex>>,
}

/// Which of the system's interfaces to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Vulkan,
    Metal,
    Dx12,
}

impl Api {
    /// `vulkan`, `metal`, `dx12`.
    pub const fn name(self) -> &'static str {
        match self {
            Api::Vulkan => "vulkan",
            Api::Metal => "metal",
            Api::Dx12 => "dx12",
        }
    }

    const fn backends(self) -> wgpu::Backends {
        match self {
            Api::Vulkan => wgpu::Backends::VULKAN,
            Api::Metal => wgpu::Backends::METAL,
            Api::Dx12 => wgpu::Backends::DX12,
        }
    }
}

impl NativeDevice {
    /// Opens the system's preferred adapter.
    pub fn open(api: Api, options: DeviceOptions) -> Result<Self, BackendError> {
        let none = |reason: String| BackendError::NoDevice {
            device: api.name().into(),
            reason,
        };
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = api.backends();
        let instance = wgpu::Instance::new(descriptor);
        let request = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        let adapter =
            block_on(instance.request_adapter(&request)).map_err(|e| none(e.to_string()))?;
        let limits = required_limits(&adapter, options);
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("ingle"),
            required_limits: limits.clone(),
            ..Default::default()
        };
        let (device, queue) =
            block_on(adapter.request_device(&descriptor)).map_err(|e| none(e.to_string()))?;
        let fault = watch(&device);
        Ok(NativeDevice {
            info: describe(api, &adapter),
            class: match adapter.get_info().device_type {
                wgpu::DeviceType::Cpu => DeviceClass::Software,
                _ => DeviceClass::Hardware,
            },
            limits: limits_of(&limits),
            // wgpu translates packed dot products for devices that lack them.
            features: vec![Feature::PackedIntegerDot],
            device,
            queue,
            fault,
            scopes: RefCell::new(Vec::new()),
            submitted: RefCell::new(None),
        })
    }

    /// Loses the device on purpose: what a driver reset does to us.
    pub fn lose(&self) {
        self.device.destroy();
        self.wait();
    }

    fn wait(&self) {
        // What fails here reaches us through the lost callback or the map callback.
        let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
    }
}

/// WebGPU's defaults, so that what runs here runs in every browser; larger buffers only if asked for.
fn required_limits(adapter: &wgpu::Adapter, options: DeviceOptions) -> wgpu::Limits {
    let mut limits = wgpu::Limits::default();
    if options.large_buffers {
        let most = adapter.limits();
        limits.max_buffer_size = most.max_buffer_size;
        limits.max_storage_buffer_binding_size = most.max_storage_buffer_binding_size;
    }
    limits
}

fn limits_of(limits: &wgpu::Limits) -> Limits {
    Limits {
        kernel: DeviceLimits {
            max_storage_buffers_per_shader_stage: limits.max_storage_buffers_per_shader_stage,
            max_compute_workgroup_storage_size: limits.max_compute_workgroup_storage_size,
            max_compute_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
            max_compute_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
        },
        max_buffer_size: limits.max_buffer_size,
        max_storage_buffer_binding_size: limits.max_storage_buffer_binding_size,
        min_storage_buffer_offset_alignment: u64::from(limits.min_storage_buffer_offset_alignment),
    }
}

fn describe(api: Api, adapter: &wgpu::Adapter) -> DeviceInfo {
    let info = adapter.get_info();
    let details = [
        info.driver,
        info.driver_info,
        format!("{:?}", info.device_type),
    ];
    DeviceInfo {
        kind: api.name().into(),
        name: info.name,
        details: details.into_iter().filter(|d| !d.is_empty()).collect(),
    }
}

/// Collects what happens outside of scopes. The first fault stays.
fn watch(device: &wgpu::Device) -> Arc<Mutex<Option<BackendError>>> {
    let fault = Arc::new(Mutex::new(None));
    let set = |fault: &Mutex<Option<BackendError>>, error| {
        let mut fault = fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert(error);
    };
    let uncaptured = Arc::clone(&fault);
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        set(&uncaptured, convert(&error))
    }));
    let lost = Arc::clone(&fault);
    device.set_device_lost_callback(move |reason, message| {
        set(
            &lost,
            BackendError::DeviceLost {
                reason: format!("{reason:?}: {message}"),
            },
        );
    });
    fault
}

fn known(fault: &Mutex<Option<BackendError>>) -> Option<BackendError> {
    fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn convert(error: &wgpu::Error) -> BackendError {
    match error {
        wgpu::Error::OutOfMemory { .. } => BackendError::OutOfMemory {
            what: "the device".into(),
            bytes: 0,
        },
        other => BackendError::Device {
            message: other.to_string(),
        },
    }
}

const EVERY_FILTER: [wgpu::ErrorFilter; 3] = [
    wgpu::ErrorFilter::Internal,
    wgpu::ErrorFilter::OutOfMemory,
    wgpu::ErrorFilter::Validation,
];

const fn filters(scope: Scope) -> &'static [wgpu::ErrorFilter] {
    match scope {
        Scope::Everything => &EVERY_FILTER,
        Scope::Validation => &[wgpu::ErrorFilter::Validation],
    }
}

impl Device for NativeDevice {
    type Buffer = wgpu::Buffer;
    type Layout = wgpu::BindGroupLayout;
    type Pipeline = wgpu::ComputePipeline;
    type BindGroup = wgpu::BindGroup;

    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn class(&self) -> DeviceClass {
        self.class
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn features(&self) -> &[Feature] {
        &self.features
    }

    fn create_buffer(&self, label: &str, bytes: u64, usage: Usage) -> wgpu::Buffer {
        use wgpu::BufferUsages as U;
        let usage = match usage {
            Usage::Storage => U::STORAGE | U::COPY_SRC | U::COPY_DST,
            Usage::Staging => U::MAP_READ | U::COPY_DST,
        };
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: bytes,
            usage,
            mapped_at_creation: false,
        })
    }

    fn destroy_buffer(&self, buffer: &wgpu::Buffer) {
        buffer.destroy();
    }

    fn write_buffer(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        self.queue.write_buffer(buffer, offset, bytes);
    }

    fn create_layout(&self, writes: &[bool]) -> wgpu::BindGroupLayout {
        let entries: Vec<wgpu::BindGroupLayoutEntry> = (0u32..)
            .zip(writes)
            .map(|(binding, &write)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: !write },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        self.device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            })
    }

    /// Pipelines are made on threads of their own: drivers take tens of milliseconds for each.
    fn create_pipeline(
        &self,
        label: &str,
        layout: &wgpu::BindGroupLayout,
        text: &KernelText,
    ) -> LocalFuture<'static, Result<wgpu::ComputePipeline, BackendError>> {
        let (device, layout) = (self.device.clone(), layout.clone());
        let (name, text) = (label.to_owned(), text.clone());
        let worker = thread::Builder::new().name("pipeline".into()).spawn({
            let name = name.clone();
            move || make_pipeline(&device, &layout, &name, &text)
        });
        let failed = |name, reason: String| BackendError::Kernel { name, reason };
        Box::pin(async move {
            match worker.map(thread::JoinHandle::join) {
                Ok(Ok(made)) => made,
                Ok(Err(_)) => Err(failed(name, "the device's compiler panicked".into())),
                Err(e) => Err(failed(name, e.to_string())),
            }
        })
    }

    fn create_bind_group(
        &self,
        layout: &wgpu::BindGroupLayout,
        bindings: &[Binding<'_, Self>],
    ) -> wgpu::BindGroup {
        let entries: Vec<wgpu::BindGroupEntry<'_>> = (0u32..)
            .zip(bindings)
            .map(|(binding, b)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: b.buffer,
                    offset: b.offset,
                    size: wgpu::BufferSize::new(b.bytes),
                }),
            })
            .collect();
        self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout,
            entries: &entries,
        })
    }

    fn submit<'a>(
        &self,
        before: impl Iterator<Item = Copy<'a, Self>>,
        launches: impl Iterator<Item = Dispatch<'a, Self>>,
        after: impl Iterator<Item = Copy<'a, Self>>,
    ) {
        let mut encoder = self
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let copy = |encoder: &mut wgpu::CommandEncoder, c: Copy<'a, Self>| {
            encoder.copy_buffer_to_buffer(c.from, c.from_offset, c.to, c.to_offset, c.bytes);
        };
        before.for_each(|c| copy(&mut encoder, c));
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            for launch in launches {
                pass.set_pipeline(launch.pipeline);
                pass.set_bind_group(0, launch.bind_group, &[]);
                let [x, y, z] = launch.grid;
                pass.dispatch_workgroups(x, y, z);
            }
        }
        after.for_each(|c| copy(&mut encoder, c));
        let index = self.queue.submit([encoder.finish()]);
        self.submitted.replace(Some(index));
    }

    fn map(
        &self,
        buffer: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
    ) -> LocalFuture<'static, Result<(), BackendError>> {
        let outcome = Arc::new(Mutex::new(None));
        let set = Arc::clone(&outcome);
        buffer.map_async(wgpu::MapMode::Read, offset..offset + bytes, move |result| {
            *set.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        let (device, fault) = (self.device.clone(), Arc::clone(&self.fault));
        let submission_index = self.submitted.borrow().clone();
        Box::pin(async move {
            // What fails here reaches us through the lost callback or the map callback.
            let _ = device.poll(wgpu::PollType::Wait {
                submission_index,
                timeout: None,
            });
            if let Some(fault) = known(&fault) {
                return Err(fault);
            }
            let outcome = outcome
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let device = |message: String| BackendError::Device { message };
            match outcome {
                Some(Ok(())) => Ok(()),
                Some(Err(e)) => Err(device(e.to_string())),
                None => Err(device("mapping a buffer never ended".into())),
            }
        })
    }

    fn read_mapped(
        &self,
        buffer: &wgpu::Buffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        let end = offset + (out.len() as u64).next_multiple_of(4);
        let view = buffer
            .get_mapped_range(offset..end)
            .map_err(|e| BackendError::Device {
                message: e.to_string(),
            })?;
        out.copy_from_slice(&view[..out.len()]);
        Ok(())
    }

    fn unmap(&self, buffer: &wgpu::Buffer) {
        buffer.unmap();
    }

    fn begin_scope(&self, scope: Scope) {
        let pushed = filters(scope)
            .iter()
            .map(|f| self.device.push_error_scope(*f));
        self.scopes.borrow_mut().extend(pushed);
    }

    fn end_scope(&self, scope: Scope) -> LocalFuture<'static, Result<(), BackendError>> {
        let mut first = None;
        for _ in filters(scope) {
            let Some(guard) = self.scopes.borrow_mut().pop() else {
                break;
            };
            if let Some(error) = block_on(guard.pop()) {
                first.get_or_insert(convert(&error));
            }
        }
        Box::pin(std::future::ready(first.map_or(Ok(()), Err)))
    }

    fn fault(&self) -> Option<BackendError> {
        known(&self.fault)
    }

    fn flush(&self) {
        self.queue.submit([]);
        self.wait();
    }
}

fn make_pipeline(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    label: &str,
    text: &KernelText,
) -> Result<wgpu::ComputePipeline, BackendError> {
    let failed = |e: wgpu::Error| BackendError::Kernel {
        name: label.into(),
        reason: e.to_string(),
    };
    let scopes: Vec<wgpu::ErrorScopeGuard> = EVERY_FILTER
        .iter()
        .map(|f| device.push_error_scope(*f))
        .collect();
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some(label),
        source: wgpu::ShaderSource::Wgsl(text.source.as_str().into()),
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(label),
        bind_group_layouts: &[Some(layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(&text.entry),
        // Kernels write their workgroup memory before they read it.
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: None,
    });
    let mut first = None;
    for guard in scopes.into_iter().rev() {
        if let Some(error) = block_on(guard.pop()) {
            first.get_or_insert(error);
        }
    }
    first.map_or(Ok(pipeline), |e| Err(failed(e)))
}
