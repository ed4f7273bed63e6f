// What a page downloads before a model: the wasm modules as a server compresses them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { gzipSync } from "node:zlib";

// Bytes with gzip -9.
const MOST = { ingle_wasm: 1_600_000, ingle_compiler: 1_100_000 };

for (const [name, most] of Object.entries(MOST)) {
  test(`${name} takes at most ${most} bytes`, () => {
    const module = readFileSync(new URL(`../../web/dist/${name}_bg.wasm`, import.meta.url));
    const size = gzipSync(module, { level: 9 }).length;
    console.log(`${name}: ${module.length} bytes, ${size} with gzip -9`);
    assert.ok(size <= most, `${size} bytes`);
  });
}
