// What a comparison must reach. Each row says where its value is found in the summary.

export const FLOORS = [
  { name: "native decode ÷ llama.cpp", part: "native", least: 0.7, value: (s) => s.ratios["llama.cpp"]?.decode },
  { name: "native prefill ÷ llama.cpp", part: "native", least: 0.4, value: (s) => s.ratios["llama.cpp"]?.prefill },
  { name: "wasm decode ÷ wllama", part: "wasm", least: 1.0, value: (s) => s.ratios.wllama?.decode },
  { name: "wasm prefill ÷ wllama", part: "wasm", least: 1.0, value: (s) => s.ratios.wllama?.prefill },
  // The token's matvecs alone, every weight from its own buffer, measured by the page in the same run.
  { name: "WebGPU decode ÷ bare matvecs", part: "webgpu", least: 0.5, value: ({ runners: { ingle } }) => ingle.decode.median / ingle.bare_matvec_tok_s?.median },
  { name: "WebGPU prefill ÷ decode, per token", part: "webgpu", least: 2.0, value: ({ runners: { ingle } }) => ingle.prefill.median / ingle.decode.median },
];

/** Each floor of a part that was measured, with its value (null when it was not reported) and whether it is reached. */
export function floorsReached(floors, summary) {
  return floors
    .filter((floor) => summary[floor.part])
    .map(({ name, part, least, value }) => {
      const found = value(summary[part]);
      const known = Number.isFinite(found);
      return { name, least, value: known ? found : null, reached: known && found >= least };
    });
}
