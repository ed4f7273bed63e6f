// What a comparison must reach: at least, or at most. Each row says where its value is found in the summary.

export const FLOORS = [
  { name: "native decode ÷ llama.cpp", part: "native", least: 0.7, value: (s) => s.ratios["llama.cpp"]?.decode },
  { name: "native prefill ÷ llama.cpp", part: "native", least: 0.4, value: (s) => s.ratios["llama.cpp"]?.prefill },
  { name: "wasm decode ÷ wllama", part: "wasm", least: 1.0, value: (s) => s.ratios.wllama?.decode },
  { name: "wasm prefill ÷ wllama", part: "wasm", least: 1.0, value: (s) => s.ratios.wllama?.prefill },
  { name: "WebGPU decode ÷ bare matvecs", part: "webgpu", least: 0.5, value: (s) => s.ratios["bare matvecs"]?.decode },
  { name: "WebGPU prefill ÷ decode, per token", part: "webgpu", least: 2.0, value: ({ runners: { ingle } }) => ingle.prefill.median / ingle.decode.median },
  { name: "WebGPU launches a layer and token", part: "costs", most: 9, value: (costs) => costs.launchesPerLayer },
  { name: "WebGPU submits a token", part: "costs", most: 1, value: (costs) => costs.submits },
  { name: "WebGPU bytes read back a token", part: "costs", most: 16, value: (costs) => costs.bytesRead },
  { name: "WebGPU bytes written a token", part: "costs", most: 256, value: (costs) => costs.bytesWritten },
  { name: "WebGPU objects made in an answer", part: "costs", most: 0, value: (costs) => costs.created },
  { name: "wasm memory at its peak on WebGPU, MiB", part: "costs", most: 64, value: (costs) => costs.memoryMiB },
  { name: "main module, gzip -9, MB", part: "costs", most: 1.6, value: (costs) => costs.mainMB },
  { name: "kernel compiler, gzip -9, MB", part: "costs", most: 1.1, value: (costs) => costs.compilerMB },
];

/** Each floor of a part that was measured, with its value (null when it was not reported) and whether it is reached. */
export function floorsReached(floors, summary) {
  return floors
    .filter((floor) => summary[floor.part])
    .map(({ name, part, least, most, value }) => {
      const found = value(summary[part]);
      const known = Number.isFinite(found);
      const reached = known && (least === undefined || found >= least) && (most === undefined || found <= most);
      return { name, least, most, value: known ? found : null, reached };
    });
}
