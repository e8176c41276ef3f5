// Sends requests to @copilotkit/aimock, a mock server, directly and through examples/gateway, and compares the replies
// and the requests that arrive.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { LLMock } from "@copilotkit/aimock";
import OpenAI from "openai";
import { startGateway } from "../example.js";
import { sampleText } from "../fixtures.js";

const gatewayKey = "sk-of-the-gateway";
const mockKey = "sk-of-the-mock";

/**
 * Starts a mock that accepts only mockKey, and a gateway in front of it. Each model has its own route, and so its own
 * circuit breaker. At the end of the test, checks that keys and addresses did not leak.
 */
async function setUp(t, prepare, models = ["gpt-4o"]) {
  const mock = new LLMock({ port: 0, chunkSize: 5, auth: { apiKeys: [mockKey] } });
  prepare(mock);
  await mock.start();
  let server;
  t.after(async () => {
    const requests = JSON.stringify(mock.getRequests());
    const { host } = new URL(mock.url);
    await server?.stop();
    await mock.stop();
    const output = server?.output() ?? "";
    for (const secret of [gatewayKey, mockKey, host]) assert(!output.includes(secret), output);
    assert(!requests.includes(gatewayKey), "the client's key was sent to the mock");
  });
  server = await startGateway(
    t,
    {
      upstreams: [{ name: "mock", url: `${mock.url}/v1`, key_env: "MOCK_KEY", cache_control: "ttl" }],
      routes: [...models, "*"].map((model) => ({ model, targets: [{ upstream: "mock" }] })),
      keys: [{ id: "demo", secret_env: "GATEWAY_KEY" }],
    },
    { MOCK_KEY: mockKey, GATEWAY_KEY: gatewayKey },
  );
  const options = { maxRetries: 0 };
  return {
    mock,
    server,
    direct: new OpenAI({ ...options, baseURL: `${mock.url}/v1`, apiKey: mockKey }),
    through: new OpenAI({ ...options, baseURL: server.api, apiKey: gatewayKey }),
  };
}

const chatParams = (content, params) => ({ model: "gpt-4o", messages: [{ role: "user", content }], ...params });

/** Returns a copy of v without the members that differ in every reply. */
const comparable = (v) =>
  JSON.parse(JSON.stringify(v), (name, value) =>
    ["created", "_request_id"].includes(name) || (name === "id" && /^(chatcmpl-|call_)/.test(value)) ? undefined : value,
  );

/** Resolves to the error that a promise rejects with. */
const failure = (promise) =>
  promise.then(
    () => assert.fail("no error"),
    (error) => error,
  );

