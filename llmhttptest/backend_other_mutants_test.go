package llmhttptest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// otherMutants list, draw and embed badly.
var otherMutants = []mutant[backendTest]{
	{"no IDs", "Models", lists(llmhttp.Model{ID: "chat"}, llmhttp.Model{ID: "draw"}, llmhttp.Model{ID: "embed"}, llmhttp.Model{})},
	{"the same twice", "Models", lists(llmhttp.Model{ID: "chat"}, llmhttp.Model{ID: "draw"}, llmhttp.Model{ID: "chat"}, llmhttp.Model{ID: "embed"})},
	{"not all", "Models", lists(llmhttp.Model{ID: "chat"}, llmhttp.Model{ID: "draw"})},
	{"before its time", "Models", lists(llmhttp.Model{ID: "chat"}, llmhttp.Model{ID: "draw"}, llmhttp.Model{ID: "embed", Created: math.MinInt64})},
	{"bad Extra of a model", "Models", lists(llmhttp.Model{ID: "chat"}, llmhttp.Model{ID: "draw"}, llmhttp.Model{ID: "embed", Extra: bad})},
	{"failing list", "Models", backendFixture(func(p *parrot) {
		p.list = func() ([]llmhttp.Model, error) { return nil, errors.New("down") }
	})},
	{"in any order", "Models", backendFixture(func(p *parrot) {
		models := []llmhttp.Model{{ID: "chat"}, {ID: "draw"}, {ID: "embed"}}
		p.list = func() ([]llmhttp.Model, error) {
			slices.Reverse(models)
			return slices.Clone(models), nil
		}
	})},

	{"no method for images", "Images", bare},
	{"n is ignored", "Images", draws(func(_ *llmhttp.ImageRequest, resp *llmhttp.ImageResponse) { resp.Data = resp.Data[:1] })},
	{"nothing in it", "Images", draws(func(_ *llmhttp.ImageRequest, resp *llmhttp.ImageResponse) { resp.Data[0].Data = nil })},
	{"not an image", "Images", draws(func(_ *llmhttp.ImageRequest, resp *llmhttp.ImageResponse) { resp.Data[0].Data = []byte("<html>") })},
	{"half an image", "Images", draws(func(_ *llmhttp.ImageRequest, resp *llmhttp.ImageResponse) { resp.Data[0].Data = resp.Data[0].Data[:50] })},
	{"another size", "Images", backendFixture(func(p *parrot) {
		p.images = func(p *parrot, ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			req.Size = "9x9"
			return p.draw(ctx, req)
		}
	})},
	{"a path for a URL", "Images", draws(func(_ *llmhttp.ImageRequest, resp *llmhttp.ImageResponse) {
		resp.Data[0] = llmhttp.Image{URL: "/tmp/1.png"}
	})},
	{"a bad URL", "Images", draws(func(_ *llmhttp.ImageRequest, resp *llmhttp.ImageResponse) {
		resp.Data[0] = llmhttp.Image{URL: "http://[/"}
	})},
	{"negative usage", "Images", draws(func(_ *llmhttp.ImageRequest, resp *llmhttp.ImageResponse) {
		resp.Usage = &llmhttp.Usage{PromptTokens: -1}
	})},
	{"bad Extra of an image", "Images", draws(func(_ *llmhttp.ImageRequest, resp *llmhttp.ImageResponse) { resp.Data[0].Extra = bad })},
	{"odd prompts are the server's fault", "Images", backendFixture(func(p *parrot) {
		p.images = func(p *parrot, ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			if strings.Contains(req.Prompt, "\"") {
				return nil, errors.New("syntax error")
			}
			return p.draw(ctx, req)
		}
	})},
	{"failing", "Images", backendFixture(func(p *parrot) {
		p.images = func(*parrot, context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			return nil, llmhttp.Errorf(429, "busy", "Busy.")
		}
	})},
	{"neither images nor error", "Images", backendFixture(func(p *parrot) {
		p.images = func(*parrot, context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) { return nil, nil }
	})},
	{"one at a time", "Images", backendFixture(func(p *parrot) {
		var mu sync.Mutex
		p.images = func(p *parrot, ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			if !mu.TryLock() {
				return nil, llmhttp.Errorf(429, "busy", "Busy.")
			}
			defer mu.Unlock()
			time.Sleep(time.Microsecond)
			return p.draw(ctx, req)
		}
	})},

	{"sizes of nothing", "ImageSizes", backendFixture(func(p *parrot) {
		p.sizes = func(string) ([]string, error) { return []string{"8x8", "large"}, nil }
	})},
	{"sizes in other words", "ImageSizes", backendFixture(func(p *parrot) {
		p.sizes = func(string) ([]string, error) { return []string{"08x8"}, nil }
	})},
	{"sizes of any model", "ImageSizes", backendFixture(func(p *parrot) {
		p.sizes = func(string) ([]string, error) { return []string{"8x8"}, nil }
	})},
	{"unknown is the server's fault", "ImageSizes", backendFixture(func(p *parrot) {
		p.sizes = func(model string) ([]string, error) {
			if model != "draw" {
				return nil, errors.New("no such model")
			}
			return []string{"8x8"}, nil
		}
	})},
	{"failing", "ImageSizes", backendFixture(func(p *parrot) {
		p.sizes = func(string) ([]string, error) { return nil, errors.New("down") }
	})},
	{"any model", "ImageUnknownModel", backendFixture(func(p *parrot) {
		p.images = func(p *parrot, ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			req.Model = "draw"
			return p.draw(ctx, req)
		}
	})},
	{"unknown is the server's fault", "ImageUnknownModel", backendFixture(func(p *parrot) {
		p.images = func(p *parrot, ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			resp, err := p.draw(ctx, req)
			if err != nil {
				err = fmt.Errorf("drawing: %v", err)
			}
			return resp, err
		}
	})},
	{"does not hear", "ImageCancelled", backendFixture(func(p *parrot) {
		p.images = func(p *parrot, ctx context.Context, req *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			return slowly(func() *llmhttp.ImageResponse { r, _ := p.draw(ctx, req); return r }), nil
		}
	})},

	{"no method for embeddings", "Embeddings", bare},
	{"the last vector is missing", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) {
		resp.Vectors = resp.Vectors[:max(1, len(resp.Vectors)-1)]
	})},
	{"duplicates are left out", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) {
		resp.Vectors = slices.CompactFunc(resp.Vectors, slices.Equal)
	})},
	{"vectors of several lengths", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) {
		resp.Vectors[0] = resp.Vectors[0][:100]
	})},
	{"other lengths at other times", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) {
		for i := range resp.Vectors {
			resp.Vectors[i] = append(resp.Vectors[i], make([]float32, len(resp.Vectors))...)
		}
	})},
	{"no length", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) { clear(resp.Vectors) })},
	{"not a number", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) {
		resp.Vectors[0][0] = float32(math.NaN())
	})},
	{"infinite", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) {
		resp.Vectors[0][0] = float32(math.Inf(1))
	})},
	{"zero", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) { clear(resp.Vectors[0]) })},
	{"dimensions are ignored", "Embeddings", backendFixture(func(p *parrot) {
		p.embed = func(p *parrot, ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			req.Dimensions = nil
			return p.count(ctx, req)
		}
	})},
	{"tokens are the server's fault", "Embeddings", backendFixture(func(p *parrot) {
		p.embed = func(p *parrot, ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			if req.Input.Tokens != nil {
				return nil, errors.New("not implemented")
			}
			return p.count(ctx, req)
		}
	})},
	{"negative usage", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) { resp.Usage.PromptTokens = -1 })},
	{"bad Extra", "Embeddings", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) { resp.Extra = bad })},
	{"neither vectors nor error", "Embeddings", backendFixture(func(p *parrot) {
		p.embed = func(*parrot, context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			return nil, nil
		}
	})},
	{"one at a time", "Embeddings", backendFixture(func(p *parrot) {
		var mu sync.Mutex
		p.embed = func(p *parrot, ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			if !mu.TryLock() {
				return nil, llmhttp.Errorf(429, "busy", "Busy.")
			}
			defer mu.Unlock()
			time.Sleep(time.Microsecond)
			return p.count(ctx, req)
		}
	})},
	{"in any order", "EmbeddingOrder", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) { slices.Reverse(resp.Vectors) })},
	{"all the same", "EmbeddingOrder", embeds(func(_ *llmhttp.EmbeddingRequest, resp *llmhttp.EmbeddingResponse) {
		for i := range resp.Vectors {
			resp.Vectors[i] = resp.Vectors[0]
		}
	})},
	{"any model", "EmbeddingUnknownModel", backendFixture(func(p *parrot) {
		p.embed = func(p *parrot, ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			req.Model = "embed"
			return p.count(ctx, req)
		}
	})},
	{"does not hear", "EmbeddingCancelled", backendFixture(func(p *parrot) {
		p.embed = func(p *parrot, ctx context.Context, req *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			return slowly(func() *llmhttp.EmbeddingResponse { r, _ := p.count(ctx, req); return r }), nil
		}
	})},
}
