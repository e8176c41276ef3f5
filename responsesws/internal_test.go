package responsesws

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pipe returns a connection over a pipe whose requests may be written by hand, and its client.
func pipe(t *testing.T, opts *Options) (*connection, *websocket.Conn) {
	t.Helper()
	opened := make(chan *connection, 1)
	h := New(http.NotFoundHandler(), opts)
	ours, theirs := net.Pipe()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := h.accept(w, r)
		opened <- c
		c.serve()
	})}
	listener := &oneListener{conns: make(chan net.Conn, 1)}
	listener.conns <- theirs
	go server.Serve(listener)
	client, _, err := websocket.Dial(t.Context(), "http://localhost/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil },
	}}})
	require.NoError(t, err)
	client.SetReadLimit(-1)
	t.Cleanup(func() {
		client.CloseNow()
		server.Close()
	})
	return <-opened, client
}

type oneListener struct{ conns chan net.Conn }

func (l *oneListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l *oneListener) Close() error   { close(l.conns); return nil }
func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }

// However a stream of events is cut into writes, its events become the same messages.
func TestResponseWriter_Pieces(t *testing.T) {
	var stream strings.Builder
	var want []string
	for i, text := range []string{"", "x", strings.Repeat("long ", 20_000), "a\\n\\nb", "end"} {
		stream.WriteString(": keep-alive\n\n")
		data := fmt.Sprintf(`{"type":"response.output_text.delta","sequence_number":%d,"delta":"%s"}`, i, text)
		stream.WriteString("event: response.output_text.delta\ndata: " + data + "\n\n")
		want = append(want, strings.TrimSuffix(data, "}")+`,"stream_id":"s"}`)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 2, 3, 7, 1000, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			c, client := pipe(t, nil)
			go func() {
				w := &responseWriter{c: c, message: &message{streamID: "s"}, header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}}
				rest := []byte(stream.String())
				for len(rest) > 0 {
					n := min(1+random.IntN(size), len(rest))
					if size == 1 && len(rest) > 10_000 {
						n = 5000 // a byte at a time would take long
					}
					piece := bytes.Clone(rest[:n])
					_, err := w.Write(piece)
					assert.NoError(t, err)
					clear(piece) // the Handler uses its buffer again
					rest = rest[n:]
				}
			}()
			for _, data := range want {
				_, got, err := client.Read(t.Context())
				require.NoError(t, err)
				assert.Equal(t, data, string(got))
			}
		})
	}
}

// The deadline of a request ends its own write, and not that of the next.
func TestResponseWriter_Deadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := pipe(t, nil)
		event := []byte("event: x\ndata: {}\n\n")
		newWriter := func() *responseWriter {
			return &responseWriter{c: c, message: &message{}, header: http.Header{"Content-Type": {"text/event-stream"}}}
		}
		ctl := http.NewResponseController(newWriter())
		assert.NoError(t, ctl.Flush())
		assert.NoError(t, ctl.SetReadDeadline(time.Now()))
		assert.NoError(t, ctl.EnableFullDuplex())
		_, _, err := ctl.Hijack()
		assert.ErrorIs(t, err, http.ErrNotSupported)

		over := newWriter() // of a request that has ended, whose deadline passes
		require.NoError(t, over.SetWriteDeadline(time.Now().Add(time.Second)))
		go client.Read(t.Context())
		_, err = over.Write(event)
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		go client.Read(t.Context())
		_, err = newWriter().Write(event)
		require.NoError(t, err)

		w := newWriter()
		failed := make(chan time.Time, 1)
		go func() {
			_, err := w.Write(event)
			assert.Error(t, err)
			failed <- time.Now()
		}()
		time.Sleep(10 * time.Second)
		require.NoError(t, w.SetWriteDeadline(time.Now()))
		assert.Equal(t, time.Now(), <-failed)
		select {
		case <-w.CloseNotify():
		case <-time.After(time.Second):
			assert.Fail(t, "the connection is open")
		}
	})
}

// What a client sends without reading does not fill the memory.
func TestSocket_Backlog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		s := &socket{Conn: ours}
		s.collect()
		n, err := s.Write(make([]byte, 100_000))
		require.NoError(t, err)
		require.Equal(t, 100_000, n)
		flushed := make(chan error, 1)
		go func() { flushed <- s.flush() }()
		synctest.Wait()
		written := 0
		for {
			n, err := s.Write(make([]byte, 100))
			if err != nil {
				assert.ErrorIs(t, err, errBacklog)
				break
			}
			written += n
		}
		assert.Equal(t, maxControl/100*100, written)
		got := make(chan int64, 1)
		go func() {
			n, _ := io.Copy(io.Discard, theirs)
			got <- n
		}()
		require.NoError(t, <-flushed)
		_, err = s.Write([]byte("x"))
		require.NoError(t, err)
		ours.Close()
		assert.EqualValues(t, 100_000+written+1, <-got)
	})
}

