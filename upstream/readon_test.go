package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

const largeUsageChunk = `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[],"usage":{"prompt_tokens":50000,"completion_tokens":100000,"total_tokens":150000}}`

// leavingRequests ask for a stream in each protocol.
var leavingRequests = map[string]struct{ path, body string }{
	"chat completions": {chatPath, askStream},
	"messages":         {"/v1/messages", `{"model":"m","max_tokens":1000,"messages":[{"role":"user","content":"Hello?"}],"stream":true}`},
	"responses":        {"/v1/responses", `{"model":"m","input":"Hello?","stream":true}`},
}

// A watchedBackend signals when a finish_reason was passed on, and when the client has left.
type watchedBackend struct {
	llmhttp.Backend
	finished, left chan struct{}
}

func (b *watchedBackend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		context.AfterFunc(ctx, func() { b.left <- struct{}{} })
		b.Backend.Chat(ctx, req)(func(c *llm.ChatChunk, err error) bool {
			finished := c != nil && len(c.Choices) > 0 && c.Choices[0].FinishReason != ""
			more := yield(c, err)
			if finished {
				b.finished <- struct{}{}
			}
			return more
		})
	}
}

// directBackend is a Backend that finds out its usage after the client has left.
func directBackend(left <-chan struct{}) llmhttp.BackendFunc {
	return func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			llm.Reply("Hello")(yield)
			<-left
			llm.ReportUsage(ctx, llm.Usage{PromptTokens: 50000, CompletionTokens: 100000})
		}
	}
}

// A client that has a whole answer and leaves before its usage comes pays what it used.
func TestReadOn_WholeAnswers(t *testing.T) {
	for protocol, ask := range leavingRequests {
		for _, kind := range []string{"upstream", "route", "direct"} {
			t.Run(protocol+"/"+kind, func(t *testing.T) {
				checkLeaks(t)
				testWholeAnswers(t, kind, ask.path, ask.body)
			})
		}
	}
}

func testWholeAnswers(t *testing.T, kind, path, body string) {
	watched := &watchedBackend{finished: make(chan struct{}, 1), left: make(chan struct{}, 1)}
	switch kind {
	case "direct":
		watched.Backend = directBackend(watched.left)
	default:
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", mediaEvents)
			io.WriteString(w, eventStream(textChunk("Hello"), stopChunk))
			http.NewResponseController(w).Flush()
			<-watched.left
			io.WriteString(w, eventStream(largeUsageChunk, done))
		}))
		t.Cleanup(server.Close)
		watched.Backend = newBackend(t, server.URL+"/v1", nil)
	}
	if kind == "route" {
		router, err := route.New([]route.Route{{Model: "m", Targets: []route.Target{{Name: "a", Backend: watched.Backend}}}}, nil)
		require.NoError(t, err)
		watched.Backend = router
	}
	usage := memory.NewUsageStore()
	keys := memory.NewKeyStore()
	keys.Add("sk-unlimited", &llmhttp.Key{ID: "unlimited", Account: "unlimited"})
	keys.Add("sk-limited", &llmhttp.Key{ID: "limited", Account: "limited", Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 200_000}}})
	ended := make(chan *llmhttp.RequestSummary, 1)
	h := llmhttp.NewHandler(watched, keys, &llmhttp.Options{
		Usage: usage, Logger: noLog, Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)},
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { ended <- s }}
		},
	})
	gateway := httptest.NewServer(h)
	t.Cleanup(gateway.Close)
	request := func(ctx context.Context, key string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, "POST", gateway.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {mediaJSON}, "Anthropic-Version": {"2023-06-01"}}
		resp, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		return resp
	}
	leave := func(key string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp := request(ctx, key)
		defer resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode)
		<-watched.finished
		cancel()
		s := <-ended
		assert.ErrorIs(t, s.Err, context.Canceled)
		assert.False(t, s.Record.Estimated)
		assert.Equal(t, llmhttp.Units{PromptTokens: 50000, CompletionTokens: 100000}, s.Record.Units)
	}
	for range 10 {
		leave("sk-unlimited")
	}
	sums, err := usage.Query(t.Context(), llmhttp.UsageQuery{Account: "unlimited", From: time.Unix(0, 0), To: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Len(t, sums, 1)
	assert.EqualValues(t, 1_500_000, sums[0].Units.PromptTokens+sums[0].Units.CompletionTokens)

	leave("sk-limited")
	leave("sk-limited")
	resp := request(t.Context(), "sk-limited")
	resp.Body.Close()
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "the quota is used up")
	<-ended
}

