// The browser's half of scripts/demo: serves the page, and with a prompt drives it in headless Chromium.
import path from "node:path";
import { parseArgs } from "node:util";
import { launch, open, ROOT } from "../tests/e2e/browser.mjs";
import { serve } from "./serve.mjs";

const { values: options } = parseArgs({
  options: { model: { type: "string" }, device: { type: "string", default: "auto" }, port: { type: "string", default: "0" }, prompt: { type: "string" } },
});

/** Where the page finds the model: an address as it is, a file under the page's own server. */
function place(model) {
  if (/^https?:/.test(model)) return { url: model, mounts: {} };
  return { url: "/model.gguf", mounts: { "/model.gguf": model } };
}

/** Runs in the page, on the package's public interface only. */
async function answer({ url, device, prompt }) {
  const { Ingle } = await import("/ingle/index.js");
  const begun = performance.now();
  let shown = 0;
  const onProgress = ({ loaded, total, rate }) => {
    if (performance.now() - shown < 250 && loaded !== total) return;
    shown = performance.now();
    globalThis.demoProgress(loaded, total, rate);
  };
  const ingle = await Ingle.load(url, { device, onProgress });
  const loadMs = performance.now() - begun;
  const stream = ingle.chat([{ role: "user", content: prompt }]);
  for await (const delta of stream) await globalThis.demoDelta(delta);
  const { device: used } = ingle;
  await ingle.dispose();
  return { device: used, loadMs, usage: stream.usage };
}

async function main() {
  const { url, mounts } = place(options.model);
  const server = await serve({
    mounts: { "/": path.join(ROOT, "demo"), "/blank/": path.join(ROOT, "tests/e2e/pages"), "/ingle/": path.join(ROOT, "web/dist"), ...mounts },
    port: Number(options.port),
  });
  if (!options.prompt) {
    const query = new URLSearchParams({ model: url, device: options.device });
    console.log(`${server.url}/?${query}`);
    console.error("Ctrl-C ends it");
    return;
  }
  const browser = await launch();
  try {
    const page = await open(browser, `${server.url}/blank/blank.html`);
    await page.exposeFunction("demoProgress", (loaded, total, rate) => {
      const megabytes = (bytes) => (bytes / 1e6).toFixed(0);
      process.stderr.write(`\rloading ${megabytes(loaded)} of ${megabytes(total)} MB, ${megabytes(rate)} MB/s   `);
      if (loaded === total) process.stderr.write("\n");
    });
    await page.exposeFunction("demoDelta", (delta) => void process.stdout.write(delta));
    const { device, loadMs, usage } = await page.evaluate(answer, { url, device: options.device, prompt: options.prompt });
    const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;
    console.log("\n");
    if (device.fallback) console.log(`not WebGPU: ${device.fallback}`);
    console.log(
      `${device.kind} (${device.name}): load ${seconds(loadMs)}, first token ${seconds(usage.firstTokenMs)}, ` +
        `${usage.completionTokens} tokens, ${usage.tokensPerSecond.toFixed(1)} tok/s`,
    );
  } finally {
    await browser.close();
    await server.close();
  }
}

main().catch((error) => {
  console.error(`\nscripts/demo: ${error.message}`);
  process.exit(1);
});
