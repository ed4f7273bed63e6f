// A static file server for the demo and the tests: HTTP ranges, right types, and a record of what was
// asked. It serves only what is mounted, only to this machine.
//
//   node scripts/serve.mjs [--port N] [--isolated] /=demo /ingle/=web/dist /model.gguf=FILE
//
// As a module: const server = await serve({ mounts: { "/": "demo" } }); server.url; await server.close()
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { pathToFileURL } from "node:url";

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json",
  ".wasm": "application/wasm",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
};

/**
 * Starts a server. `mounts` maps URL prefixes ending in `/` to folders and other URL paths to files; the
 * longest match wins. `isolated` sends the headers that make a page cross-origin isolated. `port` 0 takes
 * a free one. `requests` fills with `{ method, path, range, status, bytes }` as answers end; `throttle`
 * is bytes per second for each answer, none by default.
 */
export async function serve({ mounts, port = 0, isolated = false, throttle = 0 }) {
  const table = Object.entries(mounts)
    .map(([prefix, target]) => ({ prefix, target: path.resolve(target) }))
    .sort((a, b) => b.prefix.length - a.prefix.length);
  const requests = [];
  const server = createServer((request, response) => {
    answer(request, response, { table, isolated, requests, throttle }).catch((error) => {
      if (!response.headersSent) response.writeHead(500);
      response.end(String(error.message));
    });
  });
  await new Promise((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The file that a URL path means, or null; never one outside the mounted folder. */
export function locate(table, urlPath) {
  let decoded;
  try {
    decoded = decodeURIComponent(urlPath);
  } catch {
    return null;
  }
  if (decoded.includes("\0")) return null;
  for (const { prefix, target } of table) {
    if (decoded === prefix && !prefix.endsWith("/")) return target;
    if (!prefix.endsWith("/") || !decoded.startsWith(prefix)) continue;
    const rest = decoded.slice(prefix.length);
    const file = path.join(target, rest === "" || rest.endsWith("/") ? `${rest}index.html` : rest);
    return file.startsWith(target + path.sep) ? file : null;
  }
  return null;
}

/**
 * The bytes a `Range` header asks of a file of `size` bytes: `{ start, end }` (inclusive), null for the
 * whole file (no header, several ranges, another unit), or "unsatisfiable".
 */
export function parseRange(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (!match || (match[1] === "" && match[2] === "")) return null;
  if (match[1] === "") {
    const length = Math.min(Number(match[2]), size);
    return length === 0 ? "unsatisfiable" : { start: size - length, end: size - 1 };
  }
  const start = Number(match[1]);
  const end = match[2] === "" ? size - 1 : Math.min(Number(match[2]), size - 1);
  if (start >= size) return "unsatisfiable";
  return start > end ? null : { start, end };
}

async function answer(request, response, { table, isolated, requests, throttle }) {
  const urlPath = new URL(request.url, "http://localhost").pathname;
  const record = { method: request.method, path: urlPath, range: request.headers.range ?? null, status: 0, bytes: 0 };
  requests.push(record);
  const finish = (status, headers) => {
    record.status = status;
    response.writeHead(status, headers);
  };
  if (isolated) {
    response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
    response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
    response.setHeader("Cross-Origin-Resource-Policy", "same-origin");
  }
  if (request.method !== "GET" && request.method !== "HEAD") {
    finish(405, { Allow: "GET, HEAD" });
    return response.end();
  }
  const file = locate(table, urlPath);
  const info = file && (await stat(file).catch(() => null));
  if (!info?.isFile()) {
    finish(404, { "Content-Type": "text/plain" });
    return response.end(`not found: ${urlPath}\n`);
  }
  const headers = {
    "Content-Type": TYPES[path.extname(file)] ?? "application/octet-stream",
    "Accept-Ranges": "bytes",
    "Cache-Control": "no-cache",
    ETag: `"${info.size.toString(16)}-${Math.trunc(info.mtimeMs).toString(16)}"`,
  };
  const range = parseRange(request.headers.range, info.size);
  if (range === "unsatisfiable") {
    finish(416, { ...headers, "Content-Range": `bytes */${info.size}` });
    return response.end();
  }
  const { start, end } = range ?? { start: 0, end: info.size - 1 };
  const length = end - start + 1;
  if (range) headers["Content-Range"] = `bytes ${start}-${end}/${info.size}`;
  finish(range ? 206 : 200, { ...headers, "Content-Length": length });
  if (request.method === "HEAD" || length === 0) return response.end();
  // A reader that goes away in the middle is not an error of the server.
  await pipeline(createReadStream(file, { start, end }), count(record, throttle), response).catch(() => {});
}

function count(record, throttle) {
  return async function* (chunks) {
    for await (const chunk of chunks) {
      record.bytes += chunk.length;
      yield chunk;
      if (throttle > 0) await new Promise((resolve) => setTimeout(resolve, (1000 * chunk.length) / throttle));
    }
  };
}

async function main(args) {
  const mounts = {};
  let port = 0;
  let isolated = false;
  for (let i = 0; i < args.length; i++) {
    const equals = args[i].indexOf("=");
    if (args[i] === "--port") port = Number(args[++i]);
    else if (args[i] === "--isolated") isolated = true;
    else if (args[i].startsWith("/") && equals > 0) mounts[args[i].slice(0, equals)] = args[i].slice(equals + 1);
    else throw new Error(`unknown argument: ${args[i]} (mounts look like /models/=FOLDER)`);
  }
  const server = await serve({ mounts, port, isolated });
  console.log(server.url);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  main(process.argv.slice(2)).catch((error) => {
    console.error(error.message);
    process.exit(1);
  });
}
