package llmfake_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake"
)

var update = flag.Bool("update", false, "write the cassettes of the tests again")

// A reply is what a client has got.
type result struct {
	status      int
	contentType string
	retryAfter  string
	body        string
	broken      bool
	took        time.Duration
}

// get sends a request to a format.
func getResult(t *testing.T, srv *llmfake.Server, path, body string) result {
	t.Helper()
	began := time.Now()
	res, err := tryPost(srv.Client(), path, body)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return result{res.StatusCode, res.Header.Get("Content-Type"), res.Header.Get("Retry-After"), string(b), err != nil, time.Since(began)}
}

// What was recorded is replayed: every format, whole and streamed, errors, waits and cuts.
func TestReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		real := llmfake.NewServer(t)
		real.RequireKey("sk-very-secret-key")
		replies := []llmfake.Reply{
			llmfake.Wait(2*time.Second).Words("Hello, you there.", time.Second),
			llmfake.Wait(time.Second).Call("forecast", map[string]string{"city": "Bergen"}),
			llmfake.RateLimited(7 * time.Second),
			llmfake.Text("once upon a time").Cut(),
			llmfake.Text("half").Malformed(),
			llmfake.HTML(502),
		}
		file := filepath.Join(t.TempDir(), "cassettes", "a.txtar")
		run := func(t *testing.T, opts llmfake.ReplayOptions, tb llmfake.TB, repeat func(n int)) []result {
			opts.File = file
			opts.OpenAI, opts.Anthropic = "http://models.example.com/v1", "http://models.example.com"
			srv := llmfake.NewReplay(tb, &opts)
			var results []result
			for i := range replies {
				for _, f := range formats {
					for _, stream := range []bool{false, true} {
						repeat(i)
						results = append(results, getResult(t, srv, f.path, fmt.Sprintf(f.body, stream, fmt.Sprintf("Hi %d, api.example.com", i))))
						last := srv.Request(-1)
						assert.Equal(t, f.protocol, last.Protocol)
						assert.Equal(t, fmt.Sprintf("Hi %d, api.example.com", i), last.UserText())
						assert.Equal(t, results[len(results)-1].status, last.Status)
					}
				}
			}
			srv.Close()
			return results
		}
		tb := newFakeTB(t)
		key := addKey{real.Transport(), "sk-very-secret-key"}
		recorded := run(t, llmfake.ReplayOptions{Record: true, Transport: key}, tb, func(n int) { real.Reply(replies[n]) })
		require.Empty(t, tb.end())
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, secret := range []string{"sk-very", "sk-test", "models.example.com", "Authorization", "Cookie", "sk-llmfake"} {
			assert.NotContains(t, string(text), secret)
		}
		assert.Contains(t, string(text), "Content-Type: application/json\n\n{\n  \"model\": \"gpt-x\",\n")

		replayed := run(t, llmfake.ReplayOptions{Speed: 1}, t, func(int) {})
		require.Len(t, replayed, len(recorded))
		for i := range recorded {
			if !strings.Contains(recorded[i].contentType, "json") || recorded[i].broken {
				assert.Equal(t, recorded[i].body, replayed[i].body)
			} else {
				assert.Equal(t, withoutSpace(recorded[i].body), withoutSpace(replayed[i].body))
			}
			assert.Equal(t, recorded[i].took.Round(time.Millisecond), replayed[i].took.Round(time.Millisecond))
			recorded[i].body, replayed[i].body, recorded[i].took, replayed[i].took = "", "", 0, 0
			assert.Equal(t, recorded[i], replayed[i])
		}
		fast := run(t, llmfake.ReplayOptions{}, t, func(int) {})
		for _, r := range fast {
			assert.Zero(t, r.took)
		}
	})
}

func withoutSpace(s string) string { return strings.Join(strings.Fields(s), "") }

// addKey is a transport that sets the API key.
type addKey struct {
	base http.RoundTripper
	key  string
}

func (a addKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+a.key)
	return a.base.RoundTrip(r)
}

