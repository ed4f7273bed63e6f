// The errors that a page sees: `{ code, message, detail }`, from one list.

/** What went wrong. The list is closed: a page can switch over it. */
export type ErrorCode =
  /** The source could not be read: a network error, a status other than 2xx, a file that vanished. */
  | "source"
  /** The file is no GGUF, or one that lies about itself; `detail` names the field, the expected and the found. */
  | "format"
  /** The file is well formed, but its architecture, format or tokenizer is not one that Ingle runs. */
  | "unsupported"
  /** There is no such device here, and no fallback was allowed. */
  | "no_device"
  /** The device was lost, ran out of memory, or reported an error. */
  | "device"
  /** The caller's arguments. */
  | "invalid"
  /** The prompt does not fit the context. */
  | "context_full"
  /** The model computed something that is no number. */
  | "non_finite"
  /** The conversation and the model's template do not go together. */
  | "template"
  /** `dispose()` was called. */
  | "disposed"
  /** A defect of Ingle: please report it. */
  | "internal";

/** An error of Ingle. Cancelling gives a `DOMException` named `AbortError` instead, as it does everywhere. */
export class IngleError extends Error {
  readonly code: ErrorCode;
  readonly detail: Record<string, unknown>;

  constructor(code: ErrorCode, message: string, detail: Record<string, unknown> = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "IngleError";
    this.code = code;
    this.detail = detail;
  }
}

/** An error as it travels between threads, where classes are lost. */
export interface PlainError {
  code: ErrorCode | "abort";
  message: string;
  detail: Record<string, unknown>;
}

/** Makes any thrown value travel. The engine throws objects with `code`, `message` and `detail`. */
export function toPlain(error: unknown): PlainError {
  if (error instanceof DOMException && error.name === "AbortError") {
    return { code: "abort", message: error.message, detail: {} };
  }
  if (typeof error === "object" && error !== null && "code" in error && "message" in error) {
    const { code, message, detail } = error as { code: unknown; message: unknown; detail?: unknown };
    if (typeof code === "string") {
      return { code: code as ErrorCode, message: String(message), detail: (detail ?? {}) as Record<string, unknown> };
    }
  }
  const message = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return { code: "internal", message, detail: {} };
}

/** The error that a page sees. */
export function fromPlain(plain: PlainError): Error {
  if (plain.code === "abort") return new DOMException(plain.message, "AbortError");
  return new IngleError(plain.code, plain.message, plain.detail);
}

/** The error of a call that its signal cancelled. */
export function aborted(): DOMException {
  return new DOMException("cancelled", "AbortError");
}
