// Package pricing computes what requests cost from a table of prices.
//
// The host has the prices in a file. [Table.Price] is the Price of [llmhttp.Options]:
//
//	table, err := pricing.ReadFile("prices.json", nil)
//	...
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Usage: usage, Price: table.Price})
//
// The package has no prices of its own. A Table does not change: a host that reads a file again
// keeps the Table in an [sync/atomic.Pointer], as the example of [Table] shows.
//
// # Format
//
//	{
//	  "models": {
//	    "chat-large": {
//	      "input": "3", "output": "15", "cache_read": "0.3", "cache_write": "3.75", "cache_write_1h": "6",
//	      "above": [{"prompt_tokens": 200000, "input": "6", "output": "22.5"}],
//	      "service_tiers": {"batch": {
//	        "input": "1.5", "output": "7.5",
//	        "above": [{"prompt_tokens": 200000, "input": "3", "output": "11.25"}]
//	      }}
//	    },
//	    "chat-small*": [
//	      {"input": "0.1", "output": "0.4"},
//	      {"from": "2026-07-01", "input": "0.08", "output": "0.3"}
//	    ],
//	    "pictures": {"image": "0.04", "images": [{"size": "1024x1024", "quality": "hd", "price": "0.08"}]}
//	  },
//	  "aliases": {"large": "chat-large"},
//	  "accounts": {"acme": "0.9", "*": "1.2"},
//	  "default": {"input": "10", "output": "30"}
//	}
//
// A price is a decimal number, as a number of JSON or as a string. These members are prices:
//
//   - for a million tokens: input, cache_read, cache_write, cache_write_ and a lifetime such as 1h or 30m,
//     audio_input, image_input, output, reasoning, audio_output, image_output;
//   - for a million characters: characters;
//   - for one: image, search_unit, request, and audio_second, audio_minute or audio_hour.
//
// Tokens that a cache keeps for some time have the price of the longest lifetime with a price that is
// not longer, or else that of cache_write. Lifetimes are numbers of s, m, h or d. The other kinds of tokens
// of prompts and completions then have the price of input and of output. A price of zero is one; a
// price that is not given is none, and a record that uses only such units, or prompt or completion
// tokens besides no other unit with a price, is an error.
//
// "images" has prices for a size, a quality or both. The most specific one that matches is used,
// and else the price of "image". The quality and the size of a request that names none are "auto".
//
// "above" has prices of requests with more prompt tokens than "prompt_tokens", those of caches
// included: the whole request is billed by them. "service_tiers" has prices of the tiers that
// [llmhttp.UsageRecord] tells. In both, prices that are not given are those of shorter prompts and
// the standard ones; a tier without prices has the standard ones. If "above" changes a price,
// each tier that has this price must have one above that length, too.
//
// An array has the prices of a model from different times on: "from" is a time or a date in UTC,
// which is compared with the Time of the record. It may be missing in one of them.
//
// In the names of models and accounts, * matches any text. A name without * is preferred, then
// the pattern with the most other characters; patterns that are equally specific must not match
// the same name. The prices of an account are multiplied by its factor, with up to 9 decimal
// places. Accounts without one pay the prices as they are.
//
// [Parse] accepts only what it understands. [ParseLiteLLM] reads the format of LiteLLM's file of
// prices; docs/pricing.md in the repository lists what it reads of it.
//
// # Which model
//
// A record is billed by the model that served it, as the Backend's reply names it, or else by
// the model that the client named. The estimate with which a Handler reserves a quota does not
// know who serves, nor the service tier, and so has the standard price of the model that the client
// named: a host whose own names of models are served by others has prices or aliases for both.
// Only keys with a quota in money are estimated. Without one, a request for a model without a price
// is served and recorded as unpriced. [Table.Check] tells at the start of a program which models of
// its Backend have no price.
//
// # Nothing is billed twice
//
// Some Units contain others. Each token is billed once. A prompt token that is of several kinds
// is billed as the first of these that it is: read from the cache, written to it, audio, image,
// other. A completion token is billed as reasoning, audio or other. So a kind can at most have as
// many tokens as there are.
//
// Images of a request for images are billed by their completion tokens if the record has some and
// image_output has a price, else by the image; the completion tokens are then not billed. If only
// image_output has a price, images whose tokens are not known are billed by an estimate of the Handler,
// as they are before the Backend is called under a quota in money. Audio is billed by
// characters if the record and the table have them, else by tokens if there are completion tokens
// and output has a price, else by its duration. Tokens of speech that are an estimate are only billed if
// neither characters nor the duration have a price.
//
// A request costs its price only in the first of its records, whose Part is zero.
//
// # Rounding
//
// All computations are exact: they use integers, never floating-point numbers. Each part of an
// [llmhttp.Cost] is the exact sum of its prices, times the factor of the account, and is then
// rounded once to the nearest billionth, and half up. Prices are not rounded when they are read:
// those with more than 30 decimal places for one unit are mistakes. Sums that do not fit are the largest [llm.Money].
package pricing
