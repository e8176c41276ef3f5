package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream"
)

func TestChat_Replies(t *testing.T) {
	stream := eventStream(textChunk("Hello"), textChunk(" there"), stopChunk, usageChunk)
	complete := stream + eventStream(done)
	lineEnds := func(s, end string) string { return strings.ReplaceAll(s, "\n", end) }
	writers := map[string]func(c net.Conn, contentType, body string){
		"with a length": func(c net.Conn, contentType, body string) { writeReply(c, 200, contentType, body) },
		"chunked": func(c net.Conn, contentType, body string) {
			writeHead(c, contentType)
			writePiece(c, body)
			writeEnd(c)
		},
		"byte by byte": func(c net.Conn, contentType, body string) {
			writeHead(c, contentType)
			for i := range len(body) {
				writePiece(c, body[i:i+1])
			}
			writeEnd(c)
		},
		"until the connection is closed": func(c net.Conn, contentType, body string) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: "+contentType+"\r\n\r\n"+body)
			c.Close()
		},
	}
	for _, test := range []struct{ name, contentType, body string }{
		{"whole", mediaJSON, wholeReply},
		{"whole with a charset", mediaJSON + "; charset=utf-8", wholeReply},
		{"whole with space", mediaJSON, "\r\n " + wholeReply + "\n"},
		{"whole with a byte order mark", mediaJSON, "\ufeff" + wholeReply},
		{"whole as text", "text/plain", wholeReply},
		{"whole without a type", "", wholeReply},
		{"whole as a stream", mediaEvents, wholeReply},
		{"whole in an event", mediaEvents, eventStream(wholeReply, done)},
		{"stream", mediaEvents, complete},
		{"stream with a charset", mediaEvents + "; charset=utf-8", complete},
		{"stream with CRLF", mediaEvents, lineEnds(complete, "\r\n")},
		{"stream with CR", mediaEvents, lineEnds(complete, "\r")},
		{"stream with comments", mediaEvents, ": hello\n\n: OPENROUTER PROCESSING\n\n" + stream + ": bye\n" + eventStream(done)},
		{"stream with pings", mediaEvents, "event: ping\ndata: {\"type\":\"ping\"}\n\nevent: x\n\n" + complete},
		{"stream with event types", mediaEvents, strings.ReplaceAll(complete, "data: {", "event: chunk\nid: 1\ndata: {")},
		{"stream with several data lines", mediaEvents, strings.ReplaceAll(complete, `"choices":`, "\ndata: \"choices\":")},
		{"stream without [DONE]", mediaEvents, stream},
		{"stream without a last empty line", mediaEvents, strings.TrimRight(stream, "\n")},
		{"stream without a line end after [DONE]", mediaEvents, stream + "data: [DONE]"},
		{"stream with events after [DONE]", mediaEvents, complete + eventStream("more")},
		{"stream as JSON", mediaJSON, complete},
		{"stream as text", "text/plain; charset=utf-8", ":\n\n" + complete},
		{"stream without a type", "", complete},
		{"stream with a byte order mark", mediaEvents, "\ufeff" + complete},
	} {
		for how, write := range writers {
			t.Run(test.name+"/"+how, func(t *testing.T) {
				checkLeaks(t)
				s := newRawServer(t, func(c net.Conn, _ *rawRequest) { write(c, test.contentType, test.body) })
				g := newGateway(t, s.url(), nil)
				got := g.chat(askWhole)
				require.NoError(t, got.err)
				assert.Equal(t, `{"id":"up-1","object":"chat.completion","created":1755137933,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`, got.body)
				got = g.chat(askUsage)
				got.requireComplete(t)
				text, reason := streamText(t, got.body)
				assert.Equal(t, "Hello there", text)
				assert.Equal(t, "stop", reason)
				list := eventData(t, got.body)
				assert.Equal(t, usageChunk, list[len(list)-2])
				sum := g.recordedUsage(2)
				assert.EqualValues(t, 2*7, sum.Units.PromptTokens)
				assert.EqualValues(t, 2*5, sum.Units.CompletionTokens)
			})
		}
	}
}

