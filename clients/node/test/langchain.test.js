import { HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, DallEAPIWrapper, OpenAI, OpenAIEmbeddings } from "@langchain/openai";
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { assertUnit, key, pngSize, start } from "../example.js";
import { Forecast, longText, Recipe, sampleText } from "../fixtures.js";

const fields = (server, options) => ({
  apiKey: key,
  maxRetries: 0,
  ...options,
  configuration: { baseURL: server.api, ...options?.configuration },
});

const chat = (server, options) => new ChatOpenAI({ model: "demo-chat", ...fields(server, options) });

const embeddings = (server, options) => new OpenAIEmbeddings({ model: "demo-embed", ...fields(server, options) });

/** Joins the chunks of a stream to one message. */
async function collect(stream) {
  const chunks = await Array.fromAsync(stream);
  return { count: chunks.length, message: chunks.reduce((sum, chunk) => sum.concat(chunk)) };
}

const tokens = ({ input_tokens, output_tokens, total_tokens }) => ({ input_tokens, output_tokens, total_tokens });

test("chat, whole and streamed", async (t) => {
  const server = await start(t);
  const tests = [
    { name: "echo", input: sampleText, want: sampleText },
    {
      name: "conversation in parts",
      input: [
        new SystemMessage("Be kind."),
        new HumanMessage("first"),
        new HumanMessage({
          content: [
            { type: "text", text: "second" },
            { type: "image_url", image_url: { url: "data:image/gif;base64,R0lGODlhAQABAAAAACw=" } },
          ],
        }),
      ],
      want: "second",
    },
    { name: "stop sequence", input: sampleText, options: { stop: ["nowhere", "fox"] }, want: 'The "quick" ' },
    {
      name: "token limit",
      input: "one two three four five six seven",
      model: { maxTokens: 3 },
      want: /^one two\b/,
      reason: "length",
    },
  ];
  for (const { name, input, model, options, want, reason = "stop" } of tests) {
    await t.test(name, async () => {
      const llm = chat(server, model);
      const whole = await llm.invoke(input, options);
      if (want instanceof RegExp) assert.match(whole.content, want);
      else assert.equal(whole.content, want);
      assert.equal(whole.response_metadata.finish_reason, reason);
      assert(whole.usage_metadata.input_tokens > 0);
      assert(whole.usage_metadata.output_tokens > 0);

      const { count, message } = await collect(await llm.stream(input, options));
      assert(count > 3, "the text is in several chunks");
      assert.equal(message.content, whole.content);
      assert.equal(message.response_metadata.finish_reason, reason);
      assert.deepEqual(tokens(message.usage_metadata), tokens(whole.usage_metadata));
    });
  }
});

test("several choices", async (t) => {
  const llm = chat(await start(t), { n: 3 });
  const { generations, llmOutput } = await llm.generate([[new HumanMessage(sampleText)]]);
  assert.deepEqual(generations[0].map((generation) => generation.text), [sampleText, sampleText, sampleText]);
  assert(llmOutput.tokenUsage.completionTokens > 0);
});

test("tool loops", async (t) => {
  const llm = chat(await start(t));
  const forecast = tool(({ city }) => `It rains in ${city}.`, {
    name: "forecast",
    description: "The weather of the coming days",
    schema: Forecast,
  });
  const modes = {
    whole: (bound, messages) => bound.invoke(messages),
    streamed: async (bound, messages) => (await collect(await bound.stream(messages))).message,
  };
  for (const [mode, call] of Object.entries(modes)) {
    for (const tool_choice of [undefined, "auto", "required", "any", "forecast"]) {
      await t.test(`${mode}, ${tool_choice}`, async () => {
        const messages = [new HumanMessage("How will the weather be?")];
        const called = await call(llm.bindTools([forecast], { tool_choice }), messages);
        assert.equal(called.response_metadata.finish_reason, "tool_calls");
        assert.equal(called.tool_calls.length, 1);
        const [request] = called.tool_calls;
        assert.equal(request.name, "forecast");
        assert.match(request.id, /./);
        Forecast.parse(request.args);

        const result = await forecast.invoke(request);
        assert(result instanceof ToolMessage);
        const answer = await call(llm.bindTools([forecast]), [...messages, called, result]);
        assert.equal(answer.response_metadata.finish_reason, "stop");
        assert(answer.content.includes(`It rains in ${request.args.city}.`), answer.content);
        assert.deepEqual(answer.tool_calls, []);
      });
    }
  }
});

test("structured output", async (t) => {
  const llm = chat(await start(t));
  for (const method of ["jsonSchema", "functionCalling"]) {
    await t.test(method, async () => {
      const recipe = llm.withStructuredOutput(Recipe, { name: "recipe", method });
      const whole = await recipe.invoke("A recipe, please.");
      assert.deepEqual(whole, Recipe.parse(whole));
      const streamed = await Array.fromAsync(await recipe.stream("A recipe, please."));
      assert.deepEqual(streamed.at(-1), whole);
    });
  }
  await t.test("jsonMode", async () => {
    const object = await llm.withStructuredOutput(z.looseObject({}), { method: "jsonMode" }).invoke("An object.");
    assert.equal(typeof object, "object");
  });
});

