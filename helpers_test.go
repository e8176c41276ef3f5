package llmhttp_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
)

// testTimeout bounds every wait for an event. Only a test that fails waits so long.
const testTimeout = 20 * time.Second

// testSecret is the secret of testKey.
const testSecret = "sk-fixture-5d41402abc4b2a76b9719d91"

// The paths of the API.
const (
	chatPath       = "/v1/chat/completions"
	imagesPath     = "/v1/images/generations"
	imageEditsPath = "/v1/images/edits"
	embeddingsPath = "/v1/embeddings"
	speechPath     = "/v1/audio/speech"
	rerankPath     = "/v1/rerank"

	moderationsPath = "/v1/moderations"
	completionsPath = "/v1/completions"

	transcriptionsPath = "/v1/audio/transcriptions"
	translationsPath   = "/v1/audio/translations"

	modelsPath = "/v1/models"
	usagePath  = "/v1/dashboard/billing/usage"
)

// A valid request of each kind.
const (
	chatBody      = `{"model":"demo-chat","messages":[{"role":"user","content":"Hello, how are you?"}]}`
	streamBody    = `{"model":"demo-chat","messages":[{"role":"user","content":"Hello, how are you?"}],"stream":true}`
	imageBody     = `{"model":"demo-image","prompt":"a cat","response_format":"url"}`
	imageEditBody = `{"image":"PNG","prompt":"a cat","model":"demo-image"}` // testServer.open makes a form of it
	embeddingBody = `{"model":"demo-embed","input":"Hello, how are you?"}`
	speechBody    = `{"model":"demo-speech","input":"Hello, how are you?","voice":"alloy"}`
	rerankBody    = `{"model":"demo-rerank","query":"Hello, how are you?","documents":["I am well."]}`

	completionBody = `{"model":"demo-complete","prompt":"Hello, how are you?"}`

	moderationBody = `{"model":"demo-moderation","input":"Hello, how are you?"}`

	transcriptionBody = `{"file":"RIFF","prompt":"Hello, how are you?","model":"demo-transcribe"}` // testServer.open makes a form of it

	speechEventsBody = `{"model":"demo-speech","input":"Hello, how are you?","voice":"alloy","stream_format":"sse"}`
)

// A testOperation is an operation that calls a model, for tests that go through all of them.
type testOperation struct {
	name       llmhttp.Operation
	scope      llmhttp.Scope
	path, body string // a valid request, for a model whose name begins with "demo-"
	text       string // in the body
	maximal    string // a request with each of its members
}

// testOperations has all operations that call a model. TestOperations_HaveARequest checks that
// none is missing. What a stubBackend replies by itself is a valid reply to each request.
var testOperations = []testOperation{
	{llmhttp.OperationChat, llmhttp.ScopeChat, chatPath, chatBody, "Hello, how are you?", maximalChat},
	{completion.Operation, completion.Scope, completionsPath, completionBody, "Hello, how are you?",
		`{"model":"m","prompt":["a"],"suffix":"b","stream":true,"stream_options":{"include_usage":true},"temperature":1,"top_p":1,"presence_penalty":0,"frequency_penalty":0,"max_tokens":1,"n":1,"best_of":1,"logprobs":1,"echo":true,"stop":["x"]}`},
	{llmhttp.OperationImages, llmhttp.ScopeImages, imagesPath, imageBody, "a cat",
		`{"model":"m","prompt":"p","n":1,"size":"256x256","quality":"hd","response_format":"b64_json","stream":false,"partial_images":1}`},
	{imageedit.Operation, imageedit.Scope, imageEditsPath, imageEditBody, "a cat",
		`{"model":"m","prompt":"p","image":["a","b"],"mask":"c","n":1,"size":"256x256","quality":"hd","response_format":"b64_json","stream":false,"partial_images":1}`},
	{llmhttp.OperationEmbeddings, llmhttp.ScopeEmbeddings, embeddingsPath, embeddingBody, "Hello, how are you?",
		`{"model":"m","input":["a"],"dimensions":3,"encoding_format":"float"}`},
	{audio.OperationSpeech, audio.ScopeSpeech, speechPath, speechBody, "Hello, how are you?",
		`{"model":"m","input":"a","voice":{"id":"v"},"instructions":"i","response_format":"wav","speed":1,"stream_format":"sse"}`},
	{rerank.Operation, rerank.Scope, rerankPath, rerankBody, "Hello, how are you?",
		`{"model":"m","query":"q","documents":["a"],"top_n":1,"return_documents":true}`},
	{moderation.Operation, moderation.Scope, moderationsPath, moderationBody, "Hello, how are you?",
		`{"model":"m","input":["a"]}`},
	{audio.OperationTranscriptions, audio.ScopeTranscriptions, transcriptionsPath, transcriptionBody, "Hello, how are you?",
		`{"file":"a","model":"m","language":"en","prompt":"p","response_format":"verbose_json","temperature":0,"timestamp_granularities":"word","include":"logprobs","stream":false}`},
}

