// The counting hooks count right, in the page and in both kinds of worker: the floors of dispatches and
// bytes per token rest on them.
import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { serve } from "../../scripts/serve.mjs";
import { counts, launch, open, resetCounts, ROOT, wasmMemory } from "./browser.mjs";

let browser;
let server;

before(async () => {
  server = await serve({ mounts: { "/": path.join(ROOT, "tests/e2e/pages") } });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server?.close();
});

const ONE_RUN = {
  dispatch: 2,
  submit: 1,
  writeBuffer: 2,
  writeBufferBytes: 16 + 8,
  createBuffer: 2,
  createBufferBytes: 64 + 16,
  createBindGroup: 1,
  createComputePipeline: 1,
  createShaderModule: 1,
  mapAsync: 1,
  mapAsyncBytes: 16,
};

for (const where of ["page", "module", "classic"]) {
  test(`WebGPU calls are counted in ${where === "page" ? "the page" : `a ${where} worker`}`, async () => {
    const page = await open(browser, `${server.url}/counting.html`, { counting: true });
    const doubled = await page.evaluate((place) => globalThis.runIn(place), where);
    assert.deepEqual(doubled, [2, 4, 6, 8]);
    assert.deepEqual(await counts(page), ONE_RUN);
    await resetCounts(page);
    assert.deepEqual(Object.values(await counts(page)).filter(Boolean), []);
    assert.deepEqual(page.problems, []);
    await page.context().close();
  });
}

test("the memory of a wasm module is seen as it grows", async () => {
  const page = await open(browser, `${server.url}/counting.html`, { counting: true });
  assert.deepEqual(await wasmMemory(page), []);
  await page.evaluate(async () => {
    // (module (memory (export "memory") 2))
    const bytes = [0, 97, 115, 109, 1, 0, 0, 0, 5, 3, 1, 0, 2, 7, 10, 1, 6, 109, 101, 109, 111, 114, 121, 2, 0];
    const { instance } = await WebAssembly.instantiate(new Uint8Array(bytes));
    instance.exports.memory.grow(3);
  });
  assert.deepEqual(await wasmMemory(page), [5 * 65536]);
  await page.context().close();
});

test("a browser without WebGPU can be had", async () => {
  const without = await launch({ webgpu: "off" });
  const page = await open(without, `${server.url}/counting.html`);
  assert.equal(await page.evaluate(async () => (navigator.gpu ? await navigator.gpu.requestAdapter() : null)), null);
  await without.close();
});
