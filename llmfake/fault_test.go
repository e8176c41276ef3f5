package llmfake_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake"
)

// eachFormat runs f for each format, whole and streamed. send sends a request.
func eachFormat(t *testing.T, f func(t *testing.T, srv *llmfake.Server, send func() (*http.Response, error), format int, stream bool)) {
	for i, format := range formats {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%t", format.protocol, stream), func(t *testing.T) {
				t.Parallel()
				srv := llmfake.NewServer(t)
				f(t, srv, func() (*http.Response, error) {
					return tryPost(srv.Client(), format.path, fmt.Sprintf(format.body, stream, "Hi"))
				}, i, stream)
			})
		}
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, srv *llmfake.Server, send func() (*http.Response, error), format int, stream bool) {
		for _, status := range []int{400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529} {
			srv.Reply(llmfake.Fail(status))
			res, err := send()
			require.NoError(t, err)
			want := status
			if formats[format].protocol == llmfake.Messages && status == 503 {
				want = 529
			}
			assert.Equal(t, want, res.StatusCode)
			body := read(t, res)
			assert.Contains(t, body, `"error":{`)
			assert.NotContains(t, body, "marker")
			assert.Equal(t, want, srv.Request(-1).Status)
			assert.Equal(t, fmt.Sprintf("Fail(%d)", status), srv.Request(-1).Reply)
		}
		srv.Reply(llmfake.RateLimited(3 * time.Second))
		res, err := send()
		require.NoError(t, err)
		assert.Equal(t, 429, res.StatusCode)
		assert.Equal(t, "3", res.Header.Get("Retry-After"))
		srv.Reply(llmfake.ContextLengthExceeded(10, 12))
		res, err = send()
		require.NoError(t, err)
		assert.Equal(t, 400, res.StatusCode)
		assert.Contains(t, read(t, res), "12")
	})
}

func TestCut(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, srv *llmfake.Server, send func() (*http.Response, error), format int, stream bool) {
		srv.Reply(llmfake.Text("once upon a time").Cut(), llmfake.Cut())
		res, err := send()
		require.NoError(t, err)
		assert.Equal(t, 200, res.StatusCode)
		body := readBroken(t, res)
		if stream {
			assert.Contains(t, body, "time")
			assert.NotContains(t, body, formats[format].end)
		} else {
			assert.False(t, json.Valid([]byte(body)))
		}
		assert.NotContains(t, body, `"error":{`)
		_, err = send()
		assert.ErrorIs(t, err, io.EOF)
		assert.Zero(t, srv.Request(1).Status)
	})
}

// The log of a server says of a reply that is cut, damaged or replaced for a test that this is simulated, with the
// status that the client gets, and does not tell of an error.
func TestFaults_AreLoggedAsSimulated(t *testing.T) {
	t.Parallel()
	faults := map[string]func(llmfake.Reply) llmfake.Reply{
		"Cut": llmfake.Reply.Cut, "NoEnd": llmfake.Reply.NoEnd, "Malformed": llmfake.Reply.Malformed,
		"HTML": func(r llmfake.Reply) llmfake.Reply { return r.Then(llmfake.HTML(503)) },
	}
	for name, fault := range faults {
		for _, stream := range []bool{false, true} {
			for _, format := range formats {
				out := &loggedTB{fakeTB: newFakeTB(t)}
				srv := llmfake.NewServer(out)
				srv.Reply(fault(llmfake.Text("once upon a time")), fault(llmfake.Reply{}))
				for range 2 {
					res, err := tryPost(srv.Client(), format.path, fmt.Sprintf(format.body, stream, "Hi"))
					if err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
					}
				}
				assert.Empty(t, out.end())
				log := out.String()
				assert.NotContains(t, log, "llmfake-marker", "%s, %s, stream %t", name, format.protocol, stream)
				assert.NotContains(t, log, "llmfake_marker")
				assert.NotContains(t, log, "level=ERROR")
				assert.NotContains(t, log, "error_class=invalid_request")
				assert.NotContains(t, log, "status=400")
				want := 2
				if name == "NoEnd" && !stream { // the replies are complete
					want = 0
				}
				assert.Equal(t, want, strings.Count(log, "error_class=simulated"), "%s: %s", name, log)
				if name == "HTML" {
					assert.Contains(t, log, "status=503")
				}
			}
		}
	}
}

// A loggedTB keeps what a server logs.
type loggedTB struct {
	*fakeTB
	logMu sync.Mutex // guards log
	log   strings.Builder
}

func (l *loggedTB) Output() io.Writer { return l }

func (l *loggedTB) Write(p []byte) (int, error) {
	l.logMu.Lock()
	defer l.logMu.Unlock()
	return l.log.Write(p)
}

func (l *loggedTB) String() string {
	l.logMu.Lock()
	defer l.logMu.Unlock()
	return l.log.String()
}

