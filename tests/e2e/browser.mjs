// Opens Chromium with WebGPU on SwiftShader, and counts every WebGPU call that costs something and the
// memory of wasm modules, in the page and in its workers.
import { execFileSync } from "node:child_process";
import os from "node:os";
import path from "node:path";
import { chromium } from "playwright-core";

export const ROOT = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), "../..");
export const CACHE = process.env.INGLE_CACHE ?? path.join(os.homedir(), ".cache", "ingle");
export const MODEL = process.env.INGLE_TEST_MODEL ?? path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf");

const QUIET = ["--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const SWIFTSHADER = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];

/** The Chrome or Chromium that scripts/setup found or installed. */
export function findChromium() {
  const script = `. "${path.join(ROOT, "scripts/lib.sh")}" && find_chromium`;
  try {
    return execFileSync("bash", ["-c", script], { encoding: "utf8" }).trim();
  } catch {
    throw new Error("no Chrome or Chromium found; run scripts/setup chromium, or set INGLE_CHROMIUM");
  }
}

/**
 * Starts headless Chromium. `webgpu` is "swiftshader" (the same device everywhere), "hardware" (what the
 * machine has) or "off" (a browser without WebGPU).
 */
export function launch({ webgpu = "swiftshader", args = [] } = {}) {
  const chosen = {
    swiftshader: SWIFTSHADER,
    hardware: ["--enable-unsafe-webgpu"],
    off: ["--disable-features=WebGPU,WebGPUService", "--disable-blink-features=WebGPU"],
  }[webgpu];
  if (!chosen) throw new Error(`unknown webgpu: ${webgpu}`);
  return chromium.launch({ executablePath: findChromium(), headless: true, args: [...QUIET, ...chosen, ...args] });
}

/**
 * Opens `url` in a page of its own context. With `counting`, WebGPU calls are counted from the start, see
 * {@link counts}, and the memory of wasm modules can be asked for, see {@link wasmMemory}. The page's errors are collected in `page.problems`; `onConsole` gets its console lines.
 */
export async function open(browser, url, { counting = false, onConsole } = {}) {
  const context = await browser.newContext();
  if (counting) await context.addInitScript(`(${hookPage})(${JSON.stringify(`(${hookWebGpu})();(${hookWasm})();`)})`);
  const page = await context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(error.stack ?? String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") page.problems.push(message.text());
    onConsole?.(message.text());
  });
  await page.goto(url);
  return page;
}

/** What was counted since the start or the last {@link resetCounts}, summed over the page and its workers. */
export async function counts(page) {
  const total = {};
  for (const place of [page, ...page.workers()]) {
    const found = await place.evaluate(() => globalThis.__webgpuCounts ?? {});
    for (const [name, value] of Object.entries(found)) total[name] = (total[name] ?? 0) + value;
  }
  return total;
}

/** Sets all counts to zero. */
export async function resetCounts(page) {
  for (const place of [page, ...page.workers()]) {
    await place.evaluate(() => {
      const counted = globalThis.__webgpuCounts ?? {};
      for (const name of Object.keys(counted)) counted[name] = 0;
    });
  }
}

/** Bytes of linear memory of each wasm module, in the page and its workers. Memory only grows: this is the peak. */
export async function wasmMemory(page) {
  const found = [];
  for (const place of [page, ...page.workers()]) {
    found.push(...(await place.evaluate(() => (globalThis.__wasmMemories ?? []).map((memory) => memory.buffer.byteLength))));
  }
  return found;
}

// Runs in the page and in each worker, like the next: keeps the memory that each wasm instance exports.
function hookWasm() {
  if (globalThis.__wasmMemories) return;
  globalThis.__wasmMemories = [];
  for (const name of ["instantiate", "instantiateStreaming"]) {
    const original = WebAssembly[name];
    WebAssembly[name] = async (...args) => {
      const result = await original.apply(WebAssembly, args);
      const { exports } = result.instance ?? result;
      globalThis.__wasmMemories.push(...Object.values(exports).filter((value) => value instanceof WebAssembly.Memory));
      return result;
    };
  }
}

// Runs in the page and in each worker: wraps the calls and keeps `__webgpuCounts`. It must stand alone,
// since only its text gets there.
function hookWebGpu() {
  if (globalThis.__webgpuCounts || typeof GPUDevice === "undefined") return;
  const counted = {
    dispatch: 0,
    submit: 0,
    writeBuffer: 0,
    writeBufferBytes: 0,
    createBuffer: 0,
    createBufferBytes: 0,
    createBindGroup: 0,
    createComputePipeline: 0,
    createShaderModule: 0,
    mapAsync: 0,
    mapAsyncBytes: 0,
  };
  globalThis.__webgpuCounts = counted;
  const wrap = (type, method, before) => {
    const original = type.prototype[method];
    type.prototype[method] = function (...args) {
      before(args, this);
      return original.apply(this, args);
    };
  };
  const bump = (name) => () => void counted[name]++;
  wrap(GPUComputePassEncoder, "dispatchWorkgroups", bump("dispatch"));
  wrap(GPUComputePassEncoder, "dispatchWorkgroupsIndirect", bump("dispatch"));
  wrap(GPUQueue, "submit", bump("submit"));
  wrap(GPUQueue, "writeBuffer", ([, , data, from = 0, size]) => {
    // For a typed array, offset and size count elements; for a buffer, bytes.
    const unit = data.BYTES_PER_ELEMENT ?? 1;
    counted.writeBuffer++;
    counted.writeBufferBytes += size === undefined ? data.byteLength - from * unit : size * unit;
  });
  wrap(GPUDevice, "createBuffer", ([descriptor]) => {
    counted.createBuffer++;
    counted.createBufferBytes += descriptor.size;
  });
  wrap(GPUDevice, "createBindGroup", bump("createBindGroup"));
  wrap(GPUDevice, "createComputePipeline", bump("createComputePipeline"));
  wrap(GPUDevice, "createComputePipelineAsync", bump("createComputePipeline"));
  wrap(GPUDevice, "createShaderModule", bump("createShaderModule"));
  wrap(GPUBuffer, "mapAsync", ([, offset = 0, size], buffer) => {
    counted.mapAsync++;
    counted.mapAsyncBytes += size ?? buffer.size - offset;
  });
}

// Runs in the page: hooks it, and makes every worker start with the hooks too. A worker's script is
// replaced by one that loads the hooks and then the script, so that its imports and its address stay.
function hookPage(hooks) {
  (0, eval)(hooks);
  const Original = globalThis.Worker;
  const address = (text) => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  globalThis.Worker = class extends Original {
    constructor(url, options) {
      const script = JSON.stringify(new URL(url, location.href).href);
      super(
        options?.type === "module"
          ? address(`import ${JSON.stringify(address(hooks))};\nimport ${script};`)
          : address(`${hooks}\nimportScripts(${script});`),
        options,
      );
    }
  };
}
