//! Runs kernel texts on a native Vulkan device (a software one will do).

#![allow(dead_code)]

pub mod data;

use ingle_kernels::compile::compile;
use ingle_kernels::{Access, DeviceLimits, KernelKey, KernelText};
use wgpu::util::DeviceExt;

pub struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
}

/// A prepared launch.
pub struct Launch {
    pub pipeline: wgpu::ComputePipeline,
    pub group: wgpu::BindGroup,
    pub grid: [u32; 3],
}

impl Gpu {
    /// The first Vulkan device, with WebGPU's default limits. Without one the tests fail: they skip nothing.
    pub fn new() -> Self {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::VULKAN;
        let instance = wgpu::Instance::new(descriptor);
        let adapter = pollster::block_on(instance.request_adapter(&Default::default()))
            .expect("a Vulkan device (Debian: mesa-vulkan-drivers)");
        let (device, queue) =
            pollster::block_on(adapter.request_device(&Default::default())).expect("a device");
        Gpu { device, queue }
    }

    pub fn buffer(&self, words: &[u32]) -> wgpu::Buffer {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.device
            .create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: None,
                contents: &bytes,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST,
            })
    }

    pub fn pipeline(&self, text: &KernelText) -> wgpu::ComputePipeline {
        validate(text);
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(&text.id),
                source: wgpu::ShaderSource::Wgsl(text.wgsl.as_str().into()),
            });
        // A layout by hand, because bindings that a kernel does not read are still bound.
        let entries = (0..)
            .zip(&text.bindings)
            .map(|(binding, spec)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage {
                        read_only: spec.access == Access::Read,
                    },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            });
        let entries: Vec<_> = entries.collect();
        let group = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            });
        let layout = self
            .device
            .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&group)],
                immediate_size: 0,
            });
        self.device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: Some(&layout),
                module: &module,
                entry_point: Some(&text.entry),
                compilation_options: Default::default(),
                cache: None,
            })
    }

    /// Binds `buffers` (in the order of the text's bindings).
    pub fn launch(
        &self,
        pipeline: &wgpu::ComputePipeline,
        buffers: &[&wgpu::Buffer],
        grid: [u32; 3],
    ) -> Launch {
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Launch {
            pipeline: pipeline.clone(),
            group,
            grid,
        }
    }

    /// Submits launches and waits.
    pub fn submit(&self, launches: &[Launch]) {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            for launch in launches {
                pass.set_pipeline(&launch.pipeline);
                pass.set_bind_group(0, &launch.group, &[]);
                pass.dispatch_workgroups(launch.grid[0], launch.grid[1], launch.grid[2]);
            }
        }
        self.queue.submit([encoder.finish()]);
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .expect("the device works");
    }

    pub fn read(&self, buffer: &wgpu::Buffer) -> Vec<u32> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        staging
            .slice(..)
            .map_async(wgpu::MapMode::Read, |result| result.expect("mapping works"));
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .expect("the device works");
        let bytes = staging.slice(..).get_mapped_range().expect("mapped");
        bytes
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes(c.try_into().expect("four bytes")))
            .collect()
    }

    /// Compiles `key`, launches it over `buffers` by name, and returns what the buffers hold afterwards, in their order.
    pub fn run(
        &self,
        key: &KernelKey,
        buffers: &[(&str, Vec<u32>)],
        grid: [u32; 3],
    ) -> Vec<Vec<u32>> {
        let text = compile(key, &DeviceLimits::default()).expect("compiles");
        let names: Vec<&str> = text.bindings.iter().map(|b| b.name.as_str()).collect();
        let given: Vec<&str> = buffers.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, given, "bindings of {}", text.id);
        let buffers: Vec<_> = buffers
            .iter()
            .map(|(_, words)| self.buffer(words))
            .collect();
        let pipeline = self.pipeline(&text);
        let launch = self.launch(&pipeline, &buffers.iter().collect::<Vec<_>>(), grid);
        self.submit(&[launch]);
        buffers.iter().map(|buffer| self.read(buffer)).collect()
    }
}

/// Parses and validates a text with the capabilities of core WebGPU (which has `unpack2x16float`).
pub fn validate(text: &KernelText) {
    let module = naga::front::wgsl::parse_str(&text.wgsl).unwrap_or_else(|error| {
        panic!(
            "{}: {}\n{}",
            text.id,
            error.emit_to_string(&text.wgsl),
            text.wgsl
        )
    });
    let mut validator = naga::valid::Validator::new(
        naga::valid::ValidationFlags::all(),
        naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32,
    );
    validator
        .validate(&module)
        .unwrap_or_else(|error| panic!("{}: {error:?}", text.id));
    let entry = &module.entry_points[0];
    assert_eq!(entry.name, text.entry);
    assert_eq!(entry.workgroup_size, text.workgroup);
    let bound = module
        .global_variables
        .iter()
        .filter(|(_, variable)| variable.binding.is_some())
        .count();
    assert_eq!(bound, text.bindings.len(), "{}", text.id);
}