// The usage is always recorded, and is sent only to clients that request it.
func TestChat_Usage(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if strings.Contains(r.body, "include_usage") {
			writeEvents(c, textChunk("Hello"), stopChunk, usageChunk, done)
		} else {
			writeEvents(c, textChunk("Hello"), stopChunk, done)
		}
	})
	g := newGateway(t, s.url(), nil)
	assert.NotContains(t, g.chat(askStream).body, "usage")
	assert.Contains(t, g.chat(askUsage).body, `"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}`)
	assert.EqualValues(t, 2*7, g.recordedUsage(2).Units.PromptTokens)

	g = newGateway(t, s.url(), &upstream.Options{OmitStreamOptions: true})
	g.chat(askStream)
	assert.True(t, g.summary().Record.Estimated)
}

// Members that llmhttp does not know are passed on to the client.
func TestChat_KeepsExtraMembers(t *testing.T) {
	checkLeaks(t)
	const choice = `"index":0,"%":{"role":"assistant","content":"Hi","reasoning_content":"so","reasoning":"thus","annotations":[{"a":1}],` +
		`"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"{}","z":1},"extra_content":{"google":{"thought_signature":"s"}}}]},` +
		`"logprobs":{"content":[{"token":"Hi","logprob":-0.5}]},"content_filter_results":{"hate":{"filtered":false}},"stop_reason":"tool"`
	const top = `"service_tier":"default","system_fingerprint":"fp_1","prompt_filter_results":[{"index":0}],` +
		`"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":3},"cost":0.5}`
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if strings.Contains(r.body, `"stream":true`) {
			writeEvents(c, `{"id":"a","choices":[{`+strings.Replace(choice, "%", "delta", 1)+`,"finish_reason":"tool_calls"}],`+top+`}`, done)
		} else {
			writeReply(c, 200, mediaJSON, `{"id":"a","choices":[{`+strings.Replace(choice, "%", "message", 1)+`,"finish_reason":"tool_calls"}],`+top+`}`)
		}
	})
	g := newGateway(t, s.url(), nil)
	for _, ask := range []string{askWhole, askUsage} {
		body := g.chat(ask).body
		for _, member := range []string{`"content":"Hi"`, `"reasoning_content":"so"`, `"reasoning":"thus"`, `"annotations":[{"a":1}]`, `"arguments":"{}","z":1`,
			`"extra_content":{"google":{"thought_signature":"s"}}`, `"logprobs":{"content":[{"token":"Hi","logprob":-0.5}]}`,
			`"content_filter_results":{"hate":{"filtered":false}}`, `"stop_reason":"tool"`, `"service_tier":"default"`, `"system_fingerprint":"fp_1"`,
			`"prompt_filter_results":[{"index":0}]`, `"prompt_tokens_details":{"cached_tokens":3}`, `"cost":0.5`, `"finish_reason":"tool_calls"`} {
			assert.Contains(t, body, member)
		}
	}
}

// Members after the last choice are sent with the usage, or in a whole reply. Clients
// that do not request the usage get no chunk without choices.
func TestChat_KeepsExtraMembersAtTheEnd(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		writeEvents(c, textChunk("Hi"), stopChunk, `{"id":"a","choices":[],"x_late":[1]}`,
			`{"id":"a","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12},"timings":{"ms":2},"system_fingerprint":"fp"}`, done)
	})
	g := newGateway(t, s.url(), nil)
	const late = `"system_fingerprint":"fp","timings":{"ms":2},"x_late":[1]`
	assert.Contains(t, g.chat(askUsage).body, `"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12},`+late+"}")
	assert.Contains(t, g.chat(askWhole).body, late)
	assert.NotContains(t, g.chat(askStream).body, `"choices":[]`)
}