test("images", async (t) => {
  const server = await start(t);
  const generate = (options) =>
    new DallEAPIWrapper({ apiKey: key, baseUrl: server.api, model: "demo-image-large", ...options }).invoke("A lighthouse");
  assert.equal(await server.imageSize(await generate({ size: "1792x1024", quality: "hd" })), "1792x1024");
  const inline = await generate({ dallEResponseFormat: "b64_json" });
  assert.equal(pngSize(Buffer.from(inline, "base64")), "1024x1024");
});

test("completions of prompts", async (t) => {
  const server = await start(t);
  const llm = new OpenAI({ model: "demo-complete", maxTokens: 3, ...fields(server) });
  assert.equal(await llm.invoke("one two"), " one two");
  const { generations } = await llm.generate(["one two", "three"]);
  assert.deepEqual(generations.map(([g]) => g.text), [" one two", " three"]);
  const pieces = await Array.fromAsync(await llm.stream("one two"));
  assert.equal(pieces.join(""), " one two");
});

test("embeddings", async (t) => {
  const server = await start(t);
  const texts = ["a cat", "a dog"];
  const floats = await embeddings(server, { dimensions: 32, encodingFormat: "float" }).embedDocuments(texts);
  for (const vector of floats) assertUnit(vector, 32);
  assert.notDeepEqual(floats[0], floats[1]);
  // By default, the client asks for base64 and decodes it to float32.
  const decoded = await embeddings(server, { dimensions: 32 }).embedDocuments(texts);
  assert.deepEqual(decoded.map((v) => [...v]), floats.map((v) => [...Float32Array.from(v)]));
  assert.deepEqual(await embeddings(server, { dimensions: 32 }).embedQuery("a dog"), decoded[1]);
});

test("typed errors", async (t) => {
  const server = await start(t);
  const tests = [
    {
      name: "wrong key",
      call: () => chat(server, { apiKey: "sk-wrong" }).invoke("Hi"),
      want: { status: 401, code: "invalid_api_key", lc_error_code: "MODEL_AUTHENTICATION" },
    },
    {
      name: "temperature",
      call: () => chat(server, { temperature: 2.5 }).invoke("Hi"),
      want: { status: 400, code: "decimal_above_max_value", param: "temperature" },
    },
    {
      name: "unknown model",
      call: () => chat(server, { model: "demo-unknown" }).invoke("Hi"),
      want: { status: 404, code: "model_not_found", lc_error_code: "MODEL_NOT_FOUND" },
    },
    {
      name: "unknown model, streamed",
      call: () => chat(server, { model: "demo-unknown" }).stream("Hi"),
      want: { status: 404, code: "model_not_found", lc_error_code: "MODEL_NOT_FOUND" },
    },
    {
      name: "unknown embedding model",
      call: () => embeddings(server, { model: "demo-unknown" }).embedQuery("Hi"),
      want: { status: 404, code: "model_not_found", lc_error_code: "MODEL_NOT_FOUND" },
    },
  ];
  for (const { name, call, want } of tests) {
    await t.test(name, () => assert.rejects(call(), { type: "invalid_request_error", ...want }));
  }
});

test("rate limit", async (t) => {
  const llm = chat(await start(t, "-rpm", "2"));
  await llm.invoke("Hi");
  await collect(await llm.stream("Hi"));
  await assert.rejects(llm.invoke("Hi"), (error) => {
    assert.equal(error.status, 429);
    assert.equal(error.code, "rate_limit_exceeded");
    assert.equal(error.lc_error_code, "MODEL_RATE_LIMIT");
    assert.match(error.headers.get("retry-after"), /^([1-9]|[12]\d|30)$/);
    return true;
  });
});

test("client disconnects in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  const llm = chat(server);

  const controller = new AbortController();
  let pieces = 0;
  await assert.rejects(async () => {
    for await (const _ of await llm.stream(longText, { signal: controller.signal })) {
      if (++pieces === 5) controller.abort();
    }
  }, /abort/i);
  assert.equal(pieces, 5);

  pieces = 0;
  for await (const _ of await llm.stream(longText)) {
    if (++pieces === 5) break;
  }

  await server.awaitUsage(2);
  assert.equal((await llm.invoke("Still there?")).content, "Still there?");
  await server.stop();
  assert.doesNotMatch(server.output(), /requests were interrupted/);
});

test("server shuts down in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  let stopped;
  await assert.rejects(
    async () => {
      for await (const _ of await chat(server).stream(longText)) stopped ??= server.stop();
    },
    (error) => {
      assert.equal(error.error?.type, "server_error", `${error}`);
      return true;
    },
  );
  await stopped;
});

test("usage report agrees with the usage of the replies", async (t) => {
  const server = await start(t);
  const llm = chat(server);
  const want = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0, requests: 0, images: 0 };
  for (const text of ["Hi", sampleText, longText]) {
    const whole = await llm.invoke(text);
    const { message } = await collect(await llm.stream(text));
    for (const { input_tokens, output_tokens, total_tokens } of [whole.usage_metadata, message.usage_metadata]) {
      want.prompt_tokens += input_tokens;
      want.completion_tokens += output_tokens;
      want.total_tokens += total_tokens;
      want.requests++;
    }
  }
  assert.deepEqual(await server.usage(), want);
});
