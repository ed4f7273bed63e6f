// The browser's half of scripts/logits: asks the package, in headless Chromium, for the likelihoods that a
// reference has, and writes them as `ingle logits` does.
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { parseArgs } from "node:util";
import { launch, open, ROOT } from "../tests/e2e/browser.mjs";
import { serve } from "./serve.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { prompts: { type: "string" }, out: { type: "string" }, device: { type: "string" }, activations: { type: "string", default: "int8" } },
});

/** A one-dimensional array of f32 in NumPy's format, version 1: header padded to 64 bytes. */
function npy(values) {
  const text = `{'descr': '<f4', 'fortran_order': False, 'shape': (${values.length},), }`;
  const length = Math.ceil((10 + text.length + 1) / 64) * 64 - 10;
  const header = Buffer.alloc(10 + length, " ");
  header.write("\x93NUMPY\x01\x00", "latin1");
  header.writeUInt16LE(length, 8);
  header.write(text, 10);
  header.write("\n", 10 + length - 1);
  const body = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => body.writeFloatLE(value, i * 4));
  return Buffer.concat([header, body]);
}

/** Waits for `work`, saying every quarter of a minute that it goes on, and at the end how long it took. */
async function timed(name, work) {
  const begun = Date.now();
  const seconds = () => `${Math.round((Date.now() - begun) / 1000)} s`;
  const timer = setInterval(() => console.error(`  ${name}: ${seconds()} so far`), 15_000);
  try {
    const result = await work;
    console.error(`${name}: ${seconds()}`);
    return result;
  } finally {
    clearInterval(timer);
  }
}

// The three functions below run in the page.

// As `ingle logits` does: with activations as they are, nothing else is rounded either.
async function load({ device, activations }) {
  const { Ingle } = await import("/ingle/index.js");
  globalThis.ingle = await Ingle.load("/model.gguf", { device: device === "wasm" ? "cpu" : device, activations, kv: activations === "f32" ? "f32" : "f16" });
  return globalThis.ingle.device;
}

/** Fed the reference's own continuation, the best token at each step; and the logits after the prompt. */
async function prompt({ text, continuation }) {
  const ids = await globalThis.ingle.tokenize(text);
  const { best, logits } = await globalThis.ingle.score([...ids, ...continuation.slice(0, -1)], [ids.length - 1]);
  return { ids, greedy: best.slice(ids.length - 1), logits: Array.from(logits[0]) };
}

async function likelihoods(ids) {
  return (await globalThis.ingle.score(ids)).nll;
}

async function emit(page, reference, out) {
  const ids = {};
  const greedy = {};
  for (const [at, { name, text, greedy_token_and_margin }] of reference.prompts.entries()) {
    if (!/^[\w.-]+$/.test(name)) throw new Error(`prompt name ${JSON.stringify(name)}: letters, digits, dots and dashes only`);
    const asked = page.evaluate(prompt, { text, continuation: greedy_token_and_margin.map(([token]) => token) });
    const found = await timed(`prompt ${at + 1} of ${reference.prompts.length}, ${name}`, asked);
    [ids[name], greedy[name]] = [found.ids, found.greedy];
    await writeFile(path.join(out, `${name}.npy`), npy(found.logits));
  }
  const nll = [];
  const { ids: text, window } = reference.perplexity;
  for (let start = 0; start < text.length; start += window) {
    const part = text.slice(start, start + window);
    // The last window may hold one token, which predicts nothing.
    if (part.length < 2) continue;
    const name = `perplexity, tokens ${start + 1} to ${start + part.length} of ${text.length}`;
    nll.push(...(await timed(name, page.evaluate(likelihoods, part))));
  }
  for (const [name, value] of Object.entries({ ids, greedy, nll })) await writeFile(path.join(out, `${name}.json`), JSON.stringify(value));
}

async function main() {
  const [model] = positionals;
  for (const [name, value] of Object.entries({ MODEL: model, "--prompts": options.prompts, "--out": options.out })) {
    if (!value) throw new Error(`${name} is missing; see scripts/logits --help`);
  }
  const reference = JSON.parse(await readFile(options.prompts, "utf8"));
  await mkdir(options.out, { recursive: true });
  const server = await serve({
    mounts: { "/": path.join(ROOT, "tests/e2e/pages"), "/ingle/": path.join(ROOT, "web/dist"), "/model.gguf": model },
  });
  const browser = await launch();
  try {
    const page = await open(browser, `${server.url}/blank.html`);
    const device = await timed(`load ${path.basename(model)}`, page.evaluate(load, options));
    console.error(`${device.kind}: ${device.name}`);
    await emit(page, reference, options.out);
  } finally {
    await browser.close();
    await server.close();
  }
}

main().catch((error) => {
  console.error(`scripts/logits: ${error.message}`);
  process.exit(1);
});
