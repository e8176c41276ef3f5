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
	for name, protocol := range map[string]string{"HTTP/1.1": "HTTP/1.1", "HTTP/2.0": "HTTP/2.0", "HTTP/1.1 in clear": "HTTP/1.1"} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			up := &eager{protocol: protocol}
			server := httptest.NewUnstartedServer(up)
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			var opts upstream.Options
			if name == "HTTP/1.1 in clear" {
				server.Start() // with the Backend's own Transport
			} else {
				server.EnableHTTP2 = protocol == "HTTP/2.0"
				server.StartTLS()
				opts.Transport = smallWrites(server)
			}
			defer server.Close()
			g := newGateway(t, server.URL+"/v1", &opts)
			var wg sync.WaitGroup
			var answered atomic.Int64
			for client := range 8 {
				wg.Go(func() {
					for i := range 25 {
						mark := client*1000 + i
						wait := patience
						if mark%5 == 0 {
							wait = time.Duration(mark%7) * time.Millisecond
						}
						ctx, cancel := context.WithTimeout(context.Background(), wait)
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

// smallWrites returns a transport to s that has much still to send when the
// reply comes.
func smallWrites(s *httptest.Server) http.RoundTripper {
	t := s.Client().Transport.(*http.Transport)
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			c.(*net.TCPConn).SetWriteBuffer(64 << 10)
		}
		return c, err
	}
	return t
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
			assert.ErrorContains(t, err, "closed", "it may be another's")
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

// Who closes a body again and again does not give back what others read.
func TestClosedAgain(t *testing.T) {
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		other, err := r.GetBody()
		require.NoError(t, err)
		for range 5 {
			require.NoError(t, r.Body.Close())
		}
		body, err := io.ReadAll(other)
		require.NoError(t, err)
		require.NoError(t, checkImage(body))
		third, err := r.GetBody()
		require.NoError(t, err, "the memory is lent still")
		require.NoError(t, third.Close())
		require.NoError(t, other.Close())
		return nice(), nil
	})
	b, err := upstream.New("http://upstream.test/v1", &upstream.Options{Transport: transport})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	llmhttp.NewHandler(b, llmhttp.AllowAll("a"), nil).ServeHTTP(w, httptest.NewRequest("POST", chatPath, strings.NewReader(askImage(1, 200_000))))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
}

// A request's memory comes back when its reply begins, when it was refused, and
// when it failed; and a small one holds no large memory.
func TestMemoryComesBack(t *testing.T) {
	if raceEnabled {
		t.Skip("with the race detector pools forget at random")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // pools keep something for each
	const size = 1 << 20
	drains := func(then func(r *http.Request) (*http.Response, error)) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
			return then(r)
		})
	}
	ask := func(h http.Handler, size int) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", chatPath, strings.NewReader(askImage(0, size))))
	}
	allocated := func(f func()) int64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	handler := func(transport http.RoundTripper, keys llmhttp.KeyStore) http.Handler {
		b, err := upstream.New("http://upstream.test/v1", &upstream.Options{Transport: transport})
		require.NoError(t, err)
		return llmhttp.NewHandler(b, keys, &llmhttp.Options{Logger: quiet})
	}
	text := askImage(0, size)
	t.Run("failed", func(t *testing.T) {
		h := handler(drains(func(*http.Request) (*http.Response, error) { return nil, errors.New("boom") }), llmhttp.AllowAll("a"))
		ask(h, size)
		assert.Less(t, allocated(func() {
			for range 20 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", chatPath, strings.NewReader(text)))
			}
		}), int64(20*size/4))
	})
	t.Run("refused", func(t *testing.T) {
		h := handler(readsAll, llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) {
			return &llmhttp.Key{ID: "k", Models: []string{"another"}}, nil
		}))
		refused := func() {
			r := httptest.NewRequest("POST", chatPath, strings.NewReader(text))
			r.Header.Set("Authorization", "Bearer k")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, http.StatusNotFound, w.Code, w.Body)
		}
		refused()
		assert.Less(t, allocated(func() {
			for range 20 {
				refused()
			}
		}), int64(20*size/4))
	})
	t.Run("streaming", func(t *testing.T) {
		block := make(chan struct{})
		var begun, done sync.WaitGroup
		h := handler(drains(func(*http.Request) (*http.Response, error) {
			r, w := io.Pipe()
			go func() {
				fmt.Fprintf(w, "data: %s\n\n", chunk("Nice."))
				<-block
				io.WriteString(w, "data: [DONE]\n\n")
				w.Close()
			}()
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1, Body: r}, nil
		}), llmhttp.AllowAll("a"))
		start := func() {
			begun.Add(1)
			done.Go(func() {
				w := &firstWrite{ResponseRecorder: httptest.NewRecorder(), call: begun.Done}
				h.ServeHTTP(w, httptest.NewRequest("POST", chatPath, strings.NewReader(text)))
			})
			begun.Wait()
		}
		start()
		assert.Less(t, allocated(func() {
			for range 10 {
				start()
			}
		}), int64(10*size/4))
		close(block)
		done.Wait()
	})
	t.Run("small", func(t *testing.T) {
		block := make(chan struct{})
		var waiting, done sync.WaitGroup
		h := handler(drains(func(r *http.Request) (*http.Response, error) {
			if r.ContentLength < 100_000 {
				waiting.Done()
				<-block
			}
			return nice(), nil
		}), llmhttp.AllowAll("a"))
		heap := func() int64 {
			for range 3 { // which empty the pools
				runtime.GC()
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		for range 50 {
			ask(h, 4<<20-1000)
			waiting.Add(1)
			done.Go(func() { ask(h, 24_000) })
			waiting.Wait()
		}
		assert.Less(t, heap()-before, int64(100<<20)) // each might hold 4 MB; pools hold some, too
		close(block)
		done.Wait()
	})
}

// A firstWrite calls a function when something is written to it at first.
type firstWrite struct {
	*httptest.ResponseRecorder
	once sync.Once
	call func()
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(w.call)
	return w.ResponseRecorder.Write(p)
}

// A server that streams though it was not asked to keeps its connection, too.
func TestUnaskedStreamKeepsItsConnection(t *testing.T) {
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		begin(c, "text/event-stream")
		piece(c, "data: "+chunk("Nice.")+"\n\ndata: [DONE]\n\n")
		time.Sleep(5 * time.Millisecond)
		end(c)
	})
	g := newGateway(t, s.url(), nil)
	for range 10 {
		require.Equal(t, http.StatusOK, g.chat(askWhole).StatusCode)
		time.Sleep(20 * time.Millisecond) // for what is left of the reply
	}
	assert.LessOrEqual(t, s.conns.Load(), int64(3), "of 10: a slow machine may not be ready for the next request in time")
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
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // pools keep something for each
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