func TestBreak(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, srv *llmfake.Server, send func() (*http.Response, error), format int, stream bool) {
		srv.Reply(llmfake.Text("once upon a time").Break(llm.Errorf(503, "", "The model has gone.")))
		res, err := send()
		require.NoError(t, err)
		var b strings.Builder
		_, err = io.Copy(&b, res.Body)
		assert.Contains(t, b.String(), "The model has gone.")
		assert.NotContains(t, b.String(), formats[format].end)
		if stream {
			assert.Equal(t, 200, res.StatusCode)
			assert.Contains(t, b.String(), "time")
			assert.Equal(t, formats[format].protocol == llmfake.ChatCompletions, errors.Is(err, io.ErrUnexpectedEOF))
		} else {
			assert.NoError(t, err)
			assert.GreaterOrEqual(t, res.StatusCode, 500)
		}
	})
}

func TestNoEnd(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, srv *llmfake.Server, send func() (*http.Response, error), format int, stream bool) {
		srv.Reply(llmfake.Text("once upon a time").NoEnd(), llmfake.Reply{}.NoEnd())
		res, err := send()
		require.NoError(t, err)
		body := read(t, res)
		assert.Contains(t, body, "time")
		assert.NotContains(t, body, formats[format].end)
		assert.NotContains(t, body, `"error":{`)
		if stream && formats[format].protocol == llmfake.ChatCompletions {
			assert.Contains(t, body, `"finish_reason":"stop"`)
		}
		if !stream {
			assert.True(t, json.Valid([]byte(body)))
		}
		res, err = send()
		require.NoError(t, err)
		assert.Equal(t, 200, res.StatusCode)
		assert.NotContains(t, read(t, res), formats[format].end)
	})
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, srv *llmfake.Server, send func() (*http.Response, error), format int, stream bool) {
		srv.Reply(llmfake.Text("once upon a time").Malformed(), llmfake.Reply{}.Malformed())
		for range 2 {
			res, err := send()
			require.NoError(t, err)
			assert.Equal(t, 200, res.StatusCode)
			body := read(t, res)
			if stream {
				assert.Contains(t, res.Header.Get("Content-Type"), "text/event-stream")
				events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
				for i, event := range events {
					_, data, _ := strings.Cut(event, "data: ")
					assert.Equal(t, i < len(events)-1, json.Valid([]byte(data)), "%s", data)
				}
			} else {
				assert.False(t, json.Valid([]byte(body)), body)
			}
		}
	})
}

func TestHTML(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, srv *llmfake.Server, send func() (*http.Response, error), format int, stream bool) {
		srv.Reply(llmfake.HTML(502), llmfake.Text("unseen").Then(llmfake.HTML(200)))
		res, err := send()
		require.NoError(t, err)
		assert.Equal(t, 502, res.StatusCode)
		assert.Equal(t, "text/html", res.Header.Get("Content-Type"))
		assert.Empty(t, res.Header.Get("X-Request-Id"))
		assert.Contains(t, read(t, res), "<h1>502 Bad Gateway</h1>")
		assert.Equal(t, 502, srv.Request(0).Status)
		if !stream {
			res, err = send()
			require.NoError(t, err)
			assert.Contains(t, read(t, res), "<h1>200 OK</h1>")
		} else {
			srv.Always(llmfake.Text("x"))
			_, err = send()
			require.NoError(t, err)
		}
	})
}

