import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { assertUnit, key, pngSize, start } from "../example.js";
import { Forecast, longText, Recipe, sampleText } from "../fixtures.js";

const openai = (server, options) => new OpenAI({ baseURL: server.api, apiKey: key, maxRetries: 0, ...options });

const chatParams = (content, params) => ({ model: "demo-chat", messages: [{ role: "user", content }], ...params });

test("chat, whole and streamed", async (t) => {
  const client = openai(await start(t));
  const words = "one two three four five six seven eight nine ten";
  const tests = [
    { name: "echo", params: {}, want: sampleText },
    {
      name: "last user message",
      params: {
        messages: [
          { role: "developer", content: "Be brief." },
          { role: "system", content: "Be kind." },
          { role: "user", content: "first" },
          { role: "assistant", content: "first" },
          { role: "user", content: "second" },
        ],
      },
      want: "second",
    },
    {
      name: "content in parts",
      params: {
        messages: [
          {
            role: "user",
            content: [
              { type: "text", text: "What is this?" },
              { type: "image_url", image_url: { url: "data:image/gif;base64,R0lGODlhAQABAAAAACw=", detail: "low" } },
            ],
          },
        ],
      },
      want: "What is this?",
    },
    { name: "null parameters", params: { temperature: null, stop: null, max_tokens: null, n: null, stream: null }, want: sampleText },
    { name: "stop sequence", params: { stop: "fox" }, want: 'The "quick" ' },
    { name: "several stop sequences", params: { stop: ["nowhere", "The end", "fox"] }, want: 'The "quick" ' },
    { name: "max_tokens", params: { ...chatParams(words), max_tokens: 3 }, want: /^one two\b/, finish: "length", tokens: 3 },
    {
      name: "max_completion_tokens",
      params: { ...chatParams(words), max_completion_tokens: 3 },
      want: /^one two\b/,
      finish: "length",
      tokens: 3,
    },
  ];
  for (const { name, params, want, finish = "stop", tokens } of tests) {
    await t.test(name, async () => {
      const whole = await client.chat.completions.create(chatParams(sampleText, params));
      assert.equal(whole.object, "chat.completion");
      assert.equal(whole.model, "demo-chat");
      assert.match(whole._request_id, /./);
      assert(Math.abs(whole.created - Date.now() / 1000) < 60);
      const [choice] = whole.choices;
      assert.equal(choice.message.role, "assistant");
      assert.equal(choice.message.refusal, null);
      assert.equal(choice.logprobs, null);
      assert.equal(choice.finish_reason, finish);
      if (want instanceof RegExp) assert.match(choice.message.content, want);
      else assert.equal(choice.message.content, want);
      assert(whole.usage.prompt_tokens > 0);
      assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
      if (tokens) assert.equal(whole.usage.completion_tokens, tokens);

      const stream = client.chat.completions.stream({
        ...chatParams(sampleText, params),
        stream: true,
        stream_options: { include_usage: true },
      });
      const streamed = await stream.finalChatCompletion();
      assert.equal(streamed.choices[0].message.content, choice.message.content);
      assert.equal(streamed.choices[0].finish_reason, finish);
      assert.deepEqual(streamed.usage, whole.usage);
    });
  }
});

test("order of the chunks of a stream", async (t) => {
  const client = openai(await start(t));
  for (const include_usage of [false, true]) {
    const params = chatParams(sampleText, { stream: true, stream_options: { include_usage } });
    const chunks = await Array.fromAsync(await client.chat.completions.create(params));

    if (include_usage) {
      const { choices, usage } = chunks.pop();
      assert.deepEqual(choices, []);
      assert(usage.total_tokens > 0);
    }
    assert(chunks.length > 3, "the text is in several chunks");
    for (const chunk of chunks) {
      assert.equal(chunk.object, "chat.completion.chunk");
      assert.equal(chunk.model, "demo-chat");
      assert.equal(chunk.id, chunks[0].id);
      assert.equal(chunk.created, chunks[0].created);
      assert.equal(chunk.usage ?? null, null);
      assert.equal(chunk.choices.length, 1);
    }
    const deltas = chunks.map((chunk) => chunk.choices[0].delta);
    assert.deepEqual(deltas.shift(), { role: "assistant", content: "" });
    assert.deepEqual(deltas.pop(), { content: null });
    for (const delta of deltas) assert.deepEqual(Object.keys(delta), ["content"]);
    assert.equal(deltas.map((delta) => delta.content).join(""), sampleText);
    const reasons = chunks.map((chunk) => chunk.choices[0].finish_reason);
    assert.equal(reasons.pop(), "stop");
    assert(reasons.every((reason) => reason === null));
  }
});