// A scriptedBody is the body of a reply that arrives in pieces.
type scriptedBody struct {
	ctx    context.Context // of the request
	pieces []scriptedPiece
}

// A scriptedPiece arrives after a pause. Without data the body is silent from then on.
type scriptedPiece struct {
	pause time.Duration
	data  string
}

func (b *scriptedBody) Read(p []byte) (int, error) {
	if len(b.pieces) == 0 {
		return 0, io.EOF
	}
	var arrived <-chan time.Time
	if b.pieces[0].data != "" {
		arrived = time.After(b.pieces[0].pause)
	}
	select {
	case <-arrived:
		n := copy(p, b.pieces[0].data)
		b.pieces = b.pieces[1:]
		return n, nil
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
}

// How long a request lasts after its client has left, and what is recorded.
func TestReadOn_Time(t *testing.T) {
	const leaves = time.Second // when the client leaves
	text, stop := scriptedPiece{0, eventStream(textChunk("Hello"))}, scriptedPiece{0, eventStream(stopChunk)}
	usageAfter := func(d time.Duration) scriptedPiece { return scriptedPiece{d, eventStream(usageChunk, done)} }
	silent := scriptedPiece{}
	for name, test := range map[string]struct {
		opts     upstream.Options
		whole    bool
		pieces   []scriptedPiece
		shutdown time.Duration // when Shutdown interrupts the request; zero for never
		host     bool          // the host cancels the request, not the client
		want     time.Duration // how long the request lasts after the client has left
		reported bool
	}{
		"usage comes":                           {pieces: []scriptedPiece{text, stop, usageAfter(3 * time.Second)}, want: 2 * time.Second, reported: true},
		"usage never comes":                     {pieces: []scriptedPiece{text, stop, silent}, want: 5 * time.Second},
		"usage comes late":                      {pieces: []scriptedPiece{text, stop, usageAfter(7 * time.Second)}, want: 5 * time.Second},
		"another time":                          {opts: upstream.Options{ReadOn: 8 * time.Second}, pieces: []scriptedPiece{text, stop, usageAfter(7 * time.Second)}, want: 6 * time.Second, reported: true},
		"none":                                  {opts: upstream.Options{ReadOn: -1}, pieces: []scriptedPiece{text, stop, usageAfter(2 * time.Second)}, want: 0},
		"no finish_reason":                      {pieces: []scriptedPiece{text, usageAfter(2 * time.Second)}, want: 0},
		"no finish_reason, read on":             {opts: upstream.Options{ReadOnUnfinished: true}, pieces: []scriptedPiece{text, {2 * time.Second, eventStream(stopChunk)}, usageAfter(0)}, want: time.Second, reported: true},
		"no finish_reason, read on for 5 s":     {opts: upstream.Options{ReadOnUnfinished: true}, pieces: []scriptedPiece{text, usageAfter(7 * time.Second)}, want: 5 * time.Second},
		"no chunk yet, read on":                 {opts: upstream.Options{ReadOnUnfinished: true}, pieces: []scriptedPiece{{2 * time.Second, text.data}, stop, usageAfter(0)}, want: time.Second, reported: true},
		"whole reply":                           {whole: true, pieces: []scriptedPiece{{2 * time.Second, wholeReply}}, want: 0},
		"whole reply, read on":                  {whole: true, opts: upstream.Options{ReadOnUnfinished: true}, pieces: []scriptedPiece{{2 * time.Second, wholeReply}}, want: time.Second, reported: true},
		"a usage in each chunk":                 {pieces: []scriptedPiece{text, stop, {2 * time.Second, eventStream(strings.Replace(usageChunk, "12", "9", 1))}, {time.Second, eventStream(usageChunk, done)}}, want: 2 * time.Second, reported: true},
		"the server fails":                      {pieces: []scriptedPiece{text, stop, {2 * time.Second, "data: {\"error\":{\"message\":\"boom\"}}\n\n"}}, want: time.Second},
		"Shutdown interrupts it":                {pieces: []scriptedPiece{text, stop, silent}, shutdown: 2 * time.Second, want: time.Second},
		"Shutdown interrupts it before the end": {opts: upstream.Options{ReadOnUnfinished: true}, pieces: []scriptedPiece{text, silent}, shutdown: 3 * time.Second, want: 2 * time.Second},
		"Shutdown waits for the usage":          {pieces: []scriptedPiece{text, stop, usageAfter(2 * time.Second)}, shutdown: 3 * time.Second, want: time.Second, reported: true},
		"the host cancels":                      {pieces: []scriptedPiece{text, stop, silent}, host: true, want: 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := test.opts
				opts.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
					return okResponse(mediaEvents, &scriptedBody{r.Context(), test.pieces}), nil
				})
				usage := memory.NewUsageStore()
				var summary *llmhttp.RequestSummary
				h := llmhttp.NewHandler(newBackend(t, "http://upstream.test/v1", &opts), llmhttp.AllowAll(""), &llmhttp.Options{
					Usage: usage, Logger: noLog,
					Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
						return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = s }}
					},
				})
				ctx, cancel := context.WithCancel(t.Context())
				w := &departureRecorder{ResponseRecorder: httptest.NewRecorder(), closed: make(chan bool, 1)}
				time.AfterFunc(leaves, func() {
					if !test.host {
						w.closed <- true
					}
					cancel()
				})
				if test.shutdown > 0 {
					ctx, cancel := context.WithTimeout(context.Background(), test.shutdown)
					defer cancel()
					time.AfterFunc(leaves, func() { h.Shutdown(ctx) })
				}
				serve := func() {
					body := askStream
					if test.whole {
						body = askWhole
					}
					r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost"+chatPath, strings.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Content-Type", "application/json")
					h.ServeHTTP(w, r)
				}
				began := time.Now()
				serveAborted(serve)
				synctest.Wait()
				assert.Equal(t, test.want, time.Since(began)-leaves)
				require.NotNil(t, summary)
				assert.Equal(t, !test.reported, summary.Record.Estimated)
				if test.reported {
					assert.EqualValues(t, 12, summary.Record.Units.Tokens())
				}
			})
		})
	}
}

