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
//   - POST /v1/responses/compact
//   - POST /v1/responses/input_tokens
//   - with a [responsestore.Store]: GET and DELETE /v1/responses/{id}, and GET
//     /v1/responses/{id}/input_items
//   - with Options.CodexInstructions: GET /v1/models for Codex, which sends client_version
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
//   - Hosted tools, such as web_search, are ignored. A tool_choice that demands a hosted tool is
//     refused.
//   - Calls of hosted tools, in conversations that were begun elsewhere, become calls of
//     functions, and their outputs messages of the tool: of mcp_call, file_search_call,
//     code_interpreter_call, image_generation_call without the image, local_shell_call,
//     shell_call, apply_patch_call and program.
//   - Items that tell nothing of the conversation are ignored: web_search_call, whose result is
//     in the text that follows, tool_search_call, tool_search_output, mcp_list_tools,
//     configuration_update and ghost_snapshot. So is the encrypted_content of reasoning that this
//     server has not encrypted, because the model can do without.
//   - Of items of other types, such as agent_message, the content is taken. Those without content,
//     such as computer_call, are refused, and so are parts of unknown types without text, because
//     the model would answer without knowing what they tell.
//   - The output of a call is a message of the tool. Without a call_id, as Codex sends
//     its goal, it is a message of the user.
//   - Parameters of the same meaning are in the fields of the ChatRequest. All others are in its Extra
//     under their names, as those of a request for chat completions are: metadata, service_tier,
//     prompt_cache_options, moderation, context_management and those that are new. Parts have
//     prompt_cache_breakpoint and the like in theirs. Servers of chat completions that refuse unknown
//     parameters refuse them: a Backend in front of those deletes them.
//     [llmhttp.AcceptOptions].UnknownMembers decides which a request may have.
//   - client_metadata, stream_options, truncation and max_tool_calls are ignored, and so are members with
//     the name of a parameter that only chat completions have, such as n.
//   - prompt_cache_options with prewarm fills the prompt cache: the Backend is asked for one token, because
//     servers refuse zero, and the response has no output. Its usage is charged.
//
// # Replies
//
// A stream begins with response.created, which is sent with the first chunk of the
// Backend, or after a second if the Backend is silent. An error before that is a
// reply with an HTTP status, which SDKs retry; later it is the event
// response.failed. One item that takes text is open at a time: a reply has at most 4096 items, and fails
// if the Backend alternates between reasoning and text more often. The arguments of calls may arrive
// in turns, so calls are done when the reply is. The input of a custom tool arrives in one delta when it
// is complete, because it is a JSON string until then. Annotations that come after their text has
// ended are dropped, and so are those other than url_citation.
//
// The reasoning of a reply is the summary of a reasoning item. If the client
// includes reasoning.encrypted_content, the item also carries the
// [llm.ReasoningDetail] values of the Backend, encrypted, and they come back
// with the next request.
//
// # Compaction
//
// A conversation can be replaced by a summary, which the Backend writes. The client asks for it with an
// item compaction_trigger at the end of the input, as Codex does if its provider is named OpenAI, or by POST
// /v1/responses/compact, as the SDKs do. The Backend gets the conversation, the tools with the tool_choice
// "none", so that it begins as other requests and a cache of prompts has it, and [Options].CompactPrompt. The
// reply to a trigger has one item of the type compaction, whose encrypted_content is the summary. The reply
// to POST /v1/responses/compact has the messages of the user before it; it is not stored. Tokens
// are limited, charged and recorded as for other replies.
//
// If a request contains the item, the summary is a message of the user. Of what is before the item, only
// definitions of tools, and messages that are not the assistant's, are sent to the Backend. Of stored
// messages, and of those in the reply to POST /v1/responses/compact, the latest are kept that have
// 256 KiB together, as JSON. An item that was encrypted by another server, with another secret or for another
// account is refused with the code invalid_encrypted_content.
//
// A summary that is empty, or was cut by a limit on tokens or a content filter, is a failure with the status
// 502, or the event response.failed. Its tokens are charged. A parameter context_management does not make the
// server compact.
//
// # Stored responses
//
// A response is stored before its last event is sent. The store has a second for that;
// see [Options].RequireStore for what happens if it fails. The Conversation of the
// [llmhttp.RequestInfo] is the ID of the first response of a conversation, from its first
// turn on. It is empty if that is not stored.
//
// What previous_response_id and references load is bounded, to 4096 responses, 65,536 items and 64 MiB,
// and read with one query of the store for each response. If one of the responses was deleted or has
// expired, the request is refused. The limits of the key are checked before anything is loaded, for
// what the request contains itself, and afterwards for the rest. What was taken and loaded counts if the
// request is then refused: see [llmhttp.ReserveChat] and [llmhttp.CountLoaded].
//
// Requests for a WebSocket get a 426 without Upgrade, after which clients use HTTP. The module responsesws, in front of
// the Handler, accepts them.
package responses
