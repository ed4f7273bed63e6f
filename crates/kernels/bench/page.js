// The page's half of the kernel benchmark: makes what one configuration of `bench_products json` asks for, and runs it.

// Sets `run(part, times)` and `wall(times)`, and gives the names of the parts. Every matrix has its own buffer.
globalThis.prepare = async (config) => {
  const adapter = await navigator.gpu.requestAdapter();
  const device = await adapter.requestDevice();
  const errors = [];
  device.addEventListener("uncapturederror", (event) => errors.push(event.error.message));
  const buffer = (words) => {
    const made = device.createBuffer({ size: words.byteLength, usage: GPUBufferUsage.STORAGE, mappedAtCreation: true });
    new Uint32Array(made.getMappedRange()).set(words);
    made.unmap();
    return made;
  };
  const random = (n) => {
    const words = new Uint32Array(n);
    let state = 12345;
    for (let i = 0; i < n; i++) words[i] = state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return words;
  };
  const floats = (n) => new Uint32Array(Float32Array.from({ length: n }, (_, i) => Math.sin(i)).buffer);
  const contents = (name, item) => {
    if (name === "params") return Uint32Array.from(item.params);
    if (name === "step") return Uint32Array.from(config.step);
    if (name === "x" || name === "norm_weight") return floats(config.tokens * item.k);
    if (name !== "weights") return new Uint32Array(config.tokens * item.rows);
    const words = random(item.matrix_words);
    words.fill(0x14001400, item.scales_word);
    return words;
  };
  const parts = [];
  for (const item of config.launches) {
    const module = device.createShaderModule({ code: item.text.wgsl });
    const bindGroupLayout = device.createBindGroupLayout({
      entries: item.text.bindings.map((spec, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: spec.access === "read" ? "read-only-storage" : "storage" },
      })),
    });
    const pipeline = await device.createComputePipelineAsync({
      layout: device.createPipelineLayout({ bindGroupLayouts: [bindGroupLayout] }),
      compute: { module, entryPoint: item.text.entry },
    });
    const mine = [];
    for (let i = 0; i < item.count; i++) {
      const entries = item.text.bindings.map((spec, binding) => ({ binding, resource: { buffer: buffer(contents(spec.name, item)) } }));
      mine.push({ pipeline, group: device.createBindGroup({ layout: bindGroupLayout, entries }), grid: item.grid });
    }
    parts.push(mine);
  }
  globalThis.run = async (part, times) => {
    for (let i = 0; i < times; i++) await submit(parts[part]);
    if (errors.length) throw new Error(errors[0]);
  };
  globalThis.wall = async (times) => {
    let fastest = Infinity;
    for (let i = 0; i < times; i++) {
      const start = performance.now();
      await submit(parts.flat());
      fastest = Math.min(fastest, performance.now() - start);
    }
    return fastest;
  };
  return config.launches.map((item) => item.name);

  async function submit(list) {
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { pipeline, group, grid } of list) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(...grid);
    }
    pass.end();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
  }
};
