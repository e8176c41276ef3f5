// What the tests of all clients say.

import { z } from "zod";

/** What is easily broken on the way: emoji of several runes, line separators, what looks like the end of the stream. */
export const saying =
  'The "quick" fox 🦊 and the family 👩‍👩‍👧‍👦\n\ndata: [DONE]\n\n<naïve> 日本語 & \u2028 line, back\\slash\ttab. The end.';

/** Takes long to say: a server started with a delay before each chunk is sure to be interrupted in it. */
export const lecture = "All work and no play makes Jack a dull boy. ".repeat(200);

/** What a weather tool is asked for. */
export const Forecast = z.strictObject({
  city: z.string().min(1),
  unit: z.enum(["celsius", "fahrenheit"]),
  days: z.int().min(2).max(7),
});

/** A structured output. */
export const Recipe = z.strictObject({
  title: z.string().min(3).max(40),
  meal: z.enum(["breakfast", "lunch", "dinner"]),
  servings: z.int().min(2).max(8),
  note: z.string().nullable(),
  steps: z.array(z.strictObject({ text: z.string(), minutes: z.number().positive() })).min(1),
});
