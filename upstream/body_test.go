package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/upstream"
)

const imagePrefix = "data:image/png;base64,"

// askImage is a chat about two images in which nothing but its mark is
// repeated, and which are of about size bytes together.
func askImage(mark, size int) string {
	image := func(size int) string {
		return fmt.Sprintf(`{"type":"image_url","image_url":{"url":"%s%s"}}`, imagePrefix, strings.Repeat(fmt.Sprintf("%08d", mark), size/8))
	}
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"%08d"},%s,%s]}],"stream":%t}`,
		mark, image(size/4), image(3*size/4), mark%2 == 0)
}

// checkImage reports what is wrong with a body that askImage has made.
func checkImage(body []byte) error {
	var r llmhttp.ChatRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	parts := r.Messages[0].Content
	mark := parts[0].Text
	for _, p := range parts[1:] {
		image := strings.TrimPrefix(p.ImageURL.URL, imagePrefix)
		if len(image)%8 != 0 || image != strings.Repeat(mark, len(image)/8) {
			return fmt.Errorf("an image of %s has something of another's", mark)
		}
	}
	return nil
}

// An eager server replies before it has read the request, to some of which it
// listens no longer, and checks what it reads.
type eager struct {
	protocol     string
	read, broken atomic.Int64
	mu           sync.Mutex
	err          error
}

func (s *eager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	how := rand.IntN(4)
	http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is always
	reply := func() {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", chunk("Nice."))
		w.(http.Flusher).Flush()
	}
	if how == 0 {
		io.CopyN(io.Discard, r.Body, rand.Int64N(300_000))
		s.broken.Add(1)
		panic(http.ErrAbortHandler)
	}
	if how < 3 {
		reply()
		time.Sleep(5 * time.Millisecond) // others come in the meantime
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	s.read.Add(1)
	if err = checkImage(body); err == nil && r.Proto != s.protocol {
		err = errors.New("by " + r.Proto)
	}
	if err != nil {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	if how == 3 {
		reply()
	}
	fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", `{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
}

// No request has anything of another's, whenever the server reads it: the
// memory of one is not used for the next as long as it is being sent.
func TestBodiesAreNotMixedUp(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			noLeaks(t)
			up := &eager{protocol: protocol}
			server := httptest.NewUnstartedServer(up)
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.StartTLS()
			defer server.Close()
			transport := server.Client().Transport.(*http.Transport)
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err == nil {
					c.(*net.TCPConn).SetWriteBuffer(64 << 10) // when the reply comes, much is still to be sent
				}
				return c, err
			}
			g := newGateway(t, server.URL+"/v1", &upstream.Options{Transport: transport})
			var wg sync.WaitGroup
			var answered atomic.Int64
			for client := range 8 {
				wg.Go(func() {
					for i := range 25 {
						mark := client*1000 + i
						ctx, cancel := context.WithTimeout(context.Background(), patience)
						if mark%5 == 0 {
							ctx, cancel = context.WithTimeout(ctx, time.Duration(mark%7)*time.Millisecond)
						}
						resp, err := g.Client().Do(g.request(ctx, "POST", chatPath, askImage(mark, 100_000+rand.IntN(600_000))))
						if err == nil {
							if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode == http.StatusOK {
								answered.Add(1)
							}
							resp.Body.Close()
						}
						cancel()
					}
				})
			}
			wg.Wait()
			assert.Positive(t, answered.Load())
			assert.Positive(t, up.read.Load())
			assert.Positive(t, up.broken.Load())
			up.mu.Lock()
			defer up.mu.Unlock()
			assert.NoError(t, up.err)
		})
	}
}

// A Transport may go on reading a request when the reply has come, until it
// closes it.
func TestTransportReadsOn(t *testing.T) {
	type held struct {
		body io.ReadCloser
		mark int
	}
	var late []held
	mark := 0
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		late = append(late, held{r.Body, mark})
		return nice(), nil
	})
	b, err := upstream.New("http://upstream.test/v1", &upstream.Options{Transport: transport})
	require.NoError(t, err)
	h := llmhttp.NewHandler(b, llmhttp.AllowAll("a"), nil)
	ask := func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", chatPath, strings.NewReader(askImage(mark, 200_000))))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		mark++
	}
	for range 10 {
		ask()
	}
	for i, l := range late {
		if i%2 == 0 {
			require.NoError(t, l.body.Close())
			require.NoError(t, l.body.Close(), "again")
			_, err := l.body.Read(make([]byte, 1))
			assert.Error(t, err, "what is closed cannot be read: it may be another's")
			ask() // in the memory that came back
			continue
		}
		body, err := io.ReadAll(l.body)
		require.NoError(t, err)
		assert.NoError(t, checkImage(body))
		assert.Contains(t, string(body), fmt.Sprintf("%08d", l.mark))
		require.NoError(t, l.body.Close())
	}
}

