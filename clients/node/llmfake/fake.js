// Runs the command llmfake for tests.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

let binary = process.env.LLMHTTP_LLMFAKE;

/** Returns the path of the binary: LLMHTTP_LLMFAKE if that is set, or else a new build. */
export function llmfake() {
  if (!binary) {
    const dir = mkdtempSync(join(tmpdir(), "llmfake"));
    process.on("exit", () => rmSync(dir, { recursive: true }));
    binary = join(dir, "llmfake");
    execFileSync("go", ["build", "-o", binary, "./cmd/llmfake"], { cwd: join(import.meta.dirname, "../../../llmfake"), stdio: "inherit" });
  }
  return binary;
}

/**
 * Starts llmfake with a script. When test t ends, stops it, and fails if it exits with another status than 0, because a
 * request was unexpected or a reply was not asked for.
 */
export async function start(t, script) {
  const child = spawn(llmfake(), ["-addr", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  const url = await new Promise((resolve, reject) => {
    child.on("exit", () => reject(new Error(output)));
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text) => {
        output += text;
        const line = /listening on (\S+)\n/.exec(output);
        if (line) resolve(line[1]);
      });
  });
  t.after(async () => {
    child.removeAllListeners("exit");
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    const [code] = await ended;
    if (code !== 0) throw new Error(output);
  });
  const response = await fetch(`${url}/llmfake/script`, { method: "PUT", body: JSON.stringify(script), headers: { "Content-Type": "application/json" } });
  if (!response.ok) throw new Error(await response.text());
  return {
    url,
    openai: { baseURL: `${url}/v1`, apiKey: "test" },
    anthropic: { baseURL: url, apiKey: "test" },
    /** Resolves to the requests that have arrived. */
    requests: async () => (await fetch(`${url}/llmfake/requests`)).json(),
  };
}
