// Both generations of the official client: 0.x sends X-Api-Key, 1.x a bearer token, and their versions of the API differ.

import Anthropic1 from "@anthropic-ai/sdk";
import { zodOutputFormat as zodOutputFormat1 } from "@anthropic-ai/sdk/helpers/zod";
import { betaZodTool as betaZodTool1 } from "@anthropic-ai/sdk/helpers/beta/zod";
import Anthropic0 from "anthropic-sdk-0";
import { zodOutputFormat as zodOutputFormat0 } from "anthropic-sdk-0/helpers/zod";
import { betaZodTool as betaZodTool0 } from "anthropic-sdk-0/helpers/beta/zod";
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { key, start, startThinker } from "../example.js";
import { Forecast, longText, sampleText } from "../fixtures.js";

const generations = {
  "0.x": { Anthropic: Anthropic0, zodOutputFormat: zodOutputFormat0, betaZodTool: betaZodTool0 },
  "1.x": { Anthropic: Anthropic1, zodOutputFormat: zodOutputFormat1, betaZodTool: betaZodTool1 },
};

/** Defines a test for each generation of the client. */
function testEach(name, run) {
  for (const [generation, exports] of Object.entries(generations)) {
    test(`${generation}: ${name}`, (t) =>
      run(t, {
        ...exports,
        connect: (server, options) =>
          new exports.Anthropic({ baseURL: new URL(server.api).origin, apiKey: key, maxRetries: 0, ...options }),
      }));
  }
}

const params = (content, more) => ({
  model: "demo-chat",
  max_tokens: 10_000,
  messages: [{ role: "user", content }],
  ...more,
});

const textOf = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");

/** Returns the reply as a whole, and accumulated from a stream. Both must be the same but for the ID. */
async function both(client, request) {
  const whole = await client.messages.create(request);
  const streamed = await client.messages.stream(request).finalMessage();
  const plain = ({ id, parsed_output, ...message }) => JSON.parse(JSON.stringify(message));
  const withoutIDs = (message) => ({
    ...plain(message),
    content: plain(message).content.map((block) => ({ ...block, id: undefined })),
  });
  assert.deepEqual(withoutIDs(streamed), withoutIDs(whole));
  return [whole, streamed];
}

testEach("text", async (t, { connect }) => {
  const client = connect(await start(t));
  const words = "one two three four five six seven eight nine ten";
  const gif = "R0lGODlhAQABAAAAACw=";
  const tests = [
    { name: "echo", request: params(sampleText), want: sampleText },
    { name: "alias of a model", request: params("Hi", { model: "claude-haiku-4-5" }), want: "Hi" },
    {
      name: "system and conversation",
      request: params("", {
        system: [{ type: "text", text: "Be kind.", cache_control: { type: "ephemeral" } }],
        messages: [
          { role: "user", content: "first" },
          { role: "assistant", content: [{ type: "text", text: "first" }] },
          { role: "user", content: "second" },
        ],
      }),
      want: "second",
    },
    {
      name: "images and documents",
      request: params([
        { type: "text", text: "What is this?" },
        { type: "image", source: { type: "base64", media_type: "image/gif", data: gif } },
        { type: "image", source: { type: "url", url: "https://example.com/a.png" } },
        { type: "document", title: "a.pdf", source: { type: "base64", media_type: "application/pdf", data: "AAAA" } },
      ]),
      want: "What is this?",
    },
    {
      name: "stop sequence",
      request: params(sampleText, { stop_sequences: ["nowhere", "fox"] }),
      want: 'The "quick" ',
      reason: "stop_sequence",
      sequence: "fox",
    },
    { name: "max_tokens", request: params(words, { max_tokens: 3 }), want: /^one two\b/, reason: "max_tokens" },
  ];
  for (const { name, request, want, reason = "end_turn", sequence = null } of tests) {
    await t.test(name, async () => {
      const [whole] = await both(client, request);
      assert.match(whole.id, /^msg_/);
      assert.equal(whole.type, "message");
      assert.equal(whole.role, "assistant");
      assert.equal(whole.model, request.model);
      assert.equal(whole.stop_reason, reason);
      assert.equal(whole.stop_sequence, sequence);
      assert.match(whole._request_id, /./);
      if (want instanceof RegExp) assert.match(textOf(whole), want);
      else assert.equal(textOf(whole), want);
      assert(whole.usage.output_tokens > 0);
    });
  }
});

