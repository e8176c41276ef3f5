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
// The Handler authenticates and validates requests, enforces limits, streams or
// joins replies, writes errors and records usage. It owns no listener, no files
// and no global state. The host, which is the program that mounts the Handler,
// supplies a [KeyStore] and, in [Options], a [UsageStore], a [Limiter], an
// [Observer] and a logger. [Serve] runs the host's [http.Server] and stops it.
//
// # The order of a request
//
// A request is served in this order:
//
//  1. It gets an ID, which the client sees as x-request-id. The Observer is called.
//  2. The route is found by method and path (else 404 or 405), and the key by the secret that the
//     request presents (401). The key must have the scope of the operation (403), and the Backend,
//     or what it wraps, its method (404).
//  3. The request is counted as one in progress, and one request is taken from
//     the limits of the key and of its Subjects. If they do not allow it, the reply is 429.
//  4. The body is read, decoded and validated (400). The key must allow the model (404). The same is
//     then taken from the limits of the end user, if the key has PerUser.
//  5. An estimate of the tokens is reserved from the limits of all of them (429). A request that
//     is refused by any of the checks so far, this one included, takes nothing from any
//     limit.
//  6. The Backend is called. Its chunks are put in valid order, encoded and sent.
//  7. The tokens that were reserved are corrected to those used, and the usage
//     is recorded. A successful reply ends only after that.
//  8. The function that the Observer returned is called.
//
// # Backends
//
// A [llm.ChatStream] is an iterator. The Backend yields chunks as its model generates them, and each is
// on its way to the client when yield returns:
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
// The same Backend serves whole replies: the Handler joins the chunks as
// [join.Collect] does. The context is done when the client leaves, when the Backend
// is silent for longer than Options.Bounds.Timeout, and when [Serve] or [Handler.Shutdown]
// stops waiting. Yield must not be called concurrently.
//
// A Backend that does more than chat also implements [ModelLister],
// [ImageGenerator], [ImageStreamer], [ImageSizer], [Embedder] or [TokenCounter],
// or the interface of a package such as completion or rerank, whose routes
// are in Options.Routes; package all has all of these. A wrapper that embeds a Backend has Chat alone. One that lets the
// rest pass has a method Unwrap, by which [As] finds it; one that checks or changes requests has none. Package textfilter,
// for redaction and guardrails, sees every text or hides the method. [llm.Tee] reads a stream that passes, and a [SwappableBackend] is a
// Backend that can be replaced while requests run. Clients read the
// context window, the output limit and the capabilities of a [llm.Model], so set those that
// are known.
//
// An agent is a Backend that calls another one several times, and tools in between. Package agent has
// one. Its parts are for others: its ForwardReply sends on what the model says and returns its reply,
// its CallTools runs the tool calls in parallel, [llm.StartCall] accounts for each call of a model by itself,
// and [llm.NewStream] turns the steps, which return errors, into a [llm.ChatStream].
//
// # Errors
//
// A Backend, a KeyStore or middleware tells the client what went wrong with an
// [*llm.Error]. The text of any other error is only logged. Before the first chunk
// an error is an HTTP status. After it, it is an event of the stream. In chat
// completions, where a clean end means success, the connection is then cut:
// ServeHTTP panics with [http.ErrAbortHandler], so middleware that recovers from
// panics must let that value pass.
//
// # Keys, limits and usage
//
// A [Key] has an account, scopes, models, an expiry and [Limits]. The rates among
// the limits are token buckets. The tokens of a reply are not known in advance, so
// the Handler reserves the tokens of the prompt and of the longest reply: the
// maximum that the client or Limits.MaxCompletionTokens sets, or without one
// Options.Estimates.ReserveCompletion. When the request has ended, it settles the difference
// between the reservation and the usage. That may put a bucket into debt; it must
// then refill before it admits a request.
//
// A request counts toward several subjects: its key, what Key.Subjects lists, such as the
// account and a team, and the end user whom the client or Options.User names. Each may have
// limits, and all of them must allow the request. The x-ratelimit headers tell, of each
// rate, the subject that is nearest to its end. A refusal names the kind of the subject, unless
// it is the key, and takes nothing from the others.
//
// Limits on tokens are therefore inexact in these cases: the prompt is estimated, unless
// Options.Estimates.TextTokens counts exactly; a reply without a maximum may be longer than what was
// reserved; the tokens of images and speech are known only afterwards. Each request in progress can
// overrun a limit by that difference. Limits.MaxCompletionTokens and Limits.Concurrent bound it.
//
// There is one [UsageRecord] for each request that asked the Backend for an
// [Operation], with the usage that the Backend reported or an estimate.
// The numbers agree with each other, whatever a server sends: total_tokens is the sum of the
// others, tokens that only it counts are added to them, and cached and reasoning tokens are within
// their total. An estimate counts everything that was sent and received: four bytes of
// text are a token, an image, a recording or a file is 85, and for each 512 bytes of its base64
// one more, or for each 16 bytes of a file that is neither an image, audio, video nor text.
// GET /v1/dashboard/billing/usage returns the usage of the key's account by day
// and model. The query parameters start_date and end_date are dates in UTC of the
// form 2006-01-02. end_date is not part of the range, unless it is start_date, and
// is tomorrow by default. start_date is 100 days before end_date by default. The
// range has at most 366 days. The reply has OpenAI's legacy members daily_costs
// (timestamp and line_items with name and cost) and total_usage, in cents of what
// Options.Price returned, and besides prompt_tokens, completion_tokens, total_tokens,
// requests and images.
//
// GET /v1/dashboard/billing/subscription returns the limits of the Quota of the key, or of that of
// its Subjects of which the least is left, in the legacy members soft_limit_usd, hard_limit_usd and
// system_hard_limit_usd, and for Tokens in hard_limit_tokens. The first three are 100000000 if the
// key has no such limit. Clients compute what is left: they subtract total_usage of the calendar
// month if has_payment_method is true, and otherwise of the last 100 days. So that the result is
// right, has_payment_method is true if every Quota is by calendar month, and the limits include
// what the account used in these days and what does not count toward the Quota. access_until is the
// expiry of the key in Unix seconds, 0 if there is none.
//
// # Who pays
//
// Options.Price returns what a request costs, for example from a table of package pricing, and the
// record keeps it. A Quota with a Cost limits what a key, or one of its Subjects such as its
// account, spends. Key.PerUser limits the end users of a key, whom the client or Options.User
// names. The example reseller has all three. The KeyStores of packages memory and sqlstore keep
// such limits of accounts and what was paid in advance: see the AccountManager of package manage.
// Package quotawatch tells when 80 % and when all of a Quota are used.
//
// # Logs
//
// The Handler logs causes of 5xx replies and failures of the host's functions at level Error,
// mistakes of a Backend at Warn, requests that Shutdown interrupts at Info, and disconnected
// clients at Debug. NewHandler logs at Info what the Backend could do that is not mounted. It logs no contents of requests, but the text of an error or a panic of the
// host's code can quote them. The API key of the request is removed from such a text, if it has at
// least 8 bytes.
//
// # Endpoints of hosts
//
// Options.Routes are endpoints beside those of this package, which [NewRoute] makes of an [Endpoint] and
// of a function that gets a [Call]. Requests for them have the same keys, limits, usage, prices,
// Observers and streams, and scopes and operations of their own: see [Scope.Validate]. One whose Backends
// yield an [llm.ChatStream] calls Generate of the Call, as package completion does. The example
// ownendpoint has one. What authors of endpoints need may change in minor versions before version 1.
// These are the names:
//
//   - [NewRoute], [Endpoint], [Has] and [Call]: a path, its operation, and what is done for a request
//   - [Estimate] and [Used]: what a request is expected to use, and what it has used
//   - [Output], which is [OutputText], [OutputImages], [OutputAudio], [OutputNone] or [OutputReported]:
//     how the tokens of a reply are estimated
//   - [ReplyStream], [AppendStream] and [Progress]: a reply in pieces
//
// # Limiters
//
// A [Limiter] of a host's own, such as that of package redislimit, is tested by package limitertest. These
// are the names that only its author needs: [ConcurrencyLimiter] and [Reserver], which it may be, and which
// [LimiterAs] finds in what it wraps; [BucketAmount], [BucketLevel] and [SlotAmount].
//
// # Protocols
//
// A [Protocol] is a wire format besides OpenAI's API. Packages messages and responses have
// one each; hosts only put them in Options.Protocols. What authors of others need is
// unstable until version 1: it may change more than the rest of this package. These are the
// names:
//
//   - [Protocol], [Route] and [Binding]: the paths of a format, and the operation behind each,
//     by [BindChat], another function whose name begins with Bind, or [BindQuery], which
//     returns a [QueryReply]; those of endpoints that are packages, such as rerank, by
//     NewRoute and the Serve of the package
//   - [ChatEncoder], [Framing], [EventStream], [join.Accumulator], [ReplySaver], [ReplyStart]: how the
//     reply to a chat, or that of [Call.Generate], is encoded and sent. [ImageEncoder] encodes that to a
//     request for a stream of images, generated or edited
//   - [ReplyInfo], [LimitInfo]: what the headers of a reply tell
//   - [ReserveChat], [CountLoaded], [CountUnsent], [SetConversation], [LogBackendMistake]: what a Protocol
//     tells the Handler about a request
//   - [ChatCompletions], [BearerSecret], [AllowsUnknownMember], [AppendJSON], [DecodeJSON],
//     [ErrResponseStore]: helpers
//
// A Protocol only translates; the Handler does what all formats have in common. So every
// call of a model is authorized, limited and recorded in the same way, in every format.
package llmhttp