test("chat, whole and streamed", async (t) => {
  const fixtures = {
    plain: { content: sampleText },
    long: { content: "All work and no play makes Jack a dull boy. ".repeat(200) },
    reasoning: { content: "It is 42.", reasoning: "Let me think about that for a while." },
    "a tool": { toolCalls: [{ name: "forecast", arguments: '{"city":"Zürich","days":3}' }] },
    "two tools": {
      toolCalls: [
        { name: "forecast", arguments: '{"city":"Rome"}', id: "call_one" },
        { name: "forecast", arguments: "{}", id: "call_two" },
      ],
    },
    "text and tools": { content: "I look it up.", toolCalls: [{ name: "forecast", arguments: '{"city":"Oslo"}' }] },
    "tools and text": {
      blocks: [
        { type: "toolCall", name: "forecast", arguments: '{"city":"Bern"}' },
        { type: "text", text: "I have looked it up." },
      ],
    },
    overridden: {
      content: "Cut sh",
      finishReason: "length",
      model: "gpt-4o-2026-11-20",
      systemFingerprint: "fp_0815",
      usage: { prompt_tokens: 12, completion_tokens: 34, total_tokens: 46 },
    },
    filtered: { content: "I", finishReason: "content_filter" },
  };
  const { mock, direct, through } = await setUp(t, (mock) => {
    for (const [name, response] of Object.entries(fixtures)) mock.onMessage(`<${name}>`, response);
  });
  const tools = [{ type: "function", function: { name: "forecast", parameters: { type: "object" } } }];
  for (const name of Object.keys(fixtures)) {
    await t.test(name, async () => {
      const params = chatParams(`<${name}>`, { tools });
      const whole = await through.chat.completions.create(params);
      assert.deepEqual(comparable(whole), comparable(await direct.chat.completions.create(params)));
      assert(whole.usage.total_tokens > 0);

      const [streamed, deltas] = await collect(through, params);
      const [want, wantDeltas] = await collect(direct, params);
      assert.deepEqual(comparable(streamed), comparable(want));
      assert.deepEqual(comparable(deltas), comparable(wantDeltas));
      assert.deepEqual(streamed.usage, whole.usage);
      assert.equal(streamed.choices[0].finish_reason, whole.choices[0].finish_reason);

      // A client that did not ask for usage does not get it.
      const plain = await Array.fromAsync(await through.chat.completions.create({ ...params, stream: true }));
      assert(plain.every((chunk) => chunk.usage === undefined && chunk.choices.length === 1));
      assert(plain.length >= deltas.length + 2, "the text is in several chunks");
      assert.equal(mock.getLastRequest().body.stream_options.include_usage, true);
    });
  }
});

/**
 * Requests a stream. Resolves to the complete reply, and to the deltas in their order, with consecutive texts joined.
 */
async function collect(client, params) {
  const deltas = [];
  const stream = client.chat.completions.stream({ ...params, stream_options: { include_usage: true } });
  stream.on("chunk", ({ choices: [choice] }) => {
    const { role, ...delta } = choice?.delta ?? {};
    for (const [name, value] of Object.entries(delta)) {
      const last = deltas.at(-1);
      if (last?.name === name && typeof value === "string") last.value += value; // the texts may be split differently
      else if (value) deltas.push({ name, value });
    }
  });
  const completion = await stream.finalChatCompletion();
  for (const choice of completion.choices) {
    choice.logprobs ??= null; // the mock sends it in chunks, the gateway does not
    choice.message.content ||= null; // at the start of a stream it is not known that there will be no text
  }
  return [completion, deltas];
}

test("requests arrive unchanged", async (t) => {
  const { mock, direct, through } = await setUp(t, (mock) => mock.onMessage("Hi", { content: "Hello" }));
  const requests = {
    "many parameters": chatParams("Hi", {
      frequency_penalty: -0.5,
      logit_bias: { 50256: -100 },
      logprobs: true,
      max_completion_tokens: 16,
      metadata: { a: "b" },
      n: 1,
      parallel_tool_calls: false,
      prediction: { type: "content", content: "Hello" },
      reasoning_effort: "low",
      response_format: { type: "json_schema", json_schema: { name: "x", schema: { type: "object", "x-y": [1, null] } } },
      seed: 9007199254740991,
      service_tier: "auto",
      stop: ["a", "b"],
      temperature: 0.1,
      tool_choice: { type: "function", function: { name: "f" } },
      tools: [{ type: "function", function: { name: "f", strict: true, parameters: { type: "object" } } }],
      top_logprobs: 2,
      top_p: 0.25,
      user: "somebody",
      web_search_options: { search_context_size: "low" },
    }),
    "parameters of other products": chatParams("Hi", { top_k: 40, min_p: 0.05, guided_json: { deep: [{ "ключ": "\u2028" }] } }),
    conversation: {
      model: "gpt-4o",
      messages: [
        { role: "developer", content: "Be brief.", name: "boss" },
        {
          role: "user",
          content: [
            { type: "text", text: "What is this?", cache_control: { type: "ephemeral" } },
            { type: "image_url", image_url: { url: "data:image/gif;base64,R0lGODlhAQABAAAAACw=", detail: "low" } },
            { type: "input_audio", input_audio: { data: "AAAA", format: "wav" } },
          ],
        },
        {
          role: "assistant",
          content: null,
          refusal: null,
          reasoning_content: "Hm.",
          tool_calls: [{ id: "call_1", type: "function", function: { name: "f", arguments: "{ }" } }],
        },
        { role: "tool", tool_call_id: "call_1", content: [{ type: "text", text: "A dot" }, { type: "text", text: "." }] },
        { role: "user", content: "Hi" },
      ],
    },
  };
  for (const [name, params] of Object.entries(requests)) {
    await t.test(name, async () => {
      for (const more of [{}, { stream: true, stream_options: { include_usage: true, include_obfuscation: false } }]) {
        const bodies = [];
        for (const client of [direct, through]) {
          const reply = await client.chat.completions.create({ ...params, ...more });
          if (more.stream) await Array.fromAsync(reply);
          bodies.push(mock.getLastRequest().body);
        }
        assert.deepEqual(withoutNullRefusals(bodies[1]), withoutNullRefusals(bodies[0]));
      }
    });
  }
});