// A body cannot be had again when its memory may be another request's.
func TestGetBodyTooLate(t *testing.T) {
	var again func() (io.ReadCloser, error)
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		again = r.GetBody
		body, err := r.GetBody()
		require.NoError(t, err)
		b, err := io.ReadAll(body)
		require.NoError(t, err)
		assert.NoError(t, checkImage(b))
		assert.EqualValues(t, r.ContentLength, len(b))
		require.NoError(t, body.Close())
		require.NoError(t, r.Body.Close())
		return nice(), nil
	})
	b, err := upstream.New("http://upstream.test/v1", &upstream.Options{Transport: transport})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	llmhttp.NewHandler(b, llmhttp.AllowAll("a"), nil).ServeHTTP(w, httptest.NewRequest("POST", chatPath, strings.NewReader(askImage(1, 200_000))))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	_, err = again()
	assert.Error(t, err)
}

// A keeper is a Backend that has another answer, and keeps what was asked.
type keeper struct {
	*upstream.Backend
	kept []string
}

func (k *keeper) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	k.kept = append(k.kept, req.Messages[0].Content[1].ImageURL.URL)
	return k.Backend.Chat(ctx, req)
}

// Whoever may keep a text of a request finds it as it was.
func TestTextsThatAreKept(t *testing.T) {
	var counted []string
	for name, test := range map[string]struct {
		backend func(b *upstream.Backend, k *keeper) llmhttp.Backend
		count   func(model, text string) int
	}{
		"by what embeds it": {backend: func(b *upstream.Backend, k *keeper) llmhttp.Backend { k.Backend = b; return k }},
		"by what forwards to it": {backend: func(b *upstream.Backend, k *keeper) llmhttp.Backend {
			k.Backend = b
			return llmhttp.Forwarder{Backend: k}
		}},
		"by CountTokens": {
			backend: func(b *upstream.Backend, _ *keeper) llmhttp.Backend { return b },
			count:   func(_, text string) int { counted = append(counted, text); return 1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := upstream.New("http://upstream.test/v1", &upstream.Options{Transport: readsAll})
			require.NoError(t, err)
			k := new(keeper)
			h := llmhttp.NewHandler(test.backend(b, k), llmhttp.AllowAll("a"), &llmhttp.Options{CountTokens: test.count})
			var want []string
			for i := range 20 {
				text := strings.Repeat(string(rune('a'+i)), 300_000)
				ask := askImage(i, 8)
				if test.count != nil {
					want = append(want, text)
					ask = fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s"}]}`, text)
				} else {
					want = append(want, imagePrefix+text)
					ask = strings.Replace(ask, imagePrefix, imagePrefix+text, 1)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("POST", chatPath, strings.NewReader(ask)))
				require.Equal(t, http.StatusOK, w.Code, w.Body)
			}
			got := k.kept
			if test.count != nil {
				for _, text := range counted {
					if len(text) > 1000 {
						got = append(got, text)
					}
				}
			}
			assert.True(t, strings.Join(want, "\n") == strings.Join(got, "\n"), "the texts are as they were")
		})
	}
}

// nice is a reply without usage.
func nice() *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
		ContentLength: -1, Body: io.NopCloser(strings.NewReader("data: " + chunk("Nice.") + "\n\ndata: [DONE]\n\n"))}
}

// readsAll is a server that reads what it is asked and says little.
var readsAll = roundTripper(func(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return nice(), nil
})

// The memory of a large request is used again.
func TestMemoryIsUsedAgain(t *testing.T) {
	if raceEnabled {
		t.Skip("with the race detector pools forget at random")
	}
	b, err := upstream.New("http://upstream.test/v1", &upstream.Options{Transport: readsAll})
	require.NoError(t, err)
	const size, n = 1 << 20, 50
	ask := []byte(askImage(1, size))
	perRequest := func(b llmhttp.Backend) uint64 {
		h := llmhttp.NewHandler(b, llmhttp.AllowAll("a"), nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", chatPath, bytes.NewReader(ask)))
			require.Equal(t, http.StatusOK, w.Code, w.Body)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / n
	}
	assert.Less(t, perRequest(b), uint64(size/4))
	assert.Greater(t, perRequest(llmhttp.Forwarder{Backend: b}), uint64(size), "a wrapper may keep it")
}
