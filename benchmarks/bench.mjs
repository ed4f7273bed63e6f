// Ingle and its peers in turns, A B A B, so that a machine that slows down slows both. Run by scripts/bench.
import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { serve } from "../scripts/serve.mjs";
import { launch, open, ROOT, wasmMemory } from "../tests/e2e/browser.mjs";
import { tokenCosts } from "../tests/e2e/costs.mjs";
import { FLOORS, floorsReached } from "./floors.mjs";
import { summarise, table } from "./figures.mjs";

const run = promisify(execFile);

function parseArguments(args) {
  const options = { only: "native,wasm,webgpu", rounds: 5, prompt: 256, gen: 64, peersOnly: false, assert: false, model: process.env.INGLE_MODEL };
  const number = (text, name) => {
    if (!/^[1-9]\d*$/.test(text ?? "")) throw new Error(`${name} needs a positive number, not ${text}`);
    return Number(text);
  };
  for (let i = 0; i < args.length; i++) {
    const name = args[i];
    if (name === "--quick") Object.assign(options, { rounds: 2, prompt: 64, gen: 16 });
    else if (name === "--peers-only") options.peersOnly = true;
    else if (name === "--assert") options.assert = true;
    else if (name === "--only") options.only = args[++i];
    else if (name === "--model") options.model = args[++i];
    else if (["--rounds", "--prompt", "--gen"].includes(name)) options[name.slice(2)] = number(args[++i], name);
    else throw new Error(`unknown argument: ${name}`);
  }
  const known = ["native", "wasm", "webgpu"];
  for (const part of options.only.split(",")) if (!known.includes(part)) throw new Error(`--only knows ${known.join(", ")}, not ${part}`);
  return options;
}

/** `{ prefill, decode }` in tokens per second, and whatever else a runner reports. */
function figures({ prefill_tok_s, decode_tok_s, ...rest }, who) {
  return { prefill: speed(prefill_tok_s, `${who}, prefill`), decode: speed(decode_tok_s, `${who}, decode`), ...rest };
}

function speed(value, who) {
  if (!(Number.isFinite(value) && value > 0)) throw new Error(`${who}: no speed was reported, but ${value}`);
  return value;
}

async function llamaCpp({ model, prompt, gen }) {
  const bench = path.join(process.env.LLAMA_CPP_BIN, "llama-bench");
  const { stdout } = await run(bench, ["-m", model, "-t", "1", "-ngl", "0", "-p", `${prompt}`, "-n", `${gen}`, "-r", "1", "-o", "json"]);
  const rows = JSON.parse(stdout);
  return figures({ prefill_tok_s: rows.find((r) => r.n_gen === 0)?.avg_ts, decode_tok_s: rows.find((r) => r.n_prompt === 0)?.avg_ts }, "llama-bench");
}

async function ingleNative({ model, prompt, gen }) {
  const { stdout } = await run(process.env.INGLE_BIN, ["bench", model, "--json", "--threads", "1", "--prompt", `${prompt}`, "--gen", `${gen}`]);
  return figures(JSON.parse(stdout), "ingle bench");
}

/** A runner over a page's global function, opened at the first call and kept: loading is not what is measured. */
function pageRunner(context, who, url, call, settings) {
  let page;
  return async ({ prompt, gen }) => {
    const { browser, server } = await context();
    page ??= await open(browser, server.url + url);
    const answer = await page.evaluate(([name, argument]) => globalThis[name](argument), [call, { ...settings, prompt, gen }]).catch((error) => {
      throw new Error([`${who}: ${error.message}`, ...page.problems].join("\n  "));
    });
    return figures(answer, who);
  };
}

/**
 * The token's matvecs alone, every weight in its own buffer: what a step costs at least. The kernels are those that the
 * selection table gives this class of devices, for activations as they are and at 8 bits; the better one counts.
 */
function bareMatvecs(context) {
  const configs = [];
  return async () => {
    if (configs.length === 0) configs.push(...JSON.parse(await readFile(process.env.BARE_MATVECS, "utf8")));
    const { browser, server } = await context();
    const rates = {};
    for (const config of configs) {
      const parts = config.launches.map(({ name }) => name).join(" ");
      if (parts !== "qkv o gate_up down head") throw new Error(`bare matvecs: ${config.name} has no kernel for some product, only for ${parts}`);
      const page = await open(browser, `${server.url}/crates/kernels/bench/page.html`);
      const milliseconds = await page.evaluate(async (config) => {
        await globalThis.prepare(config);
        await globalThis.wall(1);
        return globalThis.wall(3);
      }, config);
      if (page.problems.length > 0) throw new Error(["bare matvecs:", ...page.problems].join("\n  "));
      await page.context().close();
      rates[config.name] = speed(1000 / milliseconds, config.name);
    }
    return { decode: Math.max(...Object.values(rates)), ...rates };
  };
}

