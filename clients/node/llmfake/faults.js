// Prints what SDKs make of the faults of a server, for TestFaults in clients/go/llmfake. The standard input has a list of
// faults. The name of a model, such as "cut/openai-node, chat/true", tells the server the fault.

import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";
import { text } from "node:stream/consumers";
import OpenAI from "openai";

globalThis.AI_SDK_LOG_WARNINGS = false;
// Some SDKs also reject promises that no program waits for.
process.on("unhandledRejection", () => {});

const apiKey = "test";
const openai = new OpenAI();
const anthropic = new Anthropic();
const compatible = createOpenAICompatible({ name: "fake", baseURL: process.env.OPENAI_BASE_URL, apiKey });
const claude = createAnthropic({ baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1`, apiKey });

const messages = [{ role: "user", content: "Hi" }];
const call = (name, args) => `${name}(${typeof args === "string" ? args : JSON.stringify(args)})`;

/** Each function gets a model and a signal, and calls got with the text so far. */
const sdks = {
  "openai-node, chat": {
    async whole(model, options, got) {
      const { choices } = await openai.chat.completions.create({ model, messages }, options);
      got(choices[0].message.content ?? "");
    },
    async stream(model, options, got) {
      const stream = openai.chat.completions.stream({ model, messages }, options);
      stream.on("chunk", (_, { choices }) => {
        const message = choices[0]?.message;
        got([message?.content, ...(message?.tool_calls ?? []).map((c) => call(c.function.name, c.function.arguments))].filter(Boolean).join(" "));
      });
      await stream.done();
    },
  },
  "openai-node, responses": {
    async whole(model, options, got) {
      got((await openai.responses.create({ model, input: "Hi" }, options)).output_text);
    },
    async stream(model, options, got) {
      let content = "";
      for await (const event of await openai.responses.create({ model, input: "Hi", stream: true }, options)) {
        if (event.type === "response.output_text.delta") got((content += event.delta));
        if (event.type === "response.output_item.done" && event.item.type === "function_call")
          got((content = `${content} ${call(event.item.name, event.item.arguments)}`.trim()));
        if (event.type === "response.failed") throw Object.assign(new Error(), { name: "event response.failed" });
      }
    },
  },
  "@anthropic-ai/sdk": {
    async whole(model, options, got) {
      const { content } = await anthropic.messages.create({ model, messages, max_tokens: 100 }, options);
      got(content.map((block) => block.text ?? "").join(""));
    },
    async stream(model, options, got) {
      const stream = anthropic.messages.stream({ model, messages, max_tokens: 100 }, options);
      stream.on("streamEvent", (_, { content }) =>
        got(content.map((block) => block.text ?? call(block.name, block.input)).join(" ")),
      );
      await stream.done();
    },
  },
  "AI SDK, openai-compatible": aiSDK((model) => compatible(model)),
  "AI SDK, anthropic": aiSDK((model) => claude(model)),
};

function aiSDK(provider) {
  const settings = (model, { signal }) => ({
    model: provider(model),
    prompt: "Hi",
    abortSignal: signal,
    tools: Object.fromEntries(["first", "second"].map((name) => [name, tool({ inputSchema: jsonSchema({ type: "object" }) })])),
    onError: () => {},
  });
  return {
    async whole(model, options, got) {
      got((await generateText(settings(model, options))).text);
    },
    async stream(model, options, got) {
      let content = "";
      for await (const part of streamText(settings(model, options)).fullStream) {
        if (part.type === "text-delta") got((content += part.text));
        if (part.type === "tool-call") got((content = `${content} ${call(part.toolName, part.input)}`.trim()));
        if (part.type === "error") throw part.error;
        if (part.type === "abort") throw Object.assign(new Error(), { name: "part abort" });
      }
    },
  };
}

/** Describes an error in a few words. */
function describe(error) {
  const status = error?.status ?? error?.statusCode ?? error?.lastError?.statusCode;
  const name = error?.constructor?.name && !["Error", "Object", "DOMException"].includes(error.constructor.name) ? error.constructor.name : (error?.name ?? typeof error);
  const last = error?.lastError ? ` of ${error.lastError.constructor.name}` : "";
  return `${name}${last}${status ? ` ${status}` : ""}`.replace(/AI_/, "");
}

async function run(fault, sdk, stream) {
  let got = "";
  const options = fault.timeout ? { signal: AbortSignal.timeout(5000) } : {};
  const result = { fault: fault.name, sdk, stream, text: "", error: "" };
  try {
    await sdks[sdk][stream ? "stream" : "whole"](`${fault.name}/${sdk}/${stream}`, options, (content) => (got = content));
  } catch (error) {
    result.error = describe(error);
  }
  result.text = got.trim();
  return result;
}

const faults = JSON.parse(await text(process.stdin));
const runAll = (list) =>
  Promise.all(
    Object.keys(sdks).flatMap((sdk) =>
      list.flatMap((fault) => (fault.streamOnly ? [true] : [false, true]).map((stream) => run(fault, sdk, stream))),
    ),
  );
// Those with a timeout come last and alone, so that their requests have arrived long before it.
const results = [await runAll(faults.filter((fault) => !fault.timeout)), await runAll(faults.filter((fault) => fault.timeout))];
process.stdout.write(JSON.stringify(results.flat()), () => process.exit());