// Azure begins a stream with the results of its filters, in a chunk without an
// ID.
func TestChat_FirstChunksWithoutID(t *testing.T) {
	checkLeaks(t)
	var first []string
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		writeEvents(c, append(first, `{"id":"chatcmpl-theirs","created":1755137933,"model":"m-0125","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}],"x_own":1}`, done)...)
	})
	g := newGateway(t, s.url(), nil)
	for _, first = range [][]string{
		{`{"id":"","created":0,"model":"","object":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}`},
		{`{"choices":[],"x_own":0,"prompt_filter_results":[]}`, `{"prompt_filter_results":[{"prompt_index":0}]}`},
	} {
		for _, ask := range []string{askWhole, askStream} {
			body := g.chat(ask).body
			for _, want := range []string{`{"id":"chatcmpl-theirs",`, `"created":1755137933,"model":"m-0125",`, `"prompt_filter_results":[{"prompt_index":0}]`, `"x_own":1`} {
				assert.Contains(t, body, want)
			}
			assert.NotContains(t, body, `"created":0`)
		}
	}
	first = []string{`{"choices":[],"prompt_filter_results":[]}`, done}
	g.chat(askStream).requireError(t, 502)

	// Only a bounded amount is held back until a chunk has an ID.
	first = nil
	for i := range 10 {
		first = append(first, fmt.Sprintf(`{"choices":[],"x_%d":"%s"}`, i, strings.Repeat("x", 10_000)))
	}
	body := g.chat(askStream).body
	assert.NotContains(t, body, `{"id":"chatcmpl-theirs",`)
	for i := range 10 {
		assert.Contains(t, body, fmt.Sprintf(`"x_%d":"`, i))
	}
}

// A member "error" does not make a reply an error if its value means success.
func TestChat_ErrorMemberOfSuccess(t *testing.T) {
	checkLeaks(t)
	var body string
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if strings.Contains(r.body, `"stream":true`) {
			writeEvents(c, strings.Replace(body, `"message"`, `"delta"`, 1), done)
		} else {
			writeReply(c, 200, mediaJSON, body)
		}
	})
	g := newGateway(t, s.url(), nil)
	const choices = `"id":"a","choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]`
	for _, member := range []string{`"error": null, "code": 0`, `"error":"","code":200`, `"error":false,"type":"chat"`, `"error" : 0,"detail":"fine"`} {
		for _, body = range []string{"{" + member + "," + choices + "}", "{" + choices + "," + member + "}"} {
			for _, ask := range []string{askWhole, askStream} {
				assert.Contains(t, g.chat(ask).body, `"content":"Hi"`, "%s", body)
			}
		}
	}
	body = `{"error":nullify,` + choices + `}`
	g.chat(askWhole).requireError(t, 502)
	body = `{"error":null,"code":429,"message":"boom"}`
	g.chat(askWhole).requireError(t, 429)
}

// The choices of a whole reply are numbered in order if their indices are not valid.
func TestChat_IndicesOfWholeReplies(t *testing.T) {
	checkLeaks(t)
	var indices [2]string
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		writeReply(c, 200, mediaJSON, fmt.Sprintf(`{"id":"a","choices":[{"index":%s,"message":{"content":"A"},"finish_reason":"stop"},{"index":%s,"message":{"content":"B"},"finish_reason":"stop"}]}`, indices[0], indices[1]))
	})
	g := newGateway(t, s.url(), nil)
	for _, indices = range [][2]string{{"0", "0"}, {"1", "2"}, {"-1", "0"}, {"0", "1"}, {"null", "null"}, {"99999", "1"}} {
		for _, ask := range []string{askWhole, askStream} {
			body := g.chat(withMembers(ask, `"n":2`)).body
			assert.Regexp(t, `"index":0,"(message|delta)":\{("role":"assistant",)?"content":"A"`, body)
			assert.Regexp(t, `"index":1,"(message|delta)":\{("role":"assistant",)?"content":"B"`, body)
		}
	}
}

// Choices have the same indices in a stream and in a whole reply, even if there are
// gaps.
func TestChat_Indices(t *testing.T) {
	for _, test := range []struct {
		name         string
		server, want []int
		requested    int
	}{
		{"in order", []int{0, 1, 2}, []int{0, 1, 2}, 3},
		{"in another order", []int{2, 0, 1}, []int{2, 0, 1}, 3},
		{"a gap", []int{0, 2}, []int{0, 2}, 3},
		{"a gap at the beginning", []int{1, 2}, []int{1, 2}, 3},
		{"too large", []int{7}, []int{0}, 1},
		{"too large, after another", []int{0, 7}, []int{0, 1}, 3},
		{"more than requested", []int{0, 1, 2}, []int{0, 1, 2}, 2},
	} {
		var whole, stream []string
		for _, index := range test.server {
			whole = append(whole, fmt.Sprintf(`{"index":%d,"message":{"content":"x"},"finish_reason":"stop"}`, index))
			stream = append(stream, fmt.Sprintf(`{"choices":[{"index":%d,"delta":{"content":"x"}}]}`, index))
		}
		for _, index := range test.server {
			stream = append(stream, fmt.Sprintf(`{"choices":[{"index":%d,"delta":{},"finish_reason":"stop"}]}`, index))
		}
		for media, body := range map[string]string{mediaJSON: `{"choices":[` + strings.Join(whole, ",") + `]}`, mediaEvents: eventStream(append(stream, done)...)} {
			t.Run(test.name+"/"+media, func(t *testing.T) {
				transport := roundTripper(func(*http.Request) (*http.Response, error) { return okResponse(media, strings.NewReader(body)), nil })
				b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: transport})
				var got []int
				for chunk, err := range b.Chat(t.Context(), &llm.ChatRequest{Model: "m", N: &test.requested}) {
					require.NoError(t, err)
					for _, c := range chunk.Choices {
						if c.Delta.Content != "" {
							got = append(got, c.Index)
						}
					}
				}
				assert.Equal(t, test.want, got)
			})
		}
	}
}