/** What is counted, not timed: the calls of a token on WebGPU, the memory of wasm, the size of what a page loads. */
async function costs(context, model) {
  const { browser, server } = await context();
  const page = await open(browser, `${server.url}/tests/e2e/pages/blank.html`, { counting: true });
  await page.evaluate(async () => {
    const { Ingle } = await import("/web/dist/index.js");
    globalThis.ingle = await Ingle.load("/model.gguf", { device: "webgpu" });
  });
  const { each, created } = await tokenCosts(page, [{ role: "user", content: "What is the capital of France?" }]);
  const memory = (await wasmMemory(page)).reduce((sum, bytes) => sum + bytes, 0);
  await page.context().close();
  const { stdout } = await run(process.env.INGLE_BIN, ["inspect", model, "--json"], { maxBuffer: 1 << 28 });
  const megabytes = async (name) => gzipSync(await readFile(path.join(ROOT, "web/dist", name)), { level: 9 }).length / 1e6;
  return {
    launchesPerLayer: each.dispatch / JSON.parse(stdout).config.layers,
    submits: each.submit,
    bytesRead: each.mapAsyncBytes,
    bytesWritten: each.writeBufferBytes,
    created,
    memoryMiB: memory / 2 ** 20,
    mainMB: await megabytes("ingle_wasm_bg.wasm"),
    compilerMB: await megabytes("ingle_compiler_bg.wasm"),
  };
}

/** One browser and one server, started when a runner first needs them. */
function lazyBrowser(model) {
  let started;
  const context = () =>
    (started ??= (async () => ({
      browser: await launch(),
      server: await serve({
        mounts: { "/": ROOT, "/wllama/": path.join(process.env.WLLAMA_DIR, "node_modules/@wllama/wllama/esm"), "/model.gguf": model },
      }),
    }))());
  const close = async () => {
    if (!started) return;
    const { browser, server } = await started;
    await browser.close();
    await server.close();
  };
  return { context, close };
}

function comparisons({ only, peersOnly }, context) {
  const ingle = (device) => pageRunner(context, `ingle (${device})`, "/tests/e2e/bench.html", "ingleBench", { device });
  const all = {
    native: { ingle: ingleNative, "llama.cpp": llamaCpp },
    wasm: { ingle: ingle("cpu"), wllama: pageRunner(context, "wllama", "/benchmarks/wllama.html", "wllamaBench", {}) },
    webgpu: { ingle: ingle("webgpu"), "bare matvecs": bareMatvecs(context) },
  };
  const chosen = {};
  for (const name of only.split(",")) {
    const runners = Object.entries(all[name]).filter(([who]) => !(peersOnly && who === "ingle"));
    if (runners.length > 0) chosen[name] = Object.fromEntries(runners);
  }
  return chosen;
}

async function measure(runners, options, name) {
  const samples = Object.fromEntries(Object.keys(runners).map((who) => [who, []]));
  for (let round = 0; round < options.rounds; round++) {
    for (const [who, runner] of Object.entries(runners)) {
      const sample = await runner(options);
      samples[who].push(sample);
      const prefill = sample.prefill === undefined ? "" : `prefill ${sample.prefill.toFixed(1)}  `;
      console.error(`  ${name} ${round + 1}/${options.rounds}  ${who.padEnd(12)} ${prefill}decode ${sample.decode.toFixed(2)} tok/s`);
    }
  }
  return samples;
}

async function machine() {
  const info = await readFile("/proc/cpuinfo", "utf8").catch(() => "");
  const flags = /^flags\s*:\s*(.*)$/m.exec(info)?.[1].split(" ") ?? [];
  const told = ["avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8"];
  return { cpu: os.cpus()[0]?.model ?? os.arch(), cores: os.cpus().length, instructions: told.filter((f) => flags.includes(f)), load: os.loadavg()[0] };
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  const about = await machine();
  console.error(`${about.cpu}, ${about.cores} cores, ${about.instructions.join(" ")}; load ${about.load.toFixed(2)}`);
  if (about.load > 0.5) console.error("something else runs on this machine: ratios hold better than figures do");
  const { context, close } = lazyBrowser(options.model);
  const samples = {};
  const counted = {};
  try {
    for (const [name, runners] of Object.entries(comparisons(options, context))) samples[name] = await measure(runners, options, name);
    if (samples.webgpu?.ingle) counted.costs = await costs(context, options.model);
  } finally {
    await close();
  }
  const summary = { ...Object.fromEntries(Object.entries(samples).map(([name, by]) => [name, summarise(by)])), ...counted };
  const floors = options.peersOnly ? [] : floorsReached(FLOORS, summary);
  const text = table(summary, floors);
  console.log(text);
  const folder = path.join(ROOT, "benchmarks/results");
  await mkdir(folder, { recursive: true });
  const stamp = new Date().toISOString().slice(0, 16).replace(":", "");
  const { prompt, gen, rounds } = options;
  const result = { date: new Date().toISOString(), machine: about, model: path.basename(options.model), prompt, gen, rounds, summary, floors, samples };
  await writeFile(path.join(folder, `${stamp}.json`), `${JSON.stringify(result, null, 2)}\n`);
  await writeFile(path.join(folder, `${stamp}.txt`), `${text}\n`);
  console.error(`written: benchmarks/results/${stamp}.json and .txt`);
  if (options.assert && floors.some((floor) => !floor.reached)) process.exit(1);
}

main().catch((error) => {
  console.error(`scripts/bench: ${error.message}`);
  process.exit(1);
});