// A departureRecorder is a ResponseRecorder that tells when the client has left.
type departureRecorder struct {
	*httptest.ResponseRecorder
	closed chan bool
}

func (w *departureRecorder) CloseNotify() <-chan bool { return w.closed }

// serveAborted calls serve, which may panic with http.ErrAbortHandler.
func serveAborted(serve func()) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
	}()
	serve()
}

// Nothing is read on if the client has not left, because the caller that stopped the stream
// waits for it.
func TestReadOn_OnlyWithoutAClient(t *testing.T) {
	endless := func(r *http.Request) (*http.Response, error) {
		return okResponse(mediaEvents, &scriptedBody{r.Context(), []scriptedPiece{
			{0, eventStream(textChunk(strings.Repeat("x", 1000)), stopChunk)}, {}}}), nil
	}
	newEndless := func(t *testing.T) *upstream.Backend {
		return newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: roundTripper(endless), ReadOnUnfinished: true})
	}
	req := func() *llm.ChatRequest { return &llm.ChatRequest{Model: "m", Stream: true} }
	for name, run := range map[string]func(t *testing.T){
		"a loop that ends": func(t *testing.T) {
			for range newEndless(t).Chat(t.Context(), req()) {
				break
			}
		},
		"a context that is canceled": func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range newEndless(t).Chat(ctx, req()) {
				cancel()
			}
		},
		"the reply has all tokens of its limit": func(t *testing.T) {
			keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
				return &llmhttp.Key{ID: "k", Limits: llmhttp.Limits{MaxCompletionTokens: 1}}, nil
			})
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost"+chatPath, strings.NewReader(askStream))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer sk-anything")
			llmhttp.NewHandler(newEndless(t), keys, &llmhttp.Options{Logger: noLog}).ServeHTTP(w, r)
			assert.True(t, strings.HasSuffix(w.Body.String(), eventStream(done)), "%s", w.Body)
		},
		"a Backend that cancels a part of its work": func(t *testing.T) {
			inner := newEndless(t)
			outer := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
				return func(yield func(*llm.ChatChunk, error) bool) {
					ctx, cancel := context.WithCancel(ctx)
					defer cancel()
					for range inner.Chat(ctx, req) {
						cancel()
					}
					llm.Reply("Hello")(yield)
				}
			})
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost"+chatPath, strings.NewReader(askStream))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Content-Type", "application/json")
			llmhttp.NewHandler(outer, llmhttp.AllowAll(""), &llmhttp.Options{Logger: noLog}).ServeHTTP(w, r)
			assert.Contains(t, w.Body.String(), "Hello")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				run(t)
				assert.Zero(t, time.Since(began))
			})
		})
	}
}

