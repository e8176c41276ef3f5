import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embed, embedMany, generateImage, generateText, isStepCount, Output, streamText, tool } from "ai";
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { assertUnit, key, pngSize, start } from "../example.js";
import { Forecast, longText, Recipe, sampleText } from "../fixtures.js";

// Otherwise the SDK prints warnings about unsupported settings.
globalThis.AI_SDK_LOG_WARNINGS = false;

const provider = (server, settings) =>
  createOpenAICompatible({
    name: "demo",
    baseURL: server.api,
    apiKey: key,
    includeUsage: true,
    supportsStructuredOutputs: true,
    ...settings,
  });

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
      name: "conversation",
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
      assert.equal(whole.usage.totalTokens, whole.usage.inputTokens + whole.usage.outputTokens);
      assert.equal(whole.response.modelId, "demo-chat");

      const streamed = streamText(textParams(demo, sampleText, settings));
      const pieces = await Array.fromAsync(streamed.textStream);
      assert(pieces.length > 1, "the text is in several chunks");
      assert.equal(pieces.join(""), whole.text);
      assert.equal(await streamed.finishReason, reason);
      const { inputTokens, outputTokens, totalTokens } = await streamed.usage;
      assert.deepEqual(
        { inputTokens, outputTokens, totalTokens },
        {
          inputTokens: whole.usage.inputTokens,
          outputTokens: whole.usage.outputTokens,
          totalTokens: whole.usage.totalTokens,
        },
      );
    });
  }
});

test("order of the parts of a stream", async (t) => {
  const { stream } = streamText(textParams(provider(await start(t)), sampleText));
  const types = (await Array.fromAsync(stream)).map((part) => part.type);
  assert.deepEqual(
    types.filter((type, i) => type !== types[i - 1]),
    ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"],
  );
});

test("tool loops", async (t) => {
  const demo = provider(await start(t));
  const loop = () => {
    const inputs = [];
    const forecast = tool({
      description: "The weather of the coming days",
      inputSchema: Forecast,
      execute: (input) => {
        inputs.push(input);
        return `It rains in ${input.city}.`;
      },
    });
    return { inputs, settings: { tools: { forecast }, stopWhen: isStepCount(3) } };
  };
  const check = (text, steps, inputs) => {
    assert.equal(inputs.length, 1);
    Forecast.parse(inputs[0]);
    assert(text.includes(`It rains in ${inputs[0].city}.`), text);
    assert.deepEqual(steps.map((step) => step.finishReason), ["tool-calls", "stop"]);
  };

  for (const toolChoice of [undefined, "auto"]) {
    await t.test(`whole, ${toolChoice}`, async () => {
      const { inputs, settings } = loop();
      const { text, steps } = await generateText(textParams(demo, "The weather?", { ...settings, toolChoice }));
      check(text, steps, inputs);
    });
    await t.test(`streamed, ${toolChoice}`, async () => {
      const { inputs, settings } = loop();
      const streamed = streamText(textParams(demo, "The weather?", { ...settings, toolChoice }));
      const text = (await Array.fromAsync(streamed.textStream)).join("");
      check(text, await streamed.steps, inputs);
    });
  }
  for (const toolChoice of ["required", { type: "tool", toolName: "forecast" }]) {
    await t.test(`forced by ${JSON.stringify(toolChoice)}`, async () => {
      const { settings } = loop();
      const { toolCalls } = await generateText(
        textParams(demo, "The weather?", { ...settings, toolChoice, stopWhen: isStepCount(1) }),
      );
      assert.deepEqual(toolCalls.map((call) => call.toolName), ["forecast"]);
      Forecast.parse(toolCalls[0].input);
    });
  }
});

