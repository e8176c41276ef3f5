// Package messages serves the Messages API of Anthropic with an
// [llmhttp.Handler], so that its SDKs, and agents such as Claude Code, can use any
// [llmhttp.Backend].
//
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{
//		Protocols: []llmhttp.Protocol{messages.New(nil)},
//	})
//
// The Handler then serves, besides the endpoints of OpenAI's API:
//
//   - POST /v1/messages, whole and streamed
//   - POST /v1/messages/count_tokens
//   - GET /v1/models and GET /v1/models/{id}, for requests with the header
//     Anthropic-Version
//
// Both versions of the API are served, 2023-06-01 and 2026-10-21. A key may be in the header
// X-Api-Key or in Authorization as a bearer token.
//
// # Requests
//
// A request becomes an [llm.ChatRequest]. Turns that follow each other with the
// same role are merged. The results of tools come before the rest of the user's
// turn, as messages with RoleTool. Thinking is in Message.Reasoning, and with its
// signature in Message.ReasoningDetails. What has no field is in Extra under the
// name that other servers of chat completions use: "top_k", "user", "service_tier",
// "speed", and "thinking" if it has a budget.
//
// A request with max_tokens: 0 fills the prompt cache: the message is empty, and its prompt is charged. The
// Backend is asked for one token, because servers of chat completions refuse zero, so its usage can have a
// token of output, which is charged too. inference_geo names the place where the model must run. It is
// refused unless it is "global" or one of [Options].InferenceGeos.
//
// Unless Options.Anthropic is set, tools that Anthropic runs or defines, such as web_search, and the blocks of their
// calls and results are ignored, and so are parameters that this
// package does not know. A request that has no other tools gets a 400, and so do threads and
// files that were uploaded before.
//
// The marks of what servers should cache, cache_control, are kept as the client wrote them: in the Extra of parts, tool
// calls, tools and the request, under their own name. Of a block that becomes several parts the last is marked; a block
// that becomes nothing marks what comes before it in its turn. A system prompt with marks is in parts, of which all but
// the first begin with the blank line that is between the paragraphs of one without. Package upstream sends marks only
// to servers that know them.
//
// A budget of thinking tokens becomes an effort: low below 4,096 tokens, medium below 16,384, and
// otherwise high. Servers of chat completions that refuse unknown parameters refuse "thinking": a
// Backend in front of them deletes it. Of a request with both X-Api-Key and a bearer token, the
// bearer token is ignored; two X-Api-Key headers are refused.
//
// # Replies
//
// A stream begins with message_start, which is sent with the first chunk of the
// Backend, or after a second if the Backend is silent. An error before that is a
// reply with an HTTP status, which SDKs retry; later it is an event. With a negative
// Options.Bounds.KeepAlive the stream begins with the first chunk. The input tokens at the start,
// which some clients show, are an estimate; the end has those that the Backend reports.
//
// The blocks of a stream never overlap, even if the Backend yields their parts in turns: while a
// tool call is incomplete, everything that belongs to other blocks is held back. A stream has the
// arguments of a call as the model wrote them, even if the token limit cut them or if they are not
// a JSON object. In a whole reply, where the input must be an object, such arguments are its member
// INVALID_JSON. Both are logged as a warning. A client that sends that back sends it to the model, and
// servers such as vLLM refuse conversations with arguments that are not JSON. A reply fails if
// arguments of a call come after the call was complete and another block has begun.
//
// A signature that the Backend yields after the text that follows the reasoning is lost in streams. So
// are annotations that come after the text has ended, and annotations other than url_citation. A
// citation belongs to a block and not to characters, so text after one begins another block.
package messages
