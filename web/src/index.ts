// The package's face: a model that runs in a worker of its own.

import { aborted, fromPlain, IngleError } from "./errors.js";
import type { Reply, Request, SourceSpec } from "./protocol.js";
import type { ChatMessage, DeviceInfo, GenerateOptions, LoadOptions, LoadProgress, ModelSource, ScoreResult, Usage } from "./types.js";

export { IngleError, type ErrorCode } from "./errors.js";
export type * from "./types.js";

/** A request without its id, which the caller gives it. */
type Unnumbered<T> = T extends { id: number } ? Omit<T, "id"> : never;

/** What is waiting for replies to one request. */
interface Waiting {
  on(reply: Reply): void;
  fail(error: Error): void;
}

/** A stream of text. `usage` is there once the stream has ended. */
export interface TextStream extends AsyncIterable<string> {
  readonly usage: Usage | null;
}

/** A loaded model. */
export class Ingle {
  /** The device that runs it, and why it is not another. */
  readonly device: DeviceInfo;
  /** Most tokens that a conversation may have. */
  readonly context: number;
  readonly #channel: Channel;

  private constructor(channel: Channel, device: DeviceInfo, context: number) {
    this.#channel = channel;
    this.device = device;
    this.context = context;
  }

  /** Loads a GGUF model. Rejects with an {@link IngleError}, or with `AbortError` when cancelled. */
  static async load(source: ModelSource, options: LoadOptions = {}): Promise<Ingle> {
    const { device = "auto", activations = "int8", kv = "f16", context = null, onProgress, signal } = options;
    if (signal?.aborted) throw aborted();
    if (!["auto", "webgpu", "cpu"].includes(device)) throw new IngleError("invalid", `device: "auto", "webgpu" or "cpu", not ${JSON.stringify(device)}`, { field: "device" });
    if (!["f32", "int8"].includes(activations)) throw new IngleError("invalid", `activations: "f32" or "int8", not ${JSON.stringify(activations)}`, { field: "activations" });
    if (!["f16", "f32"].includes(kv)) throw new IngleError("invalid", `kv: "f16" or "f32", not ${JSON.stringify(kv)}`, { field: "kv" });
    const channel = new Channel();
    try {
      const request = { kind: "load", source: sourceSpec(source), options: { device, activations, kv, context } } as const;
      const reply = await channel.call(request, "loaded", signal, (progress) => onProgress?.(progress));
      return new Ingle(channel, reply.device, reply.context);
    } catch (error) {
      channel.close();
      throw error;
    }
  }

  /** Answers a conversation through the model's own chat template. Leaving the loop early cancels. */
  chat(messages: ChatMessage[], options: GenerateOptions & { signal?: AbortSignal } = {}): TextStream {
    const { signal, ...rest } = options;
    return this.#channel.stream({ kind: "chat", messages, options: rest }, signal);
  }

  /** Continues a text as it is, without a template. */
  complete(prompt: string, options: GenerateOptions & { signal?: AbortSignal } = {}): TextStream {
    const { signal, ...rest } = options;
    return this.#channel.stream({ kind: "complete", prompt, options: rest }, signal);
  }

