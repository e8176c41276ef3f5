package llmhttptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
)

// BackendOptions tell [TestBackend] what a Backend can do. What has no model
// is not tested; there must be one for something.
type BackendOptions struct {
	ChatModel      string
	ImageModel     string
	EmbeddingModel string

	// AnyModel says that the Backend does not look at the names of models.
	// Otherwise it must refuse those that do not exist.
	AnyModel bool

	// Prompt is what chats say. It should make for a reply of some length,
	// in several chunks. If empty, it is a text of a hundred words with the
	// request to repeat it.
	Prompt string

	// Timeout is how long a call may take. Zero means a minute.
	Timeout time.Duration

	// Grace is how long a call may go on when its context is done, and how
	// long goroutines may take to end. Zero means 5 seconds.
	Grace time.Duration
}

// TestBackend tests a [llmhttp.Backend], also as a [llmhttp.ModelLister], an
// [llmhttp.ImageGenerator], an [llmhttp.ImageSizer] and an [llmhttp.Embedder]
// as far as opts names models. It makes some sixty short chats, and a dozen
// images of the smallest size there is.
//
// It does not judge what a model says, but how a Backend says it: whether
// chunks are well-formed and streams end where they must; whether work starts
// not too early and stops when nobody wants it any more; and whether errors are
// for clients. A Backend may refuse any request but the plainest with an
// [llmhttp.Error] whose status is 4xx.
func TestBackend(t *testing.T, b llmhttp.Backend, opts BackendOptions) {
	t.Helper()
	if b == nil {
		t.Fatal("the Backend is nil")
	}
	if opts.ChatModel == "" && opts.ImageModel == "" && opts.EmbeddingModel == "" {
		t.Fatal("BackendOptions name no model: nothing would be tested")
	}
	runChecks(t, backendChecks, func(testing.TB) backendTest { return newBackendTest(b, opts) })
}

// A backendTest is what a check of a Backend is to use.
type backendTest struct {
	llmhttp.Backend
	BackendOptions
}

func newBackendTest(b llmhttp.Backend, opts BackendOptions) backendTest {
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	if opts.Grace == 0 {
		opts.Grace = 5 * time.Second
	}
	if opts.Prompt == "" {
		opts.Prompt = defaultPrompt
	}
	return backendTest{b, opts}
}

const defaultPrompt = `Repeat the following text word for word. The brown fox jumps over the lazy dog; the dog, who has seen
many foxes jump, yawns and turns over. In the afternoon it rains. Nobody jumps in the rain, except for the frogs by the pond, who
have waited for it since the beginning of spring, and a child in yellow boots. Grüße aus Köln, 東京からこんにちは, and 👋🏽 from
everywhere else! When the rain is over the fox returns, shakes the water out of its fur and looks for the dog. It has gone home,
where there is a fire, a bowl of soup and somebody who reads aloud from a very long book about foxes.`

// need skips a check that there is no model for.
func need(t testing.TB, model string) {
	t.Helper()
	if model == "" {
		t.Skip("BackendOptions name no model for this")
	}
}

// forward returns the Backend with the methods of all optional interfaces.
func (b *backendTest) forward() llmhttp.Forwarder { return llmhttp.Forwarder{Backend: b.Backend} }

// request returns a new request for a chat.
func (b *backendTest) request() *llmhttp.ChatRequest {
	return &llmhttp.ChatRequest{
		Model:    b.ChatModel,
		Messages: []llmhttp.Message{{Role: llmhttp.RoleUser, Content: llmhttp.Text(b.Prompt)}},
	}
}

// errEndless is that of a call that did not end.
var errEndless = errors.New("it did not end")

// call calls f and waits for it to return: as long as it may take, and then as
// long as it may go on after ctx is done. The context it passes to f is done
// when f has taken too long.
func (b *backendTest) call(ctx context.Context, f func(ctx context.Context)) error {
	limited, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		f(limited)
		done <- nil
	}()
	select {
	case err := <-done:
		return err
	case <-limited.Done():
	}
	grace := time.NewTimer(b.Grace)
	defer grace.Stop()
	select {
	case err := <-done:
		if err == nil && ctx.Err() == nil {
			err = fmt.Errorf("%w in %v", errEndless, b.Timeout)
		}
		return err
	case <-grace.C:
		return fmt.Errorf("%w within %v of its context", errEndless, b.Grace)
	}
}

// A reply is what a Backend yielded.
type reply struct {
	chunks []*llmhttp.ChatChunk
	err    error
}

// chat ranges over the reply to req, and reports what no reply may do.
func (b *backendTest) chat(ctx context.Context, t testing.TB, req *llmhttp.ChatRequest) reply {
	t.Helper()
	n := req.Choices()
	r, ok := b.observe(ctx, t, req, func(reply) bool { return true })
	if ok {
		r.check(t, n)
	}
	return r
}