// NaN and Infinity are not JSON, so a reply with one fails. Strings may have these words.
func TestChat_NonFiniteNumbers(t *testing.T) {
	for _, number := range []string{"NaN", "-Infinity", "Infinity", `"NaN"`} {
		logprobs := `"logprobs":{"content":[{"token":"NaN","logprob":` + number + `}]}`
		for media, body := range map[string]string{
			mediaJSON:   `{"choices":[{"message":{"content":"Hi"},` + logprobs + `,"finish_reason":"stop"}]}`,
			mediaEvents: eventStream(`{"choices":[{"delta":{"content":"Hi"},`+logprobs+`,"finish_reason":"stop"}]}`, done),
		} {
			transport := roundTripper(func(*http.Request) (*http.Response, error) { return okResponse(media, strings.NewReader(body)), nil })
			b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: transport})
			resp, err := join.Collect(b.Chat(t.Context(), &llm.ChatRequest{Model: "m"}))
			if number == `"NaN"` {
				require.NoError(t, err, media)
				assert.Contains(t, string(resp.Choices[0].Extra["logprobs"]), number)
				continue
			}
			assert.ErrorContains(t, err, "the reply is not valid", "%s %s", media, number)
		}
	}
}

// A stream is complete without [DONE] if all choices have a finish_reason, even
// if the connection breaks.
func TestChat_StreamWithoutDone(t *testing.T) {
	checkLeaks(t)
	var breaks bool
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		writeHead(c, mediaEvents)
		writePiece(c, eventStream(textChunk("Hello"), stopChunk))
		if breaks {
			c.Close()
		} else {
			writeEnd(c)
		}
	})
	g := newGateway(t, s.url(), nil)
	for _, breaks = range []bool{false, true} {
		g.chat(askStream).requireComplete(t)
		assert.Equal(t, 200, g.chat(askWhole).StatusCode)
		assert.Equal(t, 502, g.chat(withMembers(askWhole, `"n":2`)).StatusCode, "one of two choices is missing")
		assert.Contains(t, g.chat(withMembers(askStream, `"n":2`)).body, `{"error":`)
	}
}

// A connection is reused after all types of replies.
func TestChat_ConnectionIsReused(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		switch r.n % 4 {
		case 0:
			writeReply(c, 200, mediaJSON, wholeReply)
		case 1:
			writeReply(c, 429, mediaJSON, `{"error":{"message":"slow"}}`)
		case 2: // a stream, also to a client that did not ask for one
			writeHead(c, mediaEvents)
			writePiece(c, eventStream(textChunk("Hello"), stopChunk, done))
			writeEnd(c)
		case 3:
			writeReply(c, 500, "text/html", "<p>"+strings.Repeat("x", 10_000))
		}
	})
	// The connection is idle when the rest of the reply was read, which may be
	// after the client has got its reply.
	idle := make(chan struct{}, 1)
	inner := &http.Transport{MaxConnsPerHost: 1}
	defer inner.CloseIdleConnections()
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := inner.RoundTrip(r)
		if err == nil {
			resp.Body = closeNotifier{resp.Body, idle}
		}
		return resp, err
	})
	g := newGateway(t, s.url(), &upstream.Options{Transport: transport})
	for i := range 40 {
		g.chat([]string{askWhole, askWhole, askStream, askWhole, askWhole, askWhole, askWhole, askStream}[i%8])
		<-idle
	}
	assert.EqualValues(t, 1, s.accepted.Load())
}

