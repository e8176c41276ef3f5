import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { generateSpeech } from "ai";
import OpenAI from "openai";
import { key, start } from "../example.js";

const openai = (server) => new OpenAI({ baseURL: server.api, apiKey: key, maxRetries: 0 });

const params = { model: "demo-speech", input: "one two three", voice: "alloy" };

test("speech by openai-node", async (t) => {
  const server = await start(t);
  const client = openai(server);
  for (const [response_format, type] of [[undefined, "audio/mpeg"], ["wav", "audio/wav"], ["pcm", "audio/pcm"]]) {
    const reply = await client.audio.speech.create({ ...params, response_format });
    assert.equal(reply.headers.get("Content-Type"), type);
    assert.equal(reply.headers.get("Content-Length"), null);
    const audio = Buffer.from(await reply.arrayBuffer());
    if (response_format === "pcm") assert.equal(audio.length, 3 * 8 * 576 * 2);
    if (response_format === "wav") assert.equal(audio.toString("latin1", 0, 4), "RIFF");
    if (!response_format) assert.equal(audio.readUInt16BE(0), 0xfff3);
  }
  assert.equal((await server.usage()).requests, 3);
});

test("the first audio arrives before the last is made", async (t) => {
  const server = await start(t, "-delay", "100ms");
  const reply = await openai(server).audio.speech.create({ ...params, input: "word ".repeat(20), response_format: "pcm" });
  let pieces = 0;
  let length = 0;
  for await (const piece of reply.body) {
    pieces++;
    length += piece.length;
  }
  assert(pieces > 1, `${pieces} pieces`);
  assert.equal(length, 20 * 8 * 576 * 2);
});

test("speech as events", async (t) => {
  const server = await start(t);
  const reply = await openai(server).audio.speech.create({ ...params, stream_format: "sse", response_format: "pcm" });
  const text = await reply.text();
  const events = text.trim().split("\n\n").map((event) => JSON.parse(event.replace(/^data: /, "")));
  const done = events.pop();
  assert.deepEqual(done, { type: "speech.audio.done", usage: { input_tokens: 3, output_tokens: 24, total_tokens: 27 } });
  assert.equal(Buffer.concat(events.map((e) => Buffer.from(e.audio, "base64"))).length, 3 * 8 * 576 * 2);
});

test("errors of speech", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const rejects = (change, status, param) =>
    assert.rejects(client.audio.speech.create({ ...params, ...change }), (e) => {
      assert(e instanceof OpenAI.APIError, `${e}`);
      assert.equal(e.status, status);
      assert.equal(e.param, param);
      return true;
    });
  await rejects({ input: "" }, 400, "input");
  await rejects({ voice: undefined }, 400, "voice");
  await rejects({ speed: 9 }, 400, "speed");
  await rejects({ response_format: "flac" }, 400, "response_format");
  await rejects({ model: "missing" }, 404, null);
});

test("speech by the AI SDK", async (t) => {
  const server = await start(t);
  const provider = createOpenAI({ baseURL: server.api, apiKey: key });
  const { audio } = await generateSpeech({ model: provider.speech("demo-speech"), text: "one two", voice: "alloy", outputFormat: "wav", maxRetries: 0 });
  assert.equal(Buffer.from(audio.uint8Array).toString("latin1", 0, 4), "RIFF");
});