testEach("events of a stream", async (t, { connect }) => {
  const client = connect(await start(t));
  const request = params(sampleText, { stream: true });
  const events = await Array.fromAsync(await client.messages.create(request));
  const types = events.map((event) => event.type);
  assert.deepEqual(
    types.filter((type, i) => type !== types[i - 1]),
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"],
  );
  assert(types.length > 10, "the text is in several events");
  assert(events[0].message.usage.input_tokens > 0);
  assert.equal(events[0].message.stop_reason, null);
});

testEach("beta calls", async (t, { connect }) => {
  const client = connect(await start(t));
  const request = params("Hi", { betas: ["context-management-2025-06-27"], context_management: { edits: [] } });
  const whole = await client.beta.messages.create(request);
  assert.equal(textOf(whole), "Hi");
  const streamed = await client.beta.messages.stream(request).finalMessage();
  assert.deepEqual(streamed.content, whole.content);
  assert.equal((await client.beta.messages.countTokens({ ...request, max_tokens: undefined })).input_tokens > 0, true);
});

testEach("tool loops", async (t, { connect, betaZodTool }) => {
  const client = connect(await start(t));
  for (const stream of [false, true]) {
    await t.test(stream ? "streamed" : "whole", async () => {
      const calls = [];
      const forecast = betaZodTool({
        name: "forecast",
        description: "The weather of the coming days",
        inputSchema: Forecast,
        run: (input) => {
          calls.push(input);
          return `It rains in ${input.city}.`;
        },
      });
      const answer = await client.beta.messages
        .toolRunner(params("How will the weather be?", { tools: [forecast], stream, max_iterations: 4 }))
        .runUntilDone();
      assert.equal(calls.length, 1);
      Forecast.parse(calls[0]);
      assert.equal(textOf(answer), `The tools say: It rains in ${calls[0].city}.`);
      assert.equal(answer.stop_reason, "end_turn");
    });
  }
});

testEach("tool_choice and parallel calls", async (t, { connect }) => {
  const client = connect(await start(t));
  const input_schema = z.toJSONSchema(Forecast);
  const tools = ["first", "second", "third"].map((name) => ({ name, input_schema }));
  tools.push({ type: "web_search_20250305", name: "web_search" });
  const tests = [
    { tool_choice: { type: "auto" }, want: ["first"] },
    { tool_choice: { type: "any" }, want: ["first"] },
    { tool_choice: { type: "tool", name: "second" }, want: ["second"] },
    { tool_choice: { type: "none" }, want: [] },
    { tool_choice: { type: "any", disable_parallel_tool_use: true }, want: ["first"] },
    { tool_choice: { type: "auto", disable_parallel_tool_use: false }, want: ["first", "second", "third"] },
  ];
  for (const { tool_choice, want } of tests) {
    await t.test(JSON.stringify(tool_choice), async () => {
      for (const reply of await both(client, params("Hi", { tools, tool_choice }))) {
        const calls = reply.content.filter((block) => block.type === "tool_use");
        assert.deepEqual(calls.map((call) => call.name), want);
        assert.equal(reply.stop_reason, want.length ? "tool_use" : "end_turn");
        for (const call of calls) Forecast.parse(call.input);
        if (!want.length) continue;

        const results = calls.map((call, i) => ({
          type: "tool_result",
          tool_use_id: call.id,
          is_error: i === 1,
          content: i === 1 ? `result ${i}` : [{ type: "text", text: `result ${i}` }],
        }));
        const answer = await client.messages.create(
          params("Hi", {
            tools,
            messages: [
              { role: "user", content: "Hi" },
              { role: "assistant", content: reply.content },
              { role: "user", content: results },
            ],
          }),
        );
        assert.equal(textOf(answer), `The tools say: ${want.map((_, i) => `result ${i}`).join("\n")}`);
      }
    });
  }
  await t.test("arguments that are cut", async () => {
    const request = params("Hi", { tools, max_tokens: 1 });
    const whole = await client.messages.create(request);
    let partial = "";
    const stream = client.messages.stream(request).on("inputJson", (piece) => (partial += piece));
    const streamed = await stream.finalMessage();
    assert.throws(() => JSON.parse(partial), SyntaxError);
    assert.deepEqual(whole.content[0].input, { INVALID_JSON: partial });
    for (const reply of [whole, streamed]) {
      assert.equal(reply.stop_reason, "max_tokens");
      assert.equal(typeof reply.content[0].input, "object");
      const messages = [
        { role: "user", content: "Hi" },
        { role: "assistant", content: reply.content },
        { role: "user", content: [{ type: "tool_result", tool_use_id: reply.content[0].id, is_error: true, content: "not run" }] },
      ];
      assert.equal(textOf(await client.messages.create(params("Hi", { tools, messages }))), "The tools say: not run");
    }
  });
});

