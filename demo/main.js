// The chat page, on the package's public interface only.
import { Ingle, IngleError } from "/ingle/index.js";

const at = (id) => document.getElementById(id);
const conversation = [];
let ingle = null;
let answering = null;
let loading = null;

const query = new URLSearchParams(location.search);
at("address").value = query.get("model") ?? "";
if (query.get("device")) at("device-choice").value = query.get("device");

at("address-form").addEventListener("submit", (event) => {
  event.preventDefault();
  load(at("address").value.trim());
});
at("file").addEventListener("change", () => at("file").files[0] && load(at("file").files[0]));
at("cancel-load").addEventListener("click", () => loading?.abort());
at("stop").addEventListener("click", () => answering?.abort());
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(at("question").value.trim());
});
at("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("ask").requestSubmit();
  }
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", kind === "dragover");
    const file = kind === "drop" ? event.dataTransfer?.files[0] : null;
    if (file && !loading) load(file);
  });
}

async function load(source) {
  if (loading) return;
  show(null);
  loading = new AbortController();
  at("loading").hidden = false;
  const buttons = at("address-form").querySelectorAll("button, input");
  for (const element of buttons) element.disabled = true;
  try {
    await ingle?.dispose();
    ingle = null;
    progress({ loaded: 0, total: 0, rate: 0 });
    ingle = await Ingle.load(source, { device: at("device-choice").value, onProgress: progress, signal: loading.signal });
    const { kind, name, fallback } = ingle.device;
    at("device").textContent = `${kind}: ${name}${fallback ? ` (${fallback})` : ""}`;
    at("open").hidden = true;
    at("ask").hidden = false;
    at("question").focus();
  } catch (error) {
    if (error.name !== "AbortError") show(error);
  } finally {
    loading = null;
    at("loading").hidden = true;
    for (const element of buttons) element.disabled = false;
  }
}

function progress({ loaded, total, rate }) {
  at("progress").value = total ? loaded / total : 0;
  const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
  at("progress-text").textContent = total
    ? `${megabytes(loaded)} of ${megabytes(total)} MB, ${megabytes(rate)} MB/s`
    : "opening the file";
}

async function ask(question) {
  if (!question || answering) return;
  show(null);
  conversation.push({ role: "user", content: question });
  bubble("user", question);
  const shown = bubble("assistant", "");
  at("question").value = "";
  answering = new AbortController();
  at("send").hidden = true;
  at("stop").hidden = false;
  let text = "";
  const stream = ingle.chat(conversation, { signal: answering.signal });
  const begun = performance.now();
  let pieces = 0;
  try {
    for await (const delta of stream) {
      text += delta;
      pieces += 1;
      shown.textContent = text;
      shown.scrollIntoView({ block: "end" });
      at("figures").textContent = `${pieces} tokens, ${((performance.now() - begun) / 1000).toFixed(1)} s`;
    }
    const { completionTokens, firstTokenMs, tokensPerSecond, finishReason } = stream.usage;
    at("figures").textContent =
      `${completionTokens} tokens, ${tokensPerSecond.toFixed(1)} tokens/s, first after ${(firstTokenMs / 1000).toFixed(2)} s` +
      (finishReason === "context_full" ? "; the conversation has reached the model's limit" : "");
  } catch (error) {
    if (error.name === "AbortError") at("figures").textContent = "stopped";
    else show(error);
  } finally {
    // What was said so far stays part of the conversation; a question without any answer does not.
    if (text) conversation.push({ role: "assistant", content: text });
    else {
      conversation.pop();
      shown.remove();
    }
    answering = null;
    at("send").hidden = false;
    at("stop").hidden = true;
    at("question").focus();
  }
}

function bubble(role, text) {
  const item = document.createElement("li");
  item.className = role;
  item.textContent = text;
  at("messages").append(item);
  item.scrollIntoView({ block: "end" });
  return item;
}

function show(error) {
  at("problem").hidden = !error;
  if (!error) return;
  const code = error instanceof IngleError ? ` (${error.code})` : "";
  at("problem").textContent = `${error.message}${code}`;
}
