// Package llmhttp serves LLM APIs over net/http: chat, images, embeddings, speech, transcriptions,
// the model list and usage, in the format of OpenAI's API.
//
// Implement [Backend], one method that returns a reply as a stream of chunks, and mount the
// [Handler] that [NewHandler] returns. Clients of the API need only another base URL.
//
//	shout := llmhttp.Choices(llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
//		last := req.Messages[len(req.Messages)-1] // never empty: the Handler has checked
//		return llm.Reply(strings.ToUpper(last.Content.Text()))
//	}))
//	h := llmhttp.NewHandler(shout, memory.NewKeyStore("sk-demo"), nil)
//	log.Fatal(http.ListenAndServe("localhost:8080", h))
//
// The Handler authenticates and validates requests, enforces limits, streams or joins replies,
// writes errors and records usage. It owns no listener, no files and no global state. The host,
// which is the program that mounts the Handler, supplies a [KeyStore] and, in [Options], a
// [UsageStore], a [Limiter], an [Observer] and a logger. [Serve] runs the host's [http.Server] and
// stops it.
//
// # Backends
//
// A Backend yields chunks as its model generates them. The Handler sends them one by one, or joins
// them if the client wants a whole reply:
//
//	func (b *Bot) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
//		return func(yield func(*llm.ChatChunk, error) bool) {
//			for text, err := range b.model.Generate(ctx, req.Messages) {
//				if !yield(llm.TextChunk(text), err) || err != nil {
//					return
//				}
//			}
//		}
//	}
//
// An error that is an [*llm.Error] tells the client what went wrong. All other errors are only
// logged. Package agent is a Backend that lets a model call tools, and has parts for other agents.
//
// # Where to read on
//
//   - [Handler]: the order in which a request is checked, limited, served and recorded
//   - [Backend] and [As]: what a Backend can do besides chats, and wrappers of Backends
//   - [Key], [Subject], [Limits], [Quota]: who may do what, and how much. Options.Price tells what
//     requests cost; package manage has prepaid accounts; package quotawatch tells when a Quota is
//     nearly used
//   - [UsageRecord], [TokenEstimates]: what is recorded, and how it is estimated
//   - [ScopeUsage]: the endpoints that show clients what they have used
//   - [Observer], Options.Logger: what operators see
//
// # Endpoints of hosts
//
// Options.Routes are endpoints beside those of this package. Requests for them have the same keys,
// limits, usage, prices, Observers and streams; package rerank and the example ownendpoint show how.
// What their authors need may change in minor versions before version 1:
//
//   - [NewRoute], [Endpoint], [Has] and [Call]: a path, its operation, and what is done for a request
//   - [Estimate] and [Used]: what a request is expected to use, and what it has used
//   - [Output]: [OutputText], [OutputImages], [OutputAudio], [OutputNone] or [OutputReported]
//   - [ReplyStream], [AppendStream] and [Progress]: a reply in pieces
//
// # Protocols
//
// A [Protocol] is a wire format besides OpenAI's API, such as those of packages messages and
// responses. It only translates: every call of a model is authorized, limited and recorded in the
// same way, in every format. Until version 1, what authors of others need may change more than the
// rest of this package:
//
//   - [Route] and [Binding]: paths, and the operation behind each, by [BindChat] or another function
//     whose name begins with Bind, such as [BindQuery] with its [QueryReply], or by NewRoute
//   - [ChatEncoder], [Framing], [EventStream], [ReplySaver], [ReplyStart], [ImageEncoder]: how replies
//     are encoded and sent. A [join.Accumulator] joins chunks
//   - [ReplyInfo], [LimitInfo]: what the headers of a reply tell
//   - [ReserveChat], [CountLoaded], [CountUnsent], [SetConversation], [SetModelName],
//     [LogBackendMistake]: what a Protocol tells the Handler about a request
//   - [ChatCompletions], [BearerSecret], [AllowsUnknownMember], [AppendJSON], [DecodeJSON],
//     [ErrResponseStore]: helpers
//
// # Limiters
//
// A host passes a [Limiter] on: that of NewLimiter, or of package redislimit. Authors of others need
// these names; package limitertest has the tests:
//
//   - [BucketAmount] and [BucketLevel]: what is taken from a token bucket, and what is left
//   - [ConcurrencyLimiter], [Reserver] and [SlotAmount]: requests in progress and quotas that several
//     Handlers share
//   - [LimiterAs]: what a Limiter wraps
package llmhttp