// A null refusal means the same as none, and is not forwarded.
function withoutNullRefusals(body) {
  return JSON.parse(JSON.stringify(body, (name, value) => (name === "refusal" && value === null ? undefined : value)));
}

test("tool loops", async (t) => {
  const { direct, through } = await setUp(t, (mock) => {
    mock.onToolResult("call_1", { content: "Take an umbrella." });
    mock.onMessage("weather", { toolCalls: [{ name: "forecast", arguments: '{"city":"Bergen"}', id: "call_1" }] });
  });
  for (const stream of [false, true]) {
    await t.test(stream ? "streamed" : "whole", async () => {
      const conversations = [];
      for (const client of [direct, through]) {
        const runner = client.chat.completions.runTools(
          chatParams("How will the weather be?", {
            stream,
            tools: [
              {
                type: "function",
                function: {
                  name: "forecast",
                  parameters: { type: "object", properties: { city: { type: "string" } } },
                  parse: JSON.parse,
                  function: ({ city }) => `It rains in ${city}.`,
                },
              },
            ],
          }),
        );
        assert.equal(await runner.finalContent(), "Take an umbrella.");
        conversations.push(runner.messages.map(({ role, content, tool_calls }) => [role, content || null, tool_calls]));
      }
      assert.deepEqual(conversations[1], conversations[0]);
      assert.equal(conversations[1][2][1], "It rains in Bergen.");
    });
  }
});

test("embeddings", async (t) => {
  const { direct, through } = await setUp(t, (mock) => {
    mock.onEmbedding("hello", { embedding: [0.1, -0.25, 0.5, 1e-7] });
  });
  for (const params of [{ input: "hello" }, { input: ["hello", "hello again"] }, { input: "hello", encoding_format: "float" }]) {
    const request = { model: "text-embedding-3-small", ...params };
    const want = await direct.embeddings.create({ ...request, encoding_format: "float" });
    const got = await through.embeddings.create(request);
    assert.equal(got.model, want.model);
    assert.deepEqual(
      got.data.map(({ index, embedding }) => [index, [...Float32Array.from(embedding)]]),
      want.data.map(({ index, embedding }) => [index, [...Float32Array.from(embedding)]]),
    );
    assert(got.usage.total_tokens > 0, "the gateway estimates, because the mock reports none");
  }
});

