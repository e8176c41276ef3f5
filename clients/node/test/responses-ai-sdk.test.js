import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import assert from "node:assert/strict";
import { test } from "node:test";
import { key, start } from "../example.js";
import { Forecast, Recipe, sampleText } from "../fixtures.js";

// Otherwise the SDK prints warnings about unsupported settings.
globalThis.AI_SDK_LOG_WARNINGS = false;

/** The default API of the provider is the Responses API. */
const model = (server, bodies) =>
  createOpenAI({
    baseURL: server.api,
    apiKey: key,
    fetch: (url, init) => {
      assert.match(String(url), /\/v1\/responses$/);
      bodies?.push(JSON.parse(init.body));
      return fetch(url, init);
    },
  })("demo-chat");

/** Generates a text, streamed or not. */
async function generate(stream, params) {
  const all = { maxRetries: 0, onError: () => {}, ...params };
  if (!stream) return generateText(all);
  const result = streamText(all);
  const pieces = await Array.fromAsync(result.textStream);
  return {
    text: await result.text,
    pieces,
    finishReason: await result.finishReason,
    reasoningText: await result.reasoningText,
    usage: await result.usage,
    output: all.output && (await result.output),
    steps: await result.steps,
    response: await result.response,
  };
}

for (const stream of [false, true]) {
  const name = (s) => `${s}, ${stream ? "streamed" : "whole"}`;

  test(name("text"), async (t) => {
    const server = await start(t);
    const result = await generate(stream, { model: model(server), instructions: "Be kind.", prompt: sampleText });
    assert.equal(result.text, sampleText);
    assert.equal(result.finishReason, "stop");
    assert(result.usage.inputTokens > 0);
    if (stream) assert(result.pieces.length > 1, "the text is in several chunks");
    const cut = await generate(stream, { model: model(server), prompt: "one two three four five", maxOutputTokens: 2 });
    assert.equal(cut.finishReason, "length");
  });

  test(name("structured output"), async (t) => {
    const { output } = await generate(stream, { model: model(await start(t)), prompt: "Soup", output: Output.object({ schema: Recipe }) });
    Recipe.parse(output);
  });

  for (const store of [undefined, false]) {
    test(name(`tool and several turns, store: ${store}`), async (t) => {
      const bodies = [];
      const calls = [];
      const forecast = tool({
        description: "The weather",
        inputSchema: Forecast,
        execute: (args) => {
          calls.push(args);
          return `It rains in ${args.city}.`;
        },
      });
      const params = {
        model: model(await start(t), bodies),
        tools: { forecast },
        stopWhen: isStepCount(3),
        providerOptions: {
          openai: { store, reasoningEffort: "low", reasoningSummary: "auto", ...(store === false ? { include: ["reasoning.encrypted_content"] } : {}) },
        },
      };
      const question = { role: "user", content: "How will the weather be?" };
      const first = await generate(stream, { ...params, messages: [question] });
      assert.equal(calls.length, 1);
      Forecast.parse(calls[0]);
      assert.match(first.text, /It rains in/);
      const messages = [question, ...first.steps.flatMap((step, i, all) => (i === all.length - 1 ? step.response.messages : []))];
      const second = await generate(stream, { ...params, toolChoice: "none", messages: [...messages, { role: "user", content: "Thank you" }] });
      assert.equal(second.text, "Thank you");
      const references = bodies.at(-1).input.filter((item) => item.type === "item_reference");
      if (store === undefined) assert(references.length > 0, "the SDK refers to items by ID");
      else assert.equal(references.length, 0);
    });
  }

  test(name("error"), async (t) => {
    const params = { model: createOpenAI({ baseURL: (await start(t)).api, apiKey: "sk-wrong" })("demo-chat"), prompt: "Hi" };
    await assert.rejects(generate(stream, params), (err) => {
      if (!stream) assert(err instanceof APICallError && err.statusCode === 401, String(err));
      return true;
    });
  });
}
