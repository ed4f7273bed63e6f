// The worker: owns the wasm module and the model, answers requests one after the other, and gives way to its message
// queue between tokens and between pieces of a prompt, so that a cancel arrives.

import init, { Model } from "./ingle_wasm.js";
import { aborted, IngleError, toPlain } from "./errors.js";
import type { Reply, Request } from "./protocol.js";
import { openSource, type ByteSource } from "./sources.js";
import type { LoadProgress } from "./types.js";

const scope = globalThis as unknown as DedicatedWorkerGlobalScope;
const running = new Map<number, AbortController>();
let model: Model | null = null;
let queue: Promise<void> = Promise.resolve();

scope.onmessage = ({ data }: MessageEvent<Request>) => {
  if (data.kind === "cancel") {
    running.get(data.id)?.abort(aborted());
    return;
  }
  const controller = new AbortController();
  running.set(data.id, controller);
  queue = queue.then(async () => {
    try {
      controller.signal.throwIfAborted();
      await answer(data, controller.signal);
    } catch (error) {
      // A read that was cancelled fails with what the engine made of it: the signal knows better.
      const thrown = controller.signal.aborted ? controller.signal.reason : error;
      reply({ kind: "error", id: data.id, error: toPlain(thrown) });
    } finally {
      running.delete(data.id);
    }
  });
};

function reply(message: Reply, transfer: Transferable[] = []): void {
  scope.postMessage(message, transfer);
}

async function answer(request: Exclude<Request, { kind: "cancel" }>, signal: AbortSignal): Promise<void> {
  const { id } = request;
  switch (request.kind) {
    case "load": {
      await init({ module_or_path: new URL("./ingle_wasm_bg.wasm", import.meta.url) });
      const source = metered(await openSource(request.source, signal), (progress) => reply({ kind: "progress", id, progress }));
      model = await Model.load(source, request.options, () => signal.aborted, compileKernels);
      reply({ kind: "loaded", id, device: model.device(), context: model.context() });
      return;
    }
    case "chat":
      loaded().start_chat(request.messages, request.options);
      return generate(id, signal);
    case "complete":
      loaded().start_completion(request.prompt, request.options);
      return generate(id, signal);
    case "tokenize":
      reply({ kind: "tokens", id, ids: Array.from(loaded().tokenize(request.text)) });
      return;
    case "score": {
      const result = await loaded().score(Uint32Array.from(request.ids), Uint32Array.from(request.logitsAt), () => signal.aborted, giveWay);
      reply({ kind: "scored", id, result });
      return;
    }
  }
}

function loaded(): Model {
  if (!model) throw new IngleError("invalid", "no model is loaded");
  return model;
}

async function generate(id: number, signal: AbortSignal): Promise<void> {
  const running = loaded();
  const begun = performance.now();
  let first = 0;
  let last = begun;
  try {
    for (;;) {
      const step = await running.step();
      await giveWay();
      signal.throwIfAborted();
      if (step.tokens > 0) {
        last = performance.now();
        if (first === 0) first = last;
      }
      if (step.text) reply({ kind: "delta", id, text: step.text });
      if (!step.finish) continue;
      const seconds = (last - first) / 1000;
      const usage = {
        promptTokens: step.prompt_tokens,
        completionTokens: step.completion_tokens,
        firstTokenMs: Math.max(0, first - begun),
        tokensPerSecond: seconds > 0 ? (step.completion_tokens - 1) / seconds : 0,
        finishReason: step.finish,
      };
      reply({ kind: "generated", id, usage });
      return;
    }
  } finally {
    running.stop();
  }
}

/** Texts of kernels that were not made when the package was built: by the compiler, a module that loads only now. */
async function compileKernels(keys: string): Promise<string> {
  const compiler = await import("./ingle_compiler.js");
  await compiler.default({ module_or_path: new URL("./ingle_compiler_bg.wasm", import.meta.url) });
  return compiler.compile_kernels(keys);
}

/** Lets messages in that are waiting: a promise alone would not. */
function giveWay(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

/** Reports progress at most ten times a second, and at the end. */
function metered(source: ByteSource, report: (progress: LoadProgress) => void): ByteSource {
  let loaded = 0;
  let shown = 0;
  const recent: Array<{ at: number; loaded: number }> = [{ at: performance.now(), loaded: 0 }];
  return {
    size: source.size,
    async read(offset, length) {
      const bytes = await source.read(offset, length);
      // Bytes that are in memory come at once: a cancel must get in between.
      await giveWay();
      loaded = Math.min(source.size, loaded + length);
      const now = performance.now();
      if (now - shown > 100 || loaded === source.size) {
        shown = now;
        recent.push({ at: now, loaded });
        while (recent.length > 2 && now - recent[0]!.at > 3000) recent.shift();
        const since = recent[0]!;
        report({ loaded, total: source.size, rate: (1000 * (loaded - since.loaded)) / Math.max(1, now - since.at) });
      }
      return bytes;
    },
  };
}