// A cassette of the repository stays readable for later versions.
func TestReplay_Golden(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opts := &llmfake.ReplayOptions{File: "testdata/llmfake/golden.txtar", Ignore: []string{"user", "metadata.session"}, Speed: 2}
		if *update {
			real := llmfake.NewServer(t)
			real.Reply(llmfake.Wait(time.Second).Words("It rains in Bergen.", 500*time.Millisecond), llmfake.Text("It rains."),
				llmfake.FailWith(llm.Errorf(401, "invalid_api_key", "Incorrect API key provided: sk-proj-12345678*****. Your organization is org-1234567890.")))
			opts.Transport = real.Transport()
		}
		srv := llmfake.NewReplay(t, opts)
		session := "1"
		if !*update {
			session = "2" // is ignored
		}
		body := `{"model":"gpt-x","stream":%t,"user":"` + session + `","metadata":{"session":"` + session + `","n":1},"messages":[{"role":"user","content":"Rain?"}]}`
		stream := getResult(t, srv, "/v1/chat/completions?api-version=1&key=secret", fmt.Sprintf(body, true))
		assert.Contains(t, stream.body, "Bergen")
		if !*update {
			assert.Equal(t, 1500*time.Millisecond, stream.took)
		}
		whole := getResult(t, srv, "/v1/chat/completions", fmt.Sprintf(body, false))
		assert.Contains(t, whole.body, "It rains.")
		failed := getResult(t, srv, "/v1/chat/completions", fmt.Sprintf(body, false))
		assert.Equal(t, 401, failed.status)
		if !*update {
			assert.Contains(t, failed.body, "sk-REDACTED")
			assert.Contains(t, failed.body, "org-REDACTED")
		}
	})
}

func TestReplay_Failures(t *testing.T) {
	t.Parallel()
	file := "testdata/llmfake/golden.txtar"
	tb := newFakeTB(t)
	srv := llmfake.NewReplay(tb, &llmfake.ReplayOptions{File: file})
	body := `{"model":"gpt-y","stream":false,"user":"1","metadata":{"session":"1","n":1},"messages":[{"role":"user","content":"Rain?"}]}`
	r := getResult(t, srv, "/v1/chat/completions", body)
	assert.Equal(t, 400, r.status)
	assert.Contains(t, r.body, "not in the cassette")
	getResult(t, srv, "/v1/embeddings", `{"model":"x","input":"y"}`)
	errors := tb.end()
	require.Len(t, errors, 3)
	assert.Contains(t, errors[0], `request 1: POST /v1/chat/completions, model "gpt-y", user "Rain?" is not in the cassette testdata/llmfake/golden.txtar`)
	assert.Contains(t, errors[0], "- got, + recorded")
	assert.Contains(t, errors[0], "    -   \"model\": \"gpt-y\",\n    +   \"model\": \"gpt-x\",\n")
	assert.Contains(t, errors[1], ", which has no other POST /v1/embeddings")
	assert.Contains(t, errors[2], "3 requests of the cassette testdata/llmfake/golden.txtar did not come:\n    recorded request 1: POST /v1/chat/completions?api-version=1")

	tb = newFakeTB(t)
	llmfake.NewReplay(tb, nil)
	assert.Contains(t, tb.errors[0], "there is no cassette testdata/llmfake/TestReplay_Failures.txtar. Record it with real API keys: LLMFAKE_UPDATE=1 go test -run '^TestReplay_Failures$'")
	tb.end()

	for text, want := range map[string]string{
		"hello\n": "is not an llmfake cassette",
		"llmfake cassette 1\n-- 1: POST /x --\n\nbody\n":                                                              "the last request has no reply",
		"llmfake cassette 1\n-- 1: 200 OK --\n\nbody\n":                                                               "a reply must follow each request",
		"llmfake cassette 1\n-- notes --\n\nPOST /x\n-- 1: 200 OK --\n\nbody\n":                                       "a reply must follow each request",
		"llmfake cassette 1\n-- 1: POST /x --\nno header\n\n":                                                         "a header is malformed",
		"llmfake cassette 1\n-- 1: POST /x --\n":                                                                      "no empty line",
		"llmfake cassette 1\n-- 1: POST /x --\nLlmfake-Body: base64\n\n!\n-- 1: 200 OK --\n\n":                        "illegal base64",
		"llmfake cassette 1\n-- 1: POST /x --\n\n-- 1: 200 OK --\nContent-Type: text/html\nLlmfake-Wait: long\n\nx\n": "invalid duration",
	} {
		file := filepath.Join(t.TempDir(), "broken.txtar")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		tb := newFakeTB(t)
		llmfake.NewReplay(tb, &llmfake.ReplayOptions{File: file})
		require.NotEmpty(t, tb.errors, text)
		assert.Contains(t, tb.errors[0], want)
		tb.end()
	}
}

