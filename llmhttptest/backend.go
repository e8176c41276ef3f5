// TestBackend, its options and what its checks share.

package llmhttptest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ability"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
)

// BackendOptions describe a Backend to [TestBackend]. The kit skips the tests of
// an endpoint for which there is no model. At least one model is required.
type BackendOptions struct {
	ChatModel       string
	CompletionModel string
	ImageModel      string
	ImageEditModel  string
	EmbeddingModel  string
	RerankModel     string
	ModerationModel string

	// SpeechModel is a model that speaks. SpeechFormat is a format in which it does, such as "wav":
	// a [audio.Speaker] may refuse all others. If empty, it is "mp3", the default of clients.
	SpeechModel  string
	SpeechFormat string

	// TranscriptionModel is a model that transcribes Recording. If that is nil, it is a second of
	// silence, as a WAV.
	TranscriptionModel string
	Recording          *llm.File

	// AnyModel means that the Backend accepts every model. Otherwise it must
	// refuse models that do not exist.
	AnyModel bool

	// Prompt is the message of chats. The reply to it should consist of several
	// chunks. If empty, it asks to repeat a text of a hundred words.
	Prompt string

	// Timeout is how long a call may take. Zero means one minute; negative means no
	// timeout.
	Timeout time.Duration

	// Grace is how long a call may take to return after its context is done, and how long
	// goroutines may take to end. Zero means 5 seconds; negative means no timeout.
	Grace time.Duration
}

// TestBackend tests a [llmhttp.Backend], and its optional methods for the models in opts. It makes
// about a hundred short chats, and generates and edits about a dozen images of the smallest size each and twenty
// short recordings.
//
// The kit does not check what a model says. It checks that chunks are
// well-formed, that streams start, end and stop when they must, and that errors
// are meant for clients. A Backend may refuse every request except plain ones
// with an [llm.Error] whose status is 4xx.
func TestBackend(t *testing.T, b llmhttp.Backend, opts BackendOptions) {
	t.Helper()
	if b == nil {
		t.Fatal("the Backend is nil")
	}
	test := newBackendTest(b, opts)
	if len(test.models) == 0 {
		t.Fatal("BackendOptions have no model, want at least one")
	}
	runChecks(t, backendChecks, func(testing.TB) backendTest { return test })
}

// A backendTest is the Backend that a check tests.
type backendTest struct {
	llmhttp.Backend
	opts   BackendOptions
	models []string // those of opts
}

func newBackendTest(b llmhttp.Backend, opts BackendOptions) backendTest {
	opts.Timeout = min(option.Bound(opts.Timeout, time.Minute), forever)
	opts.Grace = min(option.Bound(opts.Grace, 5*time.Second), forever)
	opts.Prompt = cmp.Or(opts.Prompt, defaultPrompt)
	test := backendTest{Backend: b, opts: opts}
	for _, op := range operations {
		if op.model != nil && op.model(&opts) != "" {
			test.models = append(test.models, op.model(&opts))
		}
	}
	return test
}

// forever is longer than any test. It can be added to a time.
const forever = 100 * 365 * 24 * time.Hour

const defaultPrompt = `Repeat the following text word for word. The brown fox jumps over the lazy dog; the dog, who has seen
many foxes jump, yawns and turns over. In the afternoon it rains. Nobody jumps in the rain, except for the frogs by the pond, who
have waited for it since the beginning of spring, and a child in yellow boots. Grüße aus Köln, 東京からこんにちは, and 👋🏽 from
everywhere else! When the rain is over the fox returns, shakes the water out of its fur and looks for the dog. It has gone home,
where there is a fire, a bowl of soup and somebody who reads aloud from a very long book about foxes.`

// An operation is what the kits know of one.
type operation struct {
	model  func(o *BackendOptions) string // nil if there is none; if it is empty, the checks are skipped
	checks []check[backendTest]
	guards []check[guard] // those of [TestGuard]
}

var operations = []operation{
	chatOperation, modelsOperation, completionsOperation, imagesOperation, imageEditOperation,
	embeddingsOperation, rerankOperation, moderationsOperation, speechOperation, transcriptionsOperation,
}