test("images", async (t) => {
  const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const { server, direct, through } = await setUp(t, (mock) => {
    mock.onImage("by URL", { image: { url: "https://images.example.com/1.png", revisedPrompt: "A cat, revised" } });
    mock.onImage("inline", { images: [{ b64Json: pixel, revisedPrompt: "Another" }, { b64Json: pixel }] });
    mock.onImage("private", { image: { url: "http://192.0.2.7/1.png" } });
  });
  const generate = (client, prompt, params) => client.images.generate({ model: "dall-e-3", prompt, ...params });

  const withURL = await generate(through, "by URL");
  assert.deepEqual(comparable(withURL), comparable(await generate(direct, "by URL")));
  const inline = await generate(through, "inline", { n: 2, response_format: "b64_json" });
  assert.deepEqual(inline.data, [{ b64_json: pixel }, { b64_json: pixel }]); // revised_prompt is sent with URLs only

  // A client that does not ask gets what the server sends, and one that wants URLs those of the gateway.
  assert.deepEqual((await generate(through, "inline", { n: 2 })).data[1], { b64_json: pixel });
  const stored = await generate(through, "inline", { n: 2, response_format: "url" });
  assert.equal(stored.data[0].revised_prompt, "Another");
  for (const { url } of stored.data) {
    assert(url.startsWith(server.api.replace("/v1", "/images/")), url);
    assert.equal(Buffer.from(await (await fetch(url)).arrayBuffer()).toString("base64"), pixel);
  }

  // Images are fetched from allowed hosts only.
  const error = await failure(generate(through, "private", { response_format: "b64_json" }));
  assert.equal(error.status, 502);
  assert(!error.message.includes("192.0.2.7"));
});

test("models", async (t) => {
  const { direct, through } = await setUp(t, () => {}, []);
  const want = await Array.fromAsync(direct.models.list());
  const got = await Array.fromAsync(through.models.list());
  const byID = (a, b) => (a.id < b.id ? -1 : 1);
  assert.deepEqual(got.sort(byID), want.sort(byID));
  const { owned_by } = await through.models.retrieve(want[0].id);
  assert.equal(owned_by, want[0].owned_by);
});

test("errors", async (t) => {
  const error = (status, message, more) => ({ status, error: { message, ...more } });
  const unavailable = { type: "server_error", code: null, param: null };
  // reply is the reply of the mock. want is the error that clients of the gateway get; it contains message, or if that is
  // not set, not the message of the mock.
  const cases = {
    "too-long": {
      reply: error(400, "There is too much of it.", { type: "invalid_request_error", code: "context_length_exceeded", param: "messages" }),
      want: { status: 400, type: "invalid_request_error", code: "context_length_exceeded", param: "messages" },
      message: "There is too much of it.",
    },
    unprocessable: {
      reply: error(422, "temperature: not a number", { type: "invalid_request_error", param: "temperature" }),
      want: { status: 422, type: "invalid_request_error", code: null, param: "temperature" },
      message: "temperature: not a number",
    },
    unknown: {
      reply: error(404, "The model `unknown` does not exist", { type: "invalid_request_error", code: "model_not_found" }),
      want: { status: 404, type: "invalid_request_error", code: "model_not_found", param: null },
      message: "The model `unknown` does not exist",
    },
    limited: {
      reply: { ...error(429, "Slow down.", { type: "tokens", code: "rate_limit_exceeded" }), retryAfter: 17 },
      want: { status: 429, type: "tokens", code: "rate_limit_exceeded", param: null },
      message: "Slow down.",
      retryAfter: "17",
    },
    broke: {
      reply: error(429, "You exceeded your current quota.", { type: "insufficient_quota", code: "insufficient_quota" }),
      want: { status: 502, ...unavailable },
    },
    denied: {
      reply: error(401, `Incorrect API key provided: ${mockKey}.`, { type: "invalid_request_error", code: "invalid_api_key" }),
      want: { status: 502, ...unavailable },
    },
    broken: {
      reply: error(500, "panic at 10.1.2.3:8000", { type: "server_error" }),
      want: { status: 502, ...unavailable },
    },
    overloaded: {
      reply: error(503, "Overloaded.", { type: "server_error" }),
      want: { status: 503, ...unavailable },
    },
  };
  const { through } = await setUp(
    t,
    (mock) => {
      for (const [model, { reply }] of Object.entries(cases)) mock.on({ model }, reply);
    },
    Object.keys(cases),
  );
  for (const [model, { reply, want, message, retryAfter }] of Object.entries(cases)) {
    await t.test(model, async () => {
      for (const stream of [false, true]) {
        const error = await failure(through.chat.completions.create(chatParams("Hi", { model, stream })));
        const { status, type, code, param } = error;
        assert.deepEqual({ status, type, code, param }, want);
        if (message) assert(error.error.message.includes(message), error.error.message);
        else assert(!error.error.message.includes(reply.error.message), error.error.message);
        if (retryAfter) assert.equal(error.headers.get("retry-after"), retryAfter);
      }
    });
  }
});

