// Claude Code and Codex compact a conversation that is too long for the server behind a gateway. They take 800 MB, so
// package.json does not have them: see ../../README.md. A test whose agent is not there is skipped.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
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
      const chunk = { id: "x", object: "chat.completion.chunk", created: 1, model: "demo-chat" };
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      for (const data of [
        { ...chunk, choices: [{ index: 0, delta, finish_reason: null }] },
        { ...chunk, choices: [{ index: 0, delta: {}, finish_reason: finish }] },
        { ...chunk, choices: [], usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 } },
      ]) {
        response.write(`data: ${JSON.stringify(data)}\n\n`);
      }
      response.end("data: [DONE]\n\n");
    };
    if (texts.includes(summary)) return say("answer", { content: "The magic word is xyzzy." }, "stop");
    if (last.role === "user" && /summar/i.test(JSON.stringify(last))) return say("summary", { content: `<summary>${summary}</summary>` }, "stop");
    if (messages.some((m) => m.role === "tool")) {
      steps.push("too long");
      response.writeHead(400, { "Content-Type": "application/json" });
      return response.end(JSON.stringify(tooLong));
    }
    if (!tool) return say("other", { content: "A title" }, "stop");
    return say("call", { tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: tool, arguments: JSON.stringify(args) } }] }, "tool_calls");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}/v1`;
}

/** Starts the model and a gateway in front of it, and returns the address of the gateway and a directory with note.txt and home. */
async function setup(t, steps, tools, args) {
  const dir = mkdtempSync(join(tmpdir(), "llmhttp-agent"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, "note.txt"), "the magic word is xyzzy\n".repeat(500));
  mkdirSync(join(dir, "home"));
  const url = await startVLLM(t, steps, tools, args(join(dir, "note.txt")));
  const gateway = await startGateway(
    t,
    {
      upstreams: [{ name: "vllm", url }],
      routes: [{ model: "*", targets: [{ upstream: "vllm" }] }],
      keys: [{ id: "demo", secret_env: "LLMHTTP_KEY" }],
    },
    { LLMHTTP_KEY: key },
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
test("Codex compacts at the next turn", { skip: codex ? false : "LLMHTTP_CODEX is not set" }, async (t) => {
  const steps = [];
  const { api, dir } = await setup(t, steps, ["shell", "exec_command"], (file) => ({ command: ["cat", file], cmd: `cat ${file}` }));
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
  const options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"];
  const env = { CODEX_HOME: join(dir, "home"), GATEWAY_KEY: key };
  const first = await run(codex, ["exec", ...options, "What is the magic word in note.txt?"], dir, env);
  assert.match(first.events.at(-1).error?.message ?? "", /ran out of room in the model's context window/, first.err);
  const second = await run(codex, ["exec", "resume", "--last", ...options, "Go on."], dir, env);
  assert.equal(second.code, 0, second.err);
  assert(second.events.some((e) => e.item?.text === "The magic word is xyzzy."), JSON.stringify(second.events));
  assert.deepEqual(steps, ["call", "too long", "summary", "answer"]);
});