testEach("thinking", async (t, { connect }) => {
  const client = connect(await start(t));
  const thinking = { thinking: { type: "enabled", budget_tokens: 2048 } };
  for (const reply of await both(client, params(sampleText, thinking))) {
    const [thought, text] = reply.content;
    assert.equal(thought.thinking, `The user said: ${sampleText}`);
    assert.match(thought.signature, /./);
    assert.equal(text.text, sampleText);
    assert(reply.usage.output_tokens_details.thinking_tokens > 0);

    // The server refuses thinking that does not fit its signature.
    const next = (content) => ({
      ...thinking,
      messages: [
        { role: "user", content: sampleText },
        { role: "assistant", content },
        { role: "user", content: "Go on." },
      ],
    });
    const [answer] = await both(client, params("", next(reply.content)));
    assert.equal(textOf(answer), "Go on.");
    const without = await client.messages.create(params("", next([text])));
    assert(answer.usage.input_tokens > without.usage.input_tokens, "the thinking arrived");
    const changed = [{ ...thought, thinking: `${thought.thinking}!` }, text];
    await assert.rejects(client.messages.create(params("", next(changed))), { status: 400 });
  }
  const [disabled] = await both(client, params("Hi", { thinking: { type: "disabled" } }));
  assert.deepEqual(disabled.content.map((block) => block.type), ["text"]);
  const [effort] = await both(client, params("Hi", { thinking: { type: "adaptive" }, output_config: { effort: "low" } }));
  assert.deepEqual(effort.content.map((block) => block.type), ["thinking", "text"]);
});

testEach("redacted thinking", async (t, { connect }) => {
  for (const gateways of [0, 1, 2]) {
    await t.test(`${gateways} gateways`, async (t) => {
      const client = connect(await startThinker(t, gateways));
      for (const reply of await both(client, params("Hi"))) {
        const [thought, redacted, text] = reply.content;
        assert.deepEqual([thought.type, redacted.type, text.type], ["thinking", "redacted_thinking", "text"]);
        assert.equal(thought.thinking, "Let me see.");
        assert.match(thought.signature, /./);
        assert.match(redacted.data, /./);
        const next = (content) => ({
          messages: [
            { role: "user", content: "Hi" },
            { role: "assistant", content },
            { role: "user", content: "Go on." },
          ],
        });
        await both(client, params("", next(reply.content)));
        await assert.rejects(client.messages.create(params("", next([thought, text]))), { status: 400 }); // the model checks it
      }
    });
  }
});

