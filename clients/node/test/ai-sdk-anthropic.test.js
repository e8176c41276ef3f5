import { createAnthropic } from "@ai-sdk/anthropic";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import assert from "node:assert/strict";
import { test } from "node:test";
import { key, start, startThinker } from "../example.js";
import { Forecast, longText, Recipe, sampleText } from "../fixtures.js";

// Otherwise the SDK prints warnings about unsupported settings.
globalThis.AI_SDK_LOG_WARNINGS = false;

const provider = (server, settings) => createAnthropic({ baseURL: server.api, apiKey: key, ...settings });

/** Returns arguments for generateText and streamText, without retries. */
const textParams = (provider, prompt, settings) => ({
  model: provider("demo-chat"),
  prompt,
  maxRetries: 0,
  onError: () => {}, // otherwise streamText also prints the error
  ...settings,
});

test("text, whole and streamed", async (t) => {
  const demo = provider(await start(t));
  const tests = [
    { name: "echo", settings: {}, want: sampleText },
    {
      name: "conversation with an image and a document",
      settings: {
        prompt: undefined,
        instructions: "Be kind.",
        messages: [
          { role: "user", content: "first" },
          { role: "assistant", content: "first" },
          {
            role: "user",
            content: [
              { type: "text", text: "the second, in several words" },
              { type: "file", mediaType: "image/gif", data: Buffer.from("R0lGODlhAQABAAAAACw=", "base64") },
              { type: "file", mediaType: "application/pdf", data: Buffer.from("%PDF-1.4"), filename: "a.pdf" },
            ],
          },
        ],
      },
      want: "the second, in several words",
    },
    { name: "stop sequence", settings: { stopSequences: ["nowhere", "fox"] }, want: 'The "quick" ' },
    {
      name: "token limit",
      settings: { prompt: "one two three four five six seven", maxOutputTokens: 3 },
      want: /^one two\b/,
      reason: "length",
    },
  ];
  for (const { name, settings, want, reason = "stop" } of tests) {
    await t.test(name, async () => {
      const whole = await generateText(textParams(demo, sampleText, settings));
      if (want instanceof RegExp) assert.match(whole.text, want);
      else assert.equal(whole.text, want);
      assert.equal(whole.finishReason, reason);
      assert(whole.usage.inputTokens > 0);
      assert(whole.usage.outputTokens > 0);
      assert.equal(whole.response.modelId, "demo-chat");

      const streamed = streamText(textParams(demo, sampleText, settings));
      const pieces = await Array.fromAsync(streamed.textStream);
      assert(pieces.length > 1, "the text is in several chunks");
      assert.equal(pieces.join(""), whole.text);
      assert.equal(await streamed.finishReason, reason);
      const { inputTokens, outputTokens } = await streamed.usage;
      assert.deepEqual([inputTokens, outputTokens], [whole.usage.inputTokens, whole.usage.outputTokens]);
    });
  }
});

test("tool loops and parallel calls", async (t) => {
  const demo = provider(await start(t));
  const loop = () => {
    const inputs = [];
    const weather = (name) =>
      tool({
        description: "The weather of the coming days",
        inputSchema: Forecast,
        execute: (input) => {
          inputs.push(input);
          return `It rains in ${input.city}, says ${name}.`;
        },
      });
    return { inputs, settings: { tools: { forecast: weather("one"), report: weather("two") }, stopWhen: isStepCount(3) } };
  };
  const parallel = { providerOptions: { anthropic: { disableParallelToolUse: false } }, toolChoice: "auto" };
  for (const [name, more, count] of [["one call", {}, 1], ["parallel calls", parallel, 2]]) {
    const check = (text, steps, inputs) => {
      assert.equal(inputs.length, count);
      for (const input of inputs) {
        Forecast.parse(input);
        assert(text.includes(`It rains in ${input.city}, says one.`), text);
      }
      assert.equal(text.includes("says two."), count > 1);
      assert.deepEqual(steps.map((step) => step.finishReason), ["tool-calls", "stop"]);
    };
    await t.test(`${name}, whole`, async () => {
      const { inputs, settings } = loop();
      const { text, steps } = await generateText(textParams(demo, "The weather?", { ...settings, ...more }));
      check(text, steps, inputs);
    });
    await t.test(`${name}, streamed`, async () => {
      const { inputs, settings } = loop();
      const streamed = streamText(textParams(demo, "The weather?", { ...settings, ...more }));
      const text = (await Array.fromAsync(streamed.textStream)).join("");
      check(text, await streamed.steps, inputs);
    });
  }
});