test("several choices", async (t) => {
  const client = openai(await start(t));
  const whole = await client.chat.completions.create(chatParams(sampleText, { n: 3 }));
  const streamed = await client.chat.completions
    .stream(chatParams(sampleText, { n: 3, stream_options: { include_usage: true } }))
    .finalChatCompletion();
  for (const { choices } of [whole, streamed]) {
    assert.deepEqual(choices.map((choice) => choice.index), [0, 1, 2]);
    for (const choice of choices) assert.equal(choice.message.content, sampleText);
  }
  assert.deepEqual(streamed.usage, whole.usage);
});

test("tool loops", async (t) => {
  const client = openai(await start(t));
  for (const stream of [false, true]) {
    await t.test(stream ? "streamed" : "whole", async () => {
      const calls = [];
      const forecast = zodFunction({
        name: "forecast",
        description: "The weather of the coming days",
        parameters: Forecast,
        function: (args) => {
          calls.push(args);
          return `It rains in ${args.city}.`;
        },
      });
      const runner = client.chat.completions.runTools(chatParams("How will the weather be?", { stream, tools: [forecast] }));
      const answer = await runner.finalContent();
      assert.equal(calls.length, 1);
      Forecast.parse(calls[0]);
      assert(answer.includes(`It rains in ${calls[0].city}.`), answer);
      assert.deepEqual(runner.messages.map((message) => message.role), ["user", "assistant", "tool", "assistant"]);
    });
  }

  const tools = ["first", "second"].map((name) => ({
    type: "function",
    function: { name, parameters: z.toJSONSchema(Forecast) },
  }));
  const choices = {
    auto: "first",
    required: "first",
    none: undefined,
    named: "second",
  };
  for (const [name, called] of Object.entries(choices)) {
    await t.test(`tool_choice ${name}`, async () => {
      const tool_choice = name === "named" ? { type: "function", function: { name: called } } : name;
      const whole = await client.chat.completions.create(chatParams("Hi", { tools, tool_choice }));
      const streamed = await client.chat.completions.stream(chatParams("Hi", { tools, tool_choice })).finalChatCompletion();
      // At the start of a stream it is not known that there will be no text.
      assert.equal(whole.choices[0].message.content, called ? null : "Hi");
      assert.equal(streamed.choices[0].message.content, called ? "" : "Hi");
      for (const { choices } of [whole, streamed]) {
        const [{ message, finish_reason }] = choices;
        assert.equal(finish_reason, called ? "tool_calls" : "stop");
        assert.deepEqual(message.tool_calls?.map((call) => call.function.name), called && [called]);
        for (const call of message.tool_calls ?? []) Forecast.parse(JSON.parse(call.function.arguments));
      }
    });
  }
});

test("structured output", async (t) => {
  const client = openai(await start(t));
  const params = chatParams("A recipe, please.", { response_format: zodResponseFormat(Recipe, "recipe") });

  const whole = await client.chat.completions.parse(params);
  const { content, parsed } = whole.choices[0].message;
  assert.deepEqual(parsed, Recipe.parse(JSON.parse(content)));
  const streamed = await client.chat.completions.stream(params).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.parsed, parsed);

  await assert.rejects(client.chat.completions.parse({ ...params, max_tokens: 2 }), OpenAI.LengthFinishReasonError);

  const object = await client.chat.completions.create(chatParams("An object.", { response_format: { type: "json_object" } }));
  z.record(z.string(), z.unknown()).parse(JSON.parse(object.choices[0].message.content));
});

