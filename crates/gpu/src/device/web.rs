//! WebGPU in a browser, in a page or a worker.
//!
//! The bindings are our own externs ([`js`]): web-sys keeps WebGPU behind an unstable flag.

mod js;

use std::cell::RefCell;
use std::rc::Rc;

use ingle_graph::backend::{BackendError, DeviceInfo, LocalFuture};
use ingle_graph::plan::KernelText;
use ingle_kernels::shapes::DeviceClass;
use ingle_kernels::{DeviceLimits, Feature};
use js_sys::{Array, Object, Promise, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};

use super::{Binding, Copy, Device, DeviceOptions, Dispatch, Limits, Scope, Usage};

type Fault = Rc<RefCell<Option<BackendError>>>;

/// A WebGPU device with its queue.
pub struct WebDevice {
    device: js::Device,
    queue: js::Queue,
    info: DeviceInfo,
    class: DeviceClass,
    limits: Limits,
    features: Vec<Feature>,
    fault: Fault,
    /// Kept because the device calls it.
    _uncaptured: Closure<dyn FnMut(JsValue)>,
}

/// Features that are asked for where the adapter has them.
const OPTIONAL: [&str; 3] = ["subgroups", "shader-f16", "timestamp-query"];

/// GPUBufferUsage
const MAP_READ: u32 = 0x1;
const COPY_SRC: u32 = 0x4;
const COPY_DST: u32 = 0x8;
const STORAGE: u32 = 0x80;
/// GPUShaderStage
const COMPUTE: u32 = 0x4;
/// GPUMapMode
const READ: u32 = 0x1;

impl WebDevice {
    /// Asks the browser for its preferred adapter and a device on it.
    pub async fn open(options: DeviceOptions) -> Result<Self, BackendError> {
        let gpu =
            gpu().ok_or_else(|| none("navigator.gpu does not exist in this browser or context"))?;
        let request = object(&[("powerPreference", "high-performance".into())]);
        let adapter = JsFuture::from(gpu.request_adapter(&request))
            .await
            .map_err(|e| none(&message(&e)))?;
        if adapter.is_null() || adapter.is_undefined() {
            return Err(none("the browser offers no adapter"));
        }
        let adapter: js::Adapter = adapter.unchecked_into();
        let features: Array = OPTIONAL
            .iter()
            .filter(|f| adapter.features().has(f))
            .map(|f| JsValue::from_str(f))
            .collect();
        let descriptor = object(&[
            ("label", "ingle".into()),
            ("requiredFeatures", features.into()),
            ("requiredLimits", required_limits(&adapter, options).into()),
        ]);
        let device = JsFuture::from(adapter.request_device(&descriptor))
            .await
            .map_err(|e| none(&message(&e)))?;
        let device: js::Device = device.unchecked_into();
        let fault: Fault = Rc::default();
        let uncaptured = watch(&device, &fault);
        let dot = gpu
            .wgsl_language_features()
            .is_some_and(|f| f.has("packed_4x8_integer_dot_product"));
        Ok(WebDevice {
            queue: device.queue(),
            info: describe(&adapter),
            class: class(&adapter),
            limits: limits_of(&device.limits()),
            features: if dot {
                vec![Feature::PackedIntegerDot]
            } else {
                vec![]
            },
            device,
            fault,
            _uncaptured: uncaptured,
        })
    }
}

fn none(reason: &str) -> BackendError {
    BackendError::NoDevice {
        device: "webgpu".into(),
        reason: reason.into(),
    }
}

fn gpu() -> Option<js::Gpu> {
    let navigator = Reflect::get(&js_sys::global(), &"navigator".into()).ok()?;
    let gpu = Reflect::get(&navigator, &"gpu".into()).ok()?;
    (!gpu.is_undefined() && !gpu.is_null()).then(|| gpu.unchecked_into())
}

