package responsesws_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responsesws"
)

// What is wrong with a message is an error of its own, after which the connection goes on.
func TestMessage_Refused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t, config{}).dial()
		for message, want := range map[string]struct {
			status      int
			code, param any
		}{
			`{`:                            {400, "invalid_json", nil},
			`[]`:                           {400, "invalid_json", nil},
			`7`:                            {400, "invalid_json", nil},
			``:                             {400, "invalid_json", nil},
			`{}`:                           {400, nil, "type"},
			`{"type":7}`:                   {400, nil, "type"},
			`{"type":"response.cancel"}`:   {400, "unknown_event_type", "type"},
			`{"type":"a","type":"b"}`:      {400, "duplicate_parameter", "type"},
			`{"type":"response.create"}`:   {400, "missing_required_parameter", "model"},
			`{"type":"x","stream_id":""}`:  {400, "invalid_stream_id", "stream_id"},
			`{"type":"x","stream_id":"ü"}`: {400, "invalid_stream_id", "stream_id"},
			`{"type":"x","stream_id":7}`:   {400, "invalid_stream_id", "stream_id"},
			`{"type":"x","stream_id":"` + strings.Repeat("x", 257) + `"}`:                             {400, "invalid_stream_id", "stream_id"},
			`{"type":"response.create","model":"m","input":"x","generate":"no"}`:                      {400, "invalid_type", "generate"},
			`{"type":"response.create","model":"m","input":7}`:                                        {400, "invalid_type", "input"},
			`{"type":"response.create","model":"m","input":"x","previous_response_id":7}`:             {400, "invalid_type", "previous_response_id"},
			`{"type":"response.create","model":"m","input":"x","background":true}`:                    {400, "unsupported_parameter", "background"},
			`{"type":"response.create","model":"m","input":"x","temperature":"hot"}`:                  {400, "invalid_type", "temperature"},
			`{"type":"response.create","model":"m","input":"x","Stream":true}`:                        {400, "unknown_parameter", "Stream"},
			`{"type":"response.create","model":"m","input":"x","temperature":1,"temperature":1}`:      {400, "duplicate_parameter", "temperature"},
			`{"type":"response.create","model":"m","input":"` + "\xff" + `"}`:                         {400, "invalid_json", nil},
			`{"type":"response.create","model":"m","input":[],"previous_response_id":"resp_unknown"}`: {400, "previous_response_not_found", "previous_response_id"},
		} {
			c.send(message)
			e := c.receive()
			assert.Equal(t, "error", e["type"], message)
			assert.EqualValues(t, want.status, e["status"], message)
			detail := e["error"].(object)
			assert.Equal(t, "invalid_request_error", detail["type"], message)
			assert.NotEmpty(t, detail["message"], message)
			assert.Equal(t, want.param, detail["param"], message)
			if want.code != "invalid_json" || detail["code"] != nil { // of the Handler
				assert.Equal(t, want.code, detail["code"], message)
			}
		}
		c.send(`{"type":"response.processed","response_id":"resp_1"}`)
		c.create(`"input":"Hello"`)
		assert.Equal(t, "You said: Hello", outputText(c.complete()))
	})
}

// A message that is binary, too large or slow ends the connection.
func TestMessage_EndsTheConnection(t *testing.T) {
	large := `{"type":"response.create","model":"m","input":"` + strings.Repeat("x", 1000) + `"}`
	for name, test := range map[string]struct {
		ws   responsesws.Options
		send func(t *testing.T, c *client)
		code websocket.StatusCode // -1 if the connection is cut
	}{
		"binary": {responsesws.Options{}, func(t *testing.T, c *client) {
			require.NoError(t, c.ws.Write(t.Context(), websocket.MessageBinary, []byte("{}")))
		}, websocket.StatusUnsupportedData},
		"too large": {responsesws.Options{MaxMessage: 1000}, func(t *testing.T, c *client) {
			go c.ws.Write(context.Background(), websocket.MessageText, []byte(large)) // fails if the connection is closed before
			status, code := c.fail()
			assert.Equal(t, 413, status)
			assert.Equal(t, "message_too_large", code)
		}, websocket.StatusMessageTooBig},
		"slow": {responsesws.Options{}, func(t *testing.T, c *client) {
			w, err := c.ws.Writer(t.Context(), websocket.MessageText)
			require.NoError(t, err)
			for range 5 {
				_, err = w.Write([]byte(strings.Repeat(" ", 10_000))) // more than the client buffers
				require.NoError(t, err)
				time.Sleep(50 * time.Second)
			}
			time.Sleep(time.Minute)
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				test.ws.KeepAlive = -1 // its pings would wait for a client that reads
				s := start(t, config{ws: test.ws})
				c := s.dial()
				test.send(t, c)
				assert.Equal(t, test.code, c.closed())
			})
		})
	}
	t.Run("no limit", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := start(t, config{ws: responsesws.Options{MaxMessage: -1, ReadTimeout: -1}}).dial()
			c.send(large)
			c.complete()
		})
	})
}

