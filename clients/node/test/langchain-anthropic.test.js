import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage, SystemMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import assert from "node:assert/strict";
import { test } from "node:test";
import { key, start, startThinker } from "../example.js";
import { Forecast, longText, Recipe, sampleText } from "../fixtures.js";

const chat = (server, options) =>
  new ChatAnthropic({
    model: "demo-chat",
    apiKey: key,
    anthropicApiUrl: new URL(server.api).origin,
    maxRetries: 0,
    maxTokens: 10_000,
    ...options,
  });

/** Joins the chunks of a stream to one message. */
async function collect(stream) {
  const chunks = await Array.fromAsync(stream);
  return { count: chunks.length, message: chunks.reduce((sum, chunk) => sum.concat(chunk)) };
}

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
      want: /second$/, // the two turns of the user are one
    },
    { name: "stop sequence", input: sampleText, options: { stop: ["nowhere", "fox"] }, want: 'The "quick" ', reason: "stop_sequence" },
    { name: "token limit", input: "one two three four five six", model: { maxTokens: 3 }, want: /^one two\b/, reason: "max_tokens" },
  ];
  for (const { name, input, model, options, want, reason = "end_turn" } of tests) {
    await t.test(name, async () => {
      const llm = chat(server, model);
      const whole = await llm.invoke(input, options);
      if (want instanceof RegExp) assert.match(whole.text, want);
      else assert.equal(whole.text, want);
      assert.equal(whole.response_metadata.stop_reason, reason);
      assert(whole.usage_metadata.input_tokens > 0);
      assert(whole.usage_metadata.output_tokens > 0);

      const { count, message } = await collect(await llm.stream(input, options));
      assert(count > 3, "the text is in several chunks");
      assert.equal(message.text, whole.text);
      // Of a stream, the client shows the input tokens of its start, which are an estimate.
      assert.equal(message.usage_metadata.output_tokens, whole.usage_metadata.output_tokens);
      assert(message.usage_metadata.input_tokens > 0);
    });
  }
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
    for (const tool_choice of [undefined, "auto", "any", "forecast"]) {
      await t.test(`${mode}, ${tool_choice}`, async () => {
        const messages = [new HumanMessage("How will the weather be?")];
        const called = await call(llm.bindTools([forecast], { tool_choice }), messages);
        assert.equal(called.tool_calls.length, 1);
        const [request] = called.tool_calls;
        assert.equal(request.name, "forecast");
        Forecast.parse(request.args);
        const result = await forecast.invoke(request);
        const answer = await call(llm.bindTools([forecast]), [...messages, called, result]);
        assert(answer.text.includes(`It rains in ${request.args.city}.`), answer.text);
        assert.deepEqual(answer.tool_calls, []);
      });
    }
  }
});

test("thinking round trip", async (t) => {
  const llm = chat(await start(t), { thinking: { type: "enabled", budget_tokens: 2048 } });
  const question = new HumanMessage(sampleText);
  for (const reply of [await llm.invoke([question]), (await collect(await llm.stream([question]))).message]) {
    const thinking = reply.content.find((block) => block.type === "thinking");
    assert.equal(thinking.thinking, `The user said: ${sampleText}`);
    assert.match(thinking.signature, /./);
    // The server refuses thinking that does not fit its signature.
    const answer = await llm.invoke([question, reply, new HumanMessage("Go on.")]);
    assert.equal(answer.text, "Go on.");
  }
});

test("redacted thinking", async (t) => {
  for (const gateways of [0, 1, 2]) {
    await t.test(`${gateways} gateways`, async (t) => {
      // Without the parameter the client drops redacted thinking of streams.
      const llm = chat(await startThinker(t, gateways), { thinking: { type: "enabled", budget_tokens: 2048 } });
      const question = new HumanMessage("Hi");
      for (const reply of [await llm.invoke([question]), (await collect(await llm.stream([question]))).message]) {
        assert(reply.content.some((block) => block.type === "redacted_thinking"));
        await llm.invoke([question, reply, new HumanMessage("Go on.")]); // the model refuses it without the thinking
      }
    });
  }
});

test("structured output", async (t) => {
  const llm = chat(await start(t));
  const recipe = llm.withStructuredOutput(Recipe, { name: "recipe" });
  const parsed = await recipe.invoke("A recipe, please.");
  assert.deepEqual(parsed, Recipe.parse(parsed));
});

test("typed errors", async (t) => {
  const server = await start(t);
  const tests = [
    { name: "wrong key", options: { apiKey: "sk-wrong" }, status: 401 },
    { name: "unknown model", options: { model: "demo-unknown" }, status: 404 },
  ];
  for (const { name, options, status } of tests) {
    await t.test(name, async () => {
      const llm = chat(server, options);
      await assert.rejects(llm.invoke("Hi"), (error) => error.status === status || `${error}`.includes(`${status}`));
      await assert.rejects(llm.stream("Hi").then(collect));
    });
  }
});

test("client waits for Retry-After", async (t) => {
  const server = await start(t, "-rpm", "20"); // one request in 3 seconds
  const exhaust = async () => {
    for (;;) await chat(server, { maxTokens: 10 }).invoke("Hi");
  };
  await assert.rejects(exhaust(), (error) => error.status === 429);
  assert.equal((await chat(server, { maxTokens: 10, maxRetries: 4 }).invoke("Hi")).text, "Hi");
});

test("client disconnects in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  const controller = new AbortController();
  let pieces = 0;
  const read = async () => {
    for await (const chunk of await chat(server).stream(longText, { signal: controller.signal })) {
      if (chunk.text && ++pieces === 5) controller.abort();
    }
  };
  await read().catch(() => {}); // the client may end the stream with or without an error
  assert(pieces >= 5);
  await server.awaitUsage(1);
  await server.stop();
  assert.doesNotMatch(server.output(), /requests were interrupted/);
});
