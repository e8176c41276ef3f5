import { Agent, handoff, MemorySession, OpenAIResponsesCompactionSession, OpenAIResponsesModel, run, setTracingDisabled, tool } from "@openai/agents";
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { key, start, startScripted } from "../example.js";
import { Forecast, Recipe } from "../fixtures.js";

setTracingDisabled(true);

const model = (server) => new OpenAIResponsesModel(new OpenAI({ baseURL: server.api, apiKey: key, maxRetries: 0 }), "demo-chat");

/** Runs an agent, streamed or not, and resolves to its result. */
async function ask(agent, input, { stream, ...options } = {}) {
  const result = await run(agent, input, { stream, maxTurns: 5, ...options });
  if (stream) {
    const events = await Array.fromAsync(result);
    assert(events.length > 0);
    await result.completed;
  }
  return result;
}

for (const stream of [false, true]) {
  const name = (s) => `${s}, ${stream ? "streamed" : "whole"}`;

  test(name("tool"), async (t) => {
    const calls = [];
    const forecast = tool({
      name: "forecast",
      description: "The weather",
      parameters: Forecast,
      execute: (args) => {
        calls.push(args);
        return `It rains in ${args.city}.`;
      },
    });
    const agent = new Agent({ name: "Weather", instructions: "Use the tool.", model: model(await start(t)), tools: [forecast] });
    const result = await ask(agent, "How will the weather be?", { stream });
    assert.equal(calls.length, 1);
    Forecast.parse(calls[0]);
    assert.match(result.finalOutput, /It rains in/);
  });

  test(name("handoff"), async (t) => {
    const m = model(await start(t));
    const cook = new Agent({ name: "Cook", instructions: "Cook.", model: m, handoffDescription: "Cooks" });
    const waiter = new Agent({ name: "Waiter", instructions: "Ask the cook.", model: m, handoffs: [handoff(cook)] });
    const result = await ask(waiter, "Soup, please", { stream });
    assert.equal(result.lastAgent.name, "Cook");
    assert.match(result.finalOutput, /./);
  });

  test(name("structured output"), async (t) => {
    const agent = new Agent({ name: "Cook", instructions: "Cook.", model: model(await start(t)), outputType: Recipe });
    const result = await ask(agent, "Soup, please", { stream });
    Recipe.parse(result.finalOutput);
  });

  test(name("reasoning"), async (t) => {
    const agent = new Agent({ name: "Thinker", model: model(await start(t)), modelSettings: { reasoning: { effort: "low", summary: "auto" } } });
    const first = await ask(agent, "Why?", { stream });
    assert(first.newItems.some((item) => item.type === "reasoning_item"));
    const second = await ask(agent, [...first.history, { role: "user", content: "And then?" }], { stream });
    assert.equal(second.finalOutput, "And then?");
  });

  test(name("several turns"), async (t) => {
    const agent = new Agent({ name: "Echo", model: model(await start(t)) });
    const first = await ask(agent, "first", { stream });
    assert.equal(first.finalOutput, "first");
    const history = await ask(agent, [...first.history, { role: "user", content: "second" }], { stream });
    assert.equal(history.finalOutput, "second");
    const previous = await ask(agent, "third", { stream, previousResponseId: first.lastResponseId });
    assert.equal(previous.finalOutput, "third");
    assert(previous.rawResponses[0].usage.inputTokens > first.rawResponses[0].usage.inputTokens, "the first turn is part of the prompt");
    const session = new MemorySession();
    for (const text of ["fourth", "fifth"]) assert.equal((await ask(agent, text, { stream, session })).finalOutput, text);
  });

  test(name("token limit"), async (t) => {
    const agent = new Agent({ name: "Echo", model: model(await start(t)), modelSettings: { maxTokens: 2 } });
    const outcome = ask(agent, "one two three four five six", { stream });
    const text = await outcome.then((result) => result.finalOutput, (err) => err.message);
    assert.match(text, /one|incomplete/i);
  });
}

// The session replaces its items by the reply of POST /v1/responses/compact. It only takes names of OpenAI's models.
for (const compactionMode of ["input", "previous_response_id", "auto"]) {
  test(`session that compacts, ${compactionMode}`, async (t) => {
    const server = await startScripted(t, "-recall");
    const client = new OpenAI({ baseURL: server.api, apiKey: key, maxRetries: 0 });
    const session = new OpenAIResponsesCompactionSession({
      client,
      model: "gpt-5.6",
      compactionMode,
      shouldTriggerCompaction: ({ compactionCandidateItems }) => compactionCandidateItems.length >= 2,
    });
    const agent = new Agent({ name: "Recaller", model: new OpenAIResponsesModel(client, "gpt-5.6") });
    const types = async () => (await session.getItems()).map((item) => item.type);
    assert.equal((await ask(agent, "Think of a magic word.", { session })).finalOutput, "The magic word is xyzzy.");
    assert.deepEqual(await types(), ["message", "message"]);
    const first = await ask(agent, "Thank you.", { session });
    assert.deepEqual(await types(), ["message", "message", "compaction"], "the messages of the user, and the summary");
    assert.equal((await ask(agent, "What is the magic word?", { session })).finalOutput, "It is xyzzy.");
    assert.equal(first.runContext.usage.requests, 2, "the compaction is a request");
    assert.equal((await ask(agent, "Thank you.", { session })).runContext.usage.requests, 1, "items before a compaction stop the SDK from another one");
    assert((await session.runCompaction({ force: true })).usage.inputTokens > 0);
    const sent = compactionMode === "input" ? 4 : 2; // the SDK sends the model nothing that is before a compaction
    assert.deepEqual(await types(), [...Array(sent).fill("message"), "compaction"]);
    assert.equal((await ask(agent, "What is the magic word?", { session, stream: true })).finalOutput, "It is xyzzy.");
    assert.equal(server.output().match(/compact/g).length, 2);
  });
}
