// The package in a real browser with the real model: answers on both devices, cancel, errors, and what a token costs.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import path from "node:path";
import { after, before, test } from "node:test";
import { serve } from "../../scripts/serve.mjs";
import { launch, MODEL, open, ROOT, wasmMemory } from "./browser.mjs";
import { ask, tokenCosts } from "./costs.mjs";

const LAYERS = 30;
const QUESTION = [{ role: "user", content: "What is the capital of France?" }];

let browser;
let server;

before(async () => {
  server = await serve({
    mounts: {
      "/": path.join(ROOT, "tests/e2e/pages"),
      "/ingle/": path.join(ROOT, "web/dist"),
      "/demo/": path.join(ROOT, "demo"),
      "/model.gguf": MODEL,
      "/not-a-model.gguf": path.join(ROOT, "README.md"),
    },
  });
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server?.close();
});

/** A page with a model loaded as `globalThis.ingle`. */
async function loaded(device, { counting = false, options = {} } = {}) {
  const page = await open(browser, `${server.url}/blank.html`, { counting });
  const info = await page.evaluate(async ([device, options]) => {
    const { Ingle } = await import("/ingle/index.js");
    globalThis.progress = [];
    globalThis.ingle = await Ingle.load("/model.gguf", { device, ...options, onProgress: (p) => globalThis.progress.push(p) });
    return globalThis.ingle.device;
  }, [device, options]);
  assert.equal(info.kind, device);
  assert.equal(info.fallback, null);
  return page;
}

for (const device of ["cpu", "webgpu"]) {
  test(`${device}: loads by range with progress, answers, streams, stops`, async () => {
    const page = await loaded(device);
    const progress = await page.evaluate(() => globalThis.progress);
    assert.ok(progress.length > 3 && progress.at(-1).loaded <= progress.at(-1).total);
    assert.ok(progress.every((p, i) => i === 0 || p.loaded >= progress[i - 1].loaded));

    const { text, usage } = await ask(page, QUESTION, { maxTokens: 24 });
    assert.match(text, /Paris/);
    assert.ok(usage.promptTokens > 20 && usage.completionTokens > 3);
    assert.deepEqual(page.problems, []);
    await page.context().close();
  });

  test(`${device}: a cancel arrives between tokens, and the next answer is as if nothing had been`, async () => {
    const page = await loaded(device);
    const first = await ask(page, QUESTION, { maxTokens: 6 });
    const cancelled = await page.evaluate(async (messages) => {
      const controller = new AbortController();
      let deltas = 0;
      try {
        for await (const _ of globalThis.ingle.chat(messages, { signal: controller.signal })) if (++deltas === 2) controller.abort();
        return { ended: true };
      } catch (error) {
        return { name: error.name, deltas };
      }
    }, QUESTION);
    assert.equal(cancelled.name, "AbortError");
    assert.ok(cancelled.deltas < 12, `${cancelled.deltas} deltas after a cancel at the second`);
    assert.deepEqual((await ask(page, QUESTION, { maxTokens: 6 })).text, first.text);
    await page.context().close();
  });
}

test("webgpu: what a token costs, and how little wasm holds", async () => {
  const page = await loaded("webgpu", { counting: true });
  const { each, created } = await tokenCosts(page, QUESTION);
  assert.equal(each.submit, 1);
  assert.ok(each.mapAsyncBytes <= 16, `${each.mapAsyncBytes} bytes read a token`);
  assert.ok(each.writeBufferBytes <= 256, `${each.writeBufferBytes} bytes written a token`);
  assert.ok(each.dispatch <= 9 * LAYERS + 6, `${each.dispatch} dispatches a token`);
  assert.equal(created, 0);
  // Memory only grows, so this is the peak of loading and running. The tokenizer's tables are in it: without them it would
  // be less still.
  const memory = (await wasmMemory(page)).map((bytes) => bytes / 2 ** 20);
  assert.ok(memory.length > 0 && memory.reduce((sum, one) => sum + one, 0) <= 64, `${memory} MiB`);
  await page.context().close();
});

test("auto without WebGPU falls back to the CPU and says why", async () => {
  const without = await launch({ webgpu: "off" });
  const page = await open(without, `${server.url}/blank.html`);
  const device = await page.evaluate(async () => {
    const { Ingle } = await import("/ingle/index.js");
    const ingle = await Ingle.load("/model.gguf");
    await ingle.dispose();
    return ingle.device;
  });
  assert.equal(device.kind, "cpu");
  assert.match(device.fallback, /WebGPU/i);
  const code = await page.evaluate(async () => {
    const { Ingle } = await import("/ingle/index.js");
    return Ingle.load("/model.gguf", { device: "webgpu" }).catch((error) => error.code);
  });
  assert.equal(code, "no_device");
  await without.close();
});

test("errors have codes", async () => {
  const page = await open(browser, `${server.url}/blank.html`);
  const code = (source, options) =>
    page.evaluate(async ([source, options]) => {
      const { Ingle } = await import("/ingle/index.js");
      const given = source === "bytes" ? new Uint8Array([71, 71, 85, 70, 3, 0]) : source;
      return Ingle.load(given, options).then(() => "none", (error) => error.code ?? error.name);
    }, [source, options]);
  assert.equal(await code("/missing.gguf", {}), "source");
  assert.equal(await code("/not-a-model.gguf", { device: "cpu" }), "format");
  assert.equal(await code("bytes", { device: "cpu" }), "format");
  assert.equal(await code("/model.gguf", { device: "abacus" }), "invalid");
  assert.equal(await code("/model.gguf", { device: "cpu", kv: "f64" }), "invalid");
  assert.equal(await code("/model.gguf", { device: "cpu", context: 1e6 }), "invalid");
  await page.context().close();
});

test("loading can be cancelled", async () => {
  const page = await open(browser, `${server.url}/blank.html`);
  const name = await page.evaluate(async () => {
    const { Ingle } = await import("/ingle/index.js");
    const controller = new AbortController();
    const onProgress = () => controller.abort();
    return Ingle.load("/model.gguf", { device: "cpu", onProgress, signal: controller.signal }).then(() => "none", (error) => error.name);
  });
  assert.equal(name, "AbortError");
  await page.context().close();
});

test("the chat page answers, on the public interface", async () => {
  const page = await open(browser, `${server.url}/demo/index.html?model=/model.gguf&device=cpu`);
  await page.click("#address-form button");
  await page.waitForSelector("#ask:not([hidden])", { timeout: 120_000 });
  await page.fill("#question", "What is the capital of France? Answer in one word.");
  await page.press("#question", "Enter");
  await page.waitForFunction(() => /tokens\/s/.test(document.getElementById("figures").textContent), null, { timeout: 120_000 });
  assert.match(await page.textContent("#messages .assistant"), /Paris/);
  assert.match(await page.textContent("#device"), /^cpu/);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

test("the model's file is the one the tests were written for", async () => {
  const { createReadStream } = await import("node:fs");
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(MODEL)) hash.update(chunk);
  assert.equal(hash.digest("hex"), "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53");
});
