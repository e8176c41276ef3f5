import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { key, start, startScripted, startThinker } from "../example.js";
import { Forecast, longText, Recipe, sampleText } from "../fixtures.js";

const openai = (server, options) => new OpenAI({ baseURL: server.api, apiKey: key, maxRetries: 0, ...options });

const params = (input, more) => ({ model: "demo-chat", input, ...more });

const image = "data:image/gif;base64,R0lGODlhAQABAAAAACw=";

test("whole, streamed and accumulated", async (t) => {
  const client = openai(await start(t));
  const words = "one two three four five six seven eight nine ten";
  const tests = [
    { name: "text", input: sampleText, want: sampleText },
    { name: "instructions and roles", more: { instructions: "Be kind." }, input: [{ role: "developer", content: "Be brief." }, { role: "user", content: "the second message" }],
      want: "the second message" },
    {
      name: "parts",
      input: [{ role: "user", content: [{ type: "input_text", text: "What is this?" }, { type: "input_image", image_url: image, detail: "low" }] }],
      want: "What is this?",
    },
    { name: "max_output_tokens", input: words, more: { max_output_tokens: 3 }, want: /^one two\b/, incomplete: { reason: "max_output_tokens" } },
    { name: "reasoning", input: "Why is that?", more: { reasoning: { effort: "low", summary: "auto" } }, want: "Why is that?", types: ["reasoning", "message"] },
  ];
  for (const { name, input, more, want, incomplete = null, types = ["message"] } of tests) {
    await t.test(name, async () => {
      const whole = await client.responses.create(params(input, more));
      assert.match(whole.id, /^resp_/);
      assert.equal(whole.object, "response");
      assert.equal(whole.status, incomplete ? "incomplete" : "completed");
      assert.deepEqual(whole.incomplete_details, incomplete);
      assert(Math.abs(whole.created_at - Date.now() / 1000) < 60);
      if (want instanceof RegExp) assert.match(whole.output_text, want);
      else assert.equal(whole.output_text, want);
      assert.deepEqual(whole.output.map((item) => item.type), types);
      assert(whole.usage.input_tokens > 0);
      assert.equal(whole.usage.total_tokens, whole.usage.input_tokens + whole.usage.output_tokens);

      const events = [];
      const stream = client.responses.stream(params(input, more)).on("event", (event) => events.push(event));
      const streamed = await stream.finalResponse();
      assert.equal(streamed.output_text, whole.output_text);
      assert.deepEqual(streamed.output.map((item) => item.type), types);
      assert.deepEqual(streamed.usage, whole.usage);
      assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i));
      assert.equal(events[0].type, "response.created");
      assert(events.filter((event) => event.type === "response.output_text.delta").length > 1);
    });
  }
});

test("parse", async (t) => {
  const client = openai(await start(t));
  const text = { format: zodTextFormat(Recipe, "recipe") };
  const whole = await client.responses.parse(params("Soup", { text }));
  Recipe.parse(whole.output_parsed);
  assert.equal(whole.text.format.name, "recipe");
  const streamed = await client.responses.stream(params("Soup", { text })).finalResponse();
  assert.deepEqual(streamed.output_parsed, whole.output_parsed);
});

test("tool loops, by history and by previous_response_id", async (t) => {
  const client = openai(await start(t));
  const tools = [zodResponsesFunction({ name: "forecast", description: "The weather", parameters: Forecast })];
  const reasoning = { effort: "low" };
  const include = ["reasoning.encrypted_content"];
  for (const stream of [false, true]) {
    for (const stored of [false, true]) {
      await t.test(`${stream ? "streamed" : "whole"}, ${stored ? "stored" : "stateless"}`, async () => {
        const ask = (input, more) => {
          const body = params(input, { tools, reasoning, store: stored, ...(stored ? {} : { include }), ...more });
          return stream ? client.responses.stream(body).finalResponse() : client.responses.parse(body);
        };
        const question = [{ role: "user", content: "How will the weather be?" }];
        const first = await ask(question);
        const [thought, call] = first.output;
        assert.equal(thought.type, "reasoning");
        assert.equal(call.type, "function_call");
        assert.equal(call.status, "completed");
        Forecast.parse(call.parsed_arguments ?? JSON.parse(call.arguments));
        assert.equal(first.store, stored);
        if (!stored) assert.match(thought.encrypted_content, /./);

        const result = { type: "function_call_output", call_id: call.call_id, output: "It rains." };
        const second = stored
          ? await ask([result], { previous_response_id: first.id })
          : await ask([...question, ...first.output, result]);
        assert.match(second.output_text, /It rains\./);
        assert.equal(second.previous_response_id, stored ? first.id : null);
      });
    }
  }
});

test("signed and encrypted reasoning in a stateless loop", async (t) => {
  for (const gateways of [0, 1, 2]) {
    await t.test(`${gateways} gateways`, async (t) => {
      const client = openai(await startThinker(t, gateways));
      const stateless = { store: false, include: ["reasoning.encrypted_content"] };
      const question = { role: "user", content: "Hi" };
      const whole = await client.responses.create(params([question], stateless));
      const streamed = await client.responses.stream(params([question], stateless)).finalResponse();
      for (const { output } of [whole, streamed]) {
        assert.deepEqual(output.map((item) => item.type), ["reasoning", "message"]);
        const next = (items) => params([question, ...items, { role: "user", content: "Go on." }], stateless);
        await client.responses.create(next(output));
        await assert.rejects(client.responses.create(next(output.slice(1))), OpenAI.BadRequestError); // the model checks it
      }
    });
  }
});

