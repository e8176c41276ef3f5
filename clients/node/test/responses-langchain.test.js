import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import assert from "node:assert/strict";
import { test } from "node:test";
import { key, start } from "../example.js";
import { Forecast, Recipe, sampleText } from "../fixtures.js";

const chat = (server, options) =>
  new ChatOpenAI({
    model: "demo-chat",
    apiKey: key,
    maxRetries: 0,
    useResponsesApi: true,
    configuration: { baseURL: server.api },
    ...options,
  });

/** Calls a model, streamed or not. */
async function ask(stream, llm, input) {
  if (!stream) return llm.invoke(input);
  const chunks = await Array.fromAsync(await llm.stream(input));
  return chunks.reduce((sum, chunk) => sum.concat(chunk));
}

for (const stream of [false, true]) {
  const name = (s) => `${s}, ${stream ? "streamed" : "whole"}`;

  test(name("text"), async (t) => {
    const server = await start(t);
    const message = await ask(stream, chat(server), sampleText);
    assert.equal(message.text, sampleText);
    assert.match(message.response_metadata.id ?? message.id, /^(resp|msg)_/);
    assert(message.usage_metadata.input_tokens > 0);
    const next = await ask(stream, chat(server), [new HumanMessage("first"), message, new HumanMessage("second")]);
    assert.equal(next.text, "second");
  });

  test(name("reasoning"), async (t) => {
    // The client has a field for it, which it only sends to models of known names.
    const llm = chat(await start(t), { modelKwargs: { reasoning: { effort: "low", summary: "auto" } } });
    const message = await ask(stream, llm, "Why?");
    assert.equal(message.text, "Why?");
    assert.match(JSON.stringify(message.additional_kwargs.reasoning), /summary/);
    const next = await ask(stream, llm, [new HumanMessage("Why?"), message, new HumanMessage("And then?")]);
    assert.equal(next.text, "And then?");
  });

  for (const zdrEnabled of [false, true]) {
    test(name(`tool loop${zdrEnabled ? ", nothing stored" : ""}`), async (t) => {
      const forecast = tool(({ city }) => `It rains in ${city}.`, { name: "forecast", description: "The weather", schema: Forecast });
      const llm = chat(await start(t), { zdrEnabled }).bindTools([forecast]);
      const question = new HumanMessage("How will the weather be?");
      const message = await ask(stream, llm, [question]);
      assert.equal(message.tool_calls.length, 1);
      const [call] = message.tool_calls;
      Forecast.parse(call.args);
      const result = await forecast.invoke(call);
      assert(result instanceof ToolMessage);
      const answer = await ask(stream, llm, [question, message, result]);
      assert.match(answer.text, /It rains in/);
    });
  }

  test(name("previous_response_id"), async (t) => {
    const llm = chat(await start(t));
    const first = await ask(stream, llm, "first");
    const second = await ask(stream, llm.withConfig({ previous_response_id: first.response_metadata.id }), "second");
    assert.equal(second.text, "second");
    assert(second.usage_metadata.input_tokens > first.usage_metadata.input_tokens, "the first turn is part of the prompt");
  });
}

test("structured output", async (t) => {
  const llm = chat(await start(t)).withStructuredOutput(Recipe, { name: "recipe", method: "jsonSchema" });
  Recipe.parse(await llm.invoke("Soup"));
});

// It ignores response.failed, and takes what came before for the whole reply.
test("server shuts down in mid-stream", async (t) => {
  const server = await start(t, "-delay", "50ms");
  let stopped;
  const read = async () => {
    for await (const _ of await chat(server).stream("once ".repeat(100))) stopped ??= server.stop();
  };
  await assert.rejects(read(), /shutting down/);
  await stopped;
});