// with returns the body with more members.
func (op testOperation) with(members string) string {
	return strings.TrimSuffix(op.body, "}") + "," + members + "}"
}

// modelBodies has the body of each of testOperations by its path.
var modelBodies = func() map[string]string {
	bodies := make(map[string]string)
	for _, op := range testOperations {
		bodies[op.path] = op.body
	}
	return bodies
}()

// chatModes are the two ways to ask for a chat.
var chatModes = map[string]string{"whole": chatBody, "stream": streamBody}

// chatWith returns chatBody with more members.
func chatWith(members string) string {
	return strings.TrimSuffix(chatBody, "}") + "," + members + "}"
}

// The message of every error whose cause is not shown to clients, and of a timeout.
const (
	internalMessage = "The server had an error while processing your request. Sorry about that!"
	timeoutMessage  = "The model did not answer in time."
	shutdownMessage = "The server is shutting down. Please try again."
)

// secretCause is the text of errors that must not reach a client.
const secretCause = "marker-of-the-cause"

// hugeLimit is more than any test uses, and an int on every platform.
const hugeLimit = min(1<<40, math.MaxInt)

// errCause is an error that a client must not see.
var errCause = errors.New(secretCause)

// testKey returns a key without limits.
func testKey() llmhttp.Key { return llmhttp.Key{ID: "key_1", Account: "acme"} }

// keysFor returns a KeyStore whose only key is k, with the secret testSecret.
func keysFor(k llmhttp.Key) llmhttp.KeyStore {
	return llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != testSecret {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &k, nil
	})
}

// limitedKeys returns a KeyStore whose only key is testKey, with the limits l.
func limitedKeys(l llmhttp.Limits) llmhttp.KeyStore {
	k := testKey()
	k.Limits = l
	return keysFor(k)
}

// yieldFunc is the function that a ChatStream calls with each chunk.
type yieldFunc = func(*llm.ChatChunk, error) bool

// A stubBackend implements every optional interface. A method whose func is nil returns a
// fixed reply.
type stubBackend struct {
	// call and usage are for each method that calls a model and whose func is nil. call is called
	// first, and its error is that of the method. usage is reported.
	call  func(ctx context.Context) error
	usage *llm.Usage

	chat       func(context.Context, *llm.ChatRequest) llm.ChatStream
	complete   func(context.Context, *completion.Request) llm.ChatStream
	models     func(context.Context) ([]llm.Model, error)
	images     func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error)
	edit       func(context.Context, *imageedit.Request) (*llm.ImageResponse, error)
	draw       func(context.Context, *llm.ImageRequest) llm.ImageStream // and for edits, if editDraw is nil
	editDraw   func(context.Context, *imageedit.Request) llm.ImageStream
	sizes      func(context.Context, string) ([]string, error)
	embed      func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error)
	speak      func(context.Context, *audio.SpeechRequest) audio.SpeechStream
	rerank     func(context.Context, *rerank.Request) (*rerank.Response, error)
	transcribe func(context.Context, *audio.TranscriptionRequest) audio.TranscriptionStream
	moderate   func(context.Context, *moderation.Request) (*moderation.Response, error)
}

func (b *stubBackend) Chat(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
	if b.chat != nil {
		return b.chat(ctx, r)
	}
	return b.reply(ctx)
}

func (b *stubBackend) Complete(ctx context.Context, r *completion.Request) llm.ChatStream {
	if b.complete != nil {
		return b.complete(ctx, r)
	}
	return b.reply(ctx)
}

// reply returns the stream of a method that has no func.
func (b *stubBackend) reply(ctx context.Context) llm.ChatStream {
	return func(yield yieldFunc) {
		if err := b.called(ctx); err != nil {
			yield(nil, err)
			return
		}
		c := llm.TextChunk("Hello!")
		c.Choices[0].FinishReason, c.Usage = llm.FinishStop, b.usage
		yield(c, nil)
	}
}

// called returns the error of a method that calls a model and has no func.
func (b *stubBackend) called(ctx context.Context) error {
	if b.call == nil {
		return nil
	}
	return b.call(ctx)
}