test("images", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const tests = [
    { model: "demo-image-small", size: "256x256", n: 3 },
    { model: "demo-image-small", n: 1 },
    { model: "demo-image-large", size: "1024x1792", quality: "hd", n: 1 },
  ];
  for (const params of tests) {
    const want = params.size ?? "1024x1024";
    await t.test(`${params.model} ${want}`, async () => {
      const prompt = "A lighthouse";
      const byURL = await client.images.generate({ prompt, ...params, response_format: "url" });
      assert.equal(new Set(byURL.data.map((image) => image.url)).size, params.n);
      for (const { url } of byURL.data) assert.equal(await server.imageSize(url), want);

      // Without the member it is what the Backend gave.
      for (const format of [{ response_format: "b64_json" }, {}]) {
        const inline = await client.images.generate({ prompt, ...params, ...format });
        assert.equal(new Set(inline.data.map((image) => image.b64_json)).size, params.n);
        for (const image of inline.data) {
          assert.equal(pngSize(Buffer.from(image.b64_json, "base64")), want);
          assert(!("url" in image));
        }
      }
    });
  }
});

test("embeddings", async (t) => {
  const client = openai(await start(t));
  const embed = async (params) => {
    const { data, model, usage } = await client.embeddings.create({ model: "demo-embed", ...params });
    assert.equal(model, "demo-embed");
    assert(usage.prompt_tokens > 0);
    assert.equal(usage.total_tokens, usage.prompt_tokens);
    assert.deepEqual(data.map((entry) => entry.index), data.map((_, i) => i));
    return data.map((entry) => entry.embedding);
  };
  const input = ["a cat", "a dog"];
  for (const dimensions of [undefined, 32]) {
    const floats = await embed({ input, dimensions, encoding_format: "float" });
    for (const vector of floats) assertUnit(vector, dimensions ?? floats[0].length);
    assert.notDeepEqual(floats[0], floats[1]);
    // By default, the client asks for base64 and decodes it to float32.
    const decoded = await embed({ input, dimensions });
    assert.deepEqual(decoded.map((v) => [...v]), floats.map((v) => [...Float32Array.from(v)]));
    const single = await embed({ input: "a cat", dimensions });
    assert.deepEqual(single, decoded.slice(0, 1));
  }
  const [raw] = await embed({ input, dimensions: 32, encoding_format: "base64" });
  assert.equal(typeof raw, "string");
  assert.equal(Buffer.from(raw, "base64").length, 4 * 32);
});

test("completions of prompts", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const model = "demo-complete";
  const whole = await client.completions.create({ model, prompt: ["one two three", "four"], n: 2, echo: true, logprobs: 1, max_tokens: 2, seed: 7 });
  assert.match(whole.id, /^cmpl-/);
  assert.equal(whole.object, "text_completion");
  assert.equal(whole.model, model);
  assert.deepEqual(whole.choices.map((c) => c.text), ["one two three one two", "one two three one two", "four four", "four four"]);
  assert.deepEqual(whole.choices.map((c) => c.index), [0, 1, 2, 3]);
  assert.deepEqual(whole.choices.map((c) => c.finish_reason), ["length", "length", "stop", "stop"]);
  assert.deepEqual(whole.choices[2].logprobs.tokens, ["four", " four"]);
  assert.deepEqual(whole.choices[2].logprobs.text_offset, [0, 4]);
  assert.deepEqual(whole.usage, { prompt_tokens: 4, completion_tokens: 6, total_tokens: 10 });

  let text = "";
  let usage;
  let reason;
  const stream = await client.completions.create({ model, prompt: "a b c", suffix: " c", stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.text ?? "";
    reason = chunk.choices[0]?.finish_reason ?? reason;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, " a b");
  assert.equal(reason, "stop");
  assert.equal(usage.completion_tokens, 2);
  const tokens = await client.completions.create({ model, prompt: [[1, 2], [3]] });
  assert.deepEqual(tokens.choices.map((c) => c.text), [" 1 2", " 3"]);
  await assert.rejects(client.completions.create({ model, prompt: "a", logprobs: 9 }), (e) => e.status === 400 && e.param === "logprobs");
  assert.equal((await server.usage()).requests, 3);
});

