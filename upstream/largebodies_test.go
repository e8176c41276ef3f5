package upstream

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
)

// If this environment variable is set, TestLargeBodies asks the server that it names
// for large replies and exits.
const largeBodiesURL = "UPSTREAM_LARGE_BODIES_URL"

const largeBody = 1 << 30

// Eight concurrent replies of 1 GB take a bounded amount of memory.
func TestLargeBodies(t *testing.T) {
	if url := os.Getenv(largeBodiesURL); url != "" {
		readLargeBodies(t, url)
		return
	}
	var sent atomic.Int64
	piece := []byte(strings.Repeat("0.25,", 1<<12))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := `{"data":[{"index":0,"embedding":[`
		if r.URL.Path == "/chat/completions" {
			begin = `{"choices":[{"index":0,"message":{"role":"assistant","content":"`
		}
		io.WriteString(w, begin)
		for n := len(begin); n+len(piece) <= largeBody; n += len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
			sent.Add(int64(len(piece)))
		}
	}))
	defer server.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLargeBodies$", "-test.v")
	cmd.Env = append(os.Environ(), largeBodiesURL+"="+server.URL, "GOMEMLIMIT=200MiB") // so that garbage does not count
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var peak int
	_, text, _ := bytes.Cut(out, []byte("memory: "))
	_, err = fmt.Sscan(string(text), &peak)
	require.NoError(t, err, "%s", out)
	t.Logf("a process read %d MiB of 8 GiB, and had at most %d MiB of memory", sent.Load()>>20, peak)
	assert.Less(t, peak, 700)
}

// readLargeBodies requests eight replies, and requires that all of them are refused as
// too large. It prints the memory of the process in MiB.
func readLargeBodies(t *testing.T, url string) {
	b, err := New(url, nil)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			_, err := join.Collect(b.Chat(t.Context(), &llm.ChatRequest{Model: "m"}))
			assert.ErrorContains(t, err, "too large")
		})
		wg.Go(func() {
			_, err := b.Embed(t.Context(), &llm.EmbeddingRequest{Model: "m", Input: llm.EmbeddingInput{Texts: []string{"x"}}})
			assert.ErrorContains(t, err, "too large")
		})
	}
	wg.Wait()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Println("memory:", m.Sys>>20) // which does not shrink
}

// lateSize is the size of a request that is large enough to be in memory that is used again.
const lateSize = 64 << 10

// A lateReader is a transport that replies before it has read the request.
type lateReader struct {
	t       *testing.T
	readers sync.WaitGroup
}

func (l *lateReader) RoundTrip(r *http.Request) (*http.Response, error) {
	again, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	want := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(r.Header.Get("X-Letter"), lateSize) + `"}]}`
	for _, body := range []io.ReadCloser{r.Body, again} {
		l.readers.Go(func() {
			defer body.Close()
			got, err := io.ReadAll(body)
			assert.NoError(l.t, err)
			assert.True(l.t, string(got) == want, "the body is the request")
		})
	}
	return cannedTransport{client.MediaJSON, benchReply}.reply(r), nil
}

func TestChat_TransportThatReadsTheRequestAfterTheReply(t *testing.T) {
	transport := &lateReader{t: t}
	var chats sync.WaitGroup
	for i := range 8 {
		chats.Go(func() {
			letter := string(rune('a' + i))
			backend, err := New("http://test.invalid/v1", &Options{Transport: transport, Header: http.Header{"X-Letter": {letter}}})
			if !assert.NoError(t, err) {
				return
			}
			for range 4 {
				req := &llm.ChatRequest{Model: "m", Messages: []llm.Message{
					{Role: llm.RoleUser, Content: llm.TextContent(strings.Repeat(letter, lateSize))},
				}}
				for _, err := range backend.Chat(t.Context(), req) {
					assert.NoError(t, err)
				}
			}
		})
	}
	chats.Wait()
	transport.readers.Wait()
}
