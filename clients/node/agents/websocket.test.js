// Codex completes a task over a WebSocket, without falling back to HTTP. See ../../README.md for where it comes from: without it
// the test is skipped.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { key, startGateway, startScripted } from "../example.js";

const codex = process.env.LLMHTTP_CODEX;
const skip = codex ? false : "LLMHTTP_CODEX is not set";

/** Starts a proxy in front of a server, which adds the first line of each request that begins a connection to the list lines. */
async function startProxy(t, target, lines) {
  const sockets = new Set();
  const proxy = createServer((client) => {
    const server = connect(new URL(target).port, "127.0.0.1");
    client.once("data", (data) => lines.push(data.toString("latin1").split("\r\n", 1)[0]));
    client.pipe(server).pipe(client);
    for (const s of [client, server]) {
      sockets.add(s);
      s.on("error", () => {}); // the other side is closed too
      s.on("close", () => (client.destroy(), server.destroy()));
    }
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.after(() => {
    for (const s of sockets) s.destroy();
    proxy.close();
  });
  return `http://127.0.0.1:${proxy.address().port}/v1`;
}

/** Starts a model that calls a tool, a gateway in front of it, and a proxy, and returns a directory and how Codex is to be run. */
async function setup(t, lines, config) {
  const dir = mkdtempSync(join(tmpdir(), "llmhttp-agent"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  writeFileSync(join(dir, "note.txt"), "the magic word is xyzzy\n");
  mkdirSync(join(dir, "home"));
  const model = await startScripted(t, "-tool", "exec_command", "-arguments", JSON.stringify({ cmd: `cat ${join(dir, "note.txt")}` }));
  const gateway = await startGateway(
    t,
    {
      upstreams: [{ name: "next", url: model.api, key_env: "LLMHTTP_KEY" }],
      routes: [{ model: "*", targets: [{ upstream: "next" }] }],
      keys: [{ id: "demo", secret_env: "LLMHTTP_KEY" }],
    },
    { LLMHTTP_KEY: key },
  );
  writeFileSync(join(dir, "home/config.toml"), config(await startProxy(t, gateway.api, lines)));
  writeFileSync(join(dir, "home/auth.json"), JSON.stringify({ auth_mode: "apikey", OPENAI_API_KEY: key }));
  return async (...args) => {
    const child = spawn(codex, args, {
      cwd: dir,
      env: { PATH: process.env.PATH, HOME: join(dir, "home"), CODEX_HOME: join(dir, "home"), GATEWAY_KEY: key },
      stdio: ["ignore", "pipe", "pipe"],
      timeout: 180_000,
    });
    const [out, err, [code]] = await Promise.all([child.stdout.toArray(), child.stderr.toArray(), once(child, "exit")]);
    return { code, out: Buffer.concat(out).toString(), err: Buffer.concat(err).toString() };
  };
}

// How people point Codex at another server: the provider that it has, or one of their own.
const configs = {
  "openai_base_url": (api) => `model = "demo-chat"\nopenai_base_url = "${api}"\n`,
  "a provider": (api) => `model = "demo-chat"
model_provider = "gateway"
[model_providers.gateway]
name = "gateway"
base_url = "${api}"
env_key = "GATEWAY_KEY"
wire_api = "responses"
supports_websockets = true
`,
};

for (const [name, config] of Object.entries(configs)) {
  test(`Codex completes a task over a WebSocket: ${name}`, { skip }, async (t) => {
    const lines = [];
    const run = await setup(t, lines, config);
    const options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"];
    const first = await run("exec", ...options, "What is the magic word in note.txt?");
    assert.equal(first.code, 0, first.err + first.out);
    assert.match(first.out, /"agent_message","text":"The tool returned: [^"]*the magic word is xyzzy/);
    const requests = lines.filter((line) => line.includes("/v1/responses"));
    assert.deepEqual(requests, ["GET /v1/responses HTTP/1.1"], "one connection has the whole task");

    const second = await run("exec", "resume", "--last", ...options, "And now?");
    assert.equal(second.code, 0, second.err + second.out);
    assert(!lines.some((line) => line.startsWith("POST")), lines.join("\n"));
  });

  test(`codex doctor is content: ${name}`, { skip }, async (t) => {
    const run = await setup(t, [], config);
    const { out, err } = await run("doctor", "--json");
    const { checks } = JSON.parse(out.slice(out.indexOf("{")));
    for (const id of ["network.websocket_reachability", "network.provider_reachability", "auth.credentials"]) {
      const check = Object.values(checks).find((c) => c.id === id);
      assert.equal(check?.status, "ok", JSON.stringify(check) + err);
    }
    const websocket = Object.values(checks).find((c) => c.id === "network.websocket_reachability");
    assert.equal(websocket.details["handshake result"], "HTTP 101 Switching Protocols");
  });
}
