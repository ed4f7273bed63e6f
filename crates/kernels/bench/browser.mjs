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
    const names = await page.evaluate((config) => globalThis.prepare(config), config);
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
