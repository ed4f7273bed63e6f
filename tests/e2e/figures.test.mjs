// The benchmark's arithmetic: a wrong median or a floor that cannot be missed would say whatever we like.
import assert from "node:assert/strict";
import { test } from "node:test";
import { floorsReached } from "../../benchmarks/floors.mjs";
import { median, summarise, table } from "../../benchmarks/figures.mjs";

test("the median of an even number of values lies between the two in the middle", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 3, 2]), 2.5);
});

test("a ratio compares within a round, so a slow round does not tilt it", () => {
  const ingle = [{ prefill: 100, decode: 10 }, { prefill: 50, decode: 5 }, { prefill: 100, decode: 12 }];
  const peer = [{ prefill: 200, decode: 10 }, { prefill: 100, decode: 5 }, { prefill: 200, decode: 10 }];
  const { runners, ratios } = summarise({ ingle, peer });
  assert.deepEqual(ratios, { peer: { prefill: 0.5, decode: 1 } });
  assert.deepEqual(runners.peer.decode, { median: 10, min: 5, max: 10 });
});

test("a peer without prefill is compared by what it has", () => {
  const summary = { webgpu: summarise({ ingle: [{ prefill: 30, decode: 4 }], "bare matvecs": [{ decode: 5 }] }) };
  assert.deepEqual(summary.webgpu.ratios, { "bare matvecs": { decode: 0.8 } });
  const row = table(summary, []).split("\n").find((line) => line.includes("bare matvecs"));
  assert.match(row, /bare matvecs +5\.0 \(5\.0–5\.0\) +0\.80×$/);
});

test("a floor is missed by a low value and by an absent one", () => {
  const floors = [
    { name: "high", part: "native", least: 1, value: () => 1 },
    { name: "low", part: "native", least: 1, value: () => 0.99 },
    { name: "absent", part: "native", least: 1, value: () => undefined },
    { name: "few", part: "native", most: 1, value: () => 1 },
    { name: "many", part: "native", most: 1, value: () => 1.01 },
    { name: "not run", part: "webgpu", least: 1, value: () => 1 },
  ];
  const found = floorsReached(floors, { native: {} });
  assert.deepEqual(found.map(({ name, reached }) => [name, reached]), [["high", true], ["low", false], ["absent", false], ["few", true], ["many", false]]);
  const summary = { native: summarise({ ingle: [{ prefill: 1, decode: 1 }] }) };
  assert.match(table(summary, found), /MISSED {3}absent: not reported \(at least 1\)/);
  assert.match(table(summary, found), /MISSED {3}many: 1\.01 \(at most 1\)/);
});