test("a failed request is tried again", async (t) => {
  const { mock, through, server } = await setUp(t, (mock) => mock.onMessage("Hi", { content: "Hello" }));
  for (const stream of [false, true]) {
    mock.nextRequestError(500, { message: "Not now.", type: "server_error" });
    mock.clearRequests();
    const reply = await through.chat.completions.create(chatParams("Hi", { stream }));
    if (stream) assert.equal((await Array.fromAsync(reply)).at(-1).choices[0].finish_reason, "stop");
    else assert.equal(reply.choices[0].message.content, "Hello");
    assert.deepEqual(mock.getRequests().map(({ response }) => response.status), [500, 200]);
  }
  const twice = () => server.output().match(/ status=200 .*target=mock tries=2 /g)?.length === 2;
  for (const deadline = performance.now() + 10_000; !twice(); await sleep(10)) {
    assert(performance.now() < deadline, server.output());
  }
});

test("invalid replies", async (t) => {
  const models = ["malformed", "dropped", "disconnected"];
  const { through } = await setUp(
    t,
    (mock) => {
      mock.on({ model: "malformed" }, { content: "Hello" }, { chaos: { malformedRate: 1 } });
      mock.on({ model: "dropped" }, { content: "Hello" }, { chaos: { dropRate: 1 } });
      mock.on({ model: "disconnected" }, { content: "Hello" }, { chaos: { disconnectRate: 1 } });
    },
    models,
  );
  for (const model of models) {
    await t.test(model, async () => {
      for (const stream of [false, true]) {
        const error = await failure(through.chat.completions.create(chatParams("Hi", { model, stream })));
        assert.equal(error.status, 502);
        assert.equal(error.type, "server_error");
      }
    });
  }
});

test("interrupted stream", async (t) => {
  const { direct, through, server } = await setUp(t, (mock) => {
    mock.onMessage("Hi", { content: "one two three four five six seven" }, { truncateAfterChunks: 5, latency: 10 });
  });
  const read = async (client) => {
    let text = "";
    const error = await failure(
      (async () => {
        for await (const { choices } of await client.chat.completions.create(chatParams("Hi", { stream: true }))) {
          assert.equal(choices[0].finish_reason, null);
          text += choices[0].delta.content ?? "";
        }
      })(),
    );
    return { text, error };
  };
  const want = await read(direct);
  const got = await read(through);
  assert.equal(got.text, want.text);
  assert.match(got.text, /^one two/);
  assert(got.error instanceof OpenAI.APIError, `${got.error}`);
  assert.equal(got.error.error.type, "server_error");
  const { requests, completion_tokens } = await usage(server, 1);
  assert.equal(requests, 1);
  assert(completion_tokens > 0, "the tokens that were sent are recorded");
});

// usage returns what is recorded when that is so many requests: one that fails is recorded after its
// client has the error.
async function usage(server, requests) {
  const headers = { Authorization: `Bearer ${gatewayKey}` };
  for (;;) {
    const response = await fetch(`${server.api}/dashboard/billing/usage`, { headers });
    assert.equal(response.status, 200);
    const report = await response.json();
    if (report.requests >= requests) {
      return report;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
