// Coding agents, each with the configurations in which people run it against a server of their own. A run is a whole
// task: the agent gets a request, the scripted model calls its tool for commands, which copies a file, and the agent
// passes the output on and ends. programs.test.js runs them as tests, and table.js writes the table in docs/clients.md.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { key, startGateway, startScripted } from "../example.js";

const word = "the magic word is xyzzy";
const prompt = "Copy note.txt to copy.txt, and tell me what is in it.";
const command = "cp note.txt copy.txt && cat copy.txt";

const qwen = join(import.meta.dirname, "../node_modules/@qwen-code/qwen-code/cli-entry.js");

/**
 * The programs: how each is found, the arguments before all others, the variables that keep it from requests to others than
 * the server, and its tool for commands. Those that need a screen or an account have the commit of the source that tells their
 * requests instead.
 */
export const programs = {
  "Claude Code": {
    path: process.env.LLMHTTP_CLAUDE_CODE,
    env: { CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1" },
    tool: ["Bash", { command, description: "Copy the file" }],
  },
  Codex: { path: process.env.LLMHTTP_CODEX, env: {}, tool: ["exec_command", { cmd: command }] },
  opencode: {
    path: process.env.LLMHTTP_OPENCODE,
    env: { OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_LSP_DOWNLOAD: "1" },
    tool: ["bash", { command, description: "Copy the file" }],
  },
  "Copilot CLI": {
    path: process.env.LLMHTTP_COPILOT,
    env: { COPILOT_OFFLINE: "true", COPILOT_AUTO_UPDATE: "false" },
    tool: ["bash", { command, description: "Copy the file", mode: "sync" }],
  },
  "Qwen Code": {
    path: existsSync(qwen) ? process.execPath : undefined,
    args: [qwen],
    env: {},
    tool: ["run_shell_command", { command, description: "Copy the file", is_background: false }],
  },
  "VS Code": { source: "092f70e3", tool: ["run_in_terminal", { command }] }, // microsoft/vscode-copilot-chat: src/extension/byok
  "Open WebUI": { source: "004a45f5", tool: ["run", {}] }, // open-webui/open-webui: backend/open_webui/routers/openai.py
  LibreChat: { source: "003bf57e", tool: ["run", {}] }, // danny-avila/LibreChat: packages/api/src/endpoints/models.ts
  Zed: { source: "014676e4", tool: ["terminal", { command, cd: "." }] }, // zed-industries/zed: crates/open_ai
};

/** Reports whether a program can be run, or its requests sent. */
export const isInstalled = (name) => Boolean(programs[name].path ?? programs[name].source);

/** Returns the version of a program that is installed, or the commit of its source. */
export async function version(name) {
  const { path, args = [], source } = programs[name];
  if (source) return `source of ${source}`;
  const dir = mkdtempSync(join(tmpdir(), "llmhttp-agent"));
  try {
    const { out } = await start(path, [...args, "--version"], dir, { HOME: dir, ...programs[name].env });
    return /\d+\.\d+\.\d+/.exec(out)?.[0];
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Runs a program to its end, and returns its exit status and what it printed. It gets no variables but those in env. */
async function start(path, args, cwd, env) {
  const child = spawn(path, args, { cwd, env: { PATH: process.env.PATH, ...env }, stdio: ["ignore", "pipe", "pipe"], timeout: 240_000 });
  const [out, err, [code]] = await Promise.all([child.stdout.toArray(), child.stderr.toArray(), once(child, "exit")]);
  return { code, out: Buffer.concat(out).toString(), err: Buffer.concat(err).toString() };
}

/**
 * Starts the model, with a gateway in front of it if asked for, and returns a function that runs the program with arguments,
 * variables and files of its own, whose content may have the address of the server.
 */
async function setup(t, name, { gateway = false } = {}) {
  const program = programs[name];
  const dir = mkdtempSync(join(tmpdir(), "llmhttp-agent"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const home = join(dir, "home");
  const work = join(dir, "work");
  mkdirSync(home);
  mkdirSync(work);
  writeFileSync(join(work, "note.txt"), `${word}\n`);
  const [tool, args] = program.tool;
  const model = await startScripted(t, "-tool", tool, "-arguments", JSON.stringify(args));
  let { api } = model;
  if (gateway) {
    const target = { upstream: "model" };
    ({ api } = await startGateway(
      t,
      {
        upstreams: [{ name: "model", url: model.api, key_env: "LLMHTTP_KEY" }],
        routes: [
          { model: "claude-demo-*", targets: [{ ...target, model: "demo-*" }] },
          { model: "*", targets: [target] },
        ],
        keys: [{ id: "demo", secret_env: "LLMHTTP_KEY" }],
      },
      { LLMHTTP_KEY: key },
    ));
  }
  return {
    api,
    base: api.replace(/\/v1$/, ""),
    home,
    work,
    write: (file, text) => writeFileSync(join(dir, file), text),
    requests: () => model.output().split("\n").filter((line) => /^(GET|POST) /.test(line)),
    run: (args, env) => start(program.path, [...(program.args ?? []), ...args], work, { HOME: home, ...program.env, ...env }),
  };
}

/** Checks that the program has done the task, with requests to one path only. */
function checkTask(s, { code, out, err }, path) {
  assert.equal(code, 0, out + err);
  assert.equal(readFileSync(join(s.work, "copy.txt"), "utf8"), `${word}\n`);
  assert.match(out, new RegExp(`The tool returned: .*${word}`, "s"));
  const posts = s.requests().filter((line) => line.startsWith("POST"));
  assert(posts.length >= 2 && posts.every((line) => line === `POST ${path}`), posts.join("\n"));
}

const formats = { chat: "/v1/chat/completions", Responses: "/v1/responses", Messages: "/v1/messages" };

async function claudeCode(t, { discovery = false, gateway = false }) {
  const s = await setup(t, "Claude Code", { gateway });
  const model = discovery ? "claude-demo-chat" : "demo-chat";
  const result = await s.run(["--allowedTools", "Bash", "--output-format", "json", "-p", prompt], {
    ANTHROPIC_BASE_URL: s.base,
    ANTHROPIC_AUTH_TOKEN: key,
    ANTHROPIC_MODEL: model,
    ...(discovery ? { CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY: "1" } : {}),
  });
  checkTask(s, result, gateway ? formats.chat : formats.Messages);
  assert.deepEqual(Object.keys(JSON.parse(result.out).modelUsage), [model]);
  if (discovery) {
    const { models } = JSON.parse(readFileSync(join(s.home, ".claude/cache/gateway-models.json"), "utf8"));
    assert.deepEqual(models, [{ id: "claude-demo-chat", display_name: "Demo chat" }]);
  }
}

const ownProvider = (api, auth) => `model = "demo-chat"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "${api}"
wire_api = "responses"
${auth}
`;

const ownBaseURL = (api) => `model = "demo-chat"\nopenai_base_url = "${api}"\n`;

/** Runs Codex with a config.toml, and returns what it did in the setup s. */
async function codex(t, config, { gateway = false, login = false, check } = {}) {
  const s = await setup(t, "Codex", { gateway });
  const env = { CODEX_HOME: s.home, LLMHTTP_KEY: key };
  s.write("home/config.toml", config(s.api));
  if (login) s.write("home/auth.json", JSON.stringify({ auth_mode: "apikey", OPENAI_API_KEY: key }));
  await check?.(s, env);
  const result = await s.run(["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", prompt], env);
  checkTask(s, result, gateway ? formats.chat : formats.Responses);
}

/** Checks the windows that Codex shows: its catalogue has that of the server. */
async function checkCodexModels(s, env) {
  const { out } = await s.run(["debug", "models"], env);
  const model = JSON.parse(out).models.find((m) => m.slug === "demo-chat");
  assert.deepEqual([model?.display_name, model?.context_window, model?.visibility, model?.input_modalities], ["Demo chat", 96_000, "list", ["text"]]);
}

/** Checks what `codex doctor` says of the provider and the WebSocket. */
async function checkDoctor(s, env, websocket) {
  const { out } = await s.run(["doctor", "--network-only"], env);
  assert.match(out, /✓ reachability active provider endpoints are reachable over HTTP/);
  assert.match(out, websocket);
}

async function opencode(t, npm, path) {
  const s = await setup(t, "opencode");
  s.write(
    "work/opencode.json",
    JSON.stringify({
      autoupdate: false,
      share: "disabled",
      provider: { local: { npm, name: "Local", options: { baseURL: s.api, apiKey: key }, models: { "demo-chat": { name: "Demo" } } } },
      permission: { bash: "allow" },
    }),
  );
  checkTask(s, await s.run(["run", "-m", "local/demo-chat", prompt]), path);
}

async function copilot(t, type, wire, path) {
  const s = await setup(t, "Copilot CLI");
  const result = await s.run(["--allow-all-tools", "-p", prompt], {
    COPILOT_PROVIDER_BASE_URL: type === "anthropic" ? s.base : s.api,
    COPILOT_PROVIDER_API_KEY: key,
    COPILOT_PROVIDER_TYPE: type,
    COPILOT_MODEL: "demo-chat",
    ...(wire ? { COPILOT_PROVIDER_WIRE_API: wire } : {}),
  });
  checkTask(s, result, path);
}

async function qwenCode(t, type, path) {
  const s = await setup(t, "Qwen Code");
  const env =
    type === "anthropic"
      ? { ANTHROPIC_BASE_URL: s.base, ANTHROPIC_API_KEY: key, ANTHROPIC_MODEL: "demo-chat" }
      : { OPENAI_BASE_URL: s.api, OPENAI_API_KEY: key, OPENAI_MODEL: "demo-chat" };
  checkTask(s, await s.run(["--yolo", "--auth-type", type, "-p", prompt], env), path);
}

/** Sends a request of an editor, and returns the data of the events of the reply. */
async function stream(s, path, body) {
  const response = await fetch(s.base + path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${key}` },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  const events = text.split("\n").filter((line) => line.startsWith("data: ") && line !== "data: [DONE]");
  return events.map((line) => JSON.parse(line.slice("data: ".length)));
}

/**
 * Sends the two requests of a task as an editor does on chat completions. turn returns the members of a request beside model and
 * messages, and answer those of the message with the call beside its role and tool_calls.
 */
async function editorOnChat(t, name, turn, answer) {
  const s = await setup(t, name);
  const messages = [
    { role: "system", content: "You are a coding agent." },
    { role: "user", content: [{ type: "text", text: prompt }] },
  ];
  const send = async () => {
    const events = await stream(s, formats.chat, { model: "demo-chat", messages, ...turn });
    assert.deepEqual(Object.keys(events.at(-1).usage).slice(0, 3), ["prompt_tokens", "completion_tokens", "total_tokens"]);
    return events.flatMap((event) => event.choices);
  };
  const choices = await send();
  const calls = choices.flatMap((choice) => choice.delta.tool_calls ?? []);
  assert.equal(calls[0].function.name, programs[name].tool[0]);
  assert.equal(choices.at(-1).finish_reason, "tool_calls");
  const call = { name: calls[0].function.name, arguments: calls.map((c) => c.function.arguments ?? "").join("") };
  assert.deepEqual(JSON.parse(call.arguments), programs[name].tool[1]);
  messages.push({ role: "assistant", ...answer, tool_calls: [{ id: calls[0].id, type: "function", function: call }] });
  messages.push({ role: "tool", tool_call_id: calls[0].id, content: word });
  const text = (await send()).map((choice) => choice.delta.content ?? "").join("");
  assert.equal(text, `The tool returned: ${word}`);
}

const editorTool = (name, more) => ({
  type: "function",
  ...more({ name: programs[name].tool[0], description: "Runs a command", parameters: { type: "object", properties: {} } }),
});

/** Sends what VS Code sends to a Custom Endpoint with Responses: it continues the stored response with the result. */
async function vscodeOnResponses(t) {
  const s = await setup(t, "VS Code");
  const body = {
    model: "demo-chat",
    stream: true,
    tools: [editorTool("VS Code", (f) => ({ ...f, strict: false }))],
    top_p: 1,
    store: true,
    tool_choice: "auto",
    truncation: "disabled",
  };
  const first = await stream(s, formats.Responses, { ...body, input: [{ role: "user", content: [{ type: "input_text", text: prompt }] }] });
  const { response } = first.at(-1);
  const call = response.output.find((item) => item.type === "function_call");
  const input = [{ type: "function_call_output", call_id: call.call_id, output: word }];
  const second = await stream(s, formats.Responses, { ...body, previous_response_id: response.id, input });
  const message = second.at(-1).response.output.find((item) => item.type === "message");
  assert.equal(message.content[0].text, `The tool returned: ${word}`);
}

/** Lists the models, checks what the program takes from the list, and sends a chat. */
async function chatProgram(t, name, take, want) {
  const s = await setup(t, name);
  const response = await fetch(`${s.api}/models`, { headers: { Authorization: `Bearer ${key}` } });
  assert.deepEqual(take(await response.json()), want);
  const messages = [{ role: "user", content: "Hi" }];
  const events = await stream(s, formats.chat, { model: "demo-chat", stream: true, messages });
  assert.equal(events.map((event) => event.choices[0]?.delta.content ?? "").join(""), "A title");
}

const task = "a task with a command";
const requests = "its requests of such a task";

/** The rows of the table: a program, its configuration, the format that it speaks, what is checked, and how. */
export const rows = [
  ["Claude Code", "`ANTHROPIC_MODEL=demo-chat`", "Messages", task, (t) => claudeCode(t, {})],
  ["Claude Code", "discovery of models", "Messages", `the list has claude-demo-chat; ${task}`, (t) => claudeCode(t, { discovery: true })],
  ["Claude Code", "the same through a gateway", "Messages", `the list; ${task}`, (t) => claudeCode(t, { discovery: true, gateway: true })],
  [
    "Codex",
    "a provider with `env_key`",
    "Responses",
    `\`doctor\`: reachable, WebSocket not enabled; ${task}`,
    (t) =>
      codex(t, (api) => ownProvider(api, 'env_key = "LLMHTTP_KEY"'), {
        check: (s, env) => checkDoctor(s, env, /✓ websocket +Responses WebSocket is not enabled for the active provider/),
      }),
  ],
  [
    "Codex",
    "a provider with `auth`",
    "Responses",
    `the list has the context window; ${task}`,
    (t) => codex(t, (api) => ownProvider(api, `[model_providers.local.auth]\ncommand = "echo"\nargs = ["${key}"]`), { check: checkCodexModels }),
  ],
  [
    "Codex",
    "`openai_base_url`",
    "Responses",
    `\`doctor\`: reachable, WebSocket 426; ${task} over HTTP`,
    (t) => codex(t, ownBaseURL, { login: true, check: (s, env) => checkDoctor(s, env, /⚠ websocket +Responses WebSocket failed; HTTPS fallback may still work/) }),
  ],
  [
    "Codex",
    "`openai_base_url`, a gateway",
    "Responses",
    `\`doctor\`: reachable, WebSocket connected; ${task}`,
    (t) => codex(t, ownBaseURL, { gateway: true, login: true, check: (s, env) => checkDoctor(s, env, /✓ websocket +connected \(HTTP 101/) }),
  ],
  ["opencode", "@ai-sdk/openai-compatible", "chat", task, (t) => opencode(t, "@ai-sdk/openai-compatible", formats.chat)],
  ["opencode", "@ai-sdk/openai", "Responses", task, (t) => opencode(t, "@ai-sdk/openai", formats.Responses)],
  ["opencode", "@ai-sdk/anthropic", "Messages", task, (t) => opencode(t, "@ai-sdk/anthropic", formats.Messages)],
  ["Copilot CLI", "`COPILOT_PROVIDER_TYPE=openai`", "chat", task, (t) => copilot(t, "openai", "", formats.chat)],
  ["Copilot CLI", "and `…WIRE_API=responses`", "Responses", task, (t) => copilot(t, "openai", "responses", formats.Responses)],
  ["Copilot CLI", "`COPILOT_PROVIDER_TYPE=anthropic`", "Messages", task, (t) => copilot(t, "anthropic", "", formats.Messages)],
  ["Qwen Code", "`OPENAI_…`", "chat", task, (t) => qwenCode(t, "openai", formats.chat)],
  ["Qwen Code", "`--auth-type openai-responses`", "Responses", task, (t) => qwenCode(t, "openai-responses", formats.Responses)],
  ["Qwen Code", "`ANTHROPIC_…`", "Messages", task, (t) => qwenCode(t, "anthropic", formats.Messages)],
  [
    "VS Code",
    "Custom Endpoint",
    "chat",
    requests,
    (t) => {
      const more = { stream: true, stream_options: { include_usage: true }, n: 1, top_p: 1, temperature: 0, tools: [editorTool("VS Code", (f) => ({ function: f }))] };
      return editorOnChat(t, "VS Code", more, { content: "I use a tool.", cot_id: "1", cot_summary: "Let me see." });
    },
  ],
  ["VS Code", "Custom Endpoint", "Responses", requests, vscodeOnResponses],
  [
    "Zed",
    "`openai_compatible`",
    "chat",
    requests,
    (t) => {
      const more = {
        stream: true,
        stream_options: { include_usage: true },
        max_completion_tokens: 16_000,
        temperature: 1,
        parallel_tool_calls: false,
        prompt_cache_key: "thread",
        tools: [editorTool("Zed", (f) => ({ function: f }))],
      };
      return editorOnChat(t, "Zed", more, { content: null, reasoning_content: "Let me see." });
    },
  ],
  [
    "Open WebUI",
    "OpenAI connection",
    "chat",
    "the list as it reads it; a chat",
    (t) => chatProgram(t, "Open WebUI", ({ data }) => data.map((m) => [m.id, m.name ?? m.id]), [["demo-chat", "Demo chat"]]),
  ],
  [
    "LibreChat",
    "custom endpoint with `fetch`",
    "chat",
    "the list as it reads it; a chat",
    (t) => chatProgram(t, "LibreChat", ({ data }) => data.map((m) => m.id), ["demo-chat"]),
  ],
].map(([program, configuration, format, checked, run]) => ({ program, configuration, format, checked, run }));