func (b *stubBackend) ListModels(ctx context.Context) ([]llm.Model, error) {
	if b.models == nil {
		return []llm.Model{
			{ID: "demo-chat", Created: 1686935002, OwnedBy: "acme"},
			{ID: "hf.co/u/Q:Q4", Created: 1686935003, OwnedBy: "acme"},
		}, nil
	}
	return b.models(ctx)
}

// pngData has the signature of a PNG, which the detection of media types looks for.
const pngData = "\x89PNG\r\n\x1a\nrest"

func (b *stubBackend) GenerateImages(ctx context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
	if b.images != nil {
		return b.images(ctx, r)
	}
	images := slices.Repeat([]llm.Image{{Data: []byte(pngData)}}, r.Count())
	return &llm.ImageResponse{Data: images, Usage: b.usage}, b.called(ctx)
}

func (b *stubBackend) EditImages(ctx context.Context, r *imageedit.Request) (*llm.ImageResponse, error) {
	if b.edit != nil {
		return b.edit(ctx, r)
	}
	return b.GenerateImages(ctx, &r.ImageRequest)
}

func (b *stubBackend) StreamImageEdits(ctx context.Context, r *imageedit.Request) llm.ImageStream {
	if b.editDraw != nil {
		return b.editDraw(ctx, r)
	}
	return b.StreamImages(ctx, &r.ImageRequest)
}

func (b *stubBackend) StreamImages(ctx context.Context, r *llm.ImageRequest) llm.ImageStream {
	if b.draw != nil {
		return b.draw(ctx, r)
	}
	return func(yield func(*llm.ImageChunk, error) bool) {
		if err := b.called(ctx); err != nil {
			yield(nil, err)
			return
		}
		yield(&llm.ImageChunk{Image: &llm.Image{Data: []byte(pngData)}, Usage: b.usage}, nil)
	}
}

// drawing returns a stream of chunks.
func drawing(chunks ...*llm.ImageChunk) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func (b *stubBackend) ImageSizes(ctx context.Context, model string) ([]string, error) {
	if b.sizes == nil {
		return nil, nil
	}
	return b.sizes(ctx, model)
}

func (b *stubBackend) Embed(ctx context.Context, r *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	if b.embed != nil {
		return b.embed(ctx, r)
	}
	vectors := slices.Repeat([][]float32{{0.25, -1, 3.5e-7}}, r.Input.Len())
	return &llm.EmbeddingResponse{Vectors: vectors, Usage: cmp.Or(b.usage, &llm.Usage{PromptTokens: 8})}, b.called(ctx)
}

func (b *stubBackend) Speak(ctx context.Context, r *audio.SpeechRequest) audio.SpeechStream {
	if b.speak != nil {
		return b.speak(ctx, r)
	}
	return func(yield func(*audio.SpeechChunk, error) bool) {
		if err := b.called(ctx); err != nil {
			yield(nil, err)
			return
		}
		_ = yield(&audio.SpeechChunk{Audio: []byte("One, ")}, nil) && yield(&audio.SpeechChunk{Audio: []byte("two."), Usage: b.usage}, nil)
	}
}

func (b *stubBackend) Transcribe(ctx context.Context, r *audio.TranscriptionRequest) audio.TranscriptionStream {
	if b.transcribe != nil {
		return b.transcribe(ctx, r)
	}
	return func(yield func(*audio.TranscriptionChunk, error) bool) {
		if err := b.called(ctx); err != nil {
			yield(nil, err)
			return
		}
		c := &audio.TranscriptionChunk{Text: "Hello!"}
		if b.usage != nil {
			c.Usage = &audio.TranscriptionUsage{Tokens: b.usage}
		}
		yield(c, nil)
	}
}

// transcript returns a stream of chunks.
func transcript(chunks ...*audio.TranscriptionChunk) audio.TranscriptionStream {
	return func(yield func(*audio.TranscriptionChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// speech returns a stream with a chunk for each piece of audio.
func speech(pieces ...string) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		for _, p := range pieces {
			if !yield(&audio.SpeechChunk{Audio: []byte(p)}, nil) {
				return
			}
		}
	}
}

// failingSpeech returns a stream that fails with err.
func failingSpeech(err error) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) { yield(nil, err) }
}

func (b *stubBackend) Rerank(ctx context.Context, r *rerank.Request) (*rerank.Response, error) {
	if b.rerank != nil {
		return b.rerank(ctx, r)
	}
	resp := &rerank.Response{Usage: b.usage}
	for i := range r.Documents {
		resp.Results = append(resp.Results, rerank.Result{Index: i, Score: 0.5})
	}
	return resp, b.called(ctx)
}

