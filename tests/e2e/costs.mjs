// What a token costs on WebGPU, counted: shared by the tests and the benchmark. The page was opened with `counting` and
// has a model as `globalThis.ingle`.
import { counts, resetCounts } from "./browser.mjs";

/** The whole answer and its usage. */
export function ask(page, messages, options = {}) {
  return page.evaluate(async ([messages, options]) => {
    const stream = globalThis.ingle.chat(messages, options);
    let text = "";
    for await (const delta of stream) text += delta;
    return { text, usage: stream.usage };
  }, [messages, options]);
}

/**
 * `each`: what a token adds to every count, and `created`: buffers, bind groups and pipelines made for a whole answer once
 * the first answer has been given. `messages` must have an answer of at least seven tokens.
 */
export async function tokenCosts(page, messages) {
  await ask(page, messages, { maxTokens: 4 });
  await resetCounts(page);
  const short = await ask(page, messages, { maxTokens: 4 });
  const few = await counts(page);
  await resetCounts(page);
  const long = await ask(page, messages, { maxTokens: 7 });
  const more = await counts(page);
  const tokens = long.usage.completionTokens - short.usage.completionTokens;
  if (tokens !== 3) throw new Error(`the answer is too short to tell the two apart: ${JSON.stringify(long.text)}`);
  // The prompt costs the same both times: what is left is what the tokens cost.
  const each = Object.fromEntries(Object.keys(more).map((name) => [name, (more[name] - few[name]) / tokens]));
  return { each, created: more.createBuffer + more.createBindGroup + more.createComputePipeline };
}
