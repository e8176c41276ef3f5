// The program that is tested: that of clients/go/tasks in JavaScript.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

export const newClient = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "test" });
export const newClaude = (url) => new Anthropic({ baseURL: url, apiKey: "test" });

const params = (text) => ({
  model: "gpt-4o",
  messages: [
    { role: "system", content: "Be brief." },
    { role: "user", content: text },
  ],
});

export async function ask(client, text) {
  const { choices } = await client.chat.completions.create(params(text));
  return choices[0].message.content;
}

export async function askClaude(client, text) {
  const { content } = await client.messages.create({ model: "claude-sonnet-4-5", max_tokens: 100, messages: [{ role: "user", content: text }] });
  return content[0].text;
}

export async function read(client, text, piece) {
  for await (const { choices } of await client.chat.completions.create({ ...params(text), stream: true })) {
    if (choices[0]?.delta.content) piece(choices[0].delta.content);
  }
}

export const extract = async (client, text) => JSON.parse(await ask(client, text));

export async function runAgent(client, text) {
  const request = { ...params(text), tools: [{ type: "function", function: { name: "forecast" } }] };
  for (let i = 0; i < 5; i++) {
    const { message } = (await client.chat.completions.create(request)).choices[0];
    if (!message.tool_calls?.length) return message.content;
    request.messages.push(message);
    for (const call of message.tool_calls) {
      request.messages.push({ role: "tool", tool_call_id: call.id, content: `rain: ${call.function.arguments}` });
    }
  }
  throw new Error("too many turns");
}