// An agent that goes on after its client has left gets the usage from the stream, and reports
// the sum of its calls. What the Backend reports by itself does not lower it.
func TestReadOn_Agent(t *testing.T) {
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprint("stops=", stops), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					return okResponse(mediaEvents, &scriptedBody{r.Context(), []scriptedPiece{
						{0, eventStream(textChunk("Hello"), stopChunk)}, {2 * time.Second, eventStream(usageChunk, done)}}}), nil
				})})
				ctx, leave := context.WithCancel(t.Context())
				agent := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
					return func(yield func(*llm.ChatChunk, error) bool) {
						used := llm.Usage{PromptTokens: 1000, CompletionTokens: 100} // of an earlier call
						llm.ReportUsage(ctx, used)
						for c, err := range b.Chat(ctx, req) {
							if err != nil {
								break
							}
							if c.Usage != nil {
								sum := used
								sum.Add(c.Usage)
								llm.ReportUsage(ctx, sum)
								c.Usage = nil
							}
							finished := len(c.Choices) > 0 && c.Choices[0].FinishReason != ""
							if finished {
								leave()
							}
							if finished && stops {
								break
							}
						}
					}
				})
				var summary *llmhttp.RequestSummary
				h := llmhttp.NewHandler(agent, llmhttp.AllowAll(""), &llmhttp.Options{
					Logger: noLog, Usage: memory.NewUsageStore(),
					Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
						return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = s }}
					},
				})
				serveAborted(func() {
					r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost"+chatPath, strings.NewReader(askStream))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Content-Type", "application/json")
					h.ServeHTTP(httptest.NewRecorder(), r)
				})
				want := llmhttp.Units{PromptTokens: 1007, CompletionTokens: 105}
				if stops {
					want = llmhttp.Units{PromptTokens: 1000, CompletionTokens: 100}
				}
				assert.Equal(t, want, summary.Record.Units)
				assert.False(t, summary.Record.Estimated)
			})
		})
	}
}

// What a server still reports after the client has left counts for the call that it belongs to, also if
// several run at the same time.
func TestReadOn_Calls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return okResponse(mediaEvents, &scriptedBody{r.Context(), []scriptedPiece{
				{0, eventStream(textChunk("Hello"), stopChunk)}, {2 * time.Second, eventStream(usageChunk, done)}}}), nil
		})})
		ctx, leave := context.WithCancel(t.Context())
		agent := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
			return func(yield func(*llm.ChatChunk, error) bool) {
				_, end := llm.StartCall(ctx, "")
				end(llm.CallResult{Usage: &llm.Usage{PromptTokens: 1000, CompletionTokens: 100}})
				var all, finished sync.WaitGroup
				finished.Add(2)
				for range 2 {
					req := req.Clone()
					all.Go(func() {
						callCtx, end := llm.StartCall(ctx, "")
						defer end(llm.CallResult{})
						for c := range b.Chat(callCtx, req) {
							if c != nil && len(c.Choices) > 0 && c.Choices[0].FinishReason != "" {
								finished.Done()
								finished.Wait() // or the other one ends with the client
								leave()
								break
							}
						}
					})
				}
				all.Wait()
			}
		})
		var summary *llmhttp.RequestSummary
		h := llmhttp.NewHandler(agent, llmhttp.AllowAll(""), &llmhttp.Options{
			Logger: noLog, Usage: memory.NewUsageStore(),
			Price: func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{Other: 1}, nil },
			Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
				return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = s }}
			},
		})
		serveAborted(func() {
			r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost"+chatPath, strings.NewReader(askStream))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
		assert.Equal(t, llmhttp.Units{PromptTokens: 1000 + 2*7, CompletionTokens: 100 + 2*5}, summary.Record.Units)
		assert.Equal(t, llmhttp.Cost{Other: 3}, summary.Record.Cost)
	})
}

// usageLast is the usage with which every reply of streamedOperations ends, in the spelling of images.
const usageLast = `"usage":{"type":"tokens","input_tokens":200,"output_tokens":1000000,"total_tokens":1000200}`