test("custom tools", async (t) => {
  const client = openai(await start(t));
  const tools = [{ type: "custom", name: "patch", description: "Applies a patch." }];
  for (const stream of [false, true]) {
    const body = params("Patch it", { tools, tool_choice: { type: "custom", name: "patch" } });
    const response = stream ? await client.responses.stream(body).finalResponse() : await client.responses.create(body);
    const [call] = response.output;
    assert.equal(call.type, "custom_tool_call");
    assert.equal(call.name, "patch");
    assert.equal(typeof call.input, "string");
    const next = await client.responses.create(
      params([{ role: "user", content: "Patch it" }, call, { type: "custom_tool_call_output", call_id: call.call_id, output: "Patched." }], { tools }),
    );
    assert.match(next.output_text, /Patched\./);
  }
});

test("stored responses", async (t) => {
  const client = openai(await start(t));
  const response = await client.responses.create(params("Remember this", { metadata: { topic: "memory" } }));
  assert.equal(response.store, true);
  const stored = await client.responses.retrieve(response.id);
  const { output_text, ...members } = response; // the SDK adds the text
  assert.deepEqual({ ...stored, output_text }, { ...members, output_text });
  const items = await Array.fromAsync(client.responses.inputItems.list(response.id));
  assert.deepEqual(items.map(({ type, role, content }) => ({ type, role, content })), [
    { type: "message", role: "user", content: [{ type: "input_text", text: "Remember this" }] },
  ]);
  await client.responses.delete(response.id);
  await assert.rejects(client.responses.retrieve(response.id), OpenAI.NotFoundError);
  await assert.rejects(client.responses.create(params("Go on", { previous_response_id: response.id })), (err) => {
    assert(err instanceof OpenAI.BadRequestError);
    assert.equal(err.code, "previous_response_not_found");
    assert.equal(err.param, "previous_response_id");
    return true;
  });
});

test("input tokens", async (t) => {
  const client = openai(await start(t));
  const { object, input_tokens } = await client.responses.inputTokens.count(params("Hello there"));
  assert.equal(object, "response.input_tokens");
  assert(input_tokens > 0);
});

test("errors", async (t) => {
  const server = await start(t);
  const client = openai(server);
  await assert.rejects(openai(server, { apiKey: "sk-wrong" }).responses.create(params("Hi")), OpenAI.AuthenticationError);
  await assert.rejects(client.responses.create({ model: "missing", input: "Hi" }), OpenAI.NotFoundError);
  await assert.rejects(client.responses.create(params("Hi", { background: true })), (err) => err.status === 400 && err.param === "background");
  await assert.rejects(client.responses.stream(params([{ role: "user", content: [{ type: "input_text" }] }])).finalResponse(), (err) => {
    assert.equal(err.param, "input[0].content[0].text");
    return true;
  });
});

test("server shuts down in mid-stream", async (t) => {
  const read = {
    events: async (client, seen) => {
      for await (const event of await client.responses.create(params(longText, { stream: true }))) {
        seen();
        assert.notEqual(event.type, "response.completed");
      }
    },
    accumulated: (client, seen) => client.responses.stream(params(longText)).on("event", seen).finalResponse(),
  };
  for (const [name, response] of Object.entries(read)) {
    await t.test(name, async (t) => {
      const server = await start(t, "-delay", "50ms");
      let stopped;
      await assert.rejects(response(openai(server), () => (stopped ??= server.stop())), /shutting down/);
      await stopped;
    });
  }
});

test("a client that disconnects is charged", async (t) => {
  const server = await start(t, "-delay", "5ms");
  const stream = await openai(server).responses.create(params(longText, { stream: true }));
  for await (const event of stream) if (event.type === "response.output_text.delta") break;
  await server.awaitUsage(1);
});

test("compaction, by a trigger and by responses.compact", async (t) => {
  const client = openai(await startScripted(t, "-recall"));
  const question = { role: "user", content: "Think of a magic word." };
  const first = await client.responses.create(params([question]));
  const trigger = { type: "compaction_trigger" };
  const whole = await client.responses.create(params([question, ...first.output, trigger], { store: false }));
  const events = [];
  const stream = client.responses.stream(params([trigger], { previous_response_id: first.id })).on("event", (event) => events.push(event.type));
  const streamed = await stream.finalResponse();
  const expected = ["created", "in_progress", "output_item.added", "output_item.done", "completed"];
  assert.deepEqual(events.filter((type) => type.startsWith("response.")), expected.map((type) => `response.${type}`));
  const compacted = await client.responses.compact({ model: "demo-chat", input: [question, ...first.output], instructions: "Be kind." });
  const again = await client.responses.compact({ model: "demo-chat", previous_response_id: first.id });
  for (const { object, id, created_at, output, usage } of [whole, streamed, compacted, again]) {
    assert.match(id, /^resp_/);
    assert(Math.abs(created_at - Date.now() / 1000) < 60);
    assert(usage.total_tokens > usage.output_tokens && usage.output_tokens > 0);
    assert.deepEqual(output.map((item) => item.type), object === "response" ? ["compaction"] : ["message", "compaction"]);
    assert.match(output.at(-1).id, /^cmp_/);
    const next = await client.responses.create(params([...output, { role: "user", content: "What is the magic word?" }], { store: false }));
    assert.equal(next.output_text, "It is xyzzy.");
  }
  const next = await client.responses.create(params("What is the magic word?", { previous_response_id: streamed.id }));
  assert.equal(next.output_text, "It is xyzzy.");
  const foreign = { type: "compaction", id: "cmp_1", encrypted_content: "gAAAA" };
  await assert.rejects(client.responses.create(params([foreign, { role: "user", content: "What is the magic word?" }])), (err) => {
    assert(err instanceof OpenAI.BadRequestError);
    assert.equal(err.code, "invalid_encrypted_content");
    assert.equal(err.param, "input[0].encrypted_content");
    return true;
  });
});
