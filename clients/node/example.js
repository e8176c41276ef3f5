// Runs examples for the tests: examples/inmemory, as the tests of ../go do, and examples/gateway.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** The key the example admits unless told otherwise. */
export const key = "sk-demo";

const built = {};

/** The built example of that name: what the variable says, or else what `go build` makes of the sources. */
function example(name, variable) {
  if (process.env[variable]) return process.env[variable];
  if (!built[name]) {
    const binary = join(temporary(), name);
    execFileSync("go", ["build", "-o", binary, "."], {
      cwd: join(import.meta.dirname, "../../examples", name),
      stdio: "inherit",
    });
    built[name] = binary;
  }
  return built[name];
}

/** A directory that lasts as long as the process. */
function temporary() {
  const dir = mkdtempSync(join(tmpdir(), "llmhttp-clients"));
  process.on("exit", () => rmSync(dir, { recursive: true }));
  return dir;
}

/** Runs examples/inmemory until the end of test t. */
export const start = (t, ...args) => serve(t, example("inmemory", "LLMHTTP_EXAMPLE"), args);

/** Runs examples/gateway until the end of test t. */
export function startGateway(t, config, env) {
  const file = join(temporary(), "gateway.json");
  writeFileSync(file, JSON.stringify(config));
  return serve(t, example("gateway", "LLMHTTP_GATEWAY"), ["-config", file], env);
}

/** Runs a server until the end of test t, and then sees to it that it ends as it should. */
async function serve(t, binary, args, env) {
  const child = spawn(binary, ["-addr", "127.0.0.1:0", ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  const ended = once(child, "exit"); // also rejects if it cannot be started
  let stopped;
  const stop = () => (stopped ??= end());
  const end = async () => {
    const began = performance.now();
    child.kill("SIGTERM");
    try {
      const [code, signal] = await first(10_000, ended);
      assert.deepEqual({ code, signal }, { code: 0, signal: null }, said);
    } finally {
      child.kill("SIGKILL");
    }
    return performance.now() - began;
  };
  t.after(stop);

  let said = "";
  const address = new Promise((resolve) => {
    const listen = (text) => {
      said += text;
      const line = /(127\.0\.0\.1:[1-9]\d*)\b.*\n/.exec(said); // a whole line: a port may come in two pieces
      if (line) resolve(line[1]);
    };
    child.stdout.setEncoding("utf8").on("data", listen);
    child.stderr.setEncoding("utf8").on("data", listen);
  });
  const url = `http://${await first(10_000, address, ended.then(() => assert.fail(`the example ended:\n${said}`)))}`;

  const server = {
    api: `${url}/v1`,

    /** What it has printed until now. */
    said: () => said,

    /** Ends the server as an operator would, and resolves to how many milliseconds it took. */
    stop,

    /** What the account used until now. Whoever has a whole reply finds it reported. */
    async usage() {
      const response = await fetch(`${server.api}/dashboard/billing/usage`, {
        headers: { Authorization: `Bearer ${key}` },
      });
      assert.equal(response.status, 200);
      const { prompt_tokens, completion_tokens, total_tokens, requests, images } = await response.json();
      return { prompt_tokens, completion_tokens, total_tokens, requests, images };
    },

    /** Waits until so many requests are on the record, of clients that left, with what was said to them. */
    async abandoned(requests) {
      for (const deadline = performance.now() + 10_000; ; await sleep(10)) {
        const used = await server.usage();
        if (used.requests === requests) return assert(used.completion_tokens > 0);
        assert(performance.now() < deadline, `${used.requests} of ${requests} requests recorded`);
      }
    },

    /** Fetches a picture the way a browser would, without a key, and resolves to its size. */
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

/** The size in the header of a PNG. */
export function pngSize(bytes) {
  const data = Buffer.from(bytes);
  assert.equal(data.toString("latin1", 0, 16), "\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
  return `${data.readUInt32BE(16)}x${data.readUInt32BE(20)}`;
}

/** Asserts that v is a unit vector of n dimensions. */
export function assertUnit(v, n) {
  assert.equal(v.length, n);
  const square = v.reduce((sum, x) => sum + x * x, 0);
  assert(Math.abs(square - 1) < 1e-5, `length ${Math.sqrt(square)}`);
}

/** Resolves as the first of promises does, and rejects if none does in time. */
async function first(milliseconds, ...promises) {
  const timer = new AbortController();
  const late = sleep(milliseconds, undefined, { signal: timer.signal }).then(() => assert.fail("the example is late"));
  try {
    return await Promise.race([late, ...promises]);
  } finally {
    late.catch(() => {});
    timer.abort();
  }
}
