// Asks @copilotkit/aimock, a server that nobody here wrote, directly and through examples/gateway, and
// compares the answers.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { LLMock } from "@copilotkit/aimock";
import OpenAI from "openai";
import { startGateway } from "../example.js";
import { saying } from "../fixtures.js";

const gatewayKey = "sk-of-the-gateway";
const mockKey = "sk-of-the-mock";

/**
 * Starts a mock that admits mockKey alone, and a gateway in front of it. Each model has a route, and so a circuit
 * breaker, of its own.
 */
async function setUp(t, prepare, models = ["gpt-4o"]) {
  const mock = new LLMock({ port: 0, chunkSize: 5, auth: { apiKeys: [mockKey] } });
  prepare(mock);
  await mock.start();
  let server;
  t.after(async () => {
    const heard = JSON.stringify(mock.getRequests());
    const { host } = new URL(mock.url);
    await server?.stop();
    await mock.stop();
    const said = server?.said() ?? "";
    for (const secret of [gatewayKey, mockKey, host]) assert(!said.includes(secret), said);
    assert(!heard.includes(gatewayKey), "the client's key went upstream");
  });
  server = await startGateway(
    t,
    {
      upstreams: [{ name: "mock", url: `${mock.url}/v1`, key_env: "MOCK_KEY" }],
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

const say = (content, params) => ({ model: "gpt-4o", messages: [{ role: "user", content }], ...params });

/** A copy of v without what is new in every reply. */
const timeless = (v) =>
  JSON.parse(JSON.stringify(v), (name, value) =>
    ["created", "_request_id"].includes(name) || (name === "id" && /^(chatcmpl-|call_)/.test(value)) ? undefined : value,
  );

/** The error that a promise rejects with. */
const failure = (promise) =>
  promise.then(
    () => assert.fail("no error"),
    (error) => error,
  );

test("chat, whole and streamed", async (t) => {
  const fixtures = {
    plain: { content: saying },
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
      const params = say(`<${name}>`, { tools });
      const whole = await through.chat.completions.create(params);
      assert.deepEqual(timeless(whole), timeless(await direct.chat.completions.create(params)));
      assert(whole.usage.total_tokens > 0);

      const [streamed, said] = await listen(through, params);
      const [want, wantSaid] = await listen(direct, params);
      assert.deepEqual(timeless(streamed), timeless(want));
      assert.deepEqual(timeless(said), timeless(wantSaid));
      assert.deepEqual(streamed.usage, whole.usage);
      assert.equal(streamed.choices[0].finish_reason, whole.choices[0].finish_reason);

      // Who did not ask for usage does not get it.
      const quiet = await Array.fromAsync(await through.chat.completions.create({ ...params, stream: true }));
      assert(quiet.every((chunk) => chunk.usage === undefined && chunk.choices.length === 1));
      assert(quiet.length >= said.length + 2, "it comes in pieces");
      assert.equal(mock.getLastRequest().body.stream_options.include_usage, true);
    });
  }
});

/** The reply as a stream: put together, and what was said in which order, with texts that follow each other joined. */
async function listen(client, params) {
  const said = [];
  const stream = client.chat.completions.stream({ ...params, stream_options: { include_usage: true } });
  stream.on("chunk", ({ choices: [choice] }) => {
    const { role, ...delta } = choice?.delta ?? {};
    for (const [name, value] of Object.entries(delta)) {
      const last = said.at(-1);
      if (last?.name === name && typeof value === "string") last.value += value; // where it is cut may differ within an emoji
      else if (value) said.push({ name, value });
    }
  });
  const completion = await stream.finalChatCompletion();
  for (const choice of completion.choices) {
    choice.logprobs ??= null; // which chunks of the mock have, and those of the gateway have not
    choice.message.content ||= null; // a stream cannot know at its start that no text will come
  }
  return [completion, said];
}

test("requests arrive as they were sent", async (t) => {
  const { mock, direct, through } = await setUp(t, (mock) => mock.onMessage("Hi", { content: "Hello" }));
  const requests = {
    "many parameters": say("Hi", {
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
    "parameters of other products": say("Hi", { top_k: 40, min_p: 0.05, guided_json: { deep: [{ "ключ": "\u2028" }] } }),
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
        assert.deepEqual(bodies[1], bodies[0]);
      }
    });
  }
});

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
          say("How will the weather be?", {
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
    assert(got.usage.total_tokens > 0, "the mock does not count, so the gateway does");
  }
});

