// Runs examples/inmemory, examples/gateway and clients/scripted for the tests.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** The default API key of examples/inmemory. */
export const key = "sk-demo";

const built = {};

/** Returns the path of a program's binary: the value of the environment variable, or else a new build. */
function example(name, variable, parent = "examples") {
  if (process.env[variable]) return process.env[variable];
  if (!built[name]) {
    const binary = join(temporary(), name);
    execFileSync("go", ["build", "-o", binary, "."], {
      cwd: join(import.meta.dirname, "../..", parent, name),
      stdio: "inherit",
    });
    built[name] = binary;
  }
  return built[name];
}

/** Creates a directory that is removed when the process exits. */
function temporary() {
  const dir = mkdtempSync(join(tmpdir(), "llmhttp-clients"));
  process.on("exit", () => rmSync(dir, { recursive: true }));
  return dir;
}

/** Starts examples/inmemory with the given arguments. It runs until the end of test t. */
export const start = (t, ...args) => serve(t, example("inmemory", "LLMHTTP_EXAMPLE"), args);

/** Starts clients/scripted with the given arguments. It runs until the end of test t. */
export const startScripted = (t, ...args) => serve(t, example("scripted", "LLMHTTP_SCRIPTED", "clients"), args);

/** Starts examples/gateway with the given configuration. It runs until the end of test t. */
export function startGateway(t, config, env) {
  const file = join(temporary(), "gateway.json");
  writeFileSync(file, JSON.stringify(config));
  return serve(t, example("gateway", "LLMHTTP_GATEWAY"), ["-config", file], env);
}

/**
 * Starts a model that replies with signed and redacted thinking, and refuses a conversation that has lost it, behind a
 * number of gateways. It runs until the end of test t.
 */
export async function startThinker(t, gateways) {
  let server = await startScripted(t, "-redacted");
  for (let i = 0; i < gateways; i++) {
    const config = {
      upstreams: [{ name: "next", url: server.api, key_env: "LLMHTTP_KEY" }],
      routes: [{ model: "*", targets: [{ upstream: "next" }] }],
      keys: [{ id: "demo", secret_env: "LLMHTTP_KEY" }],
    };
    server = await startGateway(t, config, { LLMHTTP_KEY: key });
  }
  return server;
}

/** Starts a server. When test t ends, it stops the server and checks that its exit status is 0. */
async function serve(t, binary, args, env) {
  const child = spawn(binary, ["-addr", "127.0.0.1:0", ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  const ended = once(child, "exit"); // also rejects if the server cannot be started
  let stopped;
  const stop = () => (stopped ??= end());
  const end = async () => {
    child.kill("SIGTERM");
    try {
      const [code, signal] = await first(30_000, ended);
      assert.deepEqual({ code, signal }, { code: 0, signal: null }, output);
    } finally {
      child.kill("SIGKILL");
    }
  };
  t.after(stop);

  let output = "";
  const address = new Promise((resolve) => {
    const collect = (text) => {
      output += text;
      const line = /(127\.0\.0\.1:[1-9]\d*)\b.*\n/.exec(output); // a complete line, because the port may arrive in two parts
      if (line) resolve(line[1]);
    };
    child.stdout.setEncoding("utf8").on("data", collect);
    child.stderr.setEncoding("utf8").on("data", collect);
  });
  const url = `http://${await first(30_000, address, ended.then(() => assert.fail(`the example ended:\n${output}`)))}`;

  const server = {
    api: `${url}/v1`,

    /** Returns what the server has printed. */
    output: () => output,

    /** Sends SIGTERM and waits until the server has ended. */
    stop,

    /**
     * Resolves to the usage of the account. A request is included as soon as its client has received the end of a
     * successful reply.
     */
    async usage() {
      const response = await fetch(`${server.api}/dashboard/billing/usage`, {
        headers: { Authorization: `Bearer ${key}` },
      });
      assert.equal(response.status, 200);
      const { prompt_tokens, completion_tokens, total_tokens, requests, images } = await response.json();
      return { prompt_tokens, completion_tokens, total_tokens, requests, images };
    },

    /**
     * Waits until so many requests are recorded, and checks that completion tokens are recorded too. It is for requests
     * whose client has disconnected: these are recorded after the client has gone.
     */
    async awaitUsage(requests) {
      for (const deadline = performance.now() + 30_000; ; await sleep(10)) {
        const used = await server.usage();
        if (used.requests === requests) return assert(used.completion_tokens > 0);
        assert(performance.now() < deadline, `${used.requests} of ${requests} requests recorded`);
      }
    },

    /** Fetches an image without a key and resolves to its size. */
    async imageSize(address) {
      assert(address.startsWith(`${url}/`), address);
      const response = await fetch(address);
      assert.equal(response.status, 200);
      assert.equal(response.headers.get("content-type"), "image/png");
      return pngSize(await response.bytes());
    },
  };
  return server;
}

/** Returns the size of a PNG, as its header has it. */
export function pngSize(bytes) {
  const data = Buffer.from(bytes);
  assert.equal(data.toString("latin1", 0, 16), "\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
  return `${data.readUInt32BE(16)}x${data.readUInt32BE(20)}`;
}

/** Checks that v is a unit vector with n dimensions. */
export function assertUnit(v, n) {
  assert.equal(v.length, n);
  const square = v.reduce((sum, x) => sum + x * x, 0);
  assert(Math.abs(square - 1) < 1e-5, `length ${Math.sqrt(square)}`);
}

/** Settles as the first of the promises does, and rejects if none settles in time. */
async function first(milliseconds, ...promises) {
  const timer = new AbortController();
  const late = sleep(milliseconds, undefined, { signal: timer.signal }).then(() => assert.fail("the example did not start or stop in time"));
  try {
    return await Promise.race([late, ...promises]);
  } finally {
    late.catch(() => {});
    timer.abort();
  }
}
