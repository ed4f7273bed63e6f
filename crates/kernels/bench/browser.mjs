// Runs what `bench_products json` prints in headless Chromium on SwiftShader and prints milliseconds.
//
//   cargo run --release -p ingle-kernels --example bench_products json > FILE
//   NODE_PATH=…/node_modules node crates/kernels/bench/browser.mjs FILE
import { readFile, readdir } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import path from "node:path";

const root = path.resolve(import.meta.dirname, "../../..");
const { launch, open } = await import(pathToFileURL(path.join(root, "tests/e2e/browser.mjs")));
const { serve } = await import(pathToFileURL(path.join(root, "scripts/serve.mjs")));

const configs = JSON.parse(await readFile(process.argv[2], "utf8"));
const server = await serve({ mounts: { "/": import.meta.dirname } });
const browser = await launch({});
const gpu = await gpuProcess();
try {
  for (const config of configs) {
    const page = await open(browser, `${server.url}/page.html`);
    const names = await page.evaluate(prepare, config);
    const parts = [];
    let total = 0;
    for (const [part, name] of names.entries()) {
      const times = name === "head" ? 3 : 2;
      await page.evaluate(({ part, times }) => globalThis.run(part, times), { part, times: 1 });
      const before = await cpuSeconds(gpu);
      await page.evaluate(({ part, times }) => globalThis.run(part, times), { part, times });
      const ms = ((await cpuSeconds(gpu)) - before) * 1000 / times;
      total += ms;
      parts.push(`${name} ${ms.toFixed(0).padStart(5)}`);
    }
    const wall = await page.evaluate(() => globalThis.wall(3));
    const rate = (ms) => `${ms.toFixed(0).padStart(5)} ms, ${((1000 * config.tokens) / ms).toFixed(2).padStart(6)} tok/s`;
    console.log(`${config.name.padEnd(34)} cpu: ${parts.join(" ")} | ${rate(total / 2)} on two idle cores | wall ${rate(wall)}`);
    if (page.problems.length) console.log(page.problems.join("\n"));
    await page.context().close();
  }
} finally {
  await browser.close();
  await server.close();
}

// The process that SwiftShader runs in. Its processor time says more than the wall clock when others are busy.
async function gpuProcess() {
  const page = await open(browser, `${server.url}/page.html`);
  await page.evaluate(async () => (await navigator.gpu.requestAdapter()).requestDevice());
  await page.context().close();
  const found = [];
  for (const pid of (await readdir("/proc")).filter((name) => /^[0-9]+$/.test(name))) {
    const line = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    if (line.includes("--type=gpu-process") && (await isOurs(pid))) found.push(pid);
  }
  if (found.length !== 1) throw new Error(`${found.length} GPU processes`);
  return found[0];
}

async function isOurs(pid) {
  while (pid !== "0" && pid !== "1") {
    if (pid === String(process.pid)) return true;
    pid = (await stat(pid))[1];
  }
  return false;
}

async function cpuSeconds(pid) {
  const fields = await stat(pid);
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

// The fields after the command: state, parent, …
async function stat(pid) {
  const line = await readFile(`/proc/${pid}/stat`, "utf8");
  return line.slice(line.lastIndexOf(")") + 2).split(" ");
}

// Runs in the page.
async function prepare(config) {
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
}