// gate returns a Chat whose replies wait until their text is sent to the channel of it.
func gate(texts ...string) (chat func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream, open map[string]chan struct{}) {
	open = make(map[string]chan struct{})
	for _, text := range texts {
		open[text] = make(chan struct{}, 1)
	}
	return func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		select {
		case <-open[req.Messages[len(req.Messages)-1].Content.Text()]:
		case <-ctx.Done():
			return llm.Fail(ctx.Err())
		}
		return echo(ctx, req)
	}, open
}

// Requests of a stream follow each other, and those of others run beside them.
func TestStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		chat, open := gate("a1", "a2", "b1", "c1")
		s := start(t, config{chat: chat, opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: -1}}})
		c := s.dial()
		for _, text := range []string{"a1", "a2", "b1", "c1"} {
			stream := `"stream_id":"` + text[:1] + `",`
			if text == "c1" {
				stream = ""
			}
			c.create(stream + `"input":"` + text + `"`)
		}
		for _, want := range []struct{ text, stream string }{{"b1", "b"}, {"c1", ""}, {"a1", "a"}, {"a2", "a"}} {
			synctest.Wait()
			if want.text != "a2" {
				assert.NotContains(t, s.asked(), []string{"a2"}, "while a1 is in progress")
			}
			open[want.text] <- struct{}{}
			for {
				e := c.receive()
				if want.stream == "" {
					assert.NotContains(t, e, "stream_id")
				} else {
					assert.Equal(t, want.stream, e["stream_id"])
				}
				if e["type"] == "response.completed" {
					assert.Equal(t, "You said: "+want.text, outputText(e["response"].(object)))
					break
				}
			}
		}
		c.create(`"stream_id":"a","previous_response_id":"resp_unknown","input":"x"`)
		assert.Equal(t, "a", c.receive()["stream_id"], "an error")
		c.send(`{"type":"x","stream_id":"a"}`)
		assert.Equal(t, "a", c.receive()["stream_id"], "an error of the connection")
	})
}

// A response can be continued on another stream, beside its own.
func TestStreams_Fork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{})
		c := s.dial()
		c.create(`"stream_id":"main","input":"one"`)
		id := c.complete()["id"].(string)
		for _, stream := range []string{"critic", "main", ""} {
			c.create(`"stream_id":` + map[string]string{"": "null"}[stream] + quoted(stream) + `,"previous_response_id":"` + id + `","input":"two"`)
			if stream == "" {
				_, code := c.fail()
				assert.Equal(t, "previous_response_not_found", code, "main has advanced")
				continue
			}
			c.complete()
		}
		assert.Equal(t, [][]string{{"one"}, {"one", "You said: one", "two"}, {"one", "You said: one", "two"}}, s.asked())
	})
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return `"` + s + `"`
}

// The requests at once, those that wait, and the streams of a connection are bounded.
func TestStreams_Bounds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		chat, open := gate("1", "2", "3", "4")
		s := start(t, config{chat: chat, ws: responsesws.Options{MaxActive: 2, MaxWaiting: 1, MaxMessage: 300}, opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: -1}}})
		c := s.dial()
		for _, text := range []string{"1", "2", "3"} {
			c.create(`"stream_id":"` + text + `","input":"` + text + `"`)
		}
		synctest.Wait()
		assert.Len(t, s.asked(), 2)
		c.create(`"stream_id":"4","input":"4"`)
		status, code := c.fail()
		assert.Equal(t, 429, status)
		assert.Equal(t, "websocket_queue_full", code)
		open["2"] <- struct{}{}
		c.complete()
		synctest.Wait()
		assert.Len(t, s.asked(), 3, "the one that has waited")
		open["3"] <- struct{}{}
		open["1"] <- struct{}{}
		c.complete()
		c.complete()
	})
	t.Run("bytes that wait", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			chat, open := gate("1")
			s := start(t, config{chat: chat, ws: responsesws.Options{MaxMessage: 300}, opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: -1}}})
			c := s.dial()
			long := `"input":"` + strings.Repeat("x", 150) + `"`
			c.create(`"input":"1"`)
			c.create(long)
			c.create(long)
			_, code := c.fail()
			assert.Equal(t, "websocket_queue_full", code)
			open["1"] <- struct{}{}
			c.complete()
		})
	})
	t.Run("names", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := start(t, config{}).dial()
			name := func(i int) string { return `"stream_id":"s` + strings.Repeat("x", i) + `",` }
			for i := range 32 {
				c.create(name(i) + `"input":"x"`)
				c.complete()
			}
			c.create(name(32) + `"input":"x"`)
			status, code := c.fail()
			assert.Equal(t, 400, status)
			assert.Equal(t, "websocket_stream_limit_reached", code)
			c.create(`"input":"the default stream"`)
			c.complete()
			c.create(name(31) + `"input":"x"`)
			c.complete()
		})
	})
}

