import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { key, startScripted } from "../example.js";

/** The wire formats of the agent: the name of the format, the path it requests, and the variables that point it at a server. */
const formats = [
  ["openai", "POST /v1/chat/completions", (api) => ({ OPENAI_BASE_URL: api, OPENAI_API_KEY: key, OPENAI_MODEL: "demo-chat" })],
  ["openai-responses", "POST /v1/responses", (api) => ({ OPENAI_BASE_URL: api, OPENAI_API_KEY: key, OPENAI_MODEL: "demo-chat" })],
  [
    "anthropic",
    "POST /v1/messages",
    (api) => ({ ANTHROPIC_BASE_URL: api.replace(/\/v1$/, ""), ANTHROPIC_API_KEY: key, ANTHROPIC_MODEL: "demo-chat" }),
  ],
];

for (const [format, path, variables] of formats) {
  test(`a loop with a tool call, ${format}`, async (t) => {
    const dir = mkdtempSync(join(tmpdir(), "llmhttp-agent"));
    t.after(() => rmSync(dir, { recursive: true, force: true }));
    const file = join(dir, "note.txt");
    writeFileSync(file, "the magic word is xyzzy\n");
    const server = await startScripted(t, "-tool", "read_file", "-arguments", JSON.stringify({ file_path: file }));

    const agent = join(import.meta.dirname, "../node_modules/@qwen-code/qwen-code/cli-entry.js");
    const { stdout } = await promisify(execFile)(process.execPath, [agent, "--auth-type", format, "-p", "What is the magic word in note.txt?"], {
      cwd: dir,
      env: { PATH: process.env.PATH, HOME: dir, ...variables(server.api) },
      timeout: 180_000,
    });
    assert.match(stdout, /The tool returned: .*the magic word is xyzzy/s);
    const requests = server.output().split("\n").filter((line) => line.startsWith("POST"));
    assert.deepEqual(requests, [path, path]);
  });
}
