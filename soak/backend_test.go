package soak

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
)

// A countingBackend counts the calls whose usage must be recorded.
type countingBackend struct {
	sim *simulation
	llmhttp.Backend
}

// Unwrap lets pass what is not recorded.
func (b *countingBackend) Unwrap(context.Context) llmhttp.Backend { return b.Backend }

func (b *countingBackend) count(ctx context.Context) {
	for _, key := range []any{soakKey{}, startedKey{}} {
		if v := ctx.Value(key); v != nil && v != llmhttp.RequestIDFrom(ctx) {
			b.sim.fail("the context of request %s has the Observer's value of %v", llmhttp.RequestIDFrom(ctx), v)
		}
	}
	b.sim.account(llmhttp.RequestIDFrom(ctx), func(a *requestAccount) { a.backend++ })
}

func (b *countingBackend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	b.count(ctx)
	return b.Backend.Chat(ctx, req)
}

func (b *countingBackend) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	b.count(ctx)
	return ability[llmhttp.Embedder](ctx, b).Embed(ctx, req)
}

func (b *countingBackend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	b.count(ctx)
	return ability[llmhttp.ImageGenerator](ctx, b).GenerateImages(ctx, req)
}

func (b *countingBackend) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	b.count(ctx)
	return ability[audio.Speaker](ctx, b).Speak(ctx, req)
}

// ability returns the T that b counts the calls of, which each Backend of the simulation has.
func ability[T any](ctx context.Context, b *countingBackend) T {
	found, ok := llmhttp.As[T](ctx, b.Backend)
	if !ok {
		panic(fmt.Sprintf("%T is no %T", b.Backend, found))
	}
	return found
}

// A behavior is what the Backend does with a request.
type behavior int

const (
	behave behavior = iota
	failFirst
	failLate
	panicFirst
	panicLate
	exitLate   // runtime.Goexit
	hangFirst  // until the context is done
	hangLate   // the same, after some chunks
	ignoreStop // goes on after yield has returned false
	yieldLater // from another goroutine, after it has returned
	yieldTogether
	wrongChunks
	slowChunks
	noReply
	behaviorCount
)

// A script is the behavior of the Backend for one request. Clients compute it too.
type script struct {
	behavior behavior
	pieces   []string // the texts that it yields
	usage    bool
	rng      *rand.Rand
}

// script returns the script of request n. Half of the requests have an ordinary
// one.
func (sim *simulation) script(n int) *script {
	s := &script{rng: sim.rand(n, forBackend)}
	if s.rng.IntN(2) == 0 {
		s.behavior = behavior(s.rng.IntN(int(behaviorCount)))
	}
	if s.behavior == exitLate && sim.kind != serverHTTP1 {
		s.behavior = panicLate // net/http forgets a stream of HTTP/2 whose goroutine exits
	}
	for range 1 + s.rng.IntN(8) {
		s.pieces = append(s.pieces, mark(n)+strings.Repeat("\u00e4x", s.rng.IntN(50)))
	}
	if s.rng.IntN(10) == 0 {
		s.pieces = append(s.pieces, mark(n)+strings.Repeat("x", 100_000))
	}
	s.usage = s.rng.IntN(2) == 0
	return s
}

// mark returns a text that identifies request n.
func mark(n int) string { return fmt.Sprintf("#%d#", n) }

func (s *script) text() string { return strings.Join(s.pieces, "") }

// sleep waits for up to d, or until ctx is done.
func (s *script) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(s.rng.Int64N(int64(d)))):
	}
}

func (s *script) err(n int) error {
	switch s.rng.IntN(6) {
	case 0:
		return llm.Errorf(400, "bad", "%s is bad", mark(n))
	case 1:
		return llm.ModelNotFound("m")
	case 2:
		return &llm.Error{Status: 429, RetryAfter: time.Millisecond, Message: mark(n)}
	case 3:
		return llm.Errorf(503, "", "%s", mark(n))
	case 4:
		return (*llm.Error)(nil)
	}
	return errFault
}

// A backend is a Backend that behaves as its scripts specify.
type backend struct{ sim *simulation }

type yieldFunc = func(*llm.ChatChunk, error) bool

func (b *backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	n := number(ctx)
	s := b.sim.script(n)
	if text := req.Messages[len(req.Messages)-1].Content.Text(); text != mark(n) {
		b.sim.fail("request %d has the message %q", n, text)
	}
	if s.rng.IntN(10) == 0 {
		*req = llm.ChatRequest{} // it belongs to the Backend
	}
	return iter.Seq2[*llm.ChatChunk, error](func(yield func(*llm.ChatChunk, error) bool) { b.chat(ctx, n, s, yield) })
}

func (b *backend) chat(ctx context.Context, n int, s *script, yield yieldFunc) {
	switch s.behavior {
	case failFirst:
		yield(nil, s.err(n))
		return
	case panicFirst:
		panic(errFault)
	case hangFirst:
		<-ctx.Done()
		s.sleep(context.Background(), 20*time.Millisecond)
		if s.rng.IntN(2) == 0 {
			yield(llm.TextChunk(mark(n)), nil)
			yield(nil, ctx.Err())
		}
		return
	case noReply:
		return
	case yieldTogether:
		b.yieldTogether(s, yield)
		return
	}
	for i, piece := range s.pieces {
		chunk := llm.TextChunk(piece)
		chunk.ID, chunk.Model = mark(n), modelName(n)
		if s.behavior == wrongChunks {
			s.corrupt(chunk, n)
		}
		if s.behavior == slowChunks {
			s.sleep(ctx, 20*time.Millisecond)
		}
		if !yield(chunk, nil) && s.behavior != ignoreStop {
			return
		}
		if i == len(s.pieces)/2 && b.interrupt(ctx, n, s, yield) {
			return
		}
	}
	end := &llm.ChatChunk{Choices: []llm.ChunkChoice{{FinishReason: llm.FinishStop}}}
	if s.usage {
		end.Usage = &llm.Usage{PromptTokens: 3, CompletionTokens: len(s.pieces)}
	}
	yield(end, nil)
	if s.behavior == yieldLater {
		b.sim.wg.Go(func() {
			eventually(func() bool { return b.sim.isRecorded(n) }) // then this function has returned
			for range 3 {
				if yield(llm.TextChunk("late"), nil) {
					b.sim.fail("request %d: a chunk was accepted after the Backend had returned", n)
				}
			}
		})
	}
}