/// WebGPU's defaults by name, so that what runs here runs in every browser; larger buffers only if asked for.
fn required_limits(adapter: &js::Adapter, options: DeviceOptions) -> Object {
    let defaults = Limits::default();
    let most = adapter.limits();
    let buffers = |name: &str, default: u64| {
        let value = if options.large_buffers {
            number(&most, name)
        } else {
            default as f64
        };
        JsValue::from_f64(value)
    };
    let kernel = defaults.kernel;
    object(&[
        (
            "maxBufferSize",
            buffers("maxBufferSize", defaults.max_buffer_size),
        ),
        (
            "maxStorageBufferBindingSize",
            buffers(
                "maxStorageBufferBindingSize",
                defaults.max_storage_buffer_binding_size,
            ),
        ),
        (
            "maxStorageBuffersPerShaderStage",
            kernel.max_storage_buffers_per_shader_stage.into(),
        ),
        (
            "maxComputeWorkgroupStorageSize",
            kernel.max_compute_workgroup_storage_size.into(),
        ),
        (
            "maxComputeInvocationsPerWorkgroup",
            kernel.max_compute_invocations_per_workgroup.into(),
        ),
        (
            "maxComputeWorkgroupsPerDimension",
            kernel.max_compute_workgroups_per_dimension.into(),
        ),
    ])
}

fn limits_of(limits: &JsValue) -> Limits {
    let word = |name: &str| number(limits, name) as u32;
    Limits {
        kernel: DeviceLimits {
            max_storage_buffers_per_shader_stage: word("maxStorageBuffersPerShaderStage"),
            max_compute_workgroup_storage_size: word("maxComputeWorkgroupStorageSize"),
            max_compute_invocations_per_workgroup: word("maxComputeInvocationsPerWorkgroup"),
            max_compute_workgroups_per_dimension: word("maxComputeWorkgroupsPerDimension"),
        },
        max_buffer_size: number(limits, "maxBufferSize") as u64,
        max_storage_buffer_binding_size: number(limits, "maxStorageBufferBindingSize") as u64,
        min_storage_buffer_offset_alignment: number(limits, "minStorageBufferOffsetAlignment")
            as u64,
    }
}

/// The adapter's description; browsers that keep it back tell the vendor and the architecture.
fn describe(adapter: &js::Adapter) -> DeviceInfo {
    let info = adapter.info();
    let field = |name: &str| {
        let text = Reflect::get(&info, &name.into()).ok()?.as_string()?;
        (!text.is_empty()).then_some(text)
    };
    let known: Vec<String> = ["vendor", "architecture", "device"]
        .into_iter()
        .filter_map(field)
        .collect();
    let (name, details) = match field("description") {
        Some(description) => (description, known),
        None if known.is_empty() => ("unknown adapter".into(), known),
        None => (known.join(" "), Vec::new()),
    };
    DeviceInfo {
        kind: "webgpu".into(),
        name,
        details,
    }
}

/// Browsers say so when they fall back to software; older ones only by the adapter's name.
fn class(adapter: &js::Adapter) -> DeviceClass {
    let info = adapter.info();
    let field =
        |of: &JsValue, name: &str| Reflect::get(of, &name.into()).unwrap_or(JsValue::UNDEFINED);
    let fallback = [&info, adapter.as_ref()]
        .iter()
        .any(|of| field(of, "isFallbackAdapter").is_truthy());
    let software = ["architecture", "description", "device"]
        .iter()
        .any(|name| {
            let text = field(&info, name)
                .as_string()
                .unwrap_or_default()
                .to_lowercase();
            text.contains("swiftshader") || text.contains("llvmpipe")
        });
    if fallback || software {
        DeviceClass::Software
    } else {
        DeviceClass::Hardware
    }
}

/// Collects what happens outside of scopes. The first fault stays.
fn watch(device: &js::Device, fault: &Fault) -> Closure<dyn FnMut(JsValue)> {
    let uncaptured = Rc::clone(fault);
    let closure = Closure::new(move |event: JsValue| {
        let error = Reflect::get(&event, &"error".into()).unwrap_or(JsValue::UNDEFINED);
        uncaptured.borrow_mut().get_or_insert(BackendError::Device {
            message: message(&error),
        });
    });
    device.set_on_uncaptured_error(&closure);
    let (lost, promise) = (Rc::clone(fault), device.lost());
    spawn_local(async move {
        if let Ok(info) = JsFuture::from(promise).await {
            // A loss says more than the errors that came of it.
            *lost.borrow_mut() = Some(BackendError::DeviceLost {
                reason: message(&info),
            });
        }
    });
    closure
}

impl Device for WebDevice {
    type Buffer = js::Buffer;
    type Layout = (js::BindGroupLayout, js::PipelineLayout);
    type Pipeline = js::Pipeline;
    type BindGroup = js::BindGroup;

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