test("images", async (t) => {
  const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const { server, direct, through } = await setUp(t, (mock) => {
    mock.onImage("by address", { image: { url: "https://images.example.com/1.png", revisedPrompt: "A cat, revised" } });
    mock.onImage("inline", { images: [{ b64Json: pixel, revisedPrompt: "Another" }, { b64Json: pixel }] });
    mock.onImage("private", { image: { url: "http://192.0.2.7/1.png" } });
  });
  const draw = (client, prompt, params) => client.images.generate({ model: "dall-e-3", prompt, ...params });

  const address = await draw(through, "by address");
  assert.deepEqual(timeless(address), timeless(await draw(direct, "by address")));
  const inline = await draw(through, "inline", { n: 2, response_format: "b64_json" });
  assert.deepEqual(inline.data, [{ b64_json: pixel }, { b64_json: pixel }]); // with an address alone comes what was revised

  // Who wants addresses gets the gateway's.
  const put = await draw(through, "inline", { n: 2 });
  assert.equal(put.data[0].revised_prompt, "Another");
  for (const { url } of put.data) {
    assert(url.startsWith(server.api.replace("/v1", "/images/")), url);
    assert.equal(Buffer.from(await (await fetch(url)).arrayBuffer()).toString("base64"), pixel);
  }

  // Nothing is fetched from hosts that nobody allowed.
  const error = await failure(draw(through, "private", { response_format: "b64_json" }));
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
  // What the mock says, and what clients of the gateway see of it: where that has no message, it is not the mock's.
  const cases = {
    "too-long": {
      says: error(400, "There is too much of it.", { type: "invalid_request_error", code: "context_length_exceeded", param: "messages" }),
      sees: { status: 400, type: "invalid_request_error", code: "context_length_exceeded", param: "messages" },
      message: "There is too much of it.",
    },
    unprocessable: {
      says: error(422, "temperature: not a number", { type: "invalid_request_error", param: "temperature" }),
      sees: { status: 422, type: "invalid_request_error", code: null, param: "temperature" },
      message: "temperature: not a number",
    },
    unknown: {
      says: error(404, "The model `unknown` does not exist", { type: "invalid_request_error", code: "model_not_found" }),
      sees: { status: 404, type: "invalid_request_error", code: "model_not_found", param: null },
      message: "The model `unknown` does not exist",
    },
    limited: {
      says: { ...error(429, "Slow down.", { type: "tokens", code: "rate_limit_exceeded" }), retryAfter: 17 },
      sees: { status: 429, type: "tokens", code: "rate_limit_exceeded", param: null },
      message: "Slow down.",
      retryAfter: "17",
    },
    broke: {
      says: error(429, "You exceeded your current quota.", { type: "insufficient_quota", code: "insufficient_quota" }),
      sees: { status: 502, ...unavailable },
    },
    denied: {
      says: error(401, `Incorrect API key provided: ${mockKey}.`, { type: "invalid_request_error", code: "invalid_api_key" }),
      sees: { status: 502, ...unavailable },
    },
    broken: {
      says: error(500, "panic at 10.1.2.3:8000", { type: "server_error" }),
      sees: { status: 502, ...unavailable },
    },
    overloaded: {
      says: error(503, "Overloaded.", { type: "server_error" }),
      sees: { status: 503, ...unavailable },
    },
  };
  const { through } = await setUp(
    t,
    (mock) => {
      for (const [model, { says }] of Object.entries(cases)) mock.on({ model }, says);
    },
    Object.keys(cases),
  );
  for (const [model, { says, sees, message, retryAfter }] of Object.entries(cases)) {
    await t.test(model, async () => {
      for (const stream of [false, true]) {
        const error = await failure(through.chat.completions.create(say("Hi", { model, stream })));
        const { status, type, code, param } = error;
        assert.deepEqual({ status, type, code, param }, sees);
        if (message) assert(error.error.message.includes(message), error.error.message);
        else assert(!error.error.message.includes(says.error.message), error.error.message);
        if (retryAfter) assert.equal(error.headers.get("retry-after"), retryAfter);
      }
    });
  }
});

test("a failure that a second try mends", async (t) => {
  const { mock, through, server } = await setUp(t, (mock) => mock.onMessage("Hi", { content: "Hello" }));
  for (const stream of [false, true]) {
    mock.nextRequestError(500, { message: "Not now.", type: "server_error" });
    mock.clearRequests();
    const reply = await through.chat.completions.create(say("Hi", { stream }));
    if (stream) assert.equal((await Array.fromAsync(reply)).at(-1).choices[0].finish_reason, "stop");
    else assert.equal(reply.choices[0].message.content, "Hello");
    assert.deepEqual(mock.getRequests().map(({ response }) => response.status), [500, 200]);
  }
  const twice = () => server.said().match(/ status=200 target=mock tries=2 /g)?.length === 2;
  for (const deadline = performance.now() + 10_000; !twice(); await sleep(10)) {
    assert(performance.now() < deadline, server.said());
  }
});

test("what is no reply", async (t) => {
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
        const error = await failure(through.chat.completions.create(say("Hi", { model, stream })));
        assert.equal(error.status, 502);
        assert.equal(error.type, "server_error");
      }
    });
  }
});

test("a stream that breaks off", async (t) => {
  const { direct, through, server } = await setUp(t, (mock) => {
    mock.onMessage("Hi", { content: "one two three four five six seven" }, { truncateAfterChunks: 5, latency: 10 });
  });
  const hear = async (client) => {
    let text = "";
    const error = await failure(
      (async () => {
        for await (const { choices } of await client.chat.completions.create(say("Hi", { stream: true }))) {
          assert.equal(choices[0].finish_reason, null);
          text += choices[0].delta.content ?? "";
        }
      })(),
    );
    return { text, error };
  };
  const want = await hear(direct);
  const got = await hear(through);
  assert.equal(got.text, want.text);
  assert.match(got.text, /^one two/);
  assert(got.error instanceof OpenAI.APIError, `${got.error}`);
  assert.equal(got.error.error.type, "server_error");
  const { requests, completion_tokens } = await usage(server);
  assert.equal(requests, 1);
  assert(completion_tokens > 0, "what was said is on the record");
});

async function usage(server) {
  const headers = { Authorization: `Bearer ${gatewayKey}` };
  const response = await fetch(`${server.api}/dashboard/billing/usage`, { headers });
  assert.equal(response.status, 200);
  return response.json();
}
