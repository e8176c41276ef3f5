// Tests of the official SDKs for Node.js, and of the AI SDK, against the command llmfake.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { generateText, isStepCount, Output, streamText, tool } from "ai";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { llmfake, start } from "./fake.js";

globalThis.AI_SDK_LOG_WARNINGS = false;

const Forecast = z.strictObject({ city: z.string(), days: z.int() });
const bergen = { city: "Bergen", days: 2 };
const text = [{ reason: "Hm." }, { text: "It rains in Bergen." }, { usage: { prompt: 3, completion: 4 } }];
const messages = [{ role: "user", content: "Rain?" }];

/** A script in which the model calls a tool, and then replies with its result. */
const loop = {
  rules: [
    { when: { turn: 1, offers_tool: "forecast" }, replies: [[{ text: "I look." }, { call: { tool: "forecast", arguments: bergen } }]] },
    { when: { tool_result: { tool: "forecast", text: "rain in Bergen" } }, replies: [{ text: "It rains." }] },
  ],
};

test("openai, chat", async (t) => {
  const server = await start(t, { replies: [text, text, [{ json: bergen }], [{ fail: { status: 429, retry_after: "1ms" } }], text] });
  const client = new OpenAI(server.openai);
  const whole = await client.chat.completions.create({ model: "gpt-4o", messages });
  assert.equal(whole.choices[0].message.content, "It rains in Bergen.");
  assert.equal(whole.usage.total_tokens, 7);
  const streamed = await client.chat.completions.stream({ model: "gpt-4o", messages }).finalContent();
  assert.equal(streamed, "It rains in Bergen.");
  const parsed = await client.chat.completions.parse({ model: "gpt-4o", messages, response_format: zodResponseFormat(Forecast, "forecast") });
  assert.deepEqual(parsed.choices[0].message.parsed, bergen);
  const retried = await client.chat.completions.create({ model: "gpt-4o", messages });
  assert.equal(retried.choices[0].message.content, "It rains in Bergen.");
  const requests = await server.requests();
  assert.deepEqual(requests.map(({ status }) => status), [200, 200, 200, 429, 200]);
  assert.deepEqual(requests[0].messages, ["user: Rain?"]);
});

test("openai, a loop of tools", async (t) => {
  const client = new OpenAI((await start(t, loop)).openai);
  const runner = client.chat.completions.runTools({
    model: "gpt-4o",
    messages,
    tools: [zodFunction({ name: "forecast", parameters: Forecast, function: ({ city }) => `rain in ${city}` })],
  });
  assert.equal(await runner.finalContent(), "It rains.");
});

test("openai, responses", async (t) => {
  const client = new OpenAI((await start(t, { replies: [text, text] })).openai);
  const whole = await client.responses.create({ model: "gpt-4o", input: "Rain?" });
  assert.equal(whole.output_text, "It rains in Bergen.");
  const streamed = await client.responses.stream({ model: "gpt-4o", input: "Rain?" }).finalResponse();
  assert.equal(streamed.output_text, "It rains in Bergen.");
});

test("anthropic", async (t) => {
  const server = await start(t, { replies: [text, text, [{ json: bergen }], [{ fail: 529 }], text] });
  const client = new Anthropic(server.anthropic);
  const params = { model: "claude-sonnet-4-5", max_tokens: 100, messages };
  const whole = await client.messages.create(params);
  assert.deepEqual(whole.content.map(({ type }) => type), ["thinking", "text"]);
  assert.equal(whole.usage.output_tokens, 4);
  assert.equal(await client.messages.stream(params).finalText(), "It rains in Bergen.");
  const parsed = await client.messages.parse({ ...params, output_config: { format: zodOutputFormat(Forecast) } });
  assert.deepEqual(parsed.parsed_output, bergen);
  const retried = await client.messages.create(params);
  assert.equal(retried.content[1].text, "It rains in Bergen.");
  assert.equal((await server.requests()).length, 5);
});

