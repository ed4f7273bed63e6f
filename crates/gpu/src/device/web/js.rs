//! The parts of WebGPU that we use (<https://www.w3.org/TR/webgpu/>). Sizes are `f64`, as JavaScript's numbers are.

use js_sys::{Array, ArrayBuffer, Object, Promise};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// `navigator.gpu`
    #[derive(Clone)]
    pub type Gpu;
    #[wasm_bindgen(method, js_name = requestAdapter)]
    pub fn request_adapter(this: &Gpu, options: &Object) -> Promise;
    #[wasm_bindgen(method, getter, js_name = wgslLanguageFeatures)]
    pub fn wgsl_language_features(this: &Gpu) -> Option<Names>;

    /// A set of names.
    pub type Names;
    #[wasm_bindgen(method)]
    pub fn has(this: &Names, name: &str) -> bool;

    pub type Adapter;
    #[wasm_bindgen(method, getter)]
    pub fn features(this: &Adapter) -> Names;
    #[wasm_bindgen(method, getter)]
    pub fn limits(this: &Adapter) -> JsValue;
    #[wasm_bindgen(method, getter)]
    pub fn info(this: &Adapter) -> JsValue;
    #[wasm_bindgen(method, js_name = requestDevice)]
    pub fn request_device(this: &Adapter, descriptor: &Object) -> Promise;

    pub type Device;
    #[wasm_bindgen(method, getter)]
    pub fn queue(this: &Device) -> Queue;
    #[wasm_bindgen(method, getter)]
    pub fn limits(this: &Device) -> JsValue;
    #[wasm_bindgen(method, getter)]
    pub fn lost(this: &Device) -> Promise;
    #[wasm_bindgen(method, setter, js_name = onuncapturederror)]
    pub fn set_on_uncaptured_error(this: &Device, handler: &Closure<dyn FnMut(JsValue)>);
    #[wasm_bindgen(method, setter, js_name = onuncapturederror)]
    pub fn clear_on_uncaptured_error(this: &Device, null: &JsValue);
    #[wasm_bindgen(method)]
    pub fn destroy(this: &Device);
    #[wasm_bindgen(method, js_name = createBuffer)]
    pub fn create_buffer(this: &Device, descriptor: &Object) -> Buffer;
    #[wasm_bindgen(method, js_name = createShaderModule)]
    pub fn create_shader_module(this: &Device, descriptor: &Object) -> ShaderModule;
    #[wasm_bindgen(method, js_name = createBindGroupLayout)]
    pub fn create_bind_group_layout(this: &Device, descriptor: &Object) -> BindGroupLayout;
    #[wasm_bindgen(method, js_name = createPipelineLayout)]
    pub fn create_pipeline_layout(this: &Device, descriptor: &Object) -> PipelineLayout;
    #[wasm_bindgen(method, js_name = createComputePipelineAsync)]
    pub fn create_compute_pipeline_async(this: &Device, descriptor: &Object) -> Promise;
    #[wasm_bindgen(method, js_name = createBindGroup)]
    pub fn create_bind_group(this: &Device, descriptor: &Object) -> BindGroup;
    #[wasm_bindgen(method, js_name = createCommandEncoder)]
    pub fn create_command_encoder(this: &Device) -> CommandEncoder;
    #[wasm_bindgen(method, js_name = pushErrorScope)]
    pub fn push_error_scope(this: &Device, filter: &str);
    #[wasm_bindgen(method, js_name = popErrorScope)]
    pub fn pop_error_scope(this: &Device) -> Promise;

    pub type Queue;
    #[wasm_bindgen(method, catch, js_name = writeBuffer)]
    pub fn write_buffer(
        this: &Queue,
        buffer: &Buffer,
        offset: f64,
        data: &[u8],
    ) -> Result<(), JsValue>;
    #[wasm_bindgen(method)]
    pub fn submit(this: &Queue, command_buffers: &Array);

    #[derive(Clone)]
    pub type Buffer;
    #[wasm_bindgen(method)]
    pub fn destroy(this: &Buffer);
    #[wasm_bindgen(method, js_name = mapAsync)]
    pub fn map_async(this: &Buffer, mode: u32, offset: f64, size: f64) -> Promise;
    #[wasm_bindgen(method, catch, js_name = getMappedRange)]
    pub fn get_mapped_range(this: &Buffer, offset: f64, size: f64) -> Result<ArrayBuffer, JsValue>;
    #[wasm_bindgen(method)]
    pub fn unmap(this: &Buffer);

    pub type ShaderModule;
    #[derive(Clone)]
    pub type BindGroupLayout;
    #[derive(Clone)]
    pub type PipelineLayout;
    pub type Pipeline;
    pub type BindGroup;

    pub type CommandEncoder;
    #[wasm_bindgen(method, js_name = beginComputePass)]
    pub fn begin_compute_pass(this: &CommandEncoder) -> ComputePass;
    #[wasm_bindgen(method, js_name = copyBufferToBuffer)]
    pub fn copy_buffer_to_buffer(
        this: &CommandEncoder,
        from: &Buffer,
        at: f64,
        to: &Buffer,
        to_at: f64,
        bytes: f64,
    );
    #[wasm_bindgen(method)]
    pub fn finish(this: &CommandEncoder) -> CommandBuffer;

    pub type CommandBuffer;

    pub type ComputePass;
    #[wasm_bindgen(method, js_name = setPipeline)]
    pub fn set_pipeline(this: &ComputePass, pipeline: &Pipeline);
    #[wasm_bindgen(method, js_name = setBindGroup)]
    pub fn set_bind_group(this: &ComputePass, index: u32, group: &BindGroup);
    #[wasm_bindgen(method, js_name = dispatchWorkgroups)]
    pub fn dispatch_workgroups(this: &ComputePass, x: u32, y: u32, z: u32);
    #[wasm_bindgen(method)]
    pub fn end(this: &ComputePass);
}
