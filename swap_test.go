package llmhttp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

func ExampleChatOnly() {
	// model has images and embeddings, which a wrapper of Chat does not see.
	var model llmhttp.Backend = &stubBackend{}
	checked := llmhttp.ChatOnly(model)

	_, ok := llmhttp.As[llmhttp.Embedder](context.Background(), checked)
	fmt.Println(ok)
	// Output: false
}

func ExampleSwappableBackend() {
	backend := llmhttp.NewSwappableBackend(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return llm.Reply("the first configuration")
	}))
	h := llmhttp.NewHandler(backend, llmhttp.AllowAll("demo"), nil)
	printText(post(h, hello))
	backend.Replace(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return llm.Reply("the second configuration")
	}))
	printText(post(h, hello))
	// Output:
	// the first configuration
	// the second configuration
}

// nameOf returns the name that a Backend of named has for its models.
func nameOf(t *testing.T, b llmhttp.Backend) string {
	t.Helper()
	lister, ok := llmhttp.As[llmhttp.ModelLister](t.Context(), b)
	require.True(t, ok)
	models, err := lister.ListModels(t.Context())
	require.NoError(t, err)
	return models[0].ID
}

// named returns a Backend with all methods that replies with its name.
func named(name string) *stubBackend {
	return &stubBackend{
		chat: func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply(name) },
		models: func(context.Context) ([]llm.Model, error) {
			return []llm.Model{{ID: name}}, nil
		},
		sizes: func(context.Context, string) ([]string, error) { return nil, nil },
		images: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
			return &llm.ImageResponse{Data: []llm.Image{{URL: "https://" + name}}}, nil
		},
	}
}

func TestSwappableBackend_OptionalInterfacesFollow(t *testing.T) {
	swap := llmhttp.NewSwappableBackend(llmhttp.ChatOnly(named("a")))
	_, ok := llmhttp.As[llmhttp.ModelLister](t.Context(), swap)
	assert.False(t, ok)
	b := named("b")
	swap.Replace(b)
	assert.Equal(t, "b", nameOf(t, swap))
	assert.Same(t, b, swap.Current())
	assert.Same(t, b, swap.Replace(named("c")))
	assert.Equal(t, "c", nameOf(t, swap))
}

// A request whose Backend is replaced between two of its calls makes both of the same one.
func TestSwappableBackend_RequestKeepsItsBackend(t *testing.T) {
	old := named("old")
	swap := llmhttp.NewSwappableBackend(old)
	old.sizes = func(context.Context, string) ([]string, error) {
		swap.Replace(named("new"))
		return nil, nil
	}
	s := startServer(t, config{backend: swap})
	assert.Contains(t, s.do("POST", imagesPath, imageBody).body, "https://old")
	assert.Contains(t, s.do("POST", imagesPath, imageBody).body, "https://new")

	// An agent that calls a SwappableBackend several times keeps the Backend too, and a stream that has begun goes on.
	twice := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			for range 2 {
				for c, err := range swap.Chat(ctx, req.Clone()) {
					c.Choices[0].FinishReason = ""
					yield(c, err)
				}
				swap.Replace(named("newest"))
			}
		}
	})
	newServer := startServer(t, config{backend: twice})
	newServer.chat(streamBody).checkText(t, "newnew")
	newServer.chat(streamBody).checkText(t, "newestnewest")
}

func TestSwappableBackend_ReplacedUnderLoad(t *testing.T) {
	swap := llmhttp.NewSwappableBackend(named("0"))
	s := startServer(t, config{backend: swap})
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 25 {
				assert.Equal(t, 200, s.chat(streamBody).StatusCode)
			}
		})
	}
	for i := range 100 {
		swap.Replace(named(fmt.Sprint(i)))
	}
	running.Wait()
}

func TestSwappableBackend_Nil(t *testing.T) {
	assert.Panics(t, func() { llmhttp.NewSwappableBackend(nil) })
	assert.Panics(t, func() { llmhttp.NewSwappableBackend(llmhttp.BackendFunc(nil)) })
	assert.Panics(t, func() { llmhttp.NewSwappableBackend(named("a")).Replace(nil) })
	assert.Panics(t, func() { llmhttp.ChatOnly(nil) })
}

func TestChatOnly(t *testing.T) {
	s := startServer(t, config{backend: llmhttp.ChatOnly(named("a"))})
	assert.Equal(t, 200, s.chat(chatBody).StatusCode)
	for path, body := range modelBodies {
		if path != chatPath {
			assert.Equal(t, 404, s.do("POST", path, body).StatusCode, path)
		}
	}
	assert.Equal(t, 404, s.get(modelsPath).StatusCode)
}
