package llmfake_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake"
)

// Every format gets the same reply, whole and streamed, on the loopback interface and in memory.
func TestServer_Formats(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", f.protocol, stream), func(t *testing.T) {
				t.Parallel()
				srv := llmfake.NewServer(t)
				srv.Always(llmfake.Reason("Hm.").Text("I will look.").Call("forecast", map[string]any{"city": "Bergen"}).Usage(5, 7))
				body := fmt.Sprintf(f.body, stream, "Rain?")
				inMemory := read(t, post(t, srv.Client(), f.path, body))
				r, err := http.NewRequest("POST", srv.URL()+f.path, strings.NewReader(body))
				require.NoError(t, err)
				r.Header.Set("Authorization", "Bearer any")
				r.Header.Set("Content-Type", "application/json")
				res, err := http.DefaultClient.Do(r)
				require.NoError(t, err)
				defer res.Body.Close()
				for _, reply := range []string{inMemory, read(t, res)} {
					assert.Contains(t, reply, "forecast")
					assert.Contains(t, reply, "city")
					assert.Contains(t, reply, "look.")
					assert.Equal(t, stream, strings.Contains(reply, f.end), "%s", reply)
				}
				for _, r := range srv.WantRequests(2) {
					r.WantProtocol(f.protocol).WantUserText("Rain?").WantMessages("user: Rain?")
					assert.Equal(t, stream, r.Stream)
					assert.Equal(t, 200, r.Status)
					assert.Equal(t, llmhttp.OperationChat, r.Operation)
				}
			})
		}
	}
}

// Without a reply of the test, the simulated model replies to every operation for any model.
func TestServer_Simulator(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	_, text := ask(t, srv, "Hello there!")
	assert.Equal(t, "Hello there!", text)

	res := post(t, srv.Client(), "/v1/embeddings", `{"model":"text-embedding-x","input":["a","b"]}`)
	assert.Contains(t, read(t, res), `"model":"text-embedding-x"`)
	res = post(t, srv.Client(), "/v1/images/generations", `{"model":"image-x","prompt":"a house","size":"256x256","response_format":"url"}`)
	var images struct{ Data []struct{ URL string } }
	require.NoError(t, json.Unmarshal([]byte(read(t, res)), &images))
	image, err := srv.Client().Get(images.Data[0].URL)
	require.NoError(t, err)
	defer image.Body.Close()
	assert.Equal(t, "image/png", image.Header.Get("Content-Type"))

	res = post(t, srv.Client(), "/v1/audio/speech", `{"model":"tts-1","input":"Hello there","voice":"alloy"}`)
	assert.Equal(t, "audio/mpeg", res.Header.Get("Content-Type"))
	assert.Len(t, read(t, res), 2*8*192)
	srv.Request(3).WantUserText("Hello there")

	srv.AddModels("gpt-x")
	res = get(t, srv, "/v1/models/gpt-x")
	assert.Equal(t, 200, res.StatusCode)
}