testEach("structured output", async (t, { connect, zodOutputFormat }) => {
  const client = connect(await start(t));
  // The clients move what else a schema demands to descriptions.
  const Review = z.object({ title: z.string(), stars: z.int(), tags: z.array(z.string()), note: z.string().nullable() });
  const request = params("A review, please.", { output_config: { format: zodOutputFormat(Review) } });
  const parsed = await client.messages.parse(request);
  assert.deepEqual(parsed.parsed_output, Review.parse(JSON.parse(textOf(parsed))));
  const streamed = await client.messages.stream(request).finalMessage();
  assert.deepEqual(streamed.parsed_output, parsed.parsed_output);
});

testEach("models and token counts", async (t, { connect }) => {
  const server = await start(t);
  const client = connect(server);
  const ids = ["demo-chat", "demo-complete", "demo-embed", "demo-image-large", "demo-image-small", "demo-moderation", "demo-rerank", "demo-speech", "demo-transcribe"];
  const models = await Array.fromAsync(client.models.list());
  const own = models.map((model) => model.id).filter((id) => !id.startsWith("claude-")); // those are for Claude Code, without a gateway
  assert.deepEqual(own.sort(), ids);
  const pages = await Array.fromAsync(client.models.list({ limit: 1 }));
  assert.deepEqual(pages, models);
  for (const model of models) {
    assert.equal(model.type, "model");
    assert(!Number.isNaN(Date.parse(model.created_at)));
    const { _request_id, ...retrieved } = await client.models.retrieve(model.id);
    assert.deepEqual(retrieved, { ...model });
  }

  const counted = { model: "demo-chat", messages: [{ role: "user", content: "one two three" }] };
  const few = await client.messages.countTokens(counted);
  const many = await client.messages.countTokens({ ...counted, system: "one two three" });
  assert(few.input_tokens >= 3);
  assert(many.input_tokens >= few.input_tokens + 3);
  assert.equal((await server.usage()).requests, 0, "counting is not billed");
});

testEach("typed errors", async (t, { Anthropic, connect }) => {
  const server = await start(t);
  const client = connect(server);
  const bad = { status: 400, class: Anthropic.BadRequestError, type: "invalid_request_error" };
  const unknown = { status: 404, class: Anthropic.NotFoundError, type: "not_found_error" };
  const refused = { status: 401, class: Anthropic.AuthenticationError, type: "authentication_error" };
  const create = (more) => client.messages.create(params("Hi", more));
  const tests = [
    { name: "wrong key", call: () => connect(server, { apiKey: "sk-wrong" }).messages.create(params("Hi")), want: refused },
    { name: "wrong token", call: () => connect(server, { apiKey: null, authToken: "sk-wrong" }).models.list(), want: refused },
    { name: "temperature", call: () => create({ temperature: 2 }), want: bad, message: /temperature: / },
    { name: "no messages", call: () => create({ messages: [] }), want: bad, message: /messages: at least one message/ },
    { name: "block", call: () => create({ messages: [{ role: "user", content: [{ type: "x" }] }] }), want: bad, message: /messages\.0\.content\.0\.type: / },
    { name: "unknown model", call: () => create({ model: "demo-unknown" }), want: unknown, message: /demo-unknown/ },
    { name: "unknown model, streamed", call: () => create({ model: "demo-unknown", stream: true }), want: unknown },
    { name: "retrieving an unknown model", call: () => client.models.retrieve("demo-unknown"), want: unknown },
  ];
  for (const { name, call, want, message = /\w/ } of tests) {
    await t.test(name, async () => {
      const error = await call().then(
        () => assert.fail("no error"),
        (error) => error,
      );
      assert(error instanceof want.class, `${error}`);
      assert.equal(error.status, want.status);
      assert.equal(error.error.type, "error");
      assert.equal(error.error.error.type, want.type);
      assert.match(error.error.error.message, message);
      assert.equal(error.requestID, error.error.request_id);
      assert.match(error.requestID, /\w/);
    });
  }
});