// A connection that is too old completes the response in progress, tells its client, and is closed.
func TestConnection_Age(t *testing.T) {
	bubble(t, func(t *testing.T) {
		chat, open := gate("1", "2")
		s := start(t, config{chat: chat, opts: llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: -1, KeepAlive: -1}}, ws: responsesws.Options{KeepAlive: -1}})
		idle, busy := s.dial(), s.dial()
		busy.create(`"input":"1"`)
		time.Sleep(time.Hour - 1)
		idle.create(`"input":"2"`)
		open["2"] <- struct{}{}
		idle.complete()
		_, code := idle.fail()
		assert.Equal(t, "websocket_connection_limit_reached", code)
		assert.Equal(t, websocket.StatusNormalClosure, idle.closed())
		synctest.Wait()
		busy.create(`"stream_id":"x","input":"3"`)
		_, code = busy.fail()
		assert.Equal(t, "websocket_connection_limit_reached", code)
		open["1"] <- struct{}{}
		busy.complete()
		status, code := busy.fail()
		assert.Equal(t, 400, status)
		assert.Equal(t, "websocket_connection_limit_reached", code)
		assert.Equal(t, websocket.StatusNormalClosure, busy.closed())
	})
}

func TestConnection_MaxResponses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t, config{ws: responsesws.Options{MaxResponses: 2, MaxAge: -1}}).dial()
		c.create(`"input":"1"`)
		c.complete()
		c.create(`"input":"2"`)
		c.complete()
		_, code := c.fail()
		assert.Equal(t, "websocket_connection_limit_reached", code)
		assert.Equal(t, websocket.StatusNormalClosure, c.closed())
	})
}

// A silent connection is kept alive, and cut if its client does not answer.
func TestConnection_KeepAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{})
		var pings []time.Duration
		began := time.Now()
		ws, _, err := websocket.Dial(t.Context(), "http://localhost/v1/responses", &websocket.DialOptions{
			HTTPClient: s.client, HTTPHeader: http.Header{"Authorization": {"Bearer sk-test"}},
			OnPingReceived: func(context.Context, []byte) bool {
				pings = append(pings, time.Since(began))
				return len(pings) < 3
			},
		})
		require.NoError(t, err)
		defer ws.CloseNow()
		_, _, err = ws.Read(t.Context())
		assert.Equal(t, websocket.StatusCode(-1), websocket.CloseStatus(err))
		assert.Equal(t, []time.Duration{30 * time.Second, time.Minute, 90 * time.Second}, pings)
		assert.Equal(t, 150*time.Second, time.Since(began))
	})
}

// A client that is sending a long message, in the middle of which it cannot answer a ping, has not left.
func TestConnection_KeepAliveWithinAMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{})
		ws, _, err := websocket.Dial(t.Context(), "http://localhost/v1/responses", &websocket.DialOptions{
			HTTPClient: s.client, HTTPHeader: http.Header{"Authorization": {"Bearer sk-test"}},
			OnPingReceived: func(context.Context, []byte) bool { return false },
		})
		require.NoError(t, err)
		defer ws.CloseNow()
		sent := make(chan error, 1)
		go func() {
			sent <- func() error {
				w, err := ws.Writer(t.Context(), websocket.MessageText)
				if err != nil {
					return err
				}
				if _, err := io.WriteString(w, `{"type":"response.create","model":"m","input":"`); err != nil {
					return err
				}
				for range 9 {
					time.Sleep(20 * time.Second)
					if _, err := io.WriteString(w, strings.Repeat("x", 10_000)); err != nil { // more than the client buffers
						return err
					}
				}
				if _, err := io.WriteString(w, `"}`); err != nil {
					return err
				}
				return w.Close()
			}()
		}()
		_, b, err := ws.Read(t.Context())
		require.NoError(t, <-sent)
		require.NoError(t, err)
		assert.Contains(t, string(b), "response.created")
	})
}

