import { createCohere } from "@ai-sdk/cohere";
import { CohereRerank as LangChainRerank } from "@langchain/cohere";
import { Document } from "@langchain/core/documents";
import { CohereRerank as LlamaIndexRerank } from "@llamaindex/cohere";
import { TextNode } from "@llamaindex/core/schema";
import { rerank } from "ai";
import { CohereClient, CohereClientV2, CohereError } from "cohere-ai";
import assert from "node:assert/strict";
import { test } from "node:test";
import { key, start } from "../example.js";

const model = "demo-rerank";
const query = "How is the weather in Bergen?";
const documents = ["A recipe for bread.", "How is the weather in Bergen?", "In Bergen the weather is rainy."];
const order = [1, 2, 0]; // the documents from the most relevant on

/** The URL that Cohere's SDK calls its environment. */
const environment = (server) => server.api.replace(/\/v1$/, "");

/** Checks scores that are sorted. */
function assertScores(scores) {
  assert.deepEqual(scores, scores.toSorted((a, b) => b - a));
  for (const score of scores) assert(score >= 0 && score <= 1, `${score}`);
}

test("Cohere's SDK, v2", async (t) => {
  const server = await start(t);
  const client = new CohereClientV2({ token: key, environment: environment(server), maxRetries: 0 });
  const all = await client.rerank({ model, query, documents, maxTokensPerDoc: 100 });
  assert.deepEqual(all.results.map((r) => r.index), order);
  assertScores(all.results.map((r) => r.relevanceScore));
  assert.match(all.id, /^rerank-/);
  assert.equal(all.meta.billedUnits.searchUnits, 1);
  assert.equal(all.meta.apiVersion.version, "2");
  assert(all.meta.tokens.inputTokens > 0);
  const one = await client.rerank({ model, query, documents, topN: 1 });
  assert.deepEqual(one.results.map((r) => r.index), [1]);
  const many = await client.rerank({ model, query, documents: Array(101).fill("the same text") });
  assert.deepEqual(many.results.map((r) => r.index), [...Array(101).keys()]);
  assert.equal(many.meta.billedUnits.searchUnits, 2);
  assert.equal((await server.usage()).requests, 3);
});

test("Cohere's SDK, v1", async (t) => {
  const server = await start(t);
  const client = new CohereClient({ token: key, environment: environment(server), maxRetries: 0 });
  const objects = [{ text: documents[0], page: "7" }, documents[1], { text: documents[2] }];
  const reply = await client.rerank({ model, query, documents: objects, topN: 2, returnDocuments: true, rankFields: ["text"] });
  assert.deepEqual(reply.results.map((r) => r.index), [1, 2]);
  assert.deepEqual(reply.results.map((r) => r.document.text), [documents[1], documents[2]]);
  const all = await client.rerank({ model, query, documents, returnDocuments: false });
  assert.deepEqual(all.results.map((r) => r.index), order);
  assert.equal(all.results[0].document, undefined);
});

test("errors of Cohere's SDK", async (t) => {
  const server = await start(t);
  const v2 = (token) => new CohereClientV2({ token, environment: environment(server), maxRetries: 0 });
  const rejects = (promise, status, text) =>
    assert.rejects(promise, (e) => {
      assert(e instanceof CohereError, `${e}`);
      assert.equal(e.statusCode, status);
      assert.match(JSON.stringify(e.body), text);
      return true;
    });
  await rejects(v2(key).rerank({ model, query, documents: [] }), 400, /"param":"documents"/);
  await rejects(v2(key).rerank({ model: "missing", query, documents }), 404, /model_not_found/);
  await rejects(v2("sk-wrong").rerank({ model, query, documents }), 401, /invalid_api_key/);
  assert.equal((await server.usage()).requests, 0);
});

test("LangChain", async (t) => {
  const server = await start(t);
  const client = new CohereClient({ token: key, environment: environment(server), maxRetries: 0 });
  const reranker = new LangChainRerank({ client, model, topN: 2 });
  const found = await reranker.compressDocuments(documents.map((pageContent) => new Document({ pageContent })), query);
  assert.deepEqual(found.map((d) => d.pageContent), [documents[1], documents[2]]);
  assertScores(found.map((d) => d.metadata.relevanceScore));
  const all = await reranker.rerank(documents, query, { topN: 3 });
  assert.deepEqual(all.map((r) => r.index), order);
});

test("LlamaIndex", async (t) => {
  const server = await start(t);
  const reranker = new LlamaIndexRerank({ apiKey: key, baseUrl: environment(server), model, topN: 2, timeout: 10 });
  const nodes = documents.map((text) => ({ node: new TextNode({ text }), score: 0 }));
  const found = await reranker.postprocessNodes(nodes, query);
  assert.deepEqual(found.map((n) => n.node.text), [documents[1], documents[2]]);
  assertScores(found.map((n) => n.score));
});

test("AI SDK", async (t) => {
  const server = await start(t);
  const cohere = createCohere({ baseURL: server.api, apiKey: key });
  const texts = await rerank({ model: cohere.reranking(model), query, documents, topN: 2, maxRetries: 0 });
  assert.deepEqual(texts.ranking.map((r) => r.originalIndex), [1, 2]);
  assert.deepEqual(texts.rerankedDocuments, [documents[1], documents[2]]);
  assertScores(texts.ranking.map((r) => r.score));
  await assert.rejects(rerank({ model: cohere.reranking("missing"), query, documents, maxRetries: 0 }), /does not exist|Not Found/i);
});