test("anthropic, a loop of tools", async (t) => {
  const client = new Anthropic((await start(t, loop)).anthropic);
  const message = await client.beta.messages.toolRunner({
    model: "claude-sonnet-4-5",
    max_tokens: 100,
    messages,
    tools: [betaZodTool({ name: "forecast", description: "", inputSchema: Forecast, run: ({ city }) => `rain in ${city}` })],
  });
  assert.equal(message.content[0].text, "It rains.");
});

for (const [name, provider] of Object.entries({
  "openai-compatible": ({ openai }) => createOpenAICompatible({ name: "fake", supportsStructuredOutputs: true, ...openai })("gpt-4o"),
  openai: ({ openai }) => createOpenAI(openai)("gpt-4o"),
  anthropic: ({ url }) => createAnthropic({ baseURL: `${url}/v1`, apiKey: "test" })("claude-sonnet-4-5"),
})) {
  test(`AI SDK, ${name}`, async (t) => {
    const model = provider(await start(t, { replies: [text, text] }));
    assert.equal((await generateText({ model, prompt: "Rain?" })).text, "It rains in Bergen.");
    assert.equal(await streamText({ model, prompt: "Rain?" }).text, "It rains in Bergen.");
    const objects = provider(await start(t, { replies: [{ json: bergen }] }));
    assert.deepEqual((await generateText({ model: objects, prompt: "Rain?", output: Output.object({ schema: Forecast }) })).output, bergen);
    const tools = provider(await start(t, loop));
    const result = await generateText({
      model: tools,
      prompt: "Rain?",
      stopWhen: isStepCount(3),
      tools: { forecast: tool({ inputSchema: Forecast, execute: ({ city }) => `rain in ${city}` }) },
    });
    assert.equal(result.text, "It rains.");
  });
}

test("citations", async (t) => {
  const server = await start(t, { always: [{ text: "It rains." }, { cite: { url: "https://example.com", title: "Weather", start: 3, end: 8 } }] });
  const citation = { type: "url_citation", url: "https://example.com", title: "Weather", start_index: 3, end_index: 8 };
  const openai = new OpenAI(server.openai);
  const params = { model: "gpt-4o", input: "Rain?" };
  for (const response of [await openai.responses.create(params), await openai.responses.stream(params).finalResponse()])
    assert.deepEqual(response.output[0].content[0].annotations, [citation]);
  const anthropic = new Anthropic(server.anthropic);
  const asked = { model: "claude-sonnet-4-5", max_tokens: 100, messages };
  for (const message of [await anthropic.messages.create(asked), await anthropic.messages.stream(asked).finalMessage()])
    assert.deepEqual(message.content[0].citations.map(({ url, title }) => [url, title]), [["https://example.com", "Weather"]]);
  const models = [createOpenAI(server.openai)("gpt-4o"), createAnthropic({ baseURL: `${server.url}/v1`, apiKey: "test" })("claude-sonnet-4-5")];
  for (const model of models) {
    assert.equal((await generateText({ model, prompt: "Rain?" })).text, "It rains.");
    assert.equal(await streamText({ model, prompt: "Rain?" }).text, "It rains.");
  }
  assert.deepEqual((await generateText({ model: models[0], prompt: "Rain?" })).sources.map(({ url }) => url), ["https://example.com"]);
});

// The command of llmfake/README.md.
test("llmfake runs a test", async () => {
  assert.match(readFileSync(join(import.meta.dirname, "../../../llmfake/README.md"), "utf8"), /^\(cd clients\/node\/llmfake\/example && llmfake replies\.yaml -- node --test greet\.js\)$/m);
  const dir = join(import.meta.dirname, "example");
  const { NODE_TEST_CONTEXT, ...env } = process.env; // or node would take it for a part of this test
  const { stdout } = await promisify(execFile)(llmfake(), ["replies.yaml", "--", process.execPath, "--test", "greet.js"], { cwd: dir, env });
  assert.match(stdout, /pass 2/);
});
