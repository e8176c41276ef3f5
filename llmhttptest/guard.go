// TestGuard, for wrappers that refuse or change texts.

package llmhttptest

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/textfilter"
)

// TestGuard tests a wrapper that refuses or changes texts of requests before a Backend gets them, such
// as a guardrail. wrap puts it around a Backend, and is called for each check. text is one that the
// wrapper must not let pass, wherever a client may write it: in the message of a user, in a prompt or
// in an input.
//
// The kit puts the wrapper around a Backend that has every optional interface, and calls each that
// [llmhttp.As] finds. It fails if the Backend gets text: the wrapper then lacks a check, or has a
// method Unwrap, which goes around what it does not have. What is hidden cannot fail. Replies are not
// checked.
func TestGuard(t *testing.T, wrap func(b llmhttp.Backend) llmhttp.Backend, text string) {
	t.Helper()
	if text == "" {
		t.Fatal("the text is empty, want one that must not pass")
	}
	runChecks(t, guardChecks, func(testing.TB) guard { return guard{wrap, text} })
}

// A guard is the wrapper that a check tests.
type guard struct {
	wrap func(b llmhttp.Backend) llmhttp.Backend
	text string
}

func emptyFile() *llm.File { return &llm.File{Name: "file", Content: strings.NewReader("")} }

// guardCall checks a method of the interface A, if the guard has it.
func guardCall[A, Req, Resp any](t testing.TB, g guard, method func(a A, ctx context.Context, req *Req) (Resp, error), req *Req) {
	t.Helper()
	g.check(t, func(ctx context.Context, b llmhttp.Backend) {
		if a, ok := llmhttp.As[A](ctx, b); ok {
			_, _ = method(a, ctx, req)
		}
	})
}

// guardStream is guardCall for a method that returns a stream.
func guardStream[A, Req, Chunk any](t testing.TB, g guard, method func(a A, ctx context.Context, req *Req) iter.Seq2[*Chunk, error], req *Req) {
	t.Helper()
	g.check(t, func(ctx context.Context, b llmhttp.Backend) {
		if a, ok := llmhttp.As[A](ctx, b); ok {
			drain(method(a, ctx, req))
		}
	})
}

// drain reads a stream to its end.
func drain[Chunk any](s iter.Seq2[*Chunk, error]) {
	if s != nil {
		s(func(*Chunk, error) bool { return true })
	}
}

// check calls f with the guard around a Backend that has every method, and reports an error if that gets
// the text.
func (g *guard) check(t testing.TB, f func(ctx context.Context, b llmhttp.Backend)) {
	t.Helper()
	var got atomic.Bool
	f(t.Context(), g.wrap(textfilter.New(probe{}, func(context.Context) textfilter.Filter {
		return textfilter.Filter{Request: func(_ textfilter.Kind, text string) (string, error) {
			if strings.Contains(text, g.text) {
				got.Store(true)
				return "", errAnswersNothing
			}
			return text, nil
		}}
	})))
	if got.Load() {
		t.Errorf("the Backend behind the guard got a request with the text %q, want none: a guard hides what it does not check, and has no Unwrap", g.text)
	}
}

// A probe is a Backend that answers no request, but tells what there is.
type probe struct{}

var errAnswersNothing = llm.Errorf(http.StatusBadRequest, "", "This Backend answers nothing.")

func (probe) Chat(context.Context, *llm.ChatRequest) llm.ChatStream {
	return llm.Fail(errAnswersNothing)
}

func (probe) ListModels(context.Context) ([]llm.Model, error) { return []llm.Model{{ID: "m"}}, nil }

func (probe) ImageSizes(context.Context, string) ([]string, error) { return nil, nil }