var backendChecks, guardChecks = allChecks()

// allChecks returns the checks of operations.
func allChecks() (checks []check[backendTest], guards []check[guard]) {
	for _, op := range operations {
		for _, c := range op.checks {
			test := c.test
			c.test = func(t testing.TB, b backendTest) {
				t.Helper()
				if op.model != nil && op.model(&b.opts) == "" {
					t.Skip("BackendOptions have no model for this endpoint")
				}
				test(t, b)
			}
			checks = append(checks, c)
		}
		guards = append(guards, op.guards...)
	}
	return checks, guards
}

// call calls f and waits until it returns. The context of f is done after
// opts.Timeout, or when ctx is. The error says whether f panicked, took too long
// or did not return within opts.Grace after its context was done.
func (b *backendTest) call(ctx context.Context, f func(ctx context.Context)) error {
	limited, cancel := context.WithTimeout(ctx, b.opts.Timeout)
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
	grace := time.NewTimer(b.opts.Grace)
	defer grace.Stop()
	select {
	case err := <-done:
		if err == nil && ctx.Err() == nil {
			err = fmt.Errorf("the call did not return, want it to within %v", b.opts.Timeout)
		}
		return err
	case <-grace.C:
		return fmt.Errorf("the call did not return, want it to within %v after its context was done", b.opts.Grace)
	}
}

// callMethod calls an optional method of the Backend, and fails the test unless
// it returns either a response or an error other than errors.ErrUnsupported.
func callMethod[A, Req, Resp any](
	b *backendTest,
	t testing.TB,
	name string,
	method func(A, context.Context, *Req) (*Resp, error),
	req *Req,
) (resp *Resp, err error) {
	t.Helper()
	if failed := b.call(t.Context(), func(ctx context.Context) { resp, err = ability.Call(method)(ctx, b.Backend, req) }); failed != nil {
		t.Fatalf("%s: %v", name, failed)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("BackendOptions have a model for %s, but the method returned the error %v, want it to serve them", name, err)
	}
	if err == nil && resp == nil {
		t.Fatalf("%s returned neither a response nor an error, want one of them", name)
	}
	return resp, err
}

// wantCancelled reports an error unless method returns soon after its context was cancelled.
func wantCancelled[A, Req, Resp any](
	b *backendTest,
	t testing.TB,
	name string,
	method func(A, context.Context, *Req) (*Resp, error),
	req *Req,
) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.call(ctx, func(ctx context.Context) { _, _ = ability.Call(method)(ctx, b.Backend, req) }); err != nil {
		t.Errorf("%s with a cancelled context: %v", name, err)
	}
}

// wantUnknownModels checks that use, which requests something of a model, refuses models that do
// not exist. model is one that exists.
func (b *backendTest) wantUnknownModels(t testing.TB, model string, use func(model string) error) {
	t.Helper()
	if b.opts.AnyModel {
		t.Skip("the Backend accepts any model")
	}
	for _, unknown := range unknownModels(model) {
		if err := use(unknown); err == nil {
			t.Errorf("a request for the model %q, which does not exist, succeeded; want ModelNotFound", unknown)
		} else {
			wantClientError(t, err)
		}
	}
}

// unknownModels returns names of models that do not exist.
func unknownModels(model string) []string {
	return []string{unique("no-such-model"), model + "-" + unique("x"), "no/such/" + unique("model") + "?*'\"%"}
}

// wantClientError reports an error unless err is an *llm.Error with status
// 4xx. Handlers hide the text of other errors, and clients repeat such requests.
func wantClientError(t testing.TB, err error) {
	t.Helper()
	var e *llm.Error
	switch {
	case !errors.As(err, &e) || e == nil:
		t.Errorf("the error %q is a %T, want an *llm.Error with status 4xx", err, err)
	case e.Status < 400 || e.Status > 499:
		t.Errorf("the status of the error %q is %d, want 4xx", err, e.Status)
	}
}
