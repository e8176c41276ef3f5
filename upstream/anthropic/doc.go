// Package anthropic provides a [Backend] that forwards chats to a server of Anthropic's Messages API: Anthropic's own, one of
// another vendor, or another llmhttp.
//
//	b, err := anthropic.New("https://api.anthropic.com", &anthropic.Options{
//		Server: upstream.Options{Key: os.Getenv("ANTHROPIC_API_KEY")},
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	h := llmhttp.NewHandler(b, keys, &llmhttp.Options{
//		Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Anthropic: true})}, // of package messages
//	})
//
// What package upstream documents of transports, timeouts, bounds, reading on, redirects, compression and errors holds here
// too, and the Err of an error is an [upstream.Error] as well.
//
// # Requests
//
// The messages of a chat become turns. Those of the roles system and developer are the system prompt, also if they come later:
// before version 2026-10-21 the API has no other place for them. Results of tools that follow each other, and the
// message of the user after them, are one turn. Images and PDFs may be data or addresses. The last message may be the
// assistant's beginning of the reply.
//
// Reasoning of earlier turns is sent where it has a signature or is encrypted: see Options.UnsignedThinking. That of other
// vendors is left out.
//
// A reasoning_effort becomes adaptive thinking and output_config.effort, or a budget: see Options.ThinkingBudgets. The members
// "thinking" and "output_config" of the request take precedence. A schema of the reply is output_config.format; the
// response format json_object has no form in the API, so only the prompt asks for it. A temperature above 1 is 1.
//
// These members of a request are sent under their own names, if it has them: cache_control, context_management, container,
// mcp_servers, speed, diagnostics, compaction, inference_geo and top_k. Members that the API does not know are left out, because a
// server refuses them: seed, logprobs, logit_bias, presence_penalty, frequency_penalty, verbosity, prediction, modalities,
// metadata, store and all others. A server that does not know cache_control may refuse it: see Options.OmitCacheControl.
//
// Tools whose type ends in a date, such as web_search_20250305, are sent as they are. Other types than functions are left out,
// and a request that has no other tools gets a 400, and so does content of other types than texts, images and files.
//
// # Replies
//
// A reply is read by its content, not by its Content-Type. Events need no "event:" line, blocks need no beginning and no end,
// and the usage may be at the start or at the end. A stream that ends before its stop_reason has come is an error.
//
// The tokens of a prompt include those that were read from the cache or written to it, and the usage those of compactions.
// What the usage has besides, such as server_tool_use, is in its Extra. What searches cost, and what the models of advisors
// have used, is not a part of it.
//
// Blocks of tools that Anthropic runs, such as server_tool_use and web_search_tool_result, and citations, are in the member
// "anthropic" of the Extra of a Delta: they reach the clients of package messages as the server sent them, and come back that
// way if messages.Options.Anthropic is set. Clients of chat completions ignore the member. They get citations of web pages as
// annotations too. A message whose thinking, texts and calls are in another order than that has the member as well.
//
// A stop reason that chat completions do not have is the choice's native_finish_reason, with stop, or with length for
// model_context_window_exceeded. A refusal is content_filter; its details are the choice's stop_details.
//
// A prompt that is too long has the status 400 and the code "context_length_exceeded". An overloaded server is a 503, which
// package messages sends as 529. An account without credit is a 502, because it is the operator's.
package anthropic