  /** The text's token ids, with special tokens recognised and the beginning-of-text token if the model wants one. */
  async tokenize(text: string): Promise<number[]> {
    return (await this.#channel.call({ kind: "tokenize", text }, "tokens")).ids;
  }

  /** What the model thinks of a text: its likelihood, and logits where asked for. */
  async score(ids: number[], logitsAt: number[] = [], options: { signal?: AbortSignal } = {}): Promise<ScoreResult> {
    return (await this.#channel.call({ kind: "score", ids, logitsAt }, "scored", options.signal)).result;
  }

  /** Ends the worker and frees what it held. Calls that are under way fail with `disposed`. */
  async dispose(): Promise<void> {
    this.#channel.close();
  }
}

function sourceSpec(source: ModelSource): SourceSpec {
  if (typeof source === "string" || source instanceof URL) {
    return { url: new URL(source, globalThis.location?.href).href };
  }
  if (source instanceof Blob) return { blob: source };
  if (source instanceof Uint8Array) return { bytes: source };
  throw new IngleError("invalid", "source: an address, a File or Blob, or a Uint8Array is expected", { field: "source" });
}

/** The page's end of the worker. */
class Channel {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #next = 1;
  #closed = false;

  constructor() {
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "ingle" });
    this.#worker.onmessage = ({ data }: MessageEvent<Reply>) => this.#waiting.get(data.id)?.on(data);
    this.#worker.onerror = (event) => {
      const message = event.message || "the worker could not be started: is the package served completely, and does the page's policy allow workers and WebAssembly?";
      this.#end(new IngleError("internal", message));
    };
  }

  close(): void {
    this.#end(new IngleError("disposed", "the model was disposed of"));
  }

  /** Asks and waits for the one reply of kind `kind`. */
  call<K extends Reply["kind"]>(
    request: Unnumbered<Request>,
    kind: K,
    signal?: AbortSignal,
    onProgress?: (progress: LoadProgress) => void,
  ): Promise<Extract<Reply, { kind: K }>> {
    return new Promise((resolve, reject) => {
      this.#ask(request, signal, {
        on: (reply) => {
          if (reply.kind === "progress") onProgress?.(reply.progress);
          else if (reply.kind === kind) resolve(reply as Extract<Reply, { kind: K }>);
        },
        fail: reject,
      });
    });
  }

  /** Asks at the first `next()`, and gives deltas as they come. */
  stream(request: Unnumbered<Request>, signal?: AbortSignal): TextStream {
    const channel = this;
    let usage: Usage | null = null;
    async function* deltas(): AsyncGenerator<string, void, undefined> {
      const queue: string[] = [];
      let ended = false;
      let failure: Error | null = null;
      let wake = () => {};
      const stop = channel.#ask(request, signal, {
        on: (reply) => {
          if (reply.kind === "delta") queue.push(reply.text);
          if (reply.kind === "generated") [usage, ended] = [reply.usage, true];
          wake();
        },
        fail: (error) => {
          [failure, ended] = [error, true];
          wake();
        },
      });
      try {
        for (;;) {
          const text = queue.shift();
          if (text !== undefined) yield text;
          else if (failure) throw failure;
          else if (ended) return;
          else await new Promise<void>((resolve) => (wake = resolve));
        }
      } finally {
        if (!ended) stop();
      }
    }
    return {
      [Symbol.asyncIterator]: deltas,
      get usage() {
        return usage;
      },
    };
  }

  /** Sends a request; gives a function that cancels it. */
  #ask(request: Unnumbered<Request>, signal: AbortSignal | undefined, waiting: Waiting): () => void {
    if (this.#closed) {
      waiting.fail(new IngleError("disposed", "the model was disposed of"));
      return () => {};
    }
    if (signal?.aborted) {
      waiting.fail(aborted());
      return () => {};
    }
    const id = this.#next++;
    const cancel = () => this.#worker.postMessage({ kind: "cancel", id } satisfies Request);
    const settle = () => {
      this.#waiting.delete(id);
      signal?.removeEventListener("abort", cancel);
    };
    this.#waiting.set(id, {
      on: (reply) => {
        if (reply.kind !== "progress" && reply.kind !== "delta") settle();
        if (reply.kind === "error") waiting.fail(fromPlain(reply.error));
        else waiting.on(reply);
      },
      fail: (error) => {
        settle();
        waiting.fail(error);
      },
    });
    signal?.addEventListener("abort", cancel);
    this.#worker.postMessage({ ...request, id });
    return cancel;
  }

  #end(error: Error): void {
    this.#closed = true;
    this.#worker.terminate();
    for (const waiting of [...this.#waiting.values()]) waiting.fail(error);
  }
}
