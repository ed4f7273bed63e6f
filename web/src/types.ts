// The package's public types.

/** Where a model comes from: an address, a file that the visitor chose, or bytes. */
export type ModelSource = string | URL | Blob | Uint8Array;

/** One message of a conversation. */
export interface ChatMessage {
  role: "system" | "user" | "assistant" | (string & {});
  content: string;
}

/** How far loading has come. */
export interface LoadProgress {
  /** Bytes of the model that have arrived. */
  loaded: number;
  /** Bytes of the model in all. */
  total: number;
  /** Bytes per second, over the last seconds. */
  rate: number;
}

/** Options of {@link Ingle.load}. */
export interface LoadOptions {
  /** `auto` (the default) takes WebGPU where there is a device and else the CPU, and says so in `ingle.device`. */
  device?: "auto" | "webgpu" | "cpu";
  /** How activations enter matrix products: `int8` (the default) as two 8-bit terms, which is faster, `f32` as they are, which is exact. */
  activations?: "f32" | "int8";
  /** What keys and values are kept as: `f16` (the default), or `f32`, which takes twice the memory and loses nothing. */
  kv?: "f16" | "f32";
  /** Largest number of tokens in memory; the model's own limit if left out. */
  context?: number;
  onProgress?: (progress: LoadProgress) => void;
  /** Cancels loading. */
  signal?: AbortSignal;
}

/** The device that runs the model. */
export interface DeviceInfo {
  kind: "webgpu" | "cpu";
  /** The adapter's name, or the instruction set. */
  name: string;
  details: string[];
  /** Why it is not the device that was asked for first, if it is not. */
  fallback: string | null;
}

/** Options of one answer. */
export interface GenerateOptions {
  /** At most this many tokens; as many as fit if left out. */
  maxTokens?: number;
  /** 0 (the default) takes the most likely token every time. */
  temperature?: number;
  topK?: number;
  topP?: number;
  /** Makes sampling repeatable. */
  seed?: number;
}

/** What an answer took. */
export interface Usage {
  promptTokens: number;
  completionTokens: number;
  /** Milliseconds to the first token. */
  firstTokenMs: number;
  /** Tokens per second after the first. */
  tokensPerSecond: number;
  /** `stop`: the model ended its answer; `length`: `maxTokens`; `context_full`: no room is left. */
  finishReason: "stop" | "length" | "context_full";
}

/** What {@link Ingle.score} measures. */
export interface ScoreResult {
  /** The most likely next token after each token. */
  best: number[];
  /** Negative log likelihood of each token after the first. */
  nll: number[];
  /** Whole logit vectors at the positions asked for. */
  logits: Float32Array[];
}
