// The file server that every browser test stands on: ranges, and nothing outside what is mounted.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { locate, parseRange, serve } from "../../scripts/serve.mjs";

let folder;
let server;

before(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), "ingle-serve-"));
  await writeFile(path.join(folder, "digits.txt"), "0123456789");
  await writeFile(path.join(folder, "empty.bin"), "");
  server = await serve({ mounts: { "/": folder, "/one": path.join(folder, "digits.txt") }, isolated: true });
});

after(async () => {
  await server.close();
  await rm(folder, { recursive: true });
});

const get = (url, range) => fetch(`${server.url}${url}`, range ? { headers: { Range: range } } : {});

test("a range is what RFC 9110 says it is", () => {
  const cases = [
    ["bytes=2-4", { start: 2, end: 4 }],
    ["bytes=2-", { start: 2, end: 9 }],
    ["bytes=-3", { start: 7, end: 9 }],
    ["bytes=-30", { start: 0, end: 9 }],
    ["bytes=8-99", { start: 8, end: 9 }],
    ["bytes=10-", "unsatisfiable"],
    ["bytes=-0", "unsatisfiable"],
    ["bytes=4-2", null],
    ["bytes=-", null],
    ["bytes=0-1,3-4", null],
    ["lines=0-1", null],
    [undefined, null],
  ];
  for (const [header, expected] of cases) assert.deepEqual(parseRange(header, 10), expected, String(header));
});

test("a file comes whole or in part, with the headers of either", async () => {
  const whole = await get("/digits.txt");
  assert.equal(whole.status, 200);
  assert.equal(whole.headers.get("accept-ranges"), "bytes");
  assert.equal(whole.headers.get("cross-origin-opener-policy"), "same-origin");
  assert.equal(await whole.text(), "0123456789");
  const part = await get("/one", "bytes=3-5");
  assert.equal(part.status, 206);
  assert.equal(part.headers.get("content-range"), "bytes 3-5/10");
  assert.equal(part.headers.get("content-length"), "3");
  assert.equal(await part.text(), "345");
  assert.equal((await get("/digits.txt", "bytes=10-")).status, 416);
  assert.equal(await (await get("/empty.bin")).text(), "");
  assert.equal((await get("/absent")).status, 404);
  assert.equal((await fetch(`${server.url}/one`, { method: "POST" })).status, 405);
});

test("no path leaves the mounted folder", () => {
  const table = [{ prefix: "/", target: "/srv/files" }];
  for (const bad of ["/../secret", "/a/../../secret", "/%2e%2e/secret", "/..%2fsecret", "/%00", "/%zz", "/..files/../../x"]) {
    assert.equal(locate(table, bad), null, bad);
  }
  assert.equal(locate(table, "/"), path.join("/srv/files", "index.html"));
  assert.equal(locate(table, "/a/b.js"), path.join("/srv/files", "a", "b.js"));
});

test("the record says what was asked and sent", async () => {
  server.requests.length = 0;
  await (await get("/digits.txt", "bytes=1-4")).arrayBuffer();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(server.requests, [{ method: "GET", path: "/digits.txt", range: "bytes=1-4", status: 206, bytes: 4 }]);
});