// The conversations that are kept never exceed their bounds, and those that are found are the last of a stream.
func TestHistories_Random(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	hs := &histories{max: 1000, maxTotal: 2500}
	var all [4]history
	last := make(map[string]string) // ID of the last conversation of each stream
	for i := range 10_000 {
		h := random.IntN(len(all))
		stream := fmt.Sprint(random.IntN(3))
		switch n := random.IntN(10); {
		case n == 0:
			hs.clear(&all[h])
		case n > 3:
			id := fmt.Sprintf("resp_%d", i)
			hs.keep(&all[h], stream, conversation{id: id, items: make([]byte, random.IntN(1100))})
			last[fmt.Sprint(h, stream)] = id
		default:
			if id, ok := last[fmt.Sprint(h, stream)]; ok {
				if c, ok := hs.find(&all[h], id); ok {
					assert.Equal(t, id, c.id)
				}
			}
		}
		total := int64(0)
		kept := 0
		for j := range all {
			size := int64(0)
			for s, k := range all[j].byStream {
				size += k.size()
				kept++
				assert.Equal(t, last[fmt.Sprint(j, s)], k.id)
			}
			require.Equal(t, size, all[j].size)
			require.LessOrEqual(t, size, hs.max)
			total += size
		}
		require.Equal(t, total, hs.total)
		require.LessOrEqual(t, total, hs.maxTotal)
		require.Equal(t, kept, hs.recent.Len())
	}
}

// Whatever a client sends, the request is JSON with the same members, and the items of the conversation before them.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"type":"response.create","model":"m","input":"x"}`, `{"type":"response.create","input":[{"a":[1]}],"stream_id":"a","generate":false}`,
		` {"input" : [ ] , "previous_response_id":"r", "x":{"y":"\u00e9"}, "type":"response.create"} `, `{"type":"t","input":null,"stream":7}`,
		`{"input":{"a":1},"type":"t","previous_response_id":3}`, `{`, `[]`, `{"a":1}x`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, e := parseMessage(bytes.Clone(data))
		if e != nil {
			_, err := json.Marshal(e)
			require.NoError(t, err)
			return
		}
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &want))
		for _, before := range []conversation{{}, {base: "r", items: []byte(`{"b":1},{"b":2}`)}} {
			body, items := m.body(before)
			require.True(t, json.Valid(body), "%s", body)
			require.True(t, json.Valid(append(append([]byte("["), items...), ']')), "%s", items)
			var got map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(body, &got))
			for name, value := range m.params {
				assert.JSONEq(t, string(value), string(got[name]), name)
			}
			if len(before.items) > 0 {
				assert.True(t, bytes.HasPrefix(items, before.items))
			}
		}
	})
}

// A connection that is closed keeps no conversation, also of a response that is completed after its client has left.
func TestHistories_ClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := pipe(t, nil)
		c.h.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			time.Sleep(time.Second) // until the connection is closed
			w.Header().Set("Content-Type", "text/event-stream")
			_, err := io.WriteString(w, "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"output\":[]}}\n\n")
			assert.Error(t, err)
		})
		require.NoError(t, client.Write(t.Context(), websocket.MessageText, []byte(`{"type":"response.create","input":"x"}`)))
		synctest.Wait()
		client.CloseNow()
		time.Sleep(2 * time.Second)
		c.h.history.mu.Lock()
		defer c.h.history.mu.Unlock()
		assert.Zero(t, c.h.history.total)
		assert.Zero(t, c.h.history.recent.Len())
	})
}

// The time that a message takes is proportional to its size, and so is its memory.
func TestParseMessage_ManyMembers(t *testing.T) {
	members := func(n int) []byte { return []byte(`{"type":"t"` + strings.Repeat(`,"a":1`, n-1) + `}`) }
	_, e := parseMessage(members(maxMembers))
	assert.Nil(t, e)
	_, e = parseMessage(members(maxMembers + 1))
	require.NotNil(t, e)
	assert.Contains(t, e.message, "too many members")

	value := strings.Repeat("x", 1000)
	message := []byte(`{"type":"t"` + strings.Repeat(`,"a":"`+value+`"`, maxMembers-1) + `}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, e = parseMessage(message)
	runtime.ReadMemStats(&after)
	assert.Nil(t, e)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(20*len(message)))
}

// A header without values is not sent, and is not one of those in an error.
func TestErrorMessage_HeaderWithoutValues(t *testing.T) {
	got := errorMessage(400, mustMarshal(&apiError{message: "m"}), http.Header{"X-None": nil, "X-One": {"1"}}, "")
	assert.Contains(t, string(got), `"headers":{"x-one":"1"}`)
	assert.NotContains(t, string(got), "x-none")
}
