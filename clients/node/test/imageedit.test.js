import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateImage } from "ai";
import OpenAI, { toFile } from "openai";
import { key, start } from "../example.js";

// A PNG of one pixel.
const pixel = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);

const picture = (name) => toFile(pixel, name, { type: "image/png" });

const openai = (server) => new OpenAI({ baseURL: server.api, apiKey: key, maxRetries: 0 });

/** The width and the height of a PNG in base64. */
function size(base64) {
  const png = Buffer.from(base64, "base64");
  return `${png.readUInt32BE(16)}x${png.readUInt32BE(20)}`;
}

test("edits of images", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const edit = async (more) =>
    client.images.edit({ model: "demo-image-small", prompt: "A hat", image: await picture("a.png"), ...more });

  const one = await edit({ n: 2, size: "256x256" });
  assert.deepEqual(one.data.map((image) => size(image.b64_json)), ["256x256", "256x256"]);
  const several = await edit({
    image: [await picture("a.png"), await picture("b.png")],
    mask: await picture("mask.png"),
    size: "auto",
    quality: "low",
    output_compression: 80,
  });
  assert.equal(size(several.data[0].b64_json), "1024x1024");
  const json = await client.post("/images/edits", {
    body: {
      model: "demo-image-small",
      prompt: "A hat",
      size: "256x256",
      images: [{ image_url: `data:image/png;base64,${pixel.toString("base64")}` }],
    },
  });
  assert.equal(json.data[0].b64_json, (await edit({ size: "256x256" })).data[0].b64_json, "the image is the same");

  await assert.rejects(edit({ model: "missing" }), (e) => e instanceof OpenAI.NotFoundError);
  await assert.rejects(edit({ image: undefined }), (e) => e.status === 400 && e.param === "image");
  await assert.rejects(edit({ image: await toFile(Buffer.from("Hello"), "a.txt") }), (e) => e.status === 400 && e.param === "image");
  await assert.rejects(edit({ size: "1792x1024" }), (e) => e.status === 400 && e.param === "size");
});

test("edits of images by the AI SDK", async (t) => {
  const server = await start(t);
  const settings = { baseURL: server.api, apiKey: key };
  for (const provider of [createOpenAI(settings), createOpenAICompatible({ name: "demo", ...settings })]) {
    const { image } = await generateImage({
      model: provider.imageModel("demo-image-small"),
      prompt: { text: "A hat", images: [pixel] },
      size: "256x256",
      maxRetries: 0,
    });
    assert.equal(size(image.base64), "256x256");
  }
});

test("images as events", async (t) => {
  const server = await start(t);
  const client = openai(server);
  const params = { model: "demo-image-small", prompt: "A hat", size: "256x256", stream: true, partial_images: 2 };
  const read = async (stream) => {
    const types = [];
    for await (const event of stream) {
      assert.equal(size(event.b64_json), "256x256");
      types.push(event.type.replace(/^image_\w+\./, "") + (event.partial_image_index ?? ""));
    }
    return types;
  };
  const want = ["partial_image0", "partial_image1", "completed"];
  assert.deepEqual(await read(await client.images.generate(params)), want);
  assert.deepEqual(await read(await client.images.edit({ ...params, image: await picture("a.png") })), want);
  assert.deepEqual(await read(await client.images.generate({ ...params, n: 2, partial_images: 0 })), ["completed", "completed"]);
  await assert.rejects(client.images.generate({ ...params, partial_images: 4 }), (e) => e.status === 400 && e.param === "partial_images");
});
