// Where bytes come from: one interface over addresses with range requests, Blobs and bytes.

import { IngleError } from "./errors.js";
import type { SourceSpec } from "./protocol.js";

/** A model's bytes by range. */
export interface ByteSource {
  readonly size: number;
  /** Exactly `length` bytes from `offset`. */
  read(offset: number, length: number): Promise<Uint8Array>;
}

/** Opens a source. The signal cancels this and every later read. */
export async function openSource(spec: SourceSpec, signal: AbortSignal): Promise<ByteSource> {
  if ("url" in spec) return openUrl(spec.url, signal);
  if ("blob" in spec) return blobSource(spec.blob, signal);
  const { bytes } = spec;
  return { size: bytes.length, read: async (offset, length) => bytes.subarray(offset, offset + length) };
}

function blobSource(blob: Blob, signal: AbortSignal): ByteSource {
  return {
    size: blob.size,
    async read(offset, length) {
      signal.throwIfAborted();
      try {
        return new Uint8Array(await blob.slice(offset, offset + length).arrayBuffer());
      } catch (cause) {
        throw new IngleError("source", "the file could not be read; was it moved or changed?", { offset, length }, cause);
      }
    },
  };
}

async function openUrl(url: string, signal: AbortSignal): Promise<ByteSource> {
  const response = await request(url, "bytes=0-0", signal);
  const range = response.headers.get("content-range");
  if (response.status === 206 && range) {
    await response.body?.cancel();
    const size = Number(/\/(\d+)$/.exec(range)?.[1]);
    if (!Number.isSafeInteger(size)) {
      throw new IngleError("source", `${url}: the server does not say how long the file is`, { url, contentRange: range });
    }
    return urlSource(url, size, response.headers.get("etag"), signal);
  }
  // The server ignores ranges: the whole file comes in one response, and is read in order.
  return blobSource(await response.blob(), signal);
}

function urlSource(url: string, size: number, etag: string | null, signal: AbortSignal): ByteSource {
  return {
    size,
    async read(offset, length) {
      const response = await request(url, `bytes=${offset}-${offset + length - 1}`, signal);
      const found = response.headers.get("etag");
      if (response.status !== 206 || found !== etag) {
        await response.body?.cancel();
        throw new IngleError("source", `${url} changed while it was read; load it again`, { url, expected: etag, found, status: response.status });
      }
      const bytes = new Uint8Array(await response.arrayBuffer());
      if (bytes.length !== length) {
        throw new IngleError("source", `${url}: ${length} bytes expected at ${offset}, ${bytes.length} came`, { url, offset, expected: length, found: bytes.length });
      }
      return bytes;
    },
  };
}

async function request(url: string, range: string, signal: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { headers: { range }, signal });
  } catch (cause) {
    signal.throwIfAborted();
    throw new IngleError("source", `${url} could not be fetched; is the address right, and does its server allow this page?`, { url }, cause);
  }
  if (!response.ok) {
    await response.body?.cancel();
    throw new IngleError("source", `${url}: the server answered ${response.status} ${response.statusText}`, { url, status: response.status });
  }
  return response;
}
