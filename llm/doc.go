// Package llm has the vocabulary of language models: what is asked of a model and what it replies.
//
//	func (Bot) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
//		return llm.Reply("You said: " + req.Messages[len(req.Messages)-1].Content.Text())
//	}
//
// A Backend, a filter of requests and replies, and a client of models need no more. Package llmhttp
// serves Backends: it checks requests before a Backend gets them, and completes replies.
//
// The types have the form of OpenAI's API. The other formats are converted to them. Members that a
// type has no field for are in its [Extra], so that they pass in both directions.
//
// The reply to a [ChatRequest] is a [ChatStream]; [Reply], [Fail], [NewStream] and [FromChannel] make
// one. Package llm/join joins its chunks. An [*Error] is told to the client; the text of other errors
// is logged.
package llm
