// The playground: sends requests to the API through the console and shows the
// reply as it arrives. All texts are set with textContent.
"use strict";

const form = document.getElementById("play");
const field = (id) => document.getElementById(id);
const show = (id, text) => { field(id).textContent = text; };

// requestBody returns the request that the form describes. It throws an Error
// with a text for the person if a field is not valid.
function requestBody() {
  const text = (id) => field(id)?.value.trim() ?? "";
  const body = { model: text("model") };
  const number = (id) => { if (text(id) !== "") body[id] = Number(text(id)); };
  switch (form.dataset.mode) {
    case "chat": {
      body.messages = [];
      if (text("system")) body.messages.push({ role: "system", content: text("system") });
      body.messages.push({ role: "user", content: field("prompt").value });
      ["temperature", "max_tokens", "top_p", "seed"].forEach(number);
      if (text("tools")) body.tools = parseField("tools", "Tools", Array.isArray);
      if (field("stream").checked) {
        body.stream = true;
        body.stream_options = { include_usage: true };
      }
      if (text("extra")) Object.assign(body, parseField("extra", "Other parameters", (v) => v && typeof v === "object" && !Array.isArray(v)));
      break;
    }
    case "images":
      body.prompt = field("prompt").value;
      if (text("size")) body.size = text("size");
      number("n");
      body.response_format = "b64_json";
      break;
    case "embeddings": {
      const lines = field("prompt").value.split("\n").filter((line) => line !== "");
      body.input = lines.length === 1 ? lines[0] : lines;
      number("dimensions");
    }
  }
  return body;
}

// parseField returns the JSON in a field. name is the field's name in errors.
function parseField(id, name, isValid) {
  let value;
  try {
    value = JSON.parse(field(id).value);
  } catch (e) {
    throw new FieldError(id, `${name}: ${e.message}`);
  }
  if (!isValid(value)) throw new FieldError(id, `${name}: not of the expected kind`);
  return value;
}

// A FieldError says that the value of a field is not valid.
class FieldError extends Error {
  constructor(id, message) {
    super(message);
    this.id = id;
  }
}

// markInvalid marks the field of a FieldError and sets the focus to it. It removes the
// marks of other fields.
function markInvalid(error) {
  for (const marked of form.querySelectorAll("[aria-invalid]")) {
    marked.removeAttribute("aria-invalid");
    marked.removeAttribute("aria-describedby");
  }
  if (!(error instanceof FieldError)) return;
  const invalid = field(error.id);
  invalid.setAttribute("aria-invalid", "true");
  invalid.setAttribute("aria-describedby", "problem");
  invalid.closest("details")?.setAttribute("open", "");
  invalid.focus();
}

// Code in other languages.

const paths = { chat: "/chat/completions", images: "/images/generations", embeddings: "/embeddings" };
const shellQuote = (s) => `'${s.replaceAll("'", `'\\''`)}'`;
const goQuote = (s) => (s.includes("`") ? JSON.stringify(s) : "`" + s + "`");

// formatBody returns the body as JSON. It escapes characters that some languages do
// not allow in their source, such as a byte order mark.
function formatBody(body) {
  return JSON.stringify(body, null, 2).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const languages = {
  curl: (url, body) => `curl ${shellQuote(url)} \\
  -H "Authorization: Bearer $LLM_API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d ${shellQuote(formatBody(body))}
`,
  go: (url, body) => `package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	body := ${goQuote(formatBody(body))}
	req, err := http.NewRequest("POST", ${JSON.stringify(url)}, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv("LLM_API_KEY"))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		log.Fatal(err)
	}
}
`,
  python: (url, body) => `import json, os, sys, urllib.request

body = json.loads(r${pythonQuote(formatBody(body))})
request = urllib.request.Request(
    ${JSON.stringify(url)},
    data=json.dumps(body).encode(),
    headers={"Authorization": "Bearer " + os.environ["LLM_API_KEY"], "Content-Type": "application/json"},
)
with urllib.request.urlopen(request) as response:
    for line in response:
        sys.stdout.write(line.decode())
`,
  node: (url, body) => `const response = await fetch(${JSON.stringify(url)}, {
  method: "POST",
  headers: { Authorization: \`Bearer \${process.env.LLM_API_KEY}\`, "Content-Type": "application/json" },
  body: JSON.stringify(${formatBody(body).replaceAll("\n", "\n  ")}),
});
for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) process.stdout.write(chunk);
`,
};

// pythonQuote quotes JSON for a raw literal. JSON can have no three double quotes
// in a row unless one is escaped or a string is empty, so single quotes are used
// and those within are escaped as JSON does.
function pythonQuote(text) {
  return "'''" + text.replaceAll("'", "\\u0027") + "'''";
}

let language = "curl";
function showCode() {
  let body;
  try {
    body = requestBody();
  } catch {
    return; // the fields are being edited
  }
  show("code", languages[language](form.dataset.base + paths[form.dataset.mode], body));
}

for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => {
    language = button.dataset.language;
    for (const b of document.querySelectorAll("[data-language]")) b.setAttribute("aria-pressed", String(b === button));
    showCode();
  });
}

// Replies.

// events yields the data of the server-sent events of a reply.
async function* events(response) {
  let rest = "";
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const parts = (rest + text).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) yield data.join("\n");
    }
  }
}

