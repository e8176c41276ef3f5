// Data for the tests of all clients.

import { z } from "zod";

/**
 * Text that is easily corrupted: emoji of several runes, line separators, and what looks like the end of a stream.
 */
export const sampleText =
  'The "quick" fox 🦊 and the family 👩‍👩‍👧‍👦\n\ndata: [DONE]\n\n<naïve> 日本語 & \u2028 line, back\\slash\ttab. The end.';

/** Takes long to stream: with a delay before each chunk, tests interrupt the stream before its end. */
export const longText = "All work and no play makes Jack a dull boy. ".repeat(200);

/** The arguments of a weather tool. */
export const Forecast = z.strictObject({
  city: z.string().min(1),
  unit: z.enum(["celsius", "fahrenheit"]),
  days: z.int().min(2).max(7),
});

/** A schema for structured output. */
export const Recipe = z.strictObject({
  title: z.string().min(3).max(40),
  meal: z.enum(["breakfast", "lunch", "dinner"]),
  servings: z.int().min(2).max(8),
  note: z.string().nullable(),
  steps: z.array(z.strictObject({ text: z.string(), minutes: z.number().positive() })).min(1),
});