    fn create_buffer(&self, label: &str, bytes: u64, usage: Usage) -> js::Buffer {
        let usage = match usage {
            Usage::Storage => STORAGE | COPY_SRC | COPY_DST,
            Usage::Staging => MAP_READ | COPY_DST,
        };
        let size = JsValue::from_f64(bytes as f64);
        self.device.create_buffer(&object(&[
            ("label", label.into()),
            ("size", size),
            ("usage", usage.into()),
        ]))
    }

    fn destroy_buffer(&self, buffer: &js::Buffer) {
        buffer.destroy();
    }

    fn write_buffer(&self, buffer: &js::Buffer, offset: u64, bytes: &[u8]) {
        if let Err(e) = self.queue.write_buffer(buffer, offset as f64, bytes) {
            self.fault.borrow_mut().get_or_insert(BackendError::Device {
                message: message(&e),
            });
        }
    }

    fn create_layout(&self, writes: &[bool]) -> Self::Layout {
        let entry = |(binding, &write): (u32, &bool)| {
            let kind = if write {
                "storage"
            } else {
                "read-only-storage"
            };
            let buffer = object(&[("type", kind.into())]);
            object(&[
                ("binding", binding.into()),
                ("visibility", COMPUTE.into()),
                ("buffer", buffer.into()),
            ])
        };
        let entries: Array = (0u32..).zip(writes).map(entry).collect();
        let group = self
            .device
            .create_bind_group_layout(&object(&[("entries", entries.into())]));
        let groups = Array::of1(group.as_ref());
        let pipeline = self
            .device
            .create_pipeline_layout(&object(&[("bindGroupLayouts", groups.into())]));
        (group, pipeline)
    }