// A client that reads as slowly as the Handler permits has not left either, although a ping waits behind what it reads.
func TestConnection_KeepAliveWithinAWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: 5 * time.Minute}}})
		c := s.dial()
		c.create(`"input":"1"`)
		time.Sleep(4 * time.Minute)
		c.complete()
	})
}

// A client that leaves ends its requests, as one of HTTP does.
func TestExchange_ClientLeaves(t *testing.T) {
	for name, leave := range map[string]func(c *client){
		"by a handshake": func(c *client) { go c.ws.Close(websocket.StatusNormalClosure, "") },
		"suddenly":       func(c *client) { c.ws.CloseNow() },
	} {
		for _, started := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var cause error
					s := start(t, config{chat: func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
						return func(yield func(*llm.ChatChunk, error) bool) {
							if started {
								yield(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Content: "Hello"}}}}, nil)
							}
							<-ctx.Done()
							cause = context.Cause(ctx)
						}
					}})
					c := s.dial()
					c.create(`"input":"1"`)
					c.create(`"input":"2"`) // waits
					if started {
						for c.receive()["type"] != "response.output_text.delta" {
						}
					}
					synctest.Wait()
					leave(c)
					time.Sleep(time.Second)
					require.Len(t, s.ended(), 1)
					summary := s.ended()[0]
					assert.Equal(t, llmhttp.ClassCanceled, summary.ErrorClass)
					if started {
						assert.Equal(t, 200, summary.Status)
					} else {
						assert.Equal(t, 499, summary.Status)
					}
					require.ErrorIs(t, cause, context.Canceled)
					assert.Empty(t, s.log.String())
				})
			})
		}
	}
}

// A client that does not read loses its connection after the write timeout of the Handler, and not before.
func TestExchange_SlowClient(t *testing.T) {
	for _, pause := range []time.Duration{29 * time.Second, 46 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, config{chat: func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply(strings.Repeat("x", 100)) }})
				c := s.dial()
				c.create(`"input":"1"`)
				time.Sleep(pause)
				if pause > 30*time.Second {
					synctest.Wait()
					require.Len(t, s.ended(), 1)
					assert.Equal(t, llmhttp.ClassCanceled, s.ended()[0].ErrorClass)
					assert.Equal(t, websocket.StatusCode(-1), c.closed())
					return
				}
				c.complete()
				c.create(`"input":"2"`)
				c.complete()
			})
		})
	}
}

// Pings and errors of the connection do not end a write that waits for its client.
func TestExchange_SlowClientThatPings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{})
		c := s.dial()
		c.create(`"input":"1"`)
		synctest.Wait() // a write waits for the client
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		ponged := make(chan error, 1)
		go func() { ponged <- c.ws.Ping(ctx) }()
		time.Sleep(15 * time.Second)
		c.complete()
		c.create(`"input":"2"`)
		c.complete()
		assert.NoError(t, <-ponged)
	})
}

// What Shutdown of the Handler interrupts ends with its event, and Drain closes connections.
func TestExchange_Shutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		chat, _ := gate("1")
		s := start(t, config{chat: chat})
		s.http.RegisterOnShutdown(s.handler.Drain)
		idle, busy := s.dial(), s.dial()
		busy.create(`"input":"1"`)
		for busy.receive()["type"] != "response.in_progress" {
		}
		served := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			served <- errors.Join(s.http.Shutdown(ctx), s.api.Shutdown(ctx))
		}()
		assert.Equal(t, websocket.StatusGoingAway, idle.closed())
		busy.create(`"stream_id":"x","input":"2"`)
		status, _ := busy.fail()
		assert.Equal(t, 503, status)
		e := busy.terminal()
		assert.Equal(t, "response.failed", e["type"])
		assert.Equal(t, websocket.StatusGoingAway, busy.closed())
		assert.ErrorIs(t, <-served, context.DeadlineExceeded)
		require.NoError(t, s.handler.Shutdown(t.Context()))
		assert.Equal(t, llmhttp.ClassShutdown, s.ended()[0].ErrorClass)
	})
}

// Shutdown of this package waits for responses, refuses upgrades, and cuts what remains.
func TestShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		chat, open := gate("1", "2")
		s := start(t, config{chat: chat, opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: -1}}})
		c, stuck := s.dial(), s.dial()
		c.create(`"input":"1"`)
		stuck.create(`"input":"2"`)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- s.handler.Shutdown(ctx) }()
		synctest.Wait()
		_, resp, err := s.upgrade("/v1/responses")
		require.Error(t, err)
		assert.Equal(t, 503, resp.StatusCode)
		open["1"] <- struct{}{}
		c.complete()
		assert.Equal(t, websocket.StatusGoingAway, c.closed())
		assert.Equal(t, context.DeadlineExceeded, <-done)
		assert.Equal(t, websocket.StatusCode(-1), stuck.closed())
		require.NoError(t, s.handler.Shutdown(t.Context()))
	})
}

