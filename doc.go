// Package llmhttp serves the widely used /v1 API for chat, images and
// embeddings over net/http.
//
// Implement [Backend], one method that returns a reply as a stream of chunks,
// and mount the [Handler] that [NewHandler] returns. Clients made for this API
// need only another base URL.
//
//	shout := llmhttp.BackendFunc(func(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
//		last := req.Messages[len(req.Messages)-1] // never empty: the Handler has checked
//		return llmhttp.Reply(strings.ToUpper(last.Content.Text()))
//	})
//	h := llmhttp.NewHandler(shout, memory.Keys("sk-demo"), nil)
//	log.Fatal(http.ListenAndServe("localhost:8080", h))
//
// The Handler reads and checks requests, admits their keys, enforces limits,
// streams or joins the reply as the client asked, words errors and records
// usage. It owns no listener, no files and no global state. What it needs of
// the kind comes from its host: a [KeyStore] and, in [Options], a [UsageStore],
// a [Limiter], an [Observer] and a logger.
//
// # Backends
//
// A [ChatStream] is an iterator. The Backend yields chunks as its model
// speaks, and each is on its way to the client before yield returns:
//
//	func (b *Bot) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
//		return func(yield func(*llmhttp.ChatChunk, error) bool) {
//			for text, err := range b.model.Generate(ctx, req.Messages) {
//				if !yield(llmhttp.TextChunk(text), err) || err != nil {
//					return
//				}
//			}
//		}
//	}
//
// The same Backend serves whole replies: the Handler joins the chunks, as
// [Collect] does. The context is done when the client leaves, when the Backend
// was silent for longer than Options.Timeout, and when [Handler.Shutdown] has
// waited long enough.
//
// A Backend that does more than chat implements [ModelLister],
// [ImageGenerator], [ImageSizer] or [Embedder] as well. Endpoints that it does
// not implement are not found. To wrap a Backend, embed a [Forwarder], which
// has all of these methods.
//
// # Errors
//
// A Backend, a KeyStore or middleware tells the client what went wrong with an
// [*Error]. The text of any other error stays in the log. Before the first
// chunk an error is an HTTP status. After it, it is an event of the stream, and
// the connection is cut: ServeHTTP panics with [http.ErrAbortHandler], so
// middleware that recovers from panics must let that value pass.
//
// # Keys, limits and usage
//
// Requests present a secret as "Authorization: Bearer <secret>". The KeyStore
// tells which [Key] it stands for: who pays, what it may call, until when, and
// within which [Limits]. What is recorded is one [UsageRecord] for each request
// that the Backend had to do with, under the ID that the client got as
// x-request-id.
package llmhttp
