// Tests of a program that calls a model. Run them with: llmfake replies.yaml -- node --test greet.js

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const client = new OpenAI(); // reads OPENAI_BASE_URL and OPENAI_API_KEY

async function ask(content) {
  const { choices } = await client.chat.completions.create({ model: "gpt-4o", messages: [{ role: "user", content }] });
  return choices[0].message;
}

test("greets", async () => {
  assert.equal((await ask("I am Ada.")).content, "Hello, Ada!");
  const requests = await (await fetch(`${process.env.LLMFAKE_URL}/llmfake/requests`)).json();
  assert.equal(requests.at(-1).user, "I am Ada.");
});

test("calls a tool", async () => {
  const { tool_calls } = await ask("How is the weather?");
  assert.deepEqual(JSON.parse(tool_calls[0].function.arguments), { city: "Bergen" });
});