func TestBadToolIndices(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	srv.Always(llmfake.Text("Two calls.").Call("first", nil).Call("second", nil).BadToolIndices())
	for i, f := range formats {
		body := read(t, post(t, srv.Client(), f.path, fmt.Sprintf(f.body, true, "Hi")))
		wrong := []string{`"tool_calls":[{"index":1`, `"content_block_start","index":1`, `"output_index":1`}[i]
		right := strings.ReplaceAll(wrong, "1", "0")
		assert.NotContains(t, body, wrong)
		assert.Contains(t, body, right)
		assert.Contains(t, body, "second")
		assert.Contains(t, body, f.end)
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	eachFormat(t, func(t *testing.T, srv *llmfake.Server, send func() (*http.Response, error), format int, stream bool) {
		srv.Reply(llmfake.Text("once upon a time").Rewrite(func(event []byte) []byte {
			if strings.Contains(string(event), formats[format].end) {
				return nil
			}
			return []byte(strings.ReplaceAll(string(event), "upon", "a very very long time upon"))
		}))
		res, err := send()
		require.NoError(t, err)
		body := read(t, res)
		assert.Contains(t, body, "long time upon")
		assert.NotContains(t, body, formats[format].end)
	})
}

// A fault in a reply to a request for embeddings or images needs a Rule for it.
func TestFaults_OtherOperations(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	embed := func() (*http.Response, error) {
		return tryPost(srv.Client(), "/v1/embeddings", `{"model":"e","input":["a","b"]}`)
	}
	srv.When(llmfake.Embeddings()).Reply(llmfake.Fail(500), llmfake.Cut(), llmfake.Malformed(), llmfake.HTML(502),
		llmfake.Vectors([]float32{1, 0}, []float32{0, 1}), llmfake.Simulate())
	srv.When(llmfake.Images()).Reply(llmfake.Overloaded())
	res, err := embed()
	require.NoError(t, err)
	assert.Equal(t, 500, res.StatusCode)
	_, err = embed()
	assert.Error(t, err)
	res, err = embed()
	require.NoError(t, err)
	assert.False(t, json.Valid([]byte(read(t, res))))
	res, err = embed()
	require.NoError(t, err)
	assert.Equal(t, 502, res.StatusCode)
	res, err = embed()
	require.NoError(t, err)
	assert.Contains(t, read(t, res), `"embedding":[1,0]`)
	res, err = embed()
	require.NoError(t, err)
	assert.Equal(t, 200, res.StatusCode)
	res, err = tryPost(srv.Client(), "/v1/images/generations", `{"model":"i","prompt":"a"}`)
	require.NoError(t, err)
	assert.Equal(t, 503, res.StatusCode)
	assert.Equal(t, "a", srv.Request(0).UserText())
}

func TestFaults_Speech(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	speak := func() (*http.Response, error) {
		return tryPost(srv.Client(), "/v1/audio/speech", `{"model":"tts-1","input":"Hi","voice":"alloy","stream_format":"sse"}`)
	}
	srv.When(llmfake.Speech()).Reply(llmfake.Fail(500), llmfake.Cut(), llmfake.Audio([]byte("ab"), []byte("c")).Usage(14, 101))
	res, err := speak()
	require.NoError(t, err)
	assert.Equal(t, 500, res.StatusCode)
	_, err = speak()
	assert.Error(t, err)
	res, err = speak()
	require.NoError(t, err)
	assert.Equal(t, `data: {"type":"speech.audio.delta","audio":"YWI="}

data: {"type":"speech.audio.delta","audio":"Yw=="}

data: {"type":"speech.audio.done","usage":{"input_tokens":14,"output_tokens":101,"total_tokens":115}}

`, read(t, res))
	assert.Equal(t, "alloy", srv.Request(2).Asked.(*audio.SpeechRequest).Voice.Name)
	assert.True(t, srv.Request(2).Stream)
}

func TestServer_Chaos(t *testing.T) {
	t.Parallel()
	outcomes := func(t *testing.T, seed uint64, concurrent bool) string {
		tb := newFakeTB(t)
		srv := llmfake.NewServer(tb)
		srv.Chaos(llmfake.Chaos{
			Seed: seed, RateLimit: .1, ServerError: .1, Overloaded: .1, HTML: .1, Cut: .1, CutStream: .1, Malformed: .1, Slow: .1, Delay: time.Hour,
		})
		results := make([]string, 60)
		var wg sync.WaitGroup
		for i := range results {
			ask := func() {
				began := time.Now()
				res, err := tryPost(srv.Client(), "/v1/chat/completions", fmt.Sprintf(formats[0].body, true, fmt.Sprintf("one two three four five six seven eight %d", i)))
				if err != nil {
					results[i] = "cut"
					return
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				switch {
				case time.Since(began) >= time.Hour:
					results[i] = "slow"
				case err != nil:
					results[i] = fmt.Sprint("cut at ", strings.Count(string(body), "data: "))
				case res.StatusCode == 200 && !strings.Contains(string(body), "[DONE]"):
					results[i] = "malformed"
				default:
					results[i] = res.Status
				}
			}
			if concurrent {
				wg.Go(ask)
			} else {
				ask()
			}
		}
		wg.Wait()
		assert.Empty(t, tb.end())
		return strings.Join(results, "\n")
	}
	synctest.Test(t, func(t *testing.T) {
		first := outcomes(t, 1, false)
		for _, want := range []string{"cut\n", "cut at", "slow", "malformed", "200 OK", "429", "500", "503", "502"} {
			assert.Contains(t, first, want)
		}
		assert.Equal(t, first, outcomes(t, 1, true))
		assert.NotEqual(t, first, outcomes(t, 2, false))
	})

	tb := newFakeTB(t)
	srv := llmfake.NewServer(tb)
	srv.Chaos(llmfake.Chaos{Cut: .5})
	tb.Errorf("the test has failed")
	tb.end()
	require.NotEmpty(t, tb.logs)
	assert.Regexp(t, `the seed of the chaos was [1-9]\d*: set Chaos.Seed`, tb.logs[0])
}

func TestServer_Pace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := llmfake.NewServer(t)
		srv.Pace(llmfake.Pace{FirstToken: time.Minute, TokensPerSecond: 1})
		srv.Reply(llmfake.Text("one two three four"))
		began := time.Now()
		ask(t, srv, "Count.")
		assert.Equal(t, time.Minute+3*time.Second, time.Since(began))
	})
}

// The error about the context window names the member of the format that is too long.
func TestFault_ContextLengthExceeded(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	srv.Always(llmfake.ContextLengthExceeded(10, 20))
	for i, want := range []string{`"param":"messages"`, `"prompt is too long: 20 tokens \u003e 10 maximum"`, `"param":"input"`} {
		res := post(t, srv.Client(), formats[i].path, fmt.Sprintf(formats[i].body, false, "Hi"))
		assert.Equal(t, 400, res.StatusCode)
		assert.Contains(t, strings.ReplaceAll(read(t, res), ">", `\u003e`), want)
	}
	srv.AwaitRequests(3)
	assert.Contains(t, srv.Request(0).Reply, "ContextLengthExceeded(10, 20)")
}