// A test that has failed does not write its cassette, and a server that is not there fails it.
func TestReplay_RecordingFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.txtar")
	tb := newFakeTB(t)
	srv := llmfake.NewReplay(tb, &llmfake.ReplayOptions{File: file, Record: true, OpenAI: "http://127.0.0.1:1/v1"})
	_, err := tryPost(srv.Client(), formats[0].path, fmt.Sprintf(formats[0].body, false, "Hi"))
	assert.Error(t, err)
	errors := tb.end()
	require.Len(t, errors, 1)
	assert.Contains(t, errors[0], "could not be recorded")
	assert.NoFileExists(t, file)

	tb = newFakeTB(t)
	llmfake.NewReplay(tb, &llmfake.ReplayOptions{File: file, Record: true, OpenAI: "no url"})
	assert.Contains(t, tb.errors[0], `"no url" is not the base URL of a server`)
	tb.end()
}

// Recording leaves the API keys of the environment to the program.
func TestReplay_Setenv(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-real-openai-key")
	t.Setenv("ANTHROPIC_API_KEY", "sk-ant-real-key")
	real := llmfake.NewServer(t)
	real.Reply(llmfake.Text("one"), llmfake.Text("two"))
	file := filepath.Join(t.TempDir(), "a.txtar")
	tb := newFakeTB(t)
	srv := llmfake.NewReplay(tb, &llmfake.ReplayOptions{File: file, Record: true, Transport: real.Transport()})
	srv.Setenv()
	assert.NotContains(t, tb.env, "OPENAI_API_KEY")
	assert.NotEmpty(t, tb.env["OPENAI_BASE_URL"])
	getResult(t, srv, formats[0].path, fmt.Sprintf(formats[0].body, false, "Hi"))
	getResult(t, srv, formats[1].path, fmt.Sprintf(formats[1].body, false, "Hi"))
	assert.Equal(t, "Bearer sk-real-openai-key", real.Request(0).Header.Get("Authorization"))
	assert.Equal(t, "sk-ant-real-key", real.Request(1).Header.Get("X-Api-Key"))
	assert.Empty(t, real.Request(1).Header.Get("Authorization"))
	assert.Empty(t, tb.end())
}

// Keys, also those that are escaped in a query, and host names with their ports are not in a
// cassette. A replay removes what the recording has removed, so that requests are equal.
func TestReplay_Secrets(t *testing.T) {
	t.Parallel()
	real := llmfake.NewServer(t)
	host := strings.TrimPrefix(real.URL(), "http://")
	real.Always(llmfake.Func(func(r *llmfake.Request) llmfake.Reply { return llmfake.Text(r.UserText()) }))
	file := filepath.Join(t.TempDir(), "cassette.txtar")
	run := func(record bool, key string) {
		tb := newFakeTB(t)
		srv := llmfake.NewReplay(tb, &llmfake.ReplayOptions{File: file, Record: record, OpenAI: real.OpenAIURL(), Anthropic: real.URL()})
		text := fmt.Sprintf("%s, %s, %s, https://%s/v1, %s", key, strings.ToUpper(host), host, host, "sk-another-key")
		path := formats[0].path + "?key=x&account=" + url.QueryEscape("a "+key+" "+host)
		r, err := http.NewRequest("POST", "http://localhost"+path, strings.NewReader(fmt.Sprintf(formats[0].body, false, text)))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Openai-Beta", key)
		r.Header.Set("Authorization", "Bearer "+key)
		res, err := srv.Client().Do(r)
		require.NoError(t, err)
		assert.Equal(t, 200, res.StatusCode, read(t, res))
		res.Body.Close()
		assert.Empty(t, tb.end())
	}
	run(true, "a+secret/key=")
	run(false, "test+key/of=tests")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, secret := range []string{"secret", host, host[strings.Index(host, ":"):], "127.0.0.1", "sk-another"} {
		assert.NotContains(t, string(text), secret)
	}
	assert.Contains(t, string(text), `"REDACTED, server.invalid, server.invalid, https://server.invalid/v1, sk-REDACTED"`)
	assert.Contains(t, string(text), "POST /v1/chat/completions?account=a+REDACTED+server.invalid --")
}

