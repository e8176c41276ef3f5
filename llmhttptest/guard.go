package llmhttptest

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
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

const guardCause = "the wrapper has an Unwrap. A guard has the methods that it checks, and hides the others."

var guardChecks = []check[guard]{
	{"Chat", "the messages are not checked.", func(t testing.TB, g guard) {
		g.check(t, func(ctx context.Context, b llmhttp.Backend) { drain(b.Chat(ctx, g.chat())) })
	}},
	{"CountTokens", guardCause, func(t testing.TB, g guard) {
		guardCall(t, g, llmhttp.TokenCounter.CountTokens, g.chat())
	}},
	{"Complete", guardCause, func(t testing.TB, g guard) {
		guardStream(t, g, llmhttp.Completer.Complete, &llmhttp.CompletionRequest{Model: "m", Prompt: llmhttp.CompletionPrompt{Texts: []string{g.text}}})
	}},
	{"Embed", guardCause, func(t testing.TB, g guard) {
		guardCall(t, g, llmhttp.Embedder.Embed, &llm.EmbeddingRequest{Model: "m", Input: llm.EmbeddingInput{Texts: []string{g.text}}})
	}},
	{"GenerateImages", guardCause, func(t testing.TB, g guard) {
		guardCall(t, g, llmhttp.ImageGenerator.GenerateImages, &llm.ImageRequest{Model: "m", Prompt: g.text})
	}},
	{"EditImages", guardCause, func(t testing.TB, g guard) {
		guardCall(t, g, llmhttp.ImageEditor.EditImages, g.edit())
	}},
	{"StreamImages", guardCause, func(t testing.TB, g guard) {
		g.checkImageStream(t, &llm.ImageRequest{Model: "m", Prompt: g.text, Stream: true})
	}},
	{"StreamEdits", guardCause, func(t testing.TB, g guard) {
		req := g.edit()
		req.Stream = true
		g.checkImageStream(t, req)
	}},
	{"Rerank", guardCause, func(t testing.TB, g guard) {
		guardCall(t, g, rerank.Reranker.Rerank, &rerank.Request{Model: "m", Query: g.text, Documents: []rerank.Document{{Text: "a"}}})
	}},
	{"RerankDocuments", "the documents are not checked, or " + guardCause, func(t testing.TB, g guard) {
		guardCall(t, g, rerank.Reranker.Rerank, &rerank.Request{Model: "m", Query: "a", Documents: []rerank.Document{{Text: g.text}}})
	}},
	{"Moderate", guardCause, func(t testing.TB, g guard) {
		guardCall(t, g, llmhttp.Moderator.Moderate, &llmhttp.ModerationRequest{Model: "m", Input: llmhttp.ModerationInput{Texts: []string{g.text}}})
	}},
	{"Speak", guardCause, func(t testing.TB, g guard) {
		guardStream(t, g, llmhttp.Speaker.Speak, &llmhttp.SpeechRequest{Model: "m", Input: g.text, Voice: llmhttp.SpeechVoice{Name: "alloy"}})
	}},
	{"Transcribe", guardCause, func(t testing.TB, g guard) {
		guardStream(t, g, llmhttp.Transcriber.Transcribe, &llmhttp.TranscriptionRequest{Model: "m", Prompt: g.text, File: emptyFile()})
	}},
}

func (g *guard) chat() *llm.ChatRequest {
	return &llm.ChatRequest{Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.Text(g.text)}}}
}

func (g *guard) edit() *llm.ImageRequest {
	return &llm.ImageRequest{Model: "m", Prompt: g.text, Images: []*llm.File{emptyFile()}}
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

func (g *guard) checkImageStream(t testing.TB, req *llm.ImageRequest) {
	t.Helper()
	g.check(t, func(ctx context.Context, b llmhttp.Backend) { drain(llmhttp.StreamImages(ctx, b, req)) })
}

// drain reads a stream to its end.
func drain[Chunk any](s iter.Seq2[*Chunk, error]) {
	if s != nil {
		s(func(*Chunk, error) bool { return true })
	}
}

// check calls f with the guard around a probe, and reports an error if that gets the text.
func (g *guard) check(t testing.TB, f func(ctx context.Context, b llmhttp.Backend)) {
	t.Helper()
	p := &probe{text: g.text}
	f(t.Context(), g.wrap(p))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, req := range p.got {
		t.Errorf("the Backend behind the guard got a %T with the text %q, which must not pass", req, g.text)
	}
}

// A probe is a Backend that notes the requests that have a text. It fails each request.
type probe struct {
	text string

	mu  sync.Mutex // guards the field below
	got []any
}

// note notes req if it has the text, and returns the error of the request.
func (p *probe) note(req any) error {
	found := false
	_ = textfilter.Rewrite(req, func(_ textfilter.Kind, text string) (string, error) {
		found = found || strings.Contains(text, p.text)
		return text, nil
	})
	if found {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.got = append(p.got, req)
	}
	return llm.Errorf(http.StatusBadRequest, "", "This Backend answers nothing.")
}

// probeStream returns a stream that notes req when it is read.
func probeStream[Chunk any](p *probe, req any) iter.Seq2[*Chunk, error] {
	return func(yield func(*Chunk, error) bool) { yield(nil, p.note(req)) }
}

func (p *probe) Chat(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
	return probeStream[llm.ChatChunk](p, req)
}

func (p *probe) CountTokens(_ context.Context, req *llm.ChatRequest) (int, error) {
	return 0, p.note(req)
}

func (p *probe) Complete(_ context.Context, req *llmhttp.CompletionRequest) llm.ChatStream {
	return probeStream[llm.ChatChunk](p, req)
}

func (p *probe) ListModels(context.Context) ([]llm.Model, error) {
	return []llm.Model{{ID: "m"}}, nil
}

func (p *probe) Embed(_ context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return nil, p.note(req)
}

func (p *probe) GenerateImages(_ context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	return nil, p.note(req)
}

func (p *probe) EditImages(_ context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	return nil, p.note(req)
}

func (p *probe) StreamImages(_ context.Context, req *llm.ImageRequest) llm.ImageStream {
	return probeStream[llm.ImageChunk](p, req)
}

func (p *probe) ImageSizes(context.Context, string) ([]string, error) { return nil, nil }

func (p *probe) Rerank(_ context.Context, req *rerank.Request) (*rerank.Response, error) {
	return nil, p.note(req)
}

func (p *probe) Moderate(_ context.Context, req *llmhttp.ModerationRequest) (*llmhttp.ModerationResponse, error) {
	return nil, p.note(req)
}

func (p *probe) Speak(_ context.Context, req *llmhttp.SpeechRequest) llmhttp.SpeechStream {
	return probeStream[llmhttp.SpeechChunk](p, req)
}

func (p *probe) Transcribe(_ context.Context, req *llmhttp.TranscriptionRequest) llmhttp.TranscriptionStream {
	return probeStream[llmhttp.TranscriptionChunk](p, req)
}