test("structured output", async (t) => {
  const demo = provider(await start(t));
  const outputs = {
    object: [Output.object({ schema: Recipe }), Recipe],
    array: [Output.array({ element: Forecast }), z.array(Forecast)],
    choice: [Output.choice({ options: ["sun", "rain"] }), z.enum(["sun", "rain"])],
  };
  for (const [name, [output, schema]] of Object.entries(outputs)) {
    await t.test(name, async () => {
      const whole = await generateText(textParams(demo, "Make it so.", { output }));
      assert.deepEqual(whole.output, schema.parse(whole.output));
      const streamed = streamText(textParams(demo, "Make it so.", { output }));
      assert.deepEqual((await Array.fromAsync(streamed.partialOutputStream)).at(-1), whole.output);
      assert.deepEqual(await streamed.output, whole.output);
    });
  }
});

test("images", async (t) => {
  const demo = provider(await start(t));
  const generate = (model, settings) =>
    generateImage({ model: demo.imageModel(model), prompt: "A lighthouse", maxRetries: 0, ...settings });
  const tests = [
    { model: "demo-image-small", size: "256x256", n: 3 },
    { model: "demo-image-small", n: 1 },
    { model: "demo-image-large", size: "1792x1024", n: 1 },
    { model: "demo-image-large", size: "1024x1024", n: 1, providerOptions: { demo: { response_format: "b64_json" } } },
  ];
  for (const { model, ...settings } of tests) {
    await t.test(`${model} ${settings.size}`, async () => {
      const { images } = await generate(model, settings);
      assert.equal(new Set(images.map((image) => image.base64)).size, settings.n);
      for (const image of images) {
        assert.equal(image.mediaType, "image/png");
        assert.equal(pngSize(image.uint8Array), settings.size ?? "1024x1024");
      }
    });
  }
});

test("embeddings", async (t) => {
  const demo = provider(await start(t));
  const model = demo.embeddingModel("demo-embed");
  const many = await embedMany({ model, values: ["a cat", "a dog"], dimensions: 32, maxRetries: 0 });
  for (const vector of many.embeddings) assertUnit(vector, 32);
  assert.notDeepEqual(many.embeddings[0], many.embeddings[1]);
  assert(many.usage.tokens > 0);
  const one = await embed({ model, value: "a dog", dimensions: 32, maxRetries: 0 });
  assert.deepEqual(one.embedding, many.embeddings[1]);
});

test("typed errors", async (t) => {
  const server = await start(t);
  const demo = provider(server);
  const wrongKey = provider(server, { apiKey: "sk-wrong" });
  const tests = [
    { name: "wrong key", call: () => generateText(textParams(wrongKey, "Hi")), status: 401, code: "invalid_api_key" },
    {
      name: "temperature",
      call: () => generateText(textParams(demo, "Hi", { temperature: 2.5 })),
      status: 400,
      code: "decimal_above_max_value",
      param: "temperature",
    },
    {
      name: "unknown model",
      call: () => generateText(textParams(demo, "Hi", { model: demo("demo-unknown") })),
      status: 404,
      code: "model_not_found",
    },
    {
      name: "unknown model, streamed",
      call: async () => {
        for await (const part of streamText(textParams(demo, "Hi", { model: demo("demo-unknown") })).stream) {
          if (part.type === "error") throw part.error;
        }
      },
      status: 404,
      code: "model_not_found",
    },
    {
      name: "unknown embedding model",
      call: () => embed({ model: demo.embeddingModel("demo-unknown"), value: "Hi", maxRetries: 0 }),
      status: 404,
      code: "model_not_found",
    },
    {
      name: "size of another model",
      call: () =>
        generateImage({ model: demo.imageModel("demo-image-small"), prompt: "A cat", size: "1792x1024", maxRetries: 0 }),
      status: 400,
      code: "invalid_value",
      param: "size",
    },
  ];
  for (const { name, call, status, code, param = null } of tests) {
    await t.test(name, async () => {
      await assert.rejects(call(), (error) => {
        assert(APICallError.isInstance(error), `${error}`);
        assert.equal(error.statusCode, status);
        assert.equal(error.isRetryable, false);
        assert.equal(error.data.error.message, error.message);
        assert.equal(error.data.error.type, "invalid_request_error");
        assert.equal(error.data.error.code, code);
        assert.equal(error.data.error.param, param);
        return true;
      });
    });
  }
});

