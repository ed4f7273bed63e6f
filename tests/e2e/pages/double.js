// Doubles [1, 2, 3, 4] on WebGPU with two dispatches, two writes and one read of 16 bytes. Runs as a
// module in a page and as either kind of worker.
globalThis.double = async () => {
  const adapter = await navigator.gpu.requestAdapter();
  const device = await adapter.requestDevice();
  const code = `
    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(2) fn main(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] = sqrt(4.0) * x[id.x]; }`;
  const module = device.createShaderModule({ code });
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module, entryPoint: "main" } });
  const usage = GPUBufferUsage;
  const data = device.createBuffer({ size: 64, usage: usage.STORAGE | usage.COPY_DST | usage.COPY_SRC });
  const read = device.createBuffer({ size: 16, usage: usage.MAP_READ | usage.COPY_DST });
  const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer: data } }] });
  device.queue.writeBuffer(data, 0, new Float32Array([1, 2, 3, 4]).buffer);
  // Two elements of the four, to the place where they already are: sizes count elements here.
  device.queue.writeBuffer(data, 8, new Float32Array([1, 2, 3, 4]), 2, 2);
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(2);
  // Nothing of this one: an empty grid is a dispatch all the same.
  pass.dispatchWorkgroups(0);
  pass.end();
  encoder.copyBufferToBuffer(data, 0, read, 0, 16);
  device.queue.submit([encoder.finish()]);
  await read.mapAsync(GPUMapMode.READ);
  return [...new Float32Array(read.getMappedRange())];
};

if (typeof WorkerGlobalScope !== "undefined") {
  globalThis.onmessage = async () => globalThis.postMessage(await globalThis.double());
}
