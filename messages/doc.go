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
// and "thinking" if it has a budget.
//
// Tools that Anthropic runs or defines, such as web_search, and the blocks of their
// calls and results are ignored, and so are cache_control and parameters that this
// package does not know. Files that were uploaded before are refused.
//
// # Replies
//
// A stream begins with message_start, which is sent with the first chunk of the
// Backend, or after a second if the Backend is silent. An error before that is a
// reply with an HTTP status, which SDKs retry; later it is an event.
//
// The blocks of a stream never overlap, even if the Backend yields their parts in turns: while a
// tool call is incomplete, everything that belongs to other blocks is held back. A stream has the
// arguments of a call as the model wrote them, even if the token limit cut them or if they are not
// a JSON object. In a whole reply, where the input must be an object, such arguments are its member
// INVALID_JSON. Both are logged as a warning.
package messages