test("moderations", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const model = "demo-moderation";
  const { id, results, ...rest } = await client.moderations.create({ model, input: ["Hello, Ada!", "I hate that."] });
  assert.match(id, /^modr-/);
  assert.equal(rest.model, model);
  assert.deepEqual(results.map((r) => r.flagged), [false, true]);
  assert.deepEqual(results.map((r) => r.categories.hate), [false, true]);
  assert.equal(results[1].categories["self-harm/intent"], false);
  assert(results[1].category_scores.hate > results[0].category_scores.hate);
  assert.deepEqual(results[1].category_applied_input_types.hate, ["text"]);
  const one = await client.moderations.create({ model, input: "graphic violence" });
  assert.equal(one.results[0].categories["violence/graphic"], true);
  const parts = await client.moderations.create({
    model,
    input: [{ type: "text", text: "a photo" }, { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } }],
  });
  assert.equal(parts.results.length, 1);
  assert.deepEqual(parts.results[0].category_applied_input_types.sexual, ["text", "image"]);
  // Without a model, the client asks for the default of OpenAI's API, which the example does not have.
  await assert.rejects(client.moderations.create({ input: "a" }), (e) => e.status === 404 && e.code === "model_not_found");
  assert.equal((await server.usage()).requests, 3);
});

test("models", async (t) => {
  const client = openai(await start(t));
  const models = await Array.fromAsync(client.models.list());
  assert.deepEqual(models.map((model) => model.id).sort(), [
    "demo-chat",
    "demo-complete",
    "demo-embed",
    "demo-image-large",
    "demo-image-small",
    "demo-moderation",
    "demo-rerank",
    "demo-speech",
    "demo-transcribe",
  ]);
  for (const model of models) {
    assert.equal(model.object, "model");
    assert(Number.isInteger(model.created));
    const { _request_id, ...retrieved } = await client.models.retrieve(model.id);
    assert.deepEqual(retrieved, { ...model });
  }
});

test("typed errors", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const chat = (params) => client.chat.completions.create(chatParams("Hi", params));
  const generate = (params) => client.images.generate({ model: "demo-image-small", prompt: "A cat", ...params });
  const unknown = { status: 404, type: OpenAI.NotFoundError, code: "model_not_found" };
  const bad = (code, param) => ({ status: 400, type: OpenAI.BadRequestError, code, param });
  const tests = [
    {
      name: "wrong key",
      call: () => openai(server, { apiKey: "sk-wrong" }).models.list(),
      want: { status: 401, type: OpenAI.AuthenticationError, code: "invalid_api_key" },
    },
    {
      name: "no key",
      call: () => client.models.list({ headers: { Authorization: null } }),
      want: { status: 401, type: OpenAI.AuthenticationError },
    },
    { name: "temperature", call: () => chat({ temperature: 2.5 }), want: bad("decimal_above_max_value", "temperature") },
    {
      name: "temperature, streamed",
      call: () => chat({ temperature: 2.5, stream: true }),
      want: bad("decimal_above_max_value", "temperature"),
    },
    { name: "n", call: () => chat({ n: 0 }), want: bad("integer_below_min_value", "n") },
    { name: "no messages", call: () => chat({ messages: [] }), want: bad("empty_array", "messages") },
    {
      name: "role",
      call: () => chat({ messages: [{ role: "user", content: "Hi" }, { role: "robot", content: "Hi" }] }),
      want: bad("invalid_value", "messages[1].role"),
    },
    { name: "size of another model", call: () => generate({ size: "1792x1024" }), want: bad("invalid_value", "size") },
    { name: "too many images", call: () => generate({ n: 11 }), want: bad("integer_above_max_value", "n") },
    { name: "unknown model", call: () => chat({ model: "demo-unknown" }), want: unknown },
    { name: "unknown model, streamed", call: () => chat({ model: "demo-unknown", stream: true }), want: unknown },
    { name: "unknown image model", call: () => generate({ model: "demo-unknown" }), want: unknown },
    {
      name: "unknown embedding model",
      call: () => client.embeddings.create({ model: "demo-unknown", input: "Hi" }),
      want: unknown,
    },
    { name: "retrieving an unknown model", call: () => client.models.retrieve("demo-unknown"), want: unknown },
    {
      name: "endpoint that is not served",
      call: () => client.files.list(),
      want: { status: 404, type: OpenAI.NotFoundError },
    },
  ];
  for (const { name, call, want } of tests) {
    await t.test(name, async () => {
      const error = await call().then(
        () => assert.fail("no error"),
        (error) => error,
      );
      assert(error instanceof want.type, `${error}`);
      const { status, code, param, type } = error;
      assert.deepEqual(
        { status, code, param, type },
        { status: want.status, code: want.code ?? null, param: want.param ?? null, type: "invalid_request_error" },
      );
      assert.match(error.error.message, /\w/);
      assert.match(error.requestID, /\w/);
    });
  }
});