// Speak yields the texts of a chat as audio.
func (b *backend) Speak(ctx context.Context, req *audio.SpeechRequest) audio.SpeechStream {
	n := number(ctx)
	s := b.sim.script(n)
	if req.Input != mark(n) {
		b.sim.fail("request %d has the input %q", n, req.Input)
	}
	return func(yield func(*audio.SpeechChunk, error) bool) {
		b.chat(ctx, n, s, func(c *llm.ChatChunk, err error) bool {
			spoken := new(audio.SpeechChunk)
			if c != nil {
				spoken.Usage = c.Usage
				for i := range c.Choices {
					spoken.Audio = append(spoken.Audio, c.Choices[i].Delta.Content...)
				}
			}
			return yield(spoken, err)
		})
	}
}

// modelName returns the model of a request.
func modelName(int) string { return "m" }

// interrupt does what the behavior requires in the middle of a reply. It reports whether
// the reply is over.
func (b *backend) interrupt(ctx context.Context, n int, s *script, yield yieldFunc) bool {
	switch s.behavior {
	case failLate:
		yield(llm.TextChunk(mark(n)), s.err(n))
		yield(llm.TextChunk(mark(n)), nil)
	case panicLate:
		panic(errFault)
	case exitLate:
		runtime.Goexit()
	case hangLate:
		<-ctx.Done()
		yield(llm.TextChunk(mark(n)), nil)
	default:
		return false
	}
	return true
}

// yieldTogether yields from several goroutines at the same time.
func (b *backend) yieldTogether(s *script, yield yieldFunc) {
	done := make(chan struct{})
	for _, piece := range s.pieces {
		b.sim.wg.Go(func() {
			yield(llm.TextChunk(piece), nil)
			done <- struct{}{}
		})
	}
	for range s.pieces {
		<-done
	}
}

// corrupt makes a chunk invalid in a random way.
func (s *script) corrupt(c *llm.ChatChunk, n int) {
	choice := &c.Choices[0]
	switch s.rng.IntN(10) {
	case 0:
		c.Choices = nil
	case 1:
		choice.Index = s.rng.IntN(300) - 100
	case 2:
		choice.Delta.Content = mark(n) + "\xf0\x9f"
	case 3:
		choice.FinishReason = "odd"
	case 4:
		c.Usage = &llm.Usage{PromptTokens: max(-1<<62, math.MinInt), CompletionTokens: 1 << 30, TotalTokens: -5}
	case 5:
		choice.Delta.ToolCalls = []llm.ToolCallDelta{{Index: s.rng.IntN(40) - 5, Function: llm.FunctionCall{Name: mark(n), Arguments: "{"}}}
	case 6:
		choice.Delta.Role = "odd"
		choice.Delta.Reasoning = mark(n)
	case 7:
		choice.Extra = llm.Extra{"index": []byte("5"), "x": []byte(`"` + mark(n) + `"`)}
	case 8:
		c.Extra = llm.Extra{"usage": []byte("1"), "x": []byte("broken")}
	case 9:
		choice.Delta.Content = ""
		c.Choices = append(c.Choices, *choice, *choice)
	}
}

// beforeReply does what the behavior requires before a reply that is not a stream.
func (b *backend) beforeReply(ctx context.Context, n int, s *script) error {
	switch s.behavior {
	case failFirst, failLate:
		return s.err(n)
	case panicFirst, panicLate:
		panic(errFault)
	case exitLate:
		runtime.Goexit()
	case hangFirst, hangLate:
		<-ctx.Done()
		return ctx.Err()
	case slowChunks:
		s.sleep(ctx, 50*time.Millisecond)
	}
	return nil
}

func (b *backend) Embed(ctx context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	n := number(ctx)
	s := b.sim.script(n)
	if err := b.beforeReply(ctx, n, s); err != nil {
		return nil, err
	}
	if s.behavior == noReply {
		return nil, nil
	}
	resp := &llm.EmbeddingResponse{Vectors: [][]float32{{float32(n)}}}
	if s.behavior == wrongChunks {
		resp.Vectors = append(resp.Vectors, nil)
	}
	if s.usage {
		resp.Usage = &llm.Usage{PromptTokens: 7}
	}
	return resp, nil
}

func (b *backend) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	n := number(ctx)
	s := b.sim.script(n)
	if err := b.beforeReply(ctx, n, s); err != nil {
		return nil, err
	}
	switch s.behavior {
	case noReply:
		return nil, nil
	case wrongChunks:
		return &llm.ImageResponse{Data: make([]llm.Image, 3)}, nil
	}
	return &llm.ImageResponse{Data: []llm.Image{{URL: "https://images.test/" + mark(n)}}}, nil
}

func (b *backend) ListModels(ctx context.Context) ([]llm.Model, error) {
	return []llm.Model{{ID: "m"}}, nil
}