testEach("a token instead of a key", async (t, { connect }) => {
  const client = connect(await start(t), { apiKey: null, authToken: key });
  assert.equal(textOf(await client.messages.create(params("Hi"))), "Hi");
});

testEach("rate limit", async (t, { Anthropic, connect }) => {
  const client = connect(await start(t, "-rpm", "2", "-tpm", "100000"));
  for (const remaining of ["1", "0"]) {
    const { response } = await client.messages.create(params("Hi", { max_tokens: 10 })).withResponse();
    assert.equal(response.headers.get("anthropic-ratelimit-requests-limit"), "2");
    assert.equal(response.headers.get("anthropic-ratelimit-requests-remaining"), remaining);
    assert.equal(response.headers.get("anthropic-ratelimit-tokens-limit"), "100000");
    const reset = Date.parse(response.headers.get("anthropic-ratelimit-requests-reset"));
    assert(reset > Date.now() - 60_000 && reset < Date.now() + 120_000);
  }
  await assert.rejects(client.messages.create(params("Hi", { max_tokens: 10 })), (error) => {
    assert(error instanceof Anthropic.RateLimitError, `${error}`);
    assert.equal(error.error.error.type, "rate_limit_error");
    assert.match(error.headers.get("retry-after"), /^([1-9]|[12]\d|30)$/);
    return true;
  });
});

testEach("client waits for Retry-After", async (t, { Anthropic, connect }) => {
  const server = await start(t, "-rpm", "20"); // one request in 3 seconds
  let attempts = 0;
  const counting = (...args) => {
    attempts++;
    return fetch(...args);
  };
  const client = connect(server, { fetch: counting });
  const exhaust = async () => {
    for (;;) await client.models.list();
  };
  await assert.rejects(exhaust(), Anthropic.RateLimitError);
  attempts = 0;
  await client.models.list({}, { maxRetries: 2 });
  assert(attempts === 2 || attempts === 3, `${attempts} attempts`); // 3 if a timer fires a millisecond early
});

testEach("client disconnects in mid-stream", async (t, { Anthropic, connect }) => {
  const server = await start(t, "-delay", "50ms");
  const client = connect(server);
  let pieces = 0;
  const stream = client.messages.stream(params(longText));
  stream.on("text", () => ++pieces === 5 && stream.abort());
  await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
  assert(pieces >= 5 && pieces < 100, `${pieces} pieces`); // more than 5 if several arrive together

  pieces = 0;
  for await (const _ of await client.messages.create(params(longText, { stream: true }))) {
    if (++pieces === 5) break;
  }
  await server.awaitUsage(2);
  await server.stop();
  assert.doesNotMatch(server.output(), /requests were interrupted/);
});

testEach("server shuts down in mid-stream", async (t, { Anthropic, connect }) => {
  const server = await start(t, "-delay", "50ms");
  const stream = await connect(server).messages.create(params(longText, { stream: true }));
  let stopped;
  await assert.rejects(
    async () => {
      for await (const event of stream) {
        stopped ??= server.stop();
        assert.notEqual(event.type, "message_stop");
      }
    },
    (error) => {
      assert(error instanceof Anthropic.APIError, `${error}`);
      assert.equal(error.error.error.type, "overloaded_error");
      return true;
    },
  );
  await stopped;
});

testEach("usage report agrees with the usage of the replies", async (t, { connect }) => {
  const server = await start(t);
  const client = connect(server);
  const want = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0, requests: 0, images: 0 };
  for (const text of ["Hi", sampleText, longText]) {
    for (const { usage } of await both(client, params(text, { output_config: { effort: "low" } }))) {
      assert.equal(usage.cache_read_input_tokens, 0);
      assert.equal(usage.cache_creation_input_tokens, 0);
      want.prompt_tokens += usage.input_tokens;
      want.completion_tokens += usage.output_tokens;
      want.requests++;
    }
  }
  want.total_tokens = want.prompt_tokens + want.completion_tokens;
  assert.deepEqual(await server.usage(), want);
});