// A closeNotifier sends to closed when it is closed.
type closeNotifier struct {
	io.ReadCloser
	closed chan<- struct{}
}

func (c closeNotifier) Close() error {
	defer func() { c.closed <- struct{}{} }()
	return c.ReadCloser.Close()
}

// A client gets [DONE] as soon as the server has sent it, even if the server does not
// end the HTTP body.
func TestChat_DoneEndsTheStream(t *testing.T) {
	checkLeaks(t)
	var s *rawServer
	s = newRawServer(t, func(c net.Conn, _ *rawRequest) {
		writeHead(c, mediaEvents)
		writePiece(c, eventStream(textChunk("Hello"))+"data: [DONE]\n")
		s.hang(c)
	})
	newGateway(t, s.url(), nil).chat(askStream).requireComplete(t)
	eventually(t, func() bool { return s.aborted.Load() == 1 }, "the connection is closed")
}

func TestChat_HTTP2(t *testing.T) {
	checkLeaks(t)
	var streaming atomic.Int64
	var reset atomic.Bool
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", mediaJSON)
			io.WriteString(w, wholeReply)
			return
		}
		streaming.Add(1)
		defer streaming.Add(-1)
		w.Header().Set("Content-Type", mediaEvents)
		io.WriteString(w, eventStream(textChunk("Hello")))
		if strings.Contains(string(body), "hang") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			reset.Store(true)
			return
		}
		io.WriteString(w, eventStream(stopChunk, done))
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	transport := srv.Client().Transport.(*http.Transport)
	defer transport.CloseIdleConnections()
	g := newGateway(t, srv.URL+"/v1", &upstream.Options{Transport: transport})
	for range 5 {
		assert.Equal(t, 200, g.chat(askWhole).StatusCode)
		g.chat(askStream).requireComplete(t)
	}
	ctx, cancel := context.WithCancel(context.Background())
	resp, err := g.Client().Do(g.request(ctx, "POST", chatPath, strings.Replace(askStream, "Hello?", "hang", 1)))
	require.NoError(t, err)
	cancel()
	resp.Body.Close()
	eventually(t, func() bool { return reset.Load() && streaming.Load() == 0 }, "the stream is reset")
}

// Members of unusual types are accepted; these are the values that a client gets.
func TestChat_AcceptsUnusualTypes(t *testing.T) {
	const head, choice = `{"id":"","object":"chat.completion.chunk","created":0,"model":"",`, `"choices":[{"index":0,"delta":`
	for _, test := range []struct{ name, in, want string }{
		{"usual types", `{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":1,"delta":{"content":"Hi"},"finish_reason":null}]}`,
			`{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":1,"delta":{"content":"Hi"},"finish_reason":null}]}`},
		{"nulls", `{"id":null,"created":null,"model":null,"choices":[{"index":null,"delta":{"role":null,"content":null,"reasoning_content":null,"tool_calls":null,"refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"error":null}`,
			head + choice + `{},"finish_reason":null}]}`},
		{"choices without an index", `{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}`,
			head + choice + `{"content":"a"},"finish_reason":null},{"index":1,"delta":{"content":"b"},"finish_reason":null}]}`},
		{"other types", `{"id":17,"created":"1755137933","model":3.5,"choices":[{"index":"2","delta":{"content":7},"finish_reason":""}]}`,
			`{"id":"17","object":"chat.completion.chunk","created":1755137933,"model":"3.5","choices":[{"index":2,"delta":{"content":"7"},"finish_reason":null}]}`},
		{"fractions and strings in usage", `{"choices":[{}],"usage":{"prompt_tokens":12.0,"completion_tokens":"3","total_tokens":null,"prompt_tokens_details":{"cached_tokens":4}}}`,
			head + choice + `{},"finish_reason":null}],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}}`},
		{"usage of zeros", `{"choices":[{}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, head + choice + `{},"finish_reason":null}]}`},
		{"arguments that are an object", `{"choices":[{"delta":{"tool_calls":[{"id":"a","type":null,"function":{"name":"f","arguments":{"a": 1}}}]}}]}`,
			head + choice + `{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"a\": 1}"}}]},"finish_reason":null}]}`},
		{"content in parts", `{"choices":[{"delta":{"content":[{"type":"citation","url":[]},{"type":"text","text":"a"},null,{"type":"text","text":"b"}]}}]}`,
			head + choice + `{"content":"ab","content_parts":[{"type":"citation","url":[]}]},"finish_reason":null}]}`},
		{"message in place of delta", `{"choices":[{"index":0,"message":{"content":"Hi","tool_calls":[{"index":9,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
			head + choice + `{"content":"Hi","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`},
		{"bytes that are not UTF-8", "{\"choices\":[{\"delta\":{\"content\":\"a\xffb\"}}]}", head + choice + "{\"content\":\"a\ufffdb\"},\"finish_reason\":null}]}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			transport := roundTripper(func(*http.Request) (*http.Response, error) {
				return okResponse(mediaEvents, strings.NewReader(eventStream(test.in, done))), nil
			})
			b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: transport})
			for chunk, err := range b.Chat(t.Context(), &llm.ChatRequest{Model: "m", Stream: true, N: new(3)}) {
				require.NoError(t, err)
				got, err := chunk.MarshalJSON()
				require.NoError(t, err)
				assert.Equal(t, test.want, string(got))
			}
		})
	}
}

