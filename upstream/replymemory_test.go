package upstream

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/failure"
)

// Replies that are together larger than MaxReplyMemory are read one after the other.
func TestReplyMemory_BoundsAllReplies(t *testing.T) {
	const numbers = 1 << 17
	embedding := `{"data":[{"index":0,"embedding":[` + strings.Repeat("0,", numbers-1) + `0]}]}`
	image := strings.Repeat("x", 1<<18)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/embeddings":
			io.WriteString(w, embedding)
		case "/images/generations":
			io.WriteString(w, `{"data":[`+strings.Repeat(`{"url":"/image"},`, 3)+`{"url":"/image"}]}`)
		case "/image":
			w.Header().Set("Content-Type", "image/png")
			io.WriteString(w, image)
		case "/models":
			io.WriteString(w, `{"data":[`+strings.Repeat(`{},`, client.MaxModels)+`{"id":"m"}]}`)
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	newBackend := func(o Options) *Backend {
		o.Images.Hosts = []string{host}
		b, err := New(server.URL, &o)
		require.NoError(t, err)
		t.Cleanup(b.CloseIdleConnections)
		return b
	}
	embed := func(b *Backend) error {
		resp, err := b.Embed(t.Context(), &llm.EmbeddingRequest{Model: "m", Input: llm.EmbeddingInput{Texts: []string{"x"}}})
		if err == nil {
			assert.Len(t, resp.Vectors[0], numbers)
		}
		return err
	}
	generate := func(b *Backend) error {
		_, err := b.GenerateImages(t.Context(), &llm.ImageRequest{Model: "m", Prompt: "x", ResponseFormat: llm.ImageFormatBase64})
		return err
	}

	b := newBackend(Options{MaxReplyMemory: 1})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, embed(b)) })
		wg.Go(func() { assert.NoError(t, generate(b)) })
	}
	wg.Wait()
	assert.NoError(t, embed(b), "no memory is in use, so that a reply need not wait")

	small := newBackend(Options{MaxReply: 1 << 19, MaxReplyMemory: 1})
	assert.NoError(t, embed(newBackend(Options{MaxReply: int64(len(embedding))})))
	assert.ErrorContains(t, embed(newBackend(Options{MaxReply: int64(len(embedding)) - 1})), "too large")
	assert.ErrorContains(t, generate(small), "all images are larger than Options.MaxReply")
	_, err := b.ListModels(t.Context())
	assert.ErrorContains(t, err, "too many models")
	assert.NoError(t, embed(small), "no memory is in use after failures")
}

// The body of an error is read up to a limit, and is not retained.
func TestErrors_MemoryOfLargeBody(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		head   string
		size   int
		read   int64 // how much of the body is read
	}{
		"status": {500, `{"error":{"message":"`, 60 << 20, failure.MaxBody},
		"whole":  {200, `{"error":{"message":"`, 8 << 20, 8 << 20},
		"event":  {200, `data: {"error":{"message":"`, 60 << 20, 17 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			body := &countingReader{r: io.MultiReader(strings.NewReader(test.head), strings.NewReader(strings.Repeat("model x ", test.size/8-16)), strings.NewReader("\"}}\n\n"))}
			transport := transportFunc(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: test.status, Header: http.Header{}, Body: io.NopCloser(body), ContentLength: -1}, nil
			})
			b, err := New("http://upstream.test/v1", &Options{Transport: transport})
			require.NoError(t, err)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = join.Collect(b.Chat(t.Context(), &llm.ChatRequest{Model: "m"}))
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			assert.Less(t, len(err.Error()), 8<<10)
			assert.LessOrEqual(t, body.n, test.read+(1<<20))
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8*body.n))
		})
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
