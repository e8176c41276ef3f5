import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { transcribe } from "ai";
import OpenAI, { toFile } from "openai";
import { key, start } from "../example.js";

const openai = (server) => new OpenAI({ baseURL: server.api, apiKey: key, maxRetries: 0 });

const recording = () => toFile(Buffer.alloc(16_000), "speech.mp3", { type: "audio/mpeg" });

const text = "This is what somebody says in the recording speech.mp3 of 16000 bytes.";

test("transcriptions by openai-node", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const params = async (more) => ({ file: await recording(), model: "demo-transcribe", ...more });
  const whole = await client.audio.transcriptions.create(await params());
  assert.equal(whole.text, text);
  assert.equal(whole.usage.input_tokens, 10);
  const verbose = await client.audio.transcriptions.create(
    await params({ response_format: "verbose_json", timestamp_granularities: ["word", "segment"], language: "en", temperature: 0 }),
  );
  assert.equal(verbose.duration, 1);
  assert.equal(verbose.words.length, 12);
  assert.deepEqual(verbose.segments.map((s) => s.id), [0, 1, 2]);
  const srt = await client.audio.transcriptions.create(await params({ response_format: "srt" }));
  assert(srt.startsWith("1\n00:00:00,000 --> "), srt);
  const diarized = await client.audio.transcriptions.create(await params({ response_format: "diarized_json" }));
  assert.equal(diarized.segments[0].speaker, "A");
  const translated = await client.audio.translations.create(await params());
  assert.equal(translated.text, `In English: ${text}`);
  assert.equal((await server.usage()).requests, 5);
});

test("a transcription as events", async (t) => {
  const server = await start(t);
  const stream = await openai(server).audio.transcriptions.create({ model: "demo-transcribe", stream: true, file: await recording() });
  let deltas = "";
  let last;
  for await (const event of stream) {
    if (event.type === "transcript.text.delta") deltas += event.delta;
    last = event;
  }
  assert.equal(deltas, text);
  assert.equal(last.type, "transcript.text.done");
  assert.equal(last.text, text);
});

test("errors of transcriptions", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const rejects = async (change, status, param) =>
    assert.rejects(client.audio.transcriptions.create({ file: await recording(), model: "demo-transcribe", ...change }), (e) => {
      assert(e instanceof OpenAI.APIError, `${e}`);
      assert.equal(e.status, status);
      assert.equal(e.param, param);
      return true;
    });
  await rejects({ file: undefined }, 400, "file");
  await rejects({ temperature: 9 }, 400, "temperature");
  await rejects({ response_format: "xml" }, 400, "response_format");
  await rejects({ model: "missing" }, 404, null);
});

test("a transcription by the AI SDK", async (t) => {
  const server = await start(t);
  const provider = createOpenAI({ baseURL: server.api, apiKey: key });
  const result = await transcribe({ model: provider.transcription("demo-transcribe"), audio: Buffer.from("RIFF\0\0\0\0WAVEfmt ", "latin1"), maxRetries: 0 });
  assert(result.text.startsWith("This is what somebody says"), result.text);
});
