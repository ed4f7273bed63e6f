// What the page and the worker say to each other: one typed union each way. Every request has an id, and ends in
// exactly one `done` or `error` with that id.

import type { PlainError } from "./errors.js";
import type { ChatMessage, DeviceInfo, GenerateOptions, LoadProgress, ScoreResult, Usage } from "./types.js";

/** A model's bytes, as they can be sent to a worker. */
export type SourceSpec = { url: string } | { blob: Blob } | { bytes: Uint8Array };

/** Options of loading, without what cannot be sent. */
export interface WorkerLoadOptions {
  device: "auto" | "webgpu" | "cpu";
  activations: "f32" | "int8";
  kv: "f16" | "f32";
  context: number | null;
}

/** What the page asks. */
export type Request =
  | { kind: "load"; id: number; source: SourceSpec; options: WorkerLoadOptions }
  | { kind: "chat"; id: number; messages: ChatMessage[]; options: GenerateOptions }
  | { kind: "complete"; id: number; prompt: string; options: GenerateOptions }
  | { kind: "tokenize"; id: number; text: string }
  | { kind: "score"; id: number; ids: number[]; logitsAt: number[] }
  | { kind: "cancel"; id: number };

/** What the worker answers. */
export type Reply =
  | { kind: "progress"; id: number; progress: LoadProgress }
  | { kind: "loaded"; id: number; device: DeviceInfo; context: number }
  | { kind: "delta"; id: number; text: string }
  | { kind: "generated"; id: number; usage: Usage }
  | { kind: "tokens"; id: number; ids: number[] }
  | { kind: "scored"; id: number; result: ScoreResult }
  | { kind: "error"; id: number; error: PlainError };