test("rate limit", async (t) => {
  const client = openai(await start(t, "-rpm", "2", "-tpm", "100000"));
  for (const remaining of ["1", "0"]) {
    const { response } = await client.chat.completions.create(chatParams("Hi")).withResponse();
    assert.equal(response.headers.get("x-ratelimit-limit-requests"), "2");
    assert.equal(response.headers.get("x-ratelimit-remaining-requests"), remaining);
    assert.equal(response.headers.get("x-ratelimit-limit-tokens"), "100000");
  }
  await assert.rejects(client.chat.completions.create(chatParams("Hi")), (error) => {
    assert(error instanceof OpenAI.RateLimitError, `${error}`);
    assert.equal(error.code, "rate_limit_exceeded");
    assert.equal(error.type, "requests");
    assert.match(error.headers.get("retry-after"), /^([1-9]|[12]\d|30)$/);
    assert.match(error.headers.get("retry-after-ms"), /^[1-9]\d{0,4}$/);
    assert.equal(error.headers.get("x-ratelimit-remaining-requests"), "0");
    assert.match(error.headers.get("x-ratelimit-reset-requests"), /^[\dhms.]+$/);
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
  const client = openai(server, { fetch: counting });
  const exhaust = async () => {
    for (;;) await client.models.list();
  };
  await assert.rejects(exhaust(), OpenAI.RateLimitError);
  attempts = 0;
  await client.models.list({ maxRetries: 2 });
  assert(attempts === 2 || attempts === 3, `${attempts} attempts`); // 3 if a timer fires a millisecond early
});

test("client disconnects in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  const client = openai(server);

  const controller = new AbortController();
  let pieces = 0;
  const stream = client.chat.completions.stream(chatParams(longText), { signal: controller.signal });
  stream.on("content", () => ++pieces === 5 && controller.abort());
  await assert.rejects(stream.done(), OpenAI.APIUserAbortError);
  assert.equal(pieces, 5);

  pieces = 0;
  for await (const _ of await client.chat.completions.create(chatParams(longText, { stream: true }))) {
    if (++pieces === 5) break;
  }

  await server.awaitUsage(2);
  const { choices } = await client.chat.completions.create(chatParams("Still there?"));
  assert.equal(choices[0].message.content, "Still there?");
  await server.stop();
  assert.doesNotMatch(server.output(), /requests were interrupted/);
});

test("server shuts down in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  const client = openai(server);
  const stream = await client.chat.completions.create(chatParams(longText, { stream: true }));
  const reasons = [];
  let stopped;
  await assert.rejects(
    async () => {
      for await (const chunk of stream) {
        stopped ??= server.stop();
        reasons.push(chunk.choices[0].finish_reason);
      }
    },
    (error) => {
      assert(error instanceof OpenAI.APIError, `${error}`);
      assert.equal(error.error.type, "server_error");
      return true;
    },
  );
  assert(reasons.every((reason) => reason === null));
  await stopped;
});

test("usage report agrees with the usage of the replies", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const want = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0, requests: 0, images: 0 };
  const add = ({ prompt_tokens, completion_tokens = 0, total_tokens }) => {
    want.prompt_tokens += prompt_tokens;
    want.completion_tokens += completion_tokens;
    want.total_tokens += total_tokens;
    want.requests++;
  };
  for (const text of ["Hi", sampleText, longText]) {
    add((await client.chat.completions.create(chatParams(text))).usage);
    const stream = client.chat.completions.stream(chatParams(text, { stream_options: { include_usage: true } }));
    add(await stream.totalUsage());
    add((await client.embeddings.create({ model: "demo-embed", input: [text, "Hi"] })).usage);
  }
  const { usage } = await client.images.generate({ model: "demo-image-small", prompt: "A cat", size: "256x256", n: 2 });
  add({
    prompt_tokens: usage?.input_tokens ?? 0,
    completion_tokens: usage?.output_tokens ?? 0,
    total_tokens: usage?.total_tokens ?? 0,
  });
  want.images = 2;
  assert.deepEqual(await server.usage(), want);
});