// A character whose surrogates are in different chunks is joined.
func TestChat_JoinsSurrogates(t *testing.T) {
	for _, test := range []struct {
		name   string
		pieces []string // the text of each chunk, as in JSON
		want   string
	}{
		{"whole", []string{`a\ud83d\ude42b`}, "a\U0001f642b"},
		{"cut", []string{`a\ud83d`, `\ude42b`}, "a\U0001f642b"},
		{"cut, in capitals", []string{`a\uD83D`, `\uDE42b`}, "a\U0001f642b"},
		{"cut twice", []string{`\ud83d`, `\ude42\ud83d`, `\ude43`}, "\U0001f642\U0001f643"},
		{"cut, then more", []string{`\ud83d`, `\ude42`, `b`, `c\ud83d`, `\ude43`, ``}, "\U0001f642bc\U0001f643"},
		{"empty piece between", []string{`\ud83d`, ``, `\ude42`}, "\U0001f642"},
		{"no low surrogate", []string{`\ud83d`, `b`}, "\ufffdb"},
		{"no low surrogate at the end", []string{`a\ud83d`, ``}, "a\ufffd"},
		{"high surrogate in the last piece", []string{`a`, `b\ud83d`}, "ab\ufffd"},
		{"no low surrogate within a piece", []string{`a\ud83db`}, "a\ufffdb"},
		{"two high surrogates", []string{`\ud83d`, `\ud83d`, `\ude42`}, "\ufffd\U0001f642"},
		{"no high surrogate", []string{`a`, `\ude42b`}, "a\ufffdb"},
		{"escaped backslash", []string{`\\ud83d`, `\\ude42`}, `\ud83d\ude42`},
		{"escaped backslash before a surrogate", []string{`\\\ud83d`, `\ude42`}, "\\\U0001f642"},
	} {
		for member, delta := range map[string]string{
			"content": `{"content":"%s"}`, "reasoning": `{"reasoning_content":"%s"}`,
			"arguments": `{"tool_calls":[{"index":0,"id":"","function":{"arguments":"%s"}}]}`,
		} {
			t.Run(test.name+"/"+member, func(t *testing.T) {
				var chunks []string
				for i, piece := range test.pieces {
					reason := "null"
					if i == len(test.pieces)-1 {
						reason = `"stop"`
					}
					for choice := range 2 { // the pieces of two choices alternate
						chunks = append(chunks, fmt.Sprintf(`{"choices":[{"index":%d,"delta":%s,"finish_reason":%s}]}`, choice, fmt.Sprintf(delta, piece), reason))
					}
				}
				transport := roundTripper(func(*http.Request) (*http.Response, error) {
					return okResponse(mediaEvents, strings.NewReader(eventStream(append(chunks, done)...))), nil
				})
				b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: transport})
				var got [2]string
				for chunk, err := range b.Chat(t.Context(), &llm.ChatRequest{Model: "m", Stream: true, N: new(2)}) {
					require.NoError(t, err)
					c := chunk.Choices[0]
					got[c.Index] += c.Delta.Content + c.Delta.Reasoning
					for _, call := range c.Delta.ToolCalls {
						got[c.Index] += call.Function.Arguments
					}
				}
				assert.Equal(t, [2]string{test.want, test.want}, got)
			})
		}
	}
}