// streamedOperations are the operations whose usage comes last: what the client sends, the events up to
// the last one before the usage, the event with the usage, and what the client gets of the former.
var streamedOperations = []struct {
	name          llmhttp.Operation
	path, body    string
	form          bool
	events, usage string
	last          string
}{
	{llmhttp.OperationChat, chatPath, askStream, false,
		eventStream(textChunk("Hello"), stopChunk), strings.NewReplacer(":50000,", ":200,", "100000,", "1000000,", "150000", "1000200").Replace(largeUsageChunk), `"finish_reason":"stop"`},
	{completion.Operation, "/v1/completions", `{"model":"m","prompt":"Hello?","stream":true}`, false,
		eventStream(`{"choices":[{"text":"Hello","index":0,"finish_reason":"stop"}]}`), `{"choices":[],"usage":{"prompt_tokens":200,"completion_tokens":1000000}}`, `"finish_reason":"stop"`},
	{audio.OperationSpeech, "/v1/audio/speech", `{"model":"m","input":"Hello","voice":"v","stream_format":"sse"}`, false,
		eventStream(`{"type":"speech.audio.delta","audio":"SGVsbG8="}`), `{"type":"speech.audio.done",` + usageLast + `}`, "speech.audio.delta"},
	{audio.OperationTranscriptions, "/v1/audio/transcriptions", formBody("file", "stream", "true"), true,
		eventStream(`{"type":"transcript.text.delta","delta":"Hello"}`), `{"type":"transcript.text.done","text":"Hello",` + usageLast + `}`, "transcript.text.delta"},
	{audio.OperationTranscriptions, "/v1/audio/translations", formBody("file", "stream", "true"), true,
		eventStream(`{"type":"transcript.text.delta","delta":"Hello"}`), `{"type":"transcript.text.done","text":"Hello",` + usageLast + `}`, "transcript.text.delta"},
	{llmhttp.OperationImages, imagesPath, `{"model":"m","prompt":"p","stream":true,"partial_images":1}`, false,
		eventStream(`{"type":"image_generation.partial_image","b64_json":"SGVsbG8="}`), `{"type":"image_generation.completed","b64_json":"SGVsbG8=",` + usageLast + `}`, "partial_image"},
	{imageedit.Operation, "/v1/images/edits", formBody("image", "stream", "true", "partial_images", "1", "prompt", "p"), true,
		eventStream(`{"type":"image_edit.partial_image","b64_json":"SGVsbG8="}`), `{"type":"image_edit.completed","b64_json":"SGVsbG8=",` + usageLast + `}`, "partial_image"},
}

const formBoundary = "b0undary"

// formBody returns a form with a file in the named field, the model m and other fields.
func formBody(file string, fields ...string) string {
	var b strings.Builder
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", formBoundary, fields[i], fields[i+1])
	}
	fmt.Fprintf(&b, "--%[1]s\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--%[1]s\r\nContent-Disposition: form-data; name=%[2]q; filename=\"f.png\"\r\nContent-Type: image/png\r\n\r\nfile\r\n--%[1]s--\r\n", formBoundary, file)
	return b.String()
}

// Every operation that calls a model either streams with its usage last, and is in streamedOperations,
// or replies at once.
func TestReadOn_OperationsAreKnown(t *testing.T) {
	known := map[llmhttp.Operation]bool{llmhttp.OperationEmbeddings: true, rerank.Operation: true, moderation.Operation: true}
	for _, op := range streamedOperations {
		known[op.name] = true
	}
	for _, op := range llmhttp.Operations() {
		assert.True(t, known[op], "%s", op)
	}
}