test("reasoning round trip", async (t) => {
  const demo = provider(await start(t));
  const providerOptions = { anthropic: { thinking: { type: "enabled", budgetTokens: 2048 } } };
  const whole = await generateText(textParams(demo, sampleText, { providerOptions }));
  assert.equal(whole.reasoningText, `The user said: ${sampleText}`);
  const streamed = streamText(textParams(demo, sampleText, { providerOptions }));
  await streamed.consumeStream();
  assert.equal(await streamed.reasoningText, whole.reasoningText);
  for (const { messages } of [await whole.response, await streamed.response]) {
    const history = [{ role: "user", content: sampleText }, ...messages, { role: "user", content: "Go on." }];
    const bodies = [];
    const recording = createAnthropic({
      baseURL: demo("demo-chat").config.baseURL,
      apiKey: key,
      fetch: (url, init) => {
        bodies.push(JSON.parse(init.body));
        return fetch(url, init);
      },
    });
    const answer = await generateText(textParams(recording, undefined, { messages: history, providerOptions }));
    assert.equal(answer.text, "Go on.");
    // The server has checked the signature.
    const thinking = bodies[0].messages[1].content[0];
    assert.equal(thinking.thinking, whole.reasoningText);
    assert.match(thinking.signature, /./);
  }
});

test("redacted thinking", async (t) => {
  for (const gateways of [0, 1, 2]) {
    await t.test(`${gateways} gateways`, async (t) => {
      const demo = provider(await startThinker(t, gateways));
      const streamed = streamText(textParams(demo, "Hi"));
      await streamed.consumeStream();
      for (const { messages } of [await (await generateText(textParams(demo, "Hi"))).response, await streamed.response]) {
        const parts = messages[0].content.filter((part) => part.type === "reasoning");
        assert.match(parts.at(-1).providerOptions.anthropic.redactedData, /./);
        const history = [{ role: "user", content: "Hi" }, ...messages, { role: "user", content: "Go on." }];
        await generateText(textParams(demo, undefined, { messages: history })); // the model refuses it without the thinking
      }
    });
  }
});

test("structured output", async (t) => {
  const demo = provider(await start(t));
  const whole = await generateText(textParams(demo, "Make it so.", { output: Output.object({ schema: Recipe }) }));
  assert.deepEqual(whole.output, Recipe.parse(whole.output));
  const streamed = streamText(textParams(demo, "Make it so.", { output: Output.object({ schema: Recipe }) }));
  assert.deepEqual((await Array.fromAsync(streamed.partialOutputStream)).at(-1), whole.output);
});

test("typed errors", async (t) => {
  const server = await start(t);
  const wrongKey = provider(server, { apiKey: "sk-wrong" });
  const tests = [
    { name: "wrong key", demo: wrongKey, settings: {}, status: 401, type: "authentication_error", retry: false },
    { name: "unknown model", settings: { model: provider(server)("demo-unknown") }, status: 404, type: "not_found_error", retry: false },
  ];
  for (const { name, demo = provider(server), settings, status, type, retry } of tests) {
    await t.test(name, async () => {
      const check = (error) => {
        assert(APICallError.isInstance(error), `${error}`);
        assert.equal(error.statusCode, status);
        assert.equal(error.data.error.type, type);
        assert.equal(error.isRetryable, retry);
        return true;
      };
      await assert.rejects(generateText(textParams(demo, "Hi", settings)), check);
      const streamed = streamText(textParams(demo, "Hi", settings));
      const errors = (await Array.fromAsync(streamed.stream)).filter((part) => part.type === "error");
      assert.equal(errors.length, 1);
      check(errors[0].error);
    });
  }
});

test("client waits for Retry-After", async (t) => {
  const demo = provider(await start(t, "-rpm", "20")); // one request in 3 seconds
  const ask = (maxRetries) => generateText(textParams(demo, "Hi", { maxRetries, maxOutputTokens: 10 }));
  const exhaust = async () => {
    for (;;) await ask(0);
  };
  await assert.rejects(exhaust(), (error) => APICallError.isInstance(error) && error.statusCode === 429 && error.isRetryable);
  assert.equal((await ask(2)).text, "Hi");
});

test("client disconnects in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  const controller = new AbortController();
  const { stream } = streamText(textParams(provider(server), longText, { abortSignal: controller.signal }));
  let pieces = 0;
  for await (const part of stream) {
    if (part.type === "text-delta" && ++pieces === 5) controller.abort();
  }
  assert(pieces >= 5);
  await server.awaitUsage(1);
  await server.stop();
  assert.doesNotMatch(server.output(), /requests were interrupted/);
});

test("server shuts down in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  const { stream } = streamText(textParams(provider(server), longText));
  let stopped;
  const parts = [];
  for await (const part of stream) {
    if (part.type === "text-delta") stopped ??= server.stop();
    parts.push(part);
  }
  const { error } = parts.find((part) => part.type === "error");
  assert.match(error.message ?? JSON.stringify(error), /shutting down/);
  assert(!parts.some((part) => part.type === "text-end"));
  await stopped;
});