func get(t *testing.T, srv *llmfake.Server, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequest("GET", "http://localhost"+path, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer any")
	res, err := srv.Client().Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// A client's mistake gets the error that the vendor would send, and takes no reply.
func TestServer_IsStrict(t *testing.T) {
	t.Parallel()
	tb := newFakeTB(t)
	srv := llmfake.NewServer(tb)
	srv.Reply(llmfake.Text("Hello"))
	res := post(t, srv.Client(), "/v1/chat/completions", `{"model":"gpt-x","messages":[]}`)
	assert.Equal(t, 400, res.StatusCode)
	res = post(t, srv.Client(), "/v1/messages", `{"model":"claude-x","messages":[{"role":"user","content":"Hi"}]}`)
	assert.Equal(t, 400, res.StatusCode)
	assert.Contains(t, read(t, res), "max_tokens")
	res, err := srv.Client().Post("http://localhost/v1/chat/completions", "application/json", strings.NewReader(`{}`))
	require.NoError(t, err)
	res.Body.Close()
	assert.Equal(t, 401, res.StatusCode)

	errors := tb.end()
	require.Len(t, errors, 1)
	assert.Contains(t, errors[0], "1 reply was not asked for:")
	assert.Contains(t, errors[0], `Text("Hello"), set at server_test.go:`)
	assert.Contains(t, errors[0], "request 3: POST /v1/chat/completions: got 401, an error: \"You didn't provide an API key")
	assert.Contains(t, errors[0], `request 2: POST /v1/messages: got 400, an error: "max_tokens: Field required"`)
}

// The host, the scheme and the beginning of the path do not matter to the Client.
func TestServer_ClientReachesNothingElse(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	for _, base := range []string{"https://api.openai.com/v1", "https://openrouter.ai/api/v1", "http://localhost:1/v1"} {
		r, err := http.NewRequest("POST", base+"/chat/completions", strings.NewReader(fmt.Sprintf(formats[0].body, false, "Hi")))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer any")
		r.Header.Set("Content-Type", "application/json")
		res, err := srv.Client().Do(r)
		require.NoError(t, err)
		assert.Contains(t, read(t, res), `"content":"Hi"`)
		res.Body.Close()
	}
	srv.WantRequests(3)
}

func TestServer_Key(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	srv.RequireKey("sk-right")
	status, _ := ask(t, srv, "Hi")
	assert.Equal(t, 401, status)
}

func TestServer_Setenv(t *testing.T) {
	srv := llmfake.NewServer(t)
	tb := newFakeTB(t)
	fake := llmfake.NewServer(tb)
	fake.RequireKey("sk-right")
	fake.Setenv()
	assert.Equal(t, fake.URL()+"/v1", tb.env["OPENAI_BASE_URL"])
	assert.Equal(t, fake.OpenAIURL(), tb.env["OPENAI_API_BASE"])
	assert.Equal(t, fake.URL(), tb.env["ANTHROPIC_BASE_URL"])
	assert.Equal(t, "sk-right", tb.env["ANTHROPIC_API_KEY"])
	assert.Empty(t, tb.end())
	assert.NotEqual(t, srv.URL(), fake.OpenAIURL())
}

// In a bubble, waits take no time and are exact.
func TestServer_InABubble(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		synctest.Test(t, func(t *testing.T) {
			srv := llmfake.NewServer(t)
			srv.Reply(llmfake.Wait(time.Hour).Words("one two three", time.Minute))
			began := time.Now()
			res := post(t, srv.Client(), f.path, fmt.Sprintf(f.body, true, "Count."))
			assert.Equal(t, time.Hour+time.Minute, time.Since(began))
			read(t, res)
			assert.Equal(t, time.Hour+3*time.Minute, time.Since(began))
			synctest.Wait()
		})
	}
}

// On the loopback interface, time would stand still.
func TestServer_URLInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tb := newFakeTB(t)
		llmfake.NewServer(tb).OpenAIURL()
		assert.True(t, tb.fatal)
		assert.Contains(t, tb.errors[0], "Use the method Client")
		tb.end()
	})
}

// A client that leaves ends the reply.
func TestServer_ClientLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := llmfake.NewServer(t)
		srv.Reply(llmfake.Hang(), llmfake.Text("Hello.").Hang())
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			r, err := http.NewRequestWithContext(ctx, "POST", "http://localhost"+formats[0].path, strings.NewReader(fmt.Sprintf(formats[0].body, true, "Hi")))
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer any")
			r.Header.Set("Content-Type", "application/json")
			res, err := srv.Client().Do(r)
			if err == nil {
				_, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		srv.AwaitRequests(2)
	})
}

// A test that ends interrupts the requests in progress.
func TestServer_EndsRequests(t *testing.T) {
	t.Parallel()
	tb := newFakeTB(t)
	srv := llmfake.NewServer(tb)
	srv.Always(llmfake.Hang())
	before := srv.Client()
	var wg sync.WaitGroup
	for _, client := range []*http.Client{srv.Client(), srv.Client()} {
		wg.Go(func() {
			res, err := tryPost(client, formats[0].path, fmt.Sprintf(formats[0].body, true, "Hi"))
			if err == nil {
				res.Body.Close()
			}
		})
	}
	for len(srv.Requests()) < 2 {
		time.Sleep(time.Millisecond)
	}
	assert.Empty(t, tb.end())
	wg.Wait()
	_, err := srv.Client().Get("http://localhost/v1/models")
	assert.ErrorContains(t, err, "llmfake: the server is closed")
	_, err = before.Get("http://localhost/v1/models")
	assert.ErrorContains(t, err, "llmfake: the server is closed")
	srv.URL()
	assert.True(t, tb.fatal)
}

// Real limits are enforced by the Handler.
func TestServer_Limit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := llmfake.NewServer(t)
		srv.Reply(llmfake.Text("one"), llmfake.Text("two"))
		srv.Limit(llmhttp.Limits{Requests: llmhttp.PerMinute(1)})
		res := post(t, srv.Client(), formats[0].path, fmt.Sprintf(formats[0].body, false, "Hi"))
		assert.Equal(t, "0", res.Header.Get("X-Ratelimit-Remaining-Requests"))
		read(t, res)
		res = post(t, srv.Client(), formats[0].path, fmt.Sprintf(formats[0].body, false, "Hi"))
		assert.Equal(t, 429, res.StatusCode)
		assert.Equal(t, "60", res.Header.Get("Retry-After"))
		time.Sleep(time.Minute)
		_, text := ask(t, srv, "Hi")
		assert.Equal(t, "two", text)
	})
}

