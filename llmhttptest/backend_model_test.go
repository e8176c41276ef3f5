package llmhttptest

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A parrot is a Backend that repeats what it is told, with places for faults.
type parrot struct {
	edit   func(i int, c *llmhttp.ChatChunk) *llmhttp.ChatChunk                              // changes chunk i
	chat   func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream // instead
	list   func() ([]llmhttp.Model, error)
	sizes  func(model string) ([]string, error)
	images func(p *parrot, ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error)
	embed  func(p *parrot, ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error)
}

var (
	_ llmhttp.Backend        = (*parrot)(nil)
	_ llmhttp.ModelLister    = (*parrot)(nil)
	_ llmhttp.ImageSizer     = (*parrot)(nil)
	_ llmhttp.ImageGenerator = (*parrot)(nil)
	_ llmhttp.Embedder       = (*parrot)(nil)
)

func (p *parrot) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	if p.chat != nil {
		return p.chat(p, ctx, req)
	}
	return p.speak(ctx, req)
}

// speak yields the words of the last message, one by one, for each choice.
func (p *parrot) speak(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		if req.Model != "chat" {
			yield(nil, llmhttp.ModelNotFound(req.Model))
			return
		}
		words := strings.SplitAfter(req.Messages[len(req.Messages)-1].Content.Text(), " ")
		reason := llmhttp.FinishStop
		if limit, ok := req.TokenLimit(); ok && len(words) > limit {
			words, reason = words[:limit], llmhttp.FinishLength
		}
		n := 0
		say := func(c *llmhttp.ChatChunk) bool {
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return false
			}
			n++
			return yield(p.edit(n-1, c), nil)
		}
		for _, word := range words {
			for k := range req.Choices() {
				c := llmhttp.TextChunk(word)
				c.Choices[0].Index = k
				if !say(c) {
					return
				}
			}
		}
		end := &llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: 7, CompletionTokens: len(words) * req.Choices()}}
		for k := range req.Choices() {
			end.Choices = append(end.Choices, llmhttp.ChunkChoice{Index: k, FinishReason: reason})
		}
		if len(req.Tools) > 0 {
			end.Choices[0].Delta.ToolCalls = []llmhttp.ToolCallDelta{{ID: "call_1", Type: "function", Function: llmhttp.FunctionCall{Name: "weather"}}}
		}
		say(end)
	}
}

func (p *parrot) ListModels(context.Context) ([]llmhttp.Model, error) {
	if p.list != nil {
		return p.list()
	}
	return []llmhttp.Model{{ID: "chat"}, {ID: "draw"}, {ID: "embed"}}, nil
}

func (p *parrot) ImageSizes(_ context.Context, model string) ([]string, error) {
	if p.sizes != nil {
		return p.sizes(model)
	}
	if model != "draw" {
		return nil, llmhttp.ModelNotFound(model)
	}
	return []string{"16x8", "8x8"}, nil
}

func (p *parrot) GenerateImages(ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	if p.images != nil {
		return p.images(p, ctx, req)
	}
	return p.draw(ctx, req)
}

func (p *parrot) draw(_ context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	if req.Model != "draw" {
		return nil, llmhttp.ModelNotFound(req.Model)
	}
	var b bytes.Buffer
	w, h, _ := parseSize(req.Size)
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		return nil, err
	}
	resp := new(llmhttp.ImageResponse)
	for range req.Count() {
		resp.Data = append(resp.Data, llmhttp.Image{Data: b.Bytes()})
	}
	return resp, nil
}

func (p *parrot) Embed(ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	if p.embed != nil {
		return p.embed(p, ctx, req)
	}
	return p.count(ctx, req)
}

// count counts bytes.
func (p *parrot) count(_ context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	if req.Model != "embed" {
		return nil, llmhttp.ModelNotFound(req.Model)
	}
	texts := req.Input.Texts
	if texts == nil {
		return nil, llmhttp.Errorf(400, "invalid_type", "Tokens are not supported.")
	}
	resp := &llmhttp.EmbeddingResponse{Usage: &llmhttp.Usage{PromptTokens: len(texts)}}
	for _, text := range texts {
		v := make([]float32, 256)
		if req.Dimensions != nil {
			v = v[:*req.Dimensions]
		}
		for _, b := range []byte(text) {
			v[int(b)%len(v)]++
		}
		resp.Vectors = append(resp.Vectors, v)
	}
	return resp, nil
}

// backendFixture returns a parrot with a fault.
func backendFixture(fault func(*parrot)) func(testing.TB) backendTest {
	return func(testing.TB) backendTest {
		p := &parrot{edit: func(_ int, c *llmhttp.ChatChunk) *llmhttp.ChatChunk { return c }}
		fault(p)
		return newBackendTest(p, BackendOptions{ChatModel: "chat", ImageModel: "draw", EmbeddingModel: "embed"})
	}
}

// bare returns a Backend that only chats, although it is said to do more.
func bare(testing.TB) backendTest {
	p := &parrot{edit: func(_ int, c *llmhttp.ChatChunk) *llmhttp.ChatChunk { return c }}
	return newBackendTest(llmhttp.BackendFunc(p.Chat), BackendOptions{ChatModel: "chat", ImageModel: "draw", EmbeddingModel: "embed"})
}

// edits is the fault of a Backend that yields bad chunks.
func edits(edit func(i int, c *llmhttp.ChatChunk) *llmhttp.ChatChunk) func(testing.TB) backendTest {
	return backendFixture(func(p *parrot) { p.edit = edit })
}

// spoils is the fault of a Backend whose chunks are bad when they have choices
// of a certain index.
func spoils(index int, change func(c *llmhttp.ChunkChoice)) func(testing.TB) backendTest {
	return edits(func(_ int, c *llmhttp.ChatChunk) *llmhttp.ChatChunk {
		for i := range c.Choices {
			if c.Choices[i].Index == index {
				change(&c.Choices[i])
			}
		}
		return c
	})
}

// chats is the fault of a Backend that chats in its own way.
func chats(chat func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream) func(testing.TB) backendTest {
	return backendFixture(func(p *parrot) { p.chat = chat })
}

// if only chats if f says that the request is a plain one, and fails otherwise.
func failsUnless(ok func(req *llmhttp.ChatRequest) bool) func(testing.TB) backendTest {
	return chats(func(p *parrot, ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
		if !ok(req) {
			return llmhttp.Fail(errors.New("not implemented"))
		}
		return p.speak(ctx, req)
	})
}

// draws is the fault of a Backend whose images are bad.
func draws(change func(req *llmhttp.ImageRequest, resp *llmhttp.ImageResponse)) func(testing.TB) backendTest {
	return backendFixture(func(p *parrot) {
		p.images = func(p *parrot, ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			resp, err := p.draw(ctx, req)
			if err == nil {
				change(req, resp)
			}
			return resp, err
		}
	})
}

// embeds is the fault of a Backend whose vectors are bad.
func embeds(change func(req *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse)) func(testing.TB) backendTest {
	return backendFixture(func(p *parrot) {
		p.embed = func(p *parrot, ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			resp, err := p.count(ctx, req)
			if err == nil {
				change(req, resp)
			}
			return resp, err
		}
	})
}

func lists(models ...llmhttp.Model) func(testing.TB) backendTest {
	return backendFixture(func(p *parrot) {
		p.list = func() ([]llmhttp.Model, error) { return models, nil }
	})
}

// slowly calls f when it is done sleeping, whatever its context says.
func slowly[T any](f func() T) T {
	time.Sleep(2 * time.Minute)
	return f()
}
