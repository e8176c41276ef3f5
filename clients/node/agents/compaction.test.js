// Claude Code and Codex compact a conversation that is too long for the server behind a gateway, and Codex lets the gateway
// compact. They take 800 MB, so package.json does not have them: see ../../README.md. A test whose agent is not there is skipped.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { key, startGateway } from "../example.js";

const tooLong = {
  error: {
    message: "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens in the messages",
    type: "BadRequestError",
    code: 400,
  },
};
const summary = "The user asked for the magic word. The file note.txt was read.";

/** Replies to a request as vLLM does, with a delta of the message. */
function stream(response, delta, finish, tokens = 10) {
  const chunk = { id: "x", object: "chat.completion.chunk", created: 1, model: "demo-chat" };
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  for (const data of [
    { ...chunk, choices: [{ index: 0, delta, finish_reason: null }] },
    { ...chunk, choices: [{ index: 0, delta: {}, finish_reason: finish }] },
    { ...chunk, choices: [], usage: { prompt_tokens: tokens, completion_tokens: 5, total_tokens: tokens + 5 } },
  ]) {
    response.write(`data: ${JSON.stringify(data)}\n\n`);
  }
  response.end("data: [DONE]\n\n");
}

/** Returns the delta that calls a function. */
const call = (name, args) => ({ tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name, arguments: JSON.stringify(args) } }] });