// observe ranges over the reply to req until more, which is called after each
// chunk, returns false. It reports what no stream may do, and returns what has
// come, and whether the stream ended as it should.
func (b *backendTest) observe(ctx context.Context, t testing.TB, req *llmhttp.ChatRequest, more func(reply) bool) (reply, bool) {
	t.Helper()
	var (
		mu     sync.Mutex // for Backends that use several goroutines, which they must not
		r      reply
		over   bool
		faults []string
	)
	fault := func(s string) {
		if !slices.Contains(faults, s) {
			faults = append(faults, s)
		}
	}
	err := b.call(ctx, func(ctx context.Context) {
		stream := b.Chat(ctx, req)
		if stream == nil {
			panic("Chat returned a nil stream")
		}
		home := goroutine()
		stream(func(c *llmhttp.ChatChunk, err error) bool {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case over:
				fault("the stream yielded again after its end or that of the loop")
				return false
			case goroutine() != home:
				fault("the stream yielded on another goroutine than that of the loop")
			}
			switch {
			case err != nil:
				r.err, over = err, true
				return true // for it is the stream that is to end
			case c == nil:
				fault("the stream yielded neither a chunk nor an error")
				return true
			}
			r.chunks = append(r.chunks, c)
			over = !more(r)
			return !over
		})
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
	for _, f := range faults {
		t.Error(f)
	}
	if err != nil {
		t.Errorf("a stream: %v", err)
	}
	return r, err == nil && len(faults) == 0
}

// goroutine returns what the runtime calls the goroutine that calls it.
func goroutine() string {
	var buf [64]byte
	line := buf[:runtime.Stack(buf[:], false)] // "goroutine 18 [running]:"
	head, _, _ := bytes.Cut(line, []byte("["))
	return string(head)
}

// check reports what is wrong with a reply to a request for n choices.
func (r *reply) check(t testing.TB, n int) {
	t.Helper()
	if r.err != nil {
		checkRefusal(t, r.err)
		return
	}
	texts := make([]string, n)
	seen, ended := make([]bool, n), make([]bool, n)
	calls := map[[2]int]bool{}
	for i, c := range r.chunks {
		if t.Failed() {
			return // one chunk tells enough
		}
		at := fmt.Sprintf("chunk %d", i)
		checkJSON(t, at, c, c.Extra)
		if c.Usage != nil {
			checkUsage(t, at, c.Usage)
		}
		for _, choice := range c.Choices {
			k := choice.Index
			if k < 0 || k >= n {
				t.Errorf("%s: the index of a choice is %d, of %d", at, k, n)
				continue
			}
			if ended[k] {
				t.Errorf("%s: there is more of choice %d after its FinishReason", at, k)
			}
			seen[k] = true
			checkJSON(t, at, choice, choice.Extra, choice.Delta.Extra)
			switch choice.Delta.Role {
			case "", llmhttp.RoleAssistant:
			default:
				t.Errorf("%s: the role is %q", at, choice.Delta.Role)
			}
			switch choice.FinishReason {
			case "":
			case llmhttp.FinishStop, llmhttp.FinishLength, llmhttp.FinishContentFilter, llmhttp.FinishToolCalls:
				ended[k] = true
			default:
				t.Errorf("%s: the FinishReason %q is not one of the format", at, choice.FinishReason)
			}
			texts[k] += choice.Delta.Content
			for _, call := range choice.Delta.ToolCalls {
				checkJSON(t, at, call, call.Extra, call.Function.Extra)
				first := !calls[[2]int{k, call.Index}]
				calls[[2]int{k, call.Index}] = true
				if isFunction := call.Type == "" || call.Type == "function"; first && (call.ID == "" || isFunction && call.Function.Name == "") {
					t.Errorf("%s: the first delta of tool call %d has the ID %q and the name %q", at, call.Index, call.ID, call.Function.Name)
				}
			}
		}
	}
	for k := range n {
		if !seen[k] {
			t.Errorf("there is nothing of choice %d of %d, and no error", k, n)
		}
		if !utf8.ValidString(texts[k]) {
			t.Errorf("the text of choice %d is not valid UTF-8: %q", k, texts[k])
		}
	}
}

// usage returns what the reply says was used, or nil.
func (r *reply) usage() *llmhttp.Usage {
	var u *llmhttp.Usage
	for _, c := range r.chunks {
		if c.Usage != nil {
			u = c.Usage
		}
	}
	return u
}

func checkUsage(t testing.TB, at string, u *llmhttp.Usage) {
	t.Helper()
	if u.PromptTokens < 0 || u.CompletionTokens < 0 || u.TotalTokens < 0 {
		t.Errorf("%s: negative usage: %+v", at, *u)
	}
	if u.TotalTokens != 0 && u.TotalTokens != u.PromptTokens+u.CompletionTokens {
		t.Errorf("%s: TotalTokens is not the sum: %+v", at, *u)
	}
	checkJSON(t, at, u, u.Extra)
}

// checkJSON reports an error unless v, which extras are of, can be encoded.
func checkJSON(t testing.TB, at string, v any, extras ...llmhttp.Extra) {
	t.Helper()
	for _, extra := range extras {
		for name, raw := range extra {
			if !json.Valid(raw) {
				t.Errorf("%s: the member %q of Extra is not valid JSON: %q", at, name, raw)
				return
			}
		}
	}
	if _, err := json.Marshal(v); err != nil {
		t.Errorf("%s: %v", at, err)
	}
}

// checkRefusal reports an error unless err is for the client, and says that the
// request is at fault.
func checkRefusal(t testing.TB, err error) {
	t.Helper()
	var e *llmhttp.Error
	switch {
	case !errors.As(err, &e) || e == nil:
		t.Errorf("the error is no *llmhttp.Error, so that clients would take it for the server's fault: %v", err)
	case e.Status < 400 || e.Status > 499:
		t.Errorf("the status of the error is %d, want 4xx: %v", e.Status, err)
	}
}
