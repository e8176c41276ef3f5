package upstream

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// readReply reads a reply of n bytes with a reservation.
func readReply(ctx context.Context, v *memoryReservation, n int) error {
	_, err := io.Copy(io.Discard, v.reader(ctx, strings.NewReader(strings.Repeat("x", n))))
	return err
}

func TestReplyMemory_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reply = 1 << 20
		m := &replyMemory{limit: 2 * reply}
		reserve := func() *memoryReservation { return &memoryReservation{memory: m, limit: reply} }
		var held []*memoryReservation
		for range 3 { // the third exceeds the limit
			held = append(held, reserve())
			require.NoError(t, readReply(t.Context(), held[len(held)-1], reply))
		}
		var done [2]error
		var wg sync.WaitGroup
		waiting := []*memoryReservation{reserve(), reserve()}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		wg.Go(func() { done[0] = readReply(t.Context(), waiting[0], reply) })
		wg.Go(func() { done[1] = readReply(ctx, waiting[1], reply) })
		synctest.Wait()
		assert.Less(t, waiting[0].reserved+waiting[1].reserved, int64(2*reserveStep), "they wait")
		require.NoError(t, readReply(t.Context(), reserve(), reserveStep), "a small reply does not")
		cancel(gone)
		synctest.Wait()
		assert.Equal(t, gone, done[1])
		waiting[1].release()
		held[2].release()
		wg.Wait()
		assert.NoError(t, done[0])
		for _, v := range append(held[:2], waiting[0]) {
			v.release()
		}
		assert.Zero(t, m.reserved)
		assert.Nil(t, m.overLimit)
	})
}

func TestReplyMemory_TooLarge(t *testing.T) {
	v := &memoryReservation{memory: &replyMemory{limit: 1 << 30}, limit: 100_000}
	require.NoError(t, readReply(t.Context(), v, 60_000))
	assert.ErrorIs(t, readReply(t.Context(), v, 60_000), bounded.ErrTooLarge, "the limit is for both readers")
}

// Replies of random sizes are all read without a deadlock, and never hold more memory
// than the limit and the size of one reply.
func TestReplyMemory_NoDeadlock(t *testing.T) {
	const reply, limit = 1 << 20, 1 << 20
	m := &replyMemory{limit: limit}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for range 20 {
				v := &memoryReservation{memory: m, limit: reply}
				assert.NoError(t, readReply(t.Context(), v, rng.IntN(reply)))
				m.mu.Lock()
				assert.LessOrEqual(t, m.reserved, int64(limit+2*reply))
				m.mu.Unlock()
				v.release()
			}
		})
	}
	wg.Wait()
	assert.Zero(t, m.reserved)
}

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
			io.WriteString(w, `{"data":[`+strings.Repeat(`{},`, maxModels)+`{"id":"m"}]}`)
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
	assert.Zero(t, b.memory.reserved)

	small := newBackend(Options{MaxReply: 1 << 19})
	assert.NoError(t, embed(newBackend(Options{MaxReply: int64(len(embedding))})))
	assert.ErrorContains(t, embed(newBackend(Options{MaxReply: int64(len(embedding)) - 1})), "too large")
	assert.ErrorContains(t, generate(small), "all images are larger than Options.MaxReply")
	_, err := b.ListModels(t.Context())
	assert.ErrorContains(t, err, "too many models")
	assert.Zero(t, small.memory.reserved)
}

// The body of an error is read up to a limit, and is not retained.
func TestErrors_MemoryOfLargeBody(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		head   string
		size   int
		read   int64 // how much of the body is read
	}{
		"status": {500, `{"error":{"message":"`, 60 << 20, maxErrorBody},
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