func BenchmarkServer(b *testing.B) {
	b.Run("start and stop in memory", func(b *testing.B) {
		for b.Loop() {
			srv := llmfake.NewServer(b)
			srv.Client()
			srv.Close()
		}
	})
	b.Run("start and stop on loopback", func(b *testing.B) {
		for b.Loop() {
			srv := llmfake.NewServer(b)
			srv.URL()
			srv.Close()
		}
	})
	b.Run("start, a chat and stop in memory", func(b *testing.B) {
		for b.Loop() {
			srv := llmfake.NewServer(b)
			srv.Reply(llmfake.Text("Hello"))
			ask(b, srv, "Hi")
			srv.Close()
		}
	})
}

// A Server that an HTTP server of the test serves ends, whatever that does with its requests.
func TestServer_EndsRequestsOfOtherServers(t *testing.T) {
	t.Parallel()
	tb := newFakeTB(t)
	srv := llmfake.NewServer(tb)
	srv.Always(llmfake.Text("Hello").Hang())
	other := httptest.NewServer(srv)
	defer other.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, length := range []int64{0, 1 << 20} { // a body that is complete, and one that never is
		body := fmt.Sprintf(formats[0].body, true, "Hi")
		r, err := http.NewRequest("POST", other.URL+formats[0].path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer any")
		r.Header.Set("Content-Type", "application/json")
		if length > 0 {
			reader, writer := io.Pipe()
			defer writer.Close()
			r.Body, r.ContentLength = reader, length
		}
		wg.Go(func() {
			res, err := http.DefaultClient.Do(r)
			if err == nil {
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
	for len(srv.Requests()) == 0 {
		time.Sleep(time.Millisecond)
	}
	assert.Empty(t, tb.end())
}

// A body that is too long gets the error of its format, and is in the journal.
func TestServer_LongBody(t *testing.T) {
	t.Parallel()
	srv := llmfake.NewServer(t)
	body := fmt.Sprintf(formats[1].body, false, strings.Repeat("a", 64<<20))
	res := post(t, srv.Client(), formats[1].path, body)
	assert.Equal(t, 413, res.StatusCode)
	assert.Contains(t, read(t, res), `"type":"request_too_large"`)
	srv.AwaitRequests(1)
	assert.Equal(t, 413, srv.Request(0).WantProtocol(llmfake.Messages).Status)
}

// A function of the test that panics fails the test. The client gets an error.
func TestServer_FunctionsPanic(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(srv *llmfake.Server){
		"the function of Func": func(srv *llmfake.Server) {
			srv.Always(llmfake.Func(func(*llmfake.Request) llmfake.Reply { panic("a mistake") }))
		},
		`When(Match("x"))`: func(srv *llmfake.Server) {
			srv.When(llmfake.Match("x", func(*llmfake.Request) bool { panic("a mistake") })).Always(llmfake.Text("x"))
		},
		"the function of Rewrite": func(srv *llmfake.Server) {
			srv.Always(llmfake.Text("Hello").Rewrite(func([]byte) []byte { panic("a mistake") }))
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", name, stream), func(t *testing.T) {
				t.Parallel()
				tb := newFakeTB(t)
				srv := llmfake.NewServer(tb)
				set(srv)
				res, err := tryPost(srv.Client(), formats[0].path, fmt.Sprintf(formats[0].body, stream, "Hi"))
				if err == nil {
					assert.Equal(t, 500, res.StatusCode)
					res.Body.Close()
				}
				errors := tb.end()
				require.Len(t, errors, 1)
				assert.Regexp(t, "^llmfake: "+regexp.QuoteMeta(name)+` panicked at server_test\.go:\d+: a mistake$`, errors[0])
			})
		}
	}
}

// The seed is named also if the test closes the Server before it fails.
func TestServer_Seeds(t *testing.T) {
	t.Parallel()
	tb := newFakeTB(t)
	srv := llmfake.NewServer(tb)
	srv.Chaos(llmfake.Chaos{Cut: .1})
	srv.Pace(llmfake.Pace{FirstToken: time.Second, Jitter: .5})
	srv.Close()
	srv.Close()
	tb.Errorf("the reply is wrong")
	tb.end()
	require.Len(t, tb.logs, 2)
	assert.Regexp(t, `the seed of the chaos was [1-9]\d*: set Chaos.Seed to it`, tb.logs[0])
	assert.Regexp(t, `the seed of the pace was [1-9]\d*: set Pace.Seed to it`, tb.logs[1])
}

// With the same seed, the same requests take the same time.
func TestServer_PaceIsRepeatable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		take := func(seed uint64) (times []time.Duration) {
			srv := llmfake.NewServer(t)
			srv.Pace(llmfake.Pace{Seed: seed, FirstToken: time.Second, TokensPerSecond: 10, Jitter: .5})
			for range 3 {
				began := time.Now()
				ask(t, srv, "one two three")
				took := time.Since(began)
				assert.Greater(t, took, 600*time.Millisecond)
				assert.Less(t, took, 1800*time.Millisecond)
				times = append(times, took)
			}
			return times
		}
		first := take(7)
		assert.Equal(t, first, take(7))
		assert.NotEqual(t, first, take(8))
		assert.NotEqual(t, first[0], first[1])
	})
}