// Ten clients that leave after the last event before the usage pay for all of it, of every operation,
// and a quota in money ends what they may use.
func TestReadOn_EveryOperation(t *testing.T) {
	for _, op := range streamedOperations {
		for _, routed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/routed=%v", op.path, routed), func(t *testing.T) {
				checkLeaks(t)
				left := make(chan struct{}, 1)
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", mediaEvents)
					io.WriteString(w, op.events)
					http.NewResponseController(w).Flush()
					<-left
					io.WriteString(w, eventStream(op.usage, done))
				}))
				t.Cleanup(server.Close)
				var b llmhttp.Backend = newBackend(t, server.URL+"/v1", &upstream.Options{ReadOn: testTimeout})
				if routed {
					router, err := route.New([]route.Route{{Model: "m", Targets: []route.Target{{Name: "a", Backend: b}}}}, nil)
					require.NoError(t, err)
					b = router
				}
				keys := memory.NewKeyStore()
				keys.Add("sk-unlimited", &llmhttp.Key{ID: "unlimited", Account: "a"})
				keys.Add("sk-limited", &llmhttp.Key{ID: "limited", Account: "a", Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: llm.USD(3)}}})
				ended := make(chan *llmhttp.RequestSummary, 1)
				h := llmhttp.NewHandler(b, keys, &llmhttp.Options{
					Usage: memory.NewUsageStore(), Logger: noLog, Routes: all.Routes(nil),
					Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) { // $1.20 for a million tokens
						return llmhttp.Cost{Output: llm.Money(1200 * r.Units.CompletionTokens)}, nil
					},
					Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
						return ctx, llmhttp.Observation{
							Started: func(ctx context.Context, _ *llmhttp.RequestInfo) context.Context {
								context.AfterFunc(ctx, func() { left <- struct{}{} })
								return ctx
							},
							Ended: func(s *llmhttp.RequestSummary) { ended <- s },
						}
					},
				})
				gateway := httptest.NewServer(h)
				t.Cleanup(gateway.Close)
				leave := func(key string) *llmhttp.RequestSummary {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					r, err := http.NewRequestWithContext(ctx, "POST", gateway.URL+op.path, strings.NewReader(op.body))
					require.NoError(t, err)
					r.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {mediaJSON}}
					if op.form {
						r.Header.Set("Content-Type", "multipart/form-data; boundary="+formBoundary)
					}
					resp, err := http.DefaultTransport.RoundTrip(r)
					require.NoError(t, err)
					defer resp.Body.Close()
					if resp.StatusCode == 200 {
						buf := make([]byte, 4<<10)
						for n := 0; !strings.Contains(string(buf[:n]), op.last); {
							more, err := resp.Body.Read(buf[n:])
							require.NoError(t, err)
							n += more
						}
						cancel()
					}
					return <-ended
				}
				for range 10 {
					s := leave("sk-unlimited")
					assert.ErrorIs(t, s.Err, context.Canceled)
					assert.False(t, s.Record.Estimated)
					assert.EqualValues(t, 200, s.Record.Units.PromptTokens)
					assert.Equal(t, 1_200_000_000*llm.Money(1), s.Record.Cost.Total())
				}
				served := 0
				for range 10 {
					if s := leave("sk-limited"); s.Status == 200 {
						served++
					}
				}
				assert.Equal(t, 3, served, "a quota of $3 is used up by $1.20 each")
			})
		}
	}
}

// ReadOnUnfinished reads on whole replies of every operation that calls a model.
func TestReadOn_WholeRepliesOfOperations(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":12,"total_tokens":12}`
	for path, test := range map[string]struct{ body, reply string }{
		"/v1/embeddings": {`{"model":"m","input":"Hello?"}`, `{"data":[{"index":0,"embedding":[1]}],` + usage + `}`},
		"/v1/rerank":     {`{"model":"m","query":"q","documents":["a"]}`, `{"results":[{"index":0,"relevance_score":1}],` + usage + `}`},
		imagesPath:       {`{"model":"m","prompt":"p"}`, `{"data":[{"b64_json":"SGVsbG8="}],"usage":{"input_tokens":12,"total_tokens":12}}`},
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBackend(t, "http://upstream.test/v1", &upstream.Options{ReadOnUnfinished: true, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					httptrace.ContextClientTrace(r.Context()).WroteHeaders()
					return okResponse(mediaJSON, &scriptedBody{r.Context(), []scriptedPiece{{2 * time.Second, test.reply}}}), nil
				})})
				var summary *llmhttp.RequestSummary
				h := llmhttp.NewHandler(b, llmhttp.AllowAll(""), &llmhttp.Options{
					Usage: memory.NewUsageStore(), Logger: noLog, Routes: all.Routes(nil),
					Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
						return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = s }}
					},
				})
				ctx, cancel := context.WithCancel(t.Context())
				w := &departureRecorder{ResponseRecorder: httptest.NewRecorder(), closed: make(chan bool, 1)}
				time.AfterFunc(time.Second, func() { w.closed <- true; cancel() })
				r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost"+path, strings.NewReader(test.body))
				r.Header.Set("Content-Type", mediaJSON)
				began := time.Now()
				serveAborted(func() { h.ServeHTTP(w, r) })
				assert.Equal(t, 2*time.Second, time.Since(began))
				assert.EqualValues(t, 12, summary.Record.Units.PromptTokens)
				assert.Equal(t, path == imagesPath, summary.Record.Estimated, "nobody waited for the images to be counted")
			})
		})
	}
}