// appendText adds text to the reply, to the last element if that has the same class.
function appendText(text, className) {
  if (!text) return;
  const reply = field("reply");
  const last = reply.lastElementChild;
  if (last?.className === className) {
    last.textContent += text;
    return;
  }
  const span = document.createElement("span");
  span.className = className;
  span.textContent = text;
  reply.append(span);
}

// When the request was sent, and when its first and its last token arrived. Zero means
// not yet.
const clock = { sent: 0, first: 0, last: 0 };
const milliseconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`);

// noteToken notes the time at which tokens arrived.
function noteToken() {
  clock.last = performance.now();
  if (clock.first) return;
  clock.first = clock.last;
  show("first", milliseconds(clock.first - clock.sent));
}

function showUsage(usage) {
  if (!usage) return;
  show("prompt-tokens", String(usage.prompt_tokens ?? "–"));
  show("completion-tokens", String(usage.completion_tokens ?? "–"));
  const seconds = (clock.last - clock.first) / 1000;
  if (usage.completion_tokens > 1 && seconds > 0) show("speed", ((usage.completion_tokens - 1) / seconds).toFixed(1));
}

function showDelta(delta) {
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  if (delta.content || reasoning || delta.refusal || delta.tool_calls) noteToken();
  appendText(reasoning, "thought");
  appendText(delta.content, "text");
  appendText(delta.refusal, "text");
  for (const call of delta.tool_calls ?? []) {
    if (call.function?.name) appendText(`\n${call.function.name} `, "code");
    appendText(call.function?.arguments, "code");
  }
}

async function showStream(response) {
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    for (const choice of chunk.choices ?? []) showDelta(choice.delta ?? {});
    showUsage(chunk.usage);
  }
  throw new Error("The stream ended early.");
}

// showWhole shows a reply that is not a stream.
function showWhole(reply) {
  noteToken();
  switch (form.dataset.mode) {
    case "chat":
      for (const choice of reply.choices) showDelta(choice.message);
      break;
    case "images":
      for (const image of reply.data) {
        const picture = document.createElement("img");
        picture.alt = field("prompt").value;
        if (image.b64_json) picture.src = `data:image/${reply.output_format ?? "png"};base64,${image.b64_json}`;
        field("reply").append(picture);
      }
      break;
    case "embeddings":
      for (const { index, embedding } of reply.data) appendText(`${index}: ${embedding.length} numbers\n[${embedding.slice(0, 8).map((x) => x.toFixed(4)).join(", ")}, …]\n\n`, "code");
  }
  showUsage(reply.usage);
}

let running; // the AbortController of the request in progress

// send sends the request and shows the reply. It throws an Error if there is no complete
// reply.
async function send() {
  const body = requestBody();
  running = new AbortController();
  const url = `${form.dataset.path}${form.dataset.mode}?${new URLSearchParams({ key: field("key").value })}`;
  Object.assign(clock, { sent: performance.now(), first: 0, last: 0 });
  const response = await fetch(url, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: running.signal,
  });
  if (!response.ok) throw new Error(await errorText(response));
  if (response.headers.get("Content-Type")?.startsWith("text/event-stream")) await showStream(response);
  else showWhole(await response.json());
}

// errorText returns the status and the message of an error reply.
async function errorText(response) {
  const text = await response.text();
  try {
    return `${response.status}: ${JSON.parse(text).error.message}`;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

// run sends the request and shows how it ends.
async function run() {
  field("reply").replaceChildren();
  for (const id of ["first", "total", "speed", "prompt-tokens", "completion-tokens"]) show(id, "–");
  field("problem").hidden = true;
  markInvalid(null);
  field("send").disabled = true;
  field("stop").disabled = false;
  show("state", "Waiting for the reply.");
  try {
    await send();
    show("state", "Complete.");
  } catch (e) {
    const stopped = e.name === "AbortError";
    show("state", stopped ? "Stopped." : "Failed.");
    if (!stopped) {
      show("problem", e.message);
      field("problem").hidden = false;
      markInvalid(e);
    }
  }
  if (clock.sent) show("total", milliseconds(performance.now() - clock.sent));
  field("send").disabled = false;
  field("stop").disabled = true;
}

// loadModels offers the models that the key may use.
async function loadModels() {
  const response = await fetch(`${form.dataset.path}models?${new URLSearchParams({ key: field("key").value })}`);
  if (!response.ok) return;
  const { data } = await response.json();
  field("models").replaceChildren(...data.map((model) => {
    const option = document.createElement("option");
    option.value = model.id;
    if (model.name) option.label = model.name;
    return option;
  }));
  if (field("model").value === "" && data.length) field("model").value = preferredModel(data);
  showCode();
}

// preferredModel returns the first model whose name has the mode in it, such as
// "image" or "embed", or the first.
function preferredModel(models) {
  const part = { chat: "chat", images: "image", embeddings: "embed" }[form.dataset.mode];
  return (models.find((model) => model.id.includes(part)) ?? models[0]).id;
}

if (form) {
  form.addEventListener("submit", (e) => { e.preventDefault(); run(); });
  form.addEventListener("input", showCode);
  field("key").addEventListener("change", () => loadModels().catch(() => {}));
  field("stop").addEventListener("click", () => running?.abort());
  showCode();
  loadModels().catch(() => {});
}