// What is configured wrongly ends the test, or panics where there is no test, and names the field.
func TestServer_Mistakes(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]func(srv *llmfake.Server){
		"llmfake: Chaos.RateLimit: a probability is from 0 to 1, and not 2":  func(s *llmfake.Server) { s.Chaos(llmfake.Chaos{RateLimit: 2}) },
		"llmfake: Chaos.Slow: a probability is from 0 to 1, and not NaN":     func(s *llmfake.Server) { s.Chaos(llmfake.Chaos{Slow: math.NaN()}) },
		"llmfake: Chaos: the probabilities must not be more than 1 together": func(s *llmfake.Server) { s.Chaos(llmfake.Chaos{Cut: .6, HTML: .6}) },
		"llmfake: Pace.Jitter: it is a part from 0 to 1, and not -1":         func(s *llmfake.Server) { s.Pace(llmfake.Pace{Jitter: -1}) },
	} {
		tb := newFakeTB(t)
		set(llmfake.NewServer(tb))
		assert.True(t, tb.fatal, want)
		assert.Contains(t, tb.end()[0], want)
	}
	for want, f := range map[string]func(){
		"llmfake: Fail: the status must be 400 to 599, and not 200":   func() { llmfake.Fail(200) },
		"llmfake: FailWith: the status must be 400 to 599, and not 0": func() { llmfake.FailWith(&llm.Error{}) },
		"llmfake: FailWith: the error is nil":                         func() { llmfake.FailWith(nil) },
		"llmfake: HTML: the status must be 200 to 599, and not 101":   func() { llmfake.HTML(101) },
		"llmfake: Raw: the status must be 200 to 599, and not 0":      func() { llmfake.Raw(0, nil, nil) },
		"llmfake: Func: the argument is nil":                          func() { llmfake.Func(nil) },
		"llmfake: Match: the argument is nil":                         func() { llmfake.Match("x", nil) },
		"llmfake: Rewrite: the argument is nil":                       func() { llmfake.Text("x").Rewrite(nil) },
		"llmfake: Chunk: the argument is nil":                         func() { llmfake.Text("x").Chunk(nil) },
	} {
		assert.PanicsWithValue(t, want, f)
	}
}

// The models of the vendor have its sizes, and all others any.
func TestServer_ImageSizes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model, size string
		want        string // of the error; "" if there is none
	}{
		{"dall-e-2", "512x512", ""},
		{"dall-e-2", "1024x1792", "Supported values are: '256x256', '512x512', and '1024x1024'."},
		{"dall-e-3", "1792x1024", ""},
		{"dall-e-3", "256x256", "'1024x1024', '1024x1792', and '1792x1024'"},
		{"gpt-image-1-mini", "1024x1536", ""},
		{"gpt-image-1", "1024x1792", "'1024x1024', '1024x1536', and '1536x1024'"},
		{"gpt-image-2", "2048x1152", ""},
		{"flux", "7x5", ""},
		{"flux", "4097x5", "The width and the height must be 1 to 4096."},
	} {
		srv := llmfake.NewServer(t)
		res := post(t, srv.Client(), "/v1/images/generations", fmt.Sprintf(`{"model":%q,"prompt":"a house","size":%q,"response_format":"b64_json"}`, c.model, c.size))
		body := read(t, res)
		if c.want != "" {
			assert.Equal(t, 400, res.StatusCode, c)
			assert.Contains(t, body, c.want)
			continue
		}
		var reply struct {
			Data []struct {
				B64 []byte `json:"b64_json"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(body), &reply), body)
		image, err := png.DecodeConfig(bytes.NewReader(reply.Data[0].B64))
		require.NoError(t, err)
		assert.Equal(t, c.size, fmt.Sprintf("%dx%d", image.Width, image.Height))
	}
}