test("rate limit", async (t) => {
  const demo = provider(await start(t, "-rpm", "2"));
  for (const remaining of ["1", "0"]) {
    const { response } = await generateText(textParams(demo, "Hi"));
    assert.equal(response.headers["x-ratelimit-limit-requests"], "2");
    assert.equal(response.headers["x-ratelimit-remaining-requests"], remaining);
  }
  await assert.rejects(generateText(textParams(demo, "Hi")), (error) => {
    assert(APICallError.isInstance(error), `${error}`);
    assert.equal(error.statusCode, 429);
    assert.equal(error.isRetryable, true);
    assert.equal(error.data.error.code, "rate_limit_exceeded");
    assert.match(error.responseHeaders["retry-after"], /^([1-9]|[12]\d|30)$/);
    return true;
  });
});

test("client waits for Retry-After", async (t) => {
  const server = await start(t, "-rpm", "20"); // one request in 3 seconds
  let attempts = 0;
  const counting = (...args) => {
    attempts++;
    return fetch(...args);
  };
  const demo = provider(server, { fetch: counting });
  const exhaust = async () => {
    for (;;) await embed({ model: demo.embeddingModel("demo-embed"), value: "Hi", maxRetries: 0 });
  };
  await assert.rejects(exhaust(), { statusCode: 429 });
  attempts = 0;
  const { text } = await generateText(textParams(demo, "Hi", { maxRetries: 2 }));
  assert.equal(text, "Hi");
  assert(attempts === 2 || attempts === 3, `${attempts} attempts`); // 3 if a timer fires a millisecond early
});

test("client disconnects in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  const demo = provider(server);
  const controller = new AbortController();
  let pieces = 0;
  let last;
  for await (const part of streamText(textParams(demo, longText, { abortSignal: controller.signal })).stream) {
    if (part.type === "text-delta" && ++pieces === 5) controller.abort();
    last = part.type;
  }
  assert.equal(last, "abort");
  assert.equal(pieces, 5);

  await server.awaitUsage(1);
  const { text } = await generateText(textParams(demo, "Still there?"));
  assert.equal(text, "Still there?");
  await server.stop();
  assert.doesNotMatch(server.output(), /requests were interrupted/);
});

test("server shuts down in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  const errorTypes = [];
  let stopped;
  const read = async () => {
    for await (const part of streamText(textParams(provider(server), longText)).stream) {
      if (part.type === "text-delta") stopped ??= server.stop();
      if (part.type === "error") errorTypes.push(part.error.data.type);
      assert.notEqual(part.type, "finish");
    }
  };
  await assert.rejects(read(), (error) => APICallError.isInstance(error)); // the connection is closed too
  assert.deepEqual(errorTypes, ["server_error"]);
  await stopped;
});

test("usage report agrees with the usage of the replies", async (t) => {
  const server = await start(t);
  const demo = provider(server);
  const want = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0, requests: 0, images: 0 };
  const add = (input, output) => {
    want.prompt_tokens += input;
    want.completion_tokens += output;
    want.total_tokens += input + output;
    want.requests++;
  };
  for (const text of ["Hi", sampleText, longText]) {
    const whole = await generateText(textParams(demo, text));
    add(whole.usage.inputTokens, whole.usage.outputTokens);
    const streamed = await streamText(textParams(demo, text)).usage;
    add(streamed.inputTokens, streamed.outputTokens);
    const embedded = await embed({ model: demo.embeddingModel("demo-embed"), value: text });
    add(embedded.usage.tokens, 0);
  }
  const { usage } = await generateImage({
    model: demo.imageModel("demo-image-small"),
    prompt: "A cat",
    size: "256x256",
    n: 2,
  });
  add(usage.inputTokens ?? 0, usage.outputTokens ?? 0);
  want.images = 2;
  assert.deepEqual(await server.usage(), want);
});