    fn create_pipeline(
        &self,
        label: &str,
        layout: &Self::Layout,
        text: &KernelText,
    ) -> LocalFuture<'static, Result<js::Pipeline, BackendError>> {
        let name = label.to_owned();
        // What the shader's compiler says comes here; the pipeline then only says that its module is invalid.
        self.device.push_error_scope("validation");
        let module = self.device.create_shader_module(&object(&[
            ("label", label.into()),
            ("code", text.source.as_str().into()),
        ]));
        let checked = self.device.pop_error_scope();
        let compute = object(&[
            ("module", module.into()),
            ("entryPoint", text.entry.as_str().into()),
        ]);
        let pipeline = self.device.create_compute_pipeline_async(&object(&[
            ("label", label.into()),
            ("layout", layout.1.clone().into()),
            ("compute", compute.into()),
        ]));
        Box::pin(async move {
            let pipeline = JsFuture::from(pipeline).await;
            let checked = JsFuture::from(checked).await;
            let failed = |e: &JsValue| BackendError::Kernel {
                name: name.clone(),
                reason: message(e),
            };
            match checked {
                Ok(error) if !error.is_null() => Err(failed(&error)),
                _ => pipeline.map(JsCast::unchecked_into).map_err(|e| failed(&e)),
            }
        })
    }

    fn create_bind_group(
        &self,
        layout: &Self::Layout,
        bindings: &[Binding<'_, Self>],
    ) -> js::BindGroup {
        let entry = |(binding, b): (u32, &Binding<'_, Self>)| {
            let resource = object(&[
                ("buffer", b.buffer.clone().into()),
                ("offset", JsValue::from_f64(b.offset as f64)),
                ("size", JsValue::from_f64(b.bytes as f64)),
            ]);
            object(&[("binding", binding.into()), ("resource", resource.into())])
        };
        let entries: Array = (0u32..).zip(bindings).map(entry).collect();
        self.device.create_bind_group(&object(&[
            ("layout", layout.0.clone().into()),
            ("entries", entries.into()),
        ]))
    }

    fn submit<'a>(
        &self,
        before: impl Iterator<Item = Copy<'a, Self>>,
        launches: impl Iterator<Item = Dispatch<'a, Self>>,
        after: impl Iterator<Item = Copy<'a, Self>>,
    ) {
        let encoder = self.device.create_command_encoder();
        let copy = |c: Copy<'a, Self>| {
            encoder.copy_buffer_to_buffer(
                c.from,
                c.from_offset as f64,
                c.to,
                c.to_offset as f64,
                c.bytes as f64,
            );
        };
        before.for_each(copy);
        let mut launches = launches.peekable();
        if launches.peek().is_some() {
            let pass = encoder.begin_compute_pass();
            for launch in launches {
                let [x, y, z] = launch.grid;
                pass.set_pipeline(launch.pipeline);
                pass.set_bind_group(0, launch.bind_group);
                pass.dispatch_workgroups(x, y, z);
            }
            pass.end();
        }
        after.for_each(copy);
        self.queue.submit(&Array::of1(encoder.finish().as_ref()));
    }

    fn map(
        &self,
        buffer: &js::Buffer,
        offset: u64,
        bytes: u64,
    ) -> LocalFuture<'static, Result<(), BackendError>> {
        // Made now, so that a mapping that is given up does not count as a rejection that nobody handles.
        let mapped = JsFuture::from(buffer.map_async(READ, offset as f64, bytes as f64));
        let fault = Rc::clone(&self.fault);
        Box::pin(async move {
            let mapped = mapped.await;
            match (fault.borrow().clone(), mapped) {
                (Some(fault), _) => Err(fault),
                (None, Err(e)) => Err(BackendError::Device {
                    message: message(&e),
                }),
                (None, Ok(_)) => Ok(()),
            }
        })
    }

    fn read_mapped(
        &self,
        buffer: &js::Buffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        let bytes = (out.len() as u64).next_multiple_of(4) as f64;
        let range =
            buffer
                .get_mapped_range(offset as f64, bytes)
                .map_err(|e| BackendError::Device {
                    message: message(&e),
                })?;
        Uint8Array::new(&range)
            .subarray(0, out.len() as u32)
            .copy_to(out);
        Ok(())
    }

    fn unmap(&self, buffer: &js::Buffer) {
        buffer.unmap();
    }

    fn begin_scope(&self, scope: Scope) {
        filters(scope)
            .iter()
            .for_each(|f| self.device.push_error_scope(f));
    }

    fn end_scope(&self, scope: Scope) -> LocalFuture<'static, Result<(), BackendError>> {
        let popped: Vec<(&str, Promise)> = filters(scope)
            .iter()
            .rev()
            .map(|f| (*f, self.device.pop_error_scope()))
            .collect();
        let fault = Rc::clone(&self.fault);
        Box::pin(async move {
            for (filter, promise) in popped {
                match JsFuture::from(promise).await {
                    Ok(error) if error.is_null() => {}
                    Ok(_) if filter == "out-of-memory" => {
                        return Err(BackendError::OutOfMemory {
                            what: "the device".into(),
                            bytes: 0,
                        });
                    }
                    // A scope of a lost device cannot be popped.
                    Ok(error) | Err(error) => {
                        let known = fault.borrow().clone();
                        return Err(known.unwrap_or_else(|| BackendError::Device {
                            message: message(&error),
                        }));
                    }
                }
            }
            Ok(())
        })
    }

    fn fault(&self) -> Option<BackendError> {
        self.fault.borrow().clone()
    }
}

impl Drop for WebDevice {
    fn drop(&mut self) {
        self.device.clear_on_uncaptured_error(&JsValue::NULL);
        self.device.destroy();
    }
}

const fn filters(scope: Scope) -> &'static [&'static str] {
    match scope {
        Scope::Everything => &["internal", "out-of-memory", "validation"],
        Scope::Validation => &["validation"],
    }
}

/// An object literal.
fn object(fields: &[(&str, JsValue)]) -> Object {
    let object = Object::new();
    for (name, value) in fields {
        // Setting a field of a plain object cannot fail.
        let _ = Reflect::set(&object, &JsValue::from_str(name), value);
    }
    object
}

fn number(of: &JsValue, name: &str) -> f64 {
    Reflect::get(of, &name.into())
        .ok()
        .and_then(|v| v.as_f64())
        .unwrap_or(0.0)
}

/// What an error, a GPUError or a GPUDeviceLostInfo says.
fn message(error: &JsValue) -> String {
    let field = |name: &str| {
        Reflect::get(error, &name.into())
            .ok()
            .and_then(|v| v.as_string())
    };
    match (field("reason"), field("message")) {
        (Some(reason), Some(text)) => format!("{reason}: {text}"),
        (None, Some(text)) => text,
        (Some(reason), None) => reason,
        (None, None) => error.as_string().unwrap_or_else(|| format!("{error:?}")),
    }
}
