import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { LLMock } from "@copilotkit/aimock";
import { ask, askClaude, extract, newClaude, newClient, read, runAgent } from "./program.js";

/** Starts a mock server that ends with the test. */
async function start(t, options) {
  const mock = new LLMock({ port: 0, ...options });
  await mock.start();
  t.after(() => mock.stop());
  return mock;
}

test("1", async (t) => {
  const mock = await start(t);
  mock.onMessage(/.*/, { content: "It rains." });
  assert.equal(await ask(newClient(mock.url), "Rain?"), "It rains.");
});

test("2", async (t) => {
  const mock = await start(t);
  mock.onMessage(/.*/, { content: "It rains today." }, { chunkSize: 5, latency: 100 });
  const times = [];
  await read(newClient(mock.url), "Rain?", () => times.push(performance.now()));
  assert.equal(times.length, 3);
  assert(times[2] - times[0] > 150);
});

test("3", async (t) => {
  const mock = await start(t);
  mock.on({ userMessage: "Rain?", hasToolResult: false }, { toolCalls: [{ name: "forecast", arguments: '{"city":"Bergen"}' }] });
  mock.on({ userMessage: "Rain?", hasToolResult: true }, { content: "It rains." });
  assert.equal(await runAgent(newClient(mock.url), "Rain?"), "It rains.");
  const { messages } = mock.getLastRequest().body;
  assert.match(messages.at(-1).content, /^rain: /);
});

test("4", async (t) => {
  const mock = await start(t);
  mock.onMessage(/.*/, { content: JSON.stringify({ city: "Bergen", rain: true }) });
  assert.deepEqual(await extract(newClient(mock.url), "Rain?"), { city: "Bergen", rain: true });
});

test("5", async (t) => {
  const mock = await start(t);
  mock.onMessage(/.*/, { content: "It rains." });
  mock.nextRequestError(429, { message: "Rate limit reached." });
  const began = performance.now();
  assert.equal(await ask(newClient(mock.url), "Rain?"), "It rains.");
  assert(performance.now() - began > 900);
});

test("6", async (t) => {
  const mock = await start(t);
  mock.onMessage(/.*/, { content: "It rains today." }, { chunkSize: 8, latency: 50, truncateAfterChunks: 3 });
  let got = "";
  await assert.rejects(read(newClient(mock.url), "Rain?", (s) => (got += s)));
  assert.match(got, /^It rains/);
});

test("7", async (t) => {
  const mock = await start(t, { auth: { apiKeys: ["test"] } });
  mock.onMessage(/.*/, { content: "It rains." });
  await ask(newClient(mock.url), "Rain?");
  const { body } = mock.getLastRequest();
  assert.equal(body.model, "gpt-4o");
  assert.deepEqual(body.messages, [
    { role: "system", content: "Be brief." },
    { role: "user", content: "Rain?" },
  ]);
});

test("8", async (t) => {
  const mock = await start(t, { strict: true });
  mock.onMessage("Snow?", { content: "No." });
  await assert.rejects(ask(newClient(mock.url), "Rain?"));
  const requests = mock.getRequests();
  const served = new Set(requests.map(({ response }) => response.fixture));
  assert(requests.some(({ response }) => response.fixture === null), "an unexpected request");
  assert(mock.getFixtures().some((fixture) => !served.has(fixture)), "a reply that was not asked for");
});

test("9", async (t) => {
  const real = await start(t);
  real.onMessage(/.*/, { content: "It rains." });
  const dir = mkdtempSync(join(tmpdir(), "aimock"));
  t.after(() => rmSync(dir, { recursive: true }));
  const recorder = await start(t, { record: { providers: { openai: real.url }, fixturePath: dir } });
  assert.equal(await ask(newClient(recorder.url), "Rain?"), "It rains.");
  const replay = await start(t, { strict: true });
  replay.loadFixtureDir(dir);
  assert.equal(await ask(newClient(replay.url), "Rain?"), "It rains.");
});

test("10", async (t) => {
  const mock = await start(t);
  mock.onMessage(/.*/, { content: "It rains." });
  assert.equal(await askClaude(newClaude(mock.url), "Rain?"), "It rains.");
});
