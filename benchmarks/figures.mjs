// Samples to medians, spreads and ratios, and these to a table.

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * For `{ who: [{ prefill, decode, … }] }`: each one's medians and extremes of every number it reports, and
 * Ingle's ratio to each peer. A ratio is the median of the rounds' own ratios: what a round shared cancels.
 */
export function summarise(samples) {
  const runners = {};
  for (const [who, rounds] of Object.entries(samples)) {
    runners[who] = {};
    for (const name of Object.keys(rounds[0]).filter((key) => typeof rounds[0][key] === "number")) {
      const values = rounds.map((round) => round[name]);
      runners[who][name] = { median: median(values), min: Math.min(...values), max: Math.max(...values) };
    }
  }
  const ratios = {};
  for (const [who, rounds] of Object.entries(samples)) {
    if (who === "ingle" || !samples.ingle) continue;
    ratios[who] = {};
    for (const name of ["prefill", "decode"].filter((name) => name in rounds[0])) {
      ratios[who][name] = median(rounds.map((round, i) => samples.ingle[i][name] / round[name]));
    }
  }
  return { runners, ratios };
}

/** The figures as text: one line per runner, then one per floor. */
export function table(summary, floors) {
  const figure = (values) => (values ? `${values.median.toFixed(1)} (${values.min.toFixed(1)}–${values.max.toFixed(1)})` : "");
  const ratio = (value) => (value === undefined ? "" : `${value.toFixed(2)}×`);
  const rows = [["", "", "prefill tok/s", "ingle ÷", "decode tok/s", "ingle ÷"]];
  for (const [name, { runners = {}, ratios }] of Object.entries(summary)) {
    for (const [who, numbers] of Object.entries(runners)) {
      rows.push([name, who, figure(numbers.prefill), ratio(ratios[who]?.prefill), figure(numbers.decode), ratio(ratios[who]?.decode)]);
      for (const [extra, value] of Object.entries(numbers)) {
        if (extra !== "prefill" && extra !== "decode") rows.push([name, who, `${extra}: ${figure(value)}`, "", "", ""]);
      }
    }
  }
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  const lines = rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column])).join("  ").trimEnd());
  for (const floor of floors) {
    const bound = floor.most === undefined ? `at least ${floor.least}` : `at most ${floor.most}`;
    lines.push(`${floor.reached ? "reached" : "MISSED "}  ${floor.name}: ${floor.value === null ? "not reported" : floor.value.toFixed(2)} (${bound})`);
  }
  return lines.join("\n");
}