/** Starts a server until the end of test t, and returns its address. */
async function listen(t, server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/**
 * Starts a server that replies as vLLM does until the end of test t. Its model calls a tool, gets a result that makes the
 * conversation too long, and then replies with a summary if it is asked for one, and to conversations that have the summary. It
 * adds the names of what it did to the list steps.
 */
async function startVLLM(t, steps, tools, args) {
  const server = createServer(async (request, response) => {
    const { messages, tools: offered = [] } = JSON.parse((await request.toArray()).join(""));
    const texts = JSON.stringify(messages);
    const last = messages.at(-1);
    const tool = offered.map((o) => o.function?.name).find((name) => tools.includes(name));
    const say = (step, delta, finish) => {
      steps.push(step);
      stream(response, delta, finish);
    };
    if (texts.includes(summary)) return say("answer", { content: "The magic word is xyzzy." }, "stop");
    if (last.role === "user" && /summar/i.test(JSON.stringify(last))) return say("summary", { content: `<summary>${summary}</summary>` }, "stop");
    if (messages.some((m) => m.role === "tool")) {
      steps.push("too long");
      response.writeHead(400, { "Content-Type": "application/json" });
      return response.end(JSON.stringify(tooLong));
    }
    if (!tool) return say("other", { content: "A title" }, "stop");
    return say("call", call(tool, args), "tool_calls");
  });
  return `${await listen(t, server)}/v1`;
}

/**
 * Starts a model that reads note.txt, then does something else, and then answers with the word in the note. It says that
 * each prompt with a call was long, so that Codex compacts after it. It knows the word only from the messages of a request.
 */
async function startForgetful(t, steps, tools, args) {
  const server = createServer(async (request, response) => {
    if (request.method === "GET") return response.writeHead(404).end(); // a list of models
    const { messages, tools: offered = [] } = JSON.parse((await request.toArray()).join(""));
    const texts = JSON.stringify(messages);
    const word = /magic word is (\w+)/.exec(texts)?.[1] ?? "unknown";
    const summaries = Number(/Summary (\d)/.exec(texts)?.[1] ?? 0);
    const tool = offered.map((o) => o.function?.name).find((name) => tools.includes(name));
    if (messages.at(-1).content.includes("Write a summary of the conversation")) {
      steps.push("summary");
      return stream(response, { content: `Summary ${summaries + 1}: the magic word is ${word}.` }, "stop");
    }
    if (summaries === 2) {
      steps.push("answer");
      return stream(response, { content: `The magic word is ${word}.` }, "stop");
    }
    steps.push("call");
    return stream(response, call(tool, summaries ? { cmd: "echo Working.", command: ["echo", "Working."] } : args), "tool_calls", 6000);
  });
  return `${await listen(t, server)}/v1`;
}

/**
 * Starts the model and a gateway in front of it, and returns the address of the gateway and a directory with note.txt and home. The
 * gateway takes the key secret.
 */
async function setup(t, steps, tools, args, start = startVLLM, secret = key) {
  const dir = mkdtempSync(join(tmpdir(), "llmhttp-agent"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, "note.txt"), "the magic word is xyzzy\n".repeat(500));
  mkdirSync(join(dir, "home"));
  const url = await start(t, steps, tools, args(join(dir, "note.txt")));
  const gateway = await startGateway(
    t,
    {
      upstreams: [{ name: "vllm", url }],
      routes: [{ model: "*", targets: [{ upstream: "vllm" }] }],
      keys: [{ id: "demo", secret_env: "LLMHTTP_KEY" }],
    },
    { LLMHTTP_KEY: secret },
  );
  return { api: gateway.api, dir };
}

/** Runs an agent, and returns its exit status and the JSON that it prints, a value in each line. */
async function run(agent, args, dir, env) {
  const child = spawn(agent, args, { cwd: dir, env: { PATH: process.env.PATH, HOME: join(dir, "home"), ...env }, stdio: ["ignore", "pipe", "pipe"], timeout: 180_000 });
  const [out, err, [code]] = await Promise.all([child.stdout.toArray(), child.stderr.toArray(), once(child, "exit")]);
  const lines = Buffer.concat(out).toString().split("\n").filter((line) => line.startsWith("{"));
  return { code, events: lines.map((line) => JSON.parse(line)), err: Buffer.concat(err).toString() };
}

const claude = process.env.LLMHTTP_CLAUDE_CODE;
test("Claude Code compacts", { skip: claude ? false : "LLMHTTP_CLAUDE_CODE is not set" }, async (t) => {
  const steps = [];
  const { api, dir } = await setup(t, steps, ["Read"], (file) => ({ file_path: file }));
  const { code, events, err } = await run(
    claude,
    ["--allowedTools", "Read", "-p", "What is the magic word in note.txt?", "--verbose", "--output-format", "stream-json"],
    dir,
    {
      ANTHROPIC_BASE_URL: api.replace(/\/v1$/, ""),
      ANTHROPIC_API_KEY: key,
      ANTHROPIC_MODEL: "demo-chat",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    },
  );
  assert.equal(code, 0, err + JSON.stringify(events.at(-1)));
  assert(events.some((e) => e.subtype === "compact_boundary"), "the conversation was compacted");
  assert.equal(events.at(-1).result, "The magic word is xyzzy.");
  assert.deepEqual(steps, ["call", "too long", "summary", "answer"]);
});

const codex = process.env.LLMHTTP_CODEX;
const shell = ["shell", "exec_command"];
const codexOptions = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"];
const readNote = (file) => ({ command: ["cat", file], cmd: `cat ${file}` });
test("Codex compacts at the next turn", { skip: codex ? false : "LLMHTTP_CODEX is not set" }, async (t) => {
  const steps = [];
  const { api, dir } = await setup(t, steps, shell, readNote);
  writeFileSync(
    join(dir, "home/config.toml"),
    `model = "demo-chat"
model_provider = "gateway"
model_context_window = 8192
[model_providers.gateway]
name = "gateway"
base_url = "${api}"
env_key = "GATEWAY_KEY"
wire_api = "responses"
`,
  );
  const env = { CODEX_HOME: join(dir, "home"), GATEWAY_KEY: key };
  const first = await run(codex, ["exec", ...codexOptions, "What is the magic word in note.txt?"], dir, env);
  assert.match(first.events.at(-1).error?.message ?? "", /ran out of room in the model's context window/, first.err);
  const second = await run(codex, ["exec", "resume", "--last", ...codexOptions, "Go on."], dir, env);
  assert.equal(second.code, 0, second.err);
  assert(second.events.some((e) => e.item?.text === "The magic word is xyzzy."), JSON.stringify(second.events));
  assert.deepEqual(steps, ["call", "too long", "summary", "answer"]);
});

/** Checks that a run of Codex with startForgetful was compacted twice. */
function checkCompacted({ code, events, err }, steps) {
  assert.equal(code, 0, err + JSON.stringify(events));
  assert(events.some((e) => e.item?.text === "The magic word is xyzzy."), JSON.stringify(events));
  assert.deepEqual(steps, ["call", "summary", "call", "summary", "answer"]);
}

// Codex lets the server compact if the name of the provider is OpenAI.
test("Codex lets the server compact, twice in a task", { skip: codex ? false : "LLMHTTP_CODEX is not set" }, async (t) => {
  const steps = [];
  const { api, dir } = await setup(t, steps, shell, readNote, startForgetful);
  writeFileSync(
    join(dir, "home/config.toml"),
    `model = "demo-chat"
model_provider = "gateway"
model_context_window = 10000
model_auto_compact_token_limit = 5000
[model_providers.gateway]
name = "OpenAI"
base_url = "${api}"
env_key = "GATEWAY_KEY"
wire_api = "responses"
`,
  );
  checkCompacted(await run(codex, ["exec", ...codexOptions, "What is in note.txt?"], dir, { CODEX_HOME: join(dir, "home"), GATEWAY_KEY: key }), steps);
});

// Codex compresses requests if it is signed in. The gateway takes what it sends then for a key.
test("Codex compresses requests", { skip: codex ? false : "LLMHTTP_CODEX is not set" }, async (t) => {
  const steps = [];
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const account = { chatgpt_account_id: "a", chatgpt_plan_type: "pro", chatgpt_user_id: "u" };
  const token = `${part({ alg: "none" })}.${part({ email: "a@example.com", exp: 4e9, "https://api.openai.com/auth": account })}.c2ln`;
  const { api, dir } = await setup(t, steps, shell, readNote, startForgetful, token);

  const encodings = [];
  const proxy = createServer((incoming, response) => {
    if (incoming.method === "POST" && incoming.url === "/v1/responses") encodings.push(incoming.headers["content-encoding"]);
    const { hostname, port } = new URL(api);
    const forwarded = request({ hostname, port, path: incoming.url, method: incoming.method, headers: incoming.headers }, (reply) => {
      response.writeHead(reply.statusCode, reply.headers);
      reply.pipe(response);
    });
    forwarded.on("error", () => response.destroy());
    incoming.pipe(forwarded);
  });
  const address = await listen(t, proxy);
  const tokens = { id_token: token, access_token: token, refresh_token: "r", account_id: "a" };
  writeFileSync(join(dir, "home/auth.json"), JSON.stringify({ auth_mode: "chatgpt", OPENAI_API_KEY: null, tokens, last_refresh: new Date().toISOString() }));
  writeFileSync(
    join(dir, "home/config.toml"),
    `model = "demo-chat"
openai_base_url = "${address}/v1"
chatgpt_base_url = "${address}/other"
model_context_window = 10000
model_auto_compact_token_limit = 5000
`,
  );
  checkCompacted(await run(codex, ["exec", ...codexOptions, "What is in note.txt?"], dir, { CODEX_HOME: join(dir, "home") }), steps);
  assert.deepEqual(encodings, Array(5).fill("zstd"));
});