// A cassette is a txtar archive whatever the bodies are, and replays them byte for byte.
func TestReplay_AnyBody(t *testing.T) {
	t.Parallel()
	bodies := []string{
		"", "x", "x\n", "x\n\n", "-- 1: 200 OK --\n", "a\n-- b --", "-- b\n-- --\n", "-- b", "a\r\n", "a\x00", "\xff\n",
	}
	synctest.Test(t, func(t *testing.T) {
		real := llmfake.NewServer(t)
		file := filepath.Join(t.TempDir(), "cassette.txtar")
		run := func(opts llmfake.ReplayOptions) {
			opts.File, opts.OpenAI = file, "http://models.example.com/v1"
			tb := newFakeTB(t)
			srv := llmfake.NewReplay(tb, &opts)
			for _, body := range bodies {
				if opts.Record {
					real.Reply(llmfake.Raw(200, http.Header{"Content-Type": {"text/plain"}}, []byte(body)))
				}
				got := getResult(t, srv, formats[0].path, fmt.Sprintf(formats[0].body, false, "Hi"))
				assert.Equal(t, body, got.body)
			}
			assert.Empty(t, tb.end())
		}
		run(llmfake.ReplayOptions{Record: true, Transport: real.Transport()})
		archive, err := txtar.ParseFile(file)
		require.NoError(t, err)
		assert.Len(t, archive.Files, 2*len(bodies))
		run(llmfake.ReplayOptions{})
	})
}

func TestNewReplay_NilTransport(t *testing.T) {
	t.Parallel()
	tb := newFakeTB(t)
	llmfake.NewReplay(tb, &llmfake.ReplayOptions{File: filepath.Join(t.TempDir(), "cassette.txtar"), Record: true, Transport: (*http.Transport)(nil)})
	assert.Contains(t, tb.end(), "llmfake: ReplayOptions.Transport holds a nil *http.Transport")
}

// A client that leaves a stream is not recorded as the loss of the connection to the server.
func TestReplay_ClientLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		real := llmfake.NewServer(t)
		real.Reply(llmfake.Text("Hello, you").Wait(time.Minute).Text(" there."))
		file := filepath.Join(t.TempDir(), "cassette.txtar")
		tb := newFakeTB(t)
		srv := llmfake.NewReplay(tb, &llmfake.ReplayOptions{File: file, Record: true, Transport: addKey{real.Transport(), "sk-test-key"}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "POST", "http://localhost"+formats[0].path, strings.NewReader(fmt.Sprintf(formats[0].body, true, "Hi")))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer any")
		r.Header.Set("Content-Type", "application/json")
		res, err := srv.Client().Do(r)
		require.NoError(t, err)
		_, err = io.ReadAll(res.Body)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		res.Body.Close()
		srv.AwaitRequests(1)
		require.Empty(t, tb.end())
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(text), `"content":" you"`)
		assert.NotContains(t, string(text), "Llmfake-End")
	})
}

// A reply in an encoding that SDKs would not decode is not written.
func TestReplay_EncodedReply(t *testing.T) {
	t.Parallel()
	real := llmfake.NewServer(t)
	real.Reply(llmfake.Raw(200, http.Header{"Content-Encoding": {"gzip"}}, []byte("x")))
	file := filepath.Join(t.TempDir(), "cassette.txtar")
	tb := newFakeTB(t)
	srv := llmfake.NewReplay(tb, &llmfake.ReplayOptions{File: file, Record: true, OpenAI: real.OpenAIURL()})
	getResult(t, srv, formats[0].path, fmt.Sprintf(formats[0].body, false, "Hi"))
	errors := tb.end()
	require.Len(t, errors, 1)
	assert.Contains(t, errors[0], "could not be recorded: the server has encoded its reply as gzip")
	assert.NoFileExists(t, file)
}