// When the host cancels the context of its server, clients get the error of a shutdown.
func TestExchange_HostCancelsTheContext(t *testing.T) {
	for name, newContext := range map[string]func() (context.Context, func()){
		"without cause": func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(context.Background())
			return ctx, cancel
		},
		"with cause": func() (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(context.Background())
			return ctx, func() { cancel(errors.New("interrupt")) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				chat, _ := gate("1")
				base, cancel := newContext()
				s := start(t, config{chat: chat, base: base, opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: -1}}})
				c := s.dial()
				c.create(`"input":"1"`)
				synctest.Wait()
				cancel()
				status, _ := c.fail()
				assert.Equal(t, 503, status)
				assert.Equal(t, websocket.StatusGoingAway, c.closed())
				assert.Equal(t, llmhttp.ClassShutdown, s.ended()[0].ErrorClass)
			})
		})
	}
}

// Whatever ends a request, its client is told, and the connection goes on.
func TestExchange_BreaksOff(t *testing.T) {
	const event = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n"
	stream := func(end func()) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Write([]byte(event + "event: half"))
			end()
		}
	}
	for name, test := range map[string]struct {
		serve  http.HandlerFunc
		logged string
		events int // before the error
		status int
	}{
		"no reply":           {func(http.ResponseWriter, *http.Request) {}, "", 0, 500},
		"a panic":            {func(http.ResponseWriter, *http.Request) { panic("boom") }, "boom", 0, 500},
		"Goexit":             {func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, "", 0, 500},
		"no end":             {stream(func() {}), "", 1, 500},
		"an abort":           {stream(func() { panic(http.ErrAbortHandler) }), "", 1, 500},
		"a panic in it":      {stream(func() { panic("boom") }), "boom", 1, 500},
		"Goexit in it":       {stream(runtime.Goexit), "", 1, 500},
		"no stream":          {func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"id":"resp_1"}`)) }, "", 0, 500},
		"an error of HTML":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<p>no</p>", http.StatusTeapot) }, "", 0, 418},
		"a redirect":         {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusTemporaryRedirect) }, "", 0, 500},
		"an early hint":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(402) }, "", 0, 402},
		"an error that ends": {stream(nil), "", 0, 500},
	} {
		if name == "an error that ends" {
			test.serve = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.Write([]byte("event: error\ndata: {\"type\":\"error\",\"code\":\"x\",\"message\":\"no\",\"error\":{\"code\":\"x\",\"message\":\"no\"}}\n\n"))
			}
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				first := true
				s := start(t, config{inner: func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if first && r.Method == "POST" {
							first = false
							test.serve(w, r)
							return
						}
						next.ServeHTTP(w, r)
					})
				}})
				c := s.dial()
				c.create(`"stream_id":"x","input":"1"`)
				for range test.events {
					assert.Equal(t, "response.created", c.receive()["type"])
				}
				e := c.receive()
				assert.Equal(t, "error", e["type"])
				assert.EqualValues(t, test.status, e["status"])
				assert.Equal(t, "x", e["stream_id"])
				assert.NotEmpty(t, e["error"].(object)["message"])
				assert.NotContains(t, e["error"].(object)["message"], "boom")
				c.create(`"stream_id":"x","input":"2"`)
				c.complete()
				if test.logged == "" {
					assert.Empty(t, s.log.String())
				} else {
					assert.Contains(t, s.log.String(), test.logged)
				}
			})
		})
	}
}

// A message may be compressed if both sides want that.
func TestCompress(t *testing.T) {
	for _, compress := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := start(t, config{ws: responsesws.Options{Compress: compress}})
			ws, resp, err := websocket.Dial(t.Context(), "http://localhost/v1/responses", &websocket.DialOptions{
				HTTPClient: s.client, HTTPHeader: http.Header{"Authorization": {"Bearer sk-test"}}, CompressionMode: websocket.CompressionContextTakeover,
			})
			require.NoError(t, err)
			defer ws.CloseNow()
			ws.SetReadLimit(-1)
			assert.Equal(t, compress, strings.Contains(resp.Header.Get("Sec-Websocket-Extensions"), "permessage-deflate"))
			c := &client{t, ws}
			text := strings.Repeat("x", 10_000)
			c.create(`"input":"` + text + `"`)
			assert.Equal(t, "You said: "+text, outputText(c.complete()))
		})
	}
}