func (b *stubBackend) Moderate(ctx context.Context, r *moderation.Request) (*moderation.Response, error) {
	if b.moderate != nil {
		return b.moderate(ctx, r)
	}
	return &moderation.Response{Results: make([]moderation.Result, r.Input.Results()), Usage: b.usage}, b.called(ctx)
}

// streamBackend returns a Backend that calls f for each stream.
func streamBackend(f func(ctx context.Context, yield yieldFunc)) llmhttp.BackendFunc {
	return func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) { f(ctx, yield) }
	}
}

// chunkBackend returns a Backend that yields the chunks that newChunks returns. It
// calls newChunks for each request, since a Handler may change chunks.
func chunkBackend(newChunks func() []*llm.ChatChunk) llmhttp.BackendFunc {
	return func(context.Context, *llm.ChatRequest) llm.ChatStream { return streamOf(newChunks()...) }
}

// streamOf returns a stream of chunks.
func streamOf(chunks ...*llm.ChatChunk) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// textBackend returns a Backend that yields a chunk for each piece of text.
func textBackend(pieces ...string) llmhttp.BackendFunc { return failAfter(nil, pieces...) }

// failAfter returns a Backend that yields pieces of text and then err, unless err is nil.
func failAfter(err error, pieces ...string) llmhttp.BackendFunc {
	return streamBackend(func(_ context.Context, yield yieldFunc) {
		for _, p := range pieces {
			if !yield(llm.TextChunk(p), nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	})
}

// jsonBackend returns a Backend that yields chunks that are given as JSON.
func jsonBackend(t testing.TB, lines ...string) llmhttp.BackendFunc {
	t.Helper()
	parseChunks(t, lines...) // fails here if the JSON is wrong
	return chunkBackend(func() []*llm.ChatChunk { return parseChunks(t, lines...) })
}

// parseChunks decodes one chunk from each line.
func parseChunks(t testing.TB, lines ...string) []*llm.ChatChunk {
	t.Helper()
	var chunks []*llm.ChatChunk
	for _, line := range lines {
		c := new(llm.ChatChunk)
		require.NoError(t, json.Unmarshal([]byte(line), c), "%s", line)
		chunks = append(chunks, c)
	}
	return chunks
}

// usageBackend returns a Backend that replies "Hello!" and reports a usage.
func usageBackend(prompt, completion int) llmhttp.BackendFunc {
	return chunkBackend(func() []*llm.ChatChunk {
		c := llm.TextChunk("Hello!")
		c.Usage = &llm.Usage{PromptTokens: prompt, CompletionTokens: completion}
		return []*llm.ChatChunk{c}
	})
}

// tokensOf returns the numbers of u that count tokens.
func tokensOf(u llmhttp.Units) llmhttp.Units {
	for name, n := range u.All() {
		if !strings.HasSuffix(name, "_tokens") {
			*n = 0
		}
	}
	return u
}

// failingBackend returns a Backend that answers every request with err.
func failingBackend(err error) *stubBackend {
	return &stubBackend{
		call:   func(context.Context) error { return err },
		chat:   func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Fail(err) },
		models: func(context.Context) ([]llm.Model, error) { return nil, err },
	}
}

// A logBuffer keeps what a Logger writes.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// noLog is a Logger that discards everything.
var noLog = slog.New(slog.DiscardHandler)

// A summaryLog has an Observer that keeps every RequestSummary.
type summaryLog struct {
	mu    sync.Mutex
	begun int
	ended []*llmhttp.RequestSummary
}

func (l *summaryLog) observe(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun++
	return ctx, llmhttp.Observation{Ended: func(e *llmhttp.RequestSummary) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended = append(l.ended, e)
	}}
}

// A usageLog is a UsageStore that keeps every record, including those with the same ID. It sums
// for subjects of all kinds.
type usageLog struct {
	before func(ctx context.Context) error // called by Record first; its error is Record's
	sums   []llmhttp.UsageSum              // the result of Query without a Subject

	mu      sync.Mutex
	calls   int // of Record
	kept    []llmhttp.UsageRecord
	queries []llmhttp.UsageQuery
}

