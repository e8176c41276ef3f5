// Package responses serves OpenAI's Responses API with an [llmhttp.Handler], so that
// its SDKs, and agents such as Codex, can use any [llmhttp.Backend].
//
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{
//		Protocols: []llmhttp.Protocol{responses.New(nil)},
//	})
//
// The Handler then serves, besides the other endpoints:
//
//   - POST /v1/responses, whole and streamed
//   - POST /v1/responses/input_tokens
//   - with a [responsestore.Store]: GET and DELETE /v1/responses/{id}, and GET
//     /v1/responses/{id}/input_items
//
// With a store, clients can also continue from previous_response_id and refer to
// items by ID.
//
// # Requests
//
// A request becomes an [llm.ChatRequest]:
//
//   - The instructions are the first message. Items of the input become messages.
//     Consecutive texts, calls and reasoning of the assistant become one message.
//   - A custom tool becomes a function with one parameter, the string "input". A
//     tool of a namespace becomes a function whose name begins with that of
//     the namespace. Calls are translated back.
//   - Hosted tools, such as web_search, are ignored, and so are items that have no
//     text and are not known.
//   - The output of a call is a message of the tool. Without a call_id, as Codex sends
//     its goal, it is a message of the user.
//   - Parameters of the same meaning are in the fields of the ChatRequest. metadata,
//     service_tier, user, safety_identifier, prompt_cache_key and
//     prompt_cache_retention are in its Extra.
//
// # Replies
//
// A stream begins with response.created, which is sent with the first chunk of the
// Backend, or after a second if the Backend is silent. An error before that is a
// reply with an HTTP status, which SDKs retry; later it is the event
// response.failed.
//
// The reasoning of a reply is the summary of a reasoning item. If the client
// includes reasoning.encrypted_content, the item also carries the
// [llm.ReasoningDetail] values of the Backend, encrypted, and they come back
// with the next request.
//
// # Stored responses
//
// A response is stored before its last event is sent. The store has a second for that;
// see [Options].RequireStore for what happens if it fails. The Conversation of the
// [llmhttp.RequestInfo] is the ID of the first response of a conversation, from its first
// turn on. It is empty if that is not stored.
//
// What previous_response_id and references load is bounded, and the limits of the key are
// checked before anything is loaded, and what was loaded counts if the request is then
// refused: see [llmhttp.ReserveChat] and [llmhttp.CountLoaded].
package responses