func (u *usageLog) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	u.mu.Lock()
	u.calls++
	u.mu.Unlock()
	if u.before != nil {
		if err := u.before(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kept = append(u.kept, records...)
	return nil
}

func (u *usageLog) Query(_ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if q.Subject != (llmhttp.SubjectID{}) {
		return u.sumsOf(q), nil
	}
	u.queries = append(u.queries, q)
	return u.sums, nil
}

// sumsOf returns a sum for each record that q selects.
func (u *usageLog) sumsOf(q llmhttp.UsageQuery) (sums []llmhttp.UsageSum) {
	for i := range u.kept {
		if q.Includes(&u.kept[i]) {
			sums = append(sums, u.kept[i].Sum())
		}
	}
	return sums
}

// An accountLog is a usageLog that cannot sum for subjects.
type accountLog struct{ usageLog }

func (u *accountLog) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	if q.Subject != (llmhttp.SubjectID{}) {
		return nil, fmt.Errorf("no sums for %s: %w", q.Subject.Kind, errors.ErrUnsupported)
	}
	return u.usageLog.Query(ctx, q)
}

// records returns what was recorded.
func (u *usageLog) records() []llmhttp.UsageRecord {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.kept)
}

// A stubLimiter is a Limiter that keeps the draws of each call. It admits every request
// unless its funcs are set.
type stubLimiter struct {
	take   func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error)
	adjust func(context.Context) error

	mu              sync.Mutex
	taken, adjusted [][]llmhttp.BucketAmount // the draws of each call
}

func (l *stubLimiter) Take(ctx context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	l.mu.Lock()
	l.taken = append(l.taken, slices.Clone(draws))
	l.mu.Unlock()
	if l.take != nil {
		return l.take(ctx, draws)
	}
	levels := make([]llmhttp.BucketLevel, len(draws))
	for i, d := range draws {
		levels[i].Remaining = int64(d.Rate.WithDefaults().Burst) - d.Amount
	}
	return levels, nil
}

func (l *stubLimiter) Adjust(ctx context.Context, draws ...llmhttp.BucketAmount) error {
	l.mu.Lock()
	l.adjusted = append(l.adjusted, slices.Clone(draws))
	l.mu.Unlock()
	if l.adjust != nil {
		return l.adjust(ctx)
	}
	return nil
}

// calls returns the draws of all calls of Take and Adjust.
func (l *stubLimiter) calls() (taken, adjusted [][]llmhttp.BucketAmount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.taken), slices.Clone(l.adjusted)
}

// fixedLevels returns a Limiter whose Take always returns levels, one for each draw.
func fixedLevels(levels ...llmhttp.BucketLevel) *stubLimiter {
	return &stubLimiter{take: func(_ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		return levels[:len(draws)], nil
	}}
}

// A stubConcurrencyLimiter is a stubLimiter that also counts requests in progress.
type stubConcurrencyLimiter struct {
	stubLimiter
	acquire func(ctx context.Context, slots ...llmhttp.SlotAmount) (release func(), full int, err error)
}

func (l *stubConcurrencyLimiter) Acquire(ctx context.Context, slots ...llmhttp.SlotAmount) (release func(), full int, err error) {
	return l.acquire(ctx, slots...)
}

// noRefill returns a rate that permits n and refills nothing while a test runs.
func noRefill(n int) llmhttp.Rate { return llmhttp.Rate{N: n, Per: 365 * 24 * time.Hour} }

// countWords counts each word as a token, except those of the prompt of chatBody. That
// prompt then costs 4 tokens, which every message costs in addition to its words.
func countWords(_, text string) int {
	if strings.HasPrefix(text, "Hello, how") {
		return 0
	}
	return len(strings.Fields(text))
}

// waitFor waits until condition holds.
func waitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "waited too long for "+what)
		}
	}
}

// receive waits for a value from c.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testTimeout):
		require.FailNow(t, "waited too long for "+what)
		panic("unreachable")
	}
}

// checkNoLeaks fails t if goroutines of this package or of a server are left when t
// ends. Call it before a server is started, so that it looks after the server's end.
// A synctest bubble needs no such check: it waits for its goroutines.
func checkNoLeaks(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if left = serverGoroutines(); len(left) == 0 {
				return
			}
		}
		assert.Empty(t, left, "goroutines left behind")
	})
}

// serverGoroutines returns the stacks of the goroutines that serve requests, without
// the calling one.
func serverGoroutines() []string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	stacks := strings.Split(string(buf), "\n\n")[1:]
	return slices.DeleteFunc(stacks, func(s string) bool {
		serves := strings.Contains(s, "github.com/llmhttp/llmhttp.") || strings.Contains(s, "net/http.(*conn).serve")
		return !serves || strings.Contains(s, "testing.(*T).Run")
	})
}

// chatOnly is a Backend without optional interfaces, whose Chat is not called.
var chatOnly = llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return nil })
