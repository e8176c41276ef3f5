package llmhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// promptMarker is a text in requests that must not appear in replies, logs or summaries.
const promptMarker = "marker-of-the-prompt"

// promptRequest returns the body of a request whose texts are promptMarker. A chat
// request lacks its last brace, so that members can be added.
func promptRequest(path string) string {
	switch path {
	case imagesPath:
		return fmt.Sprintf(`{"model":"m","prompt":%q,"user":%[1]q}`, promptMarker)
	case embeddingsPath:
		return fmt.Sprintf(`{"model":"m","input":[%q]}`, promptMarker)
	}
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":%q},{"role":"user","name":%[1]q,"content":[{"type":"text","text":%[1]q}]}],"metadata":{"x":%[1]q}`, promptMarker)
}

// leakRequests returns the method, path and body of requests of every kind. Many have the
// secret in a wrong place, a mistake that clients make.
func leakRequests(secret string) map[string][3]string {
	chat := promptRequest(chatPath)
	escaped := strings.NewReplacer(`"`, "%22", `\`, "%5C", "<", "%3C", ">", "%3E", "&", "%26").Replace(secret)
	requests := map[string][3]string{
		"whole":            {"POST", chatPath, chat + "}"},
		"stream":           {"POST", chatPath, chat + `,"stream":true}`},
		"images":           {"POST", imagesPath, promptRequest(imagesPath)},
		"embeddings":       {"POST", embeddingsPath, promptRequest(embeddingsPath)},
		"models":           {"GET", modelsPath, ""},
		"usage":            {"GET", usagePath, ""},
		"incomplete JSON":  {"POST", chatPath, chat},
		"wrong type":       {"POST", chatPath, chat + `,"n":"` + promptMarker + `"}`},
		"key in the query": {"GET", modelsPath + "?api_key=" + escaped, ""},
	}
	if strings.ContainsAny(secret, `"\<`) {
		return requests // the rest would be no valid URL or JSON
	}
	for name, request := range map[string][3]string{
		"key as a model":       {"GET", modelsPath + "/" + secret, ""},
		"key in the path":      {"GET", "/v1/" + secret + "/models", ""},
		"key as the path":      {"POST", "/" + secret, "{}"},
		"key as a date":        {"GET", usagePath + "?start_date=" + secret, ""},
		"key as a role":        {"POST", chatPath, `{"model":"m","messages":[{"role":"` + secret + `","content":"x"}]}`},
		"key as a name":        {"POST", chatPath, `{"` + secret + `":1,"` + secret + `":2}`},
		"key as a nested name": {"POST", chatPath, `{"model":"m","messages":[],"x":{"` + secret + `":1,"` + secret + `":1}}`},
		"key as a size":        {"POST", imagesPath, `{"model":"m","prompt":"p","size":"` + secret + `"}`},
		"key as a tool":        {"POST", chatPath, chat + `,"tool_choice":{"type":"function","function":{"name":"` + secret + `"}}}`},
		"key as a tool choice": {"POST", chatPath, chat + `,"tool_choice":"` + secret + `"}`},
	} {
		requests[name] = request
	}
	return requests
}

// leakConfigs returns servers in which a function of the host puts the secret into its
// errors.
func leakConfigs(secret string) map[string]config {
	opaque := errors.New("it was " + secret + ", and " + secret)
	shown := &llmhttp.Error{Status: 500, Type: "type_" + secret, Code: "code_" + secret, Param: "param_" + secret, Message: "message " + secret, Err: opaque}
	keys := func(f func() error) config {
		return config{keys: llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return nil, f() })}
	}
	take := func(f func() error) config {
		return config{opts: llmhttp.Options{Limiter: &stubLimiter{take: func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) { return nil, f() }}}}
	}
	adjust := func(f func() error) config {
		return config{opts: llmhttp.Options{Limiter: &stubLimiter{adjust: func(context.Context) error { return f() }}}}
	}
	record := func(f func() error) config {
		return config{usage: &usageLog{before: func(context.Context) error { return f() }}}
	}
	panics := func(value any, pieces ...string) config {
		return config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			for _, p := range pieces {
				yield(llmhttp.TextChunk(p), nil)
			}
			panic(value)
		})}
	}
	fails := func(err error) func() error { return func() error { return err } }
	panicking := func(value any) func() error { return func() error { panic(value) } }
	return map[string]config{
		"nothing fails":               {},
		"KeyStore error":              keys(fails(opaque)),
		"KeyStore *Error":             keys(fails(shown)),
		"KeyStore panic":              keys(panicking(opaque)),
		"KeyStore panic with text":    keys(panicking(secret)),
		"Limiter error":               take(fails(opaque)),
		"Limiter *Error":              take(fails(shown)),
		"Limiter panic":               take(panicking(opaque)),
		"Adjust error":                adjust(fails(opaque)),
		"Adjust panic":                adjust(panicking(secret)),
		"UsageStore error":            record(fails(opaque)),
		"UsageStore panic":            record(panicking(secret)),
		"Backend error":               {backend: failingBackend(opaque)},
		"Backend *Error":              {backend: failingBackend(shown)},
		"Backend wrapped error":       {backend: failingBackend(fmt.Errorf("call %q: %w", secret, opaque))},
		"Backend panic":               panics(opaque),
		"Backend panic with *Error":   panics(shown),
		"Backend panic with a struct": panics(struct{ Key string }{secret}),
		"Backend error after text":    {backend: failAfter(opaque, "hi")},
		"Backend *Error after text":   {backend: failAfter(shown, "hi")},
		"Backend panic after text":    panics(secret, "hi"),
		"ImageURL error":              {opts: llmhttp.Options{ImageURL: func(context.Context, []byte, string) (string, error) { return "", opaque }}},
		"CountTokens panic":           {opts: llmhttp.Options{CountTokens: func(string, string) int { panic(secret) }}},
		"Observer panic": {opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{Ended: func(*llmhttp.RequestSummary) { panic(secret) }}
		}}},
	}
}

// Neither the secret nor a text of a request is in a reply, in the log or in a summary,
// even if a function of the host puts it into its errors: BerriAI/litellm#31620, #39293,
// #39964, #30736, one-api middleware/recover.go.
func TestRedactor_NothingLeaks(t *testing.T) {
	key := testKey()
	key.Limits = llmhttp.Limits{Requests: noRefill(1000), Tokens: noRefill(1 << 30)}
	anySecret := llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return &key, nil })
	for kind, secret := range map[string]string{
		"usual":     testSecret,
		"no prefix": "llm_no-usual-prefix_0123456789abcdefgh",
		"odd":       `odd-key+with<html>&'marks/=`,
		"long":      "sk-" + strings.Repeat("long", 40),
	} {
		for name, c := range leakConfigs(secret) {
			if c.keys == nil {
				c.keys = anySecret
			}
			s := startServer(t, c)
			for request, r := range leakRequests(secret) {
				t.Run(kind+"/"+name+"/"+request, func(t *testing.T) {
					r := s.do(r[0], r[1], r[2], withSecret(secret))
					got := fmt.Sprint(r.Status, r.Header, r.body)
					assert.NotContains(t, unescaped(got), secret)
					assert.NotContains(t, got, promptMarker)
					if kind == "long" {
						assert.NotContains(t, got, secret[:40], "the beginning of the key")
					}
				})
			}
			s.shutdown()
			assert.NotContains(t, unescaped(s.log.String()), secret, "%s: in the log", name)
			assert.NotContains(t, s.log.String(), promptMarker, "%s: in the log", name)
			for _, e := range s.summaries() {
				record, err := json.Marshal(e.UsageRecord)
				require.NoError(t, err)
				text := fmt.Sprintf("%v %+v %#v %s", e, e, e, record)
				for err := e.Err; err != nil; err = errors.Unwrap(err) {
					text += fmt.Sprintf(" %v %+v", err, err)
				}
				assert.NotContains(t, unescaped(text), secret, "%s: in the summary", name)
				assert.NotContains(t, text, promptMarker, "%s: in the summary", name)
			}
		}
	}
}

// unescaped returns s, followed by s with one, two and three layers of escapes of JSON
// and %q removed.
func unescaped(s string) string {
	all := s
	for range 3 {
		s = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(s)
		all += s
	}
	return all
}

// A secret of one letter is too short to redact: other texts keep that letter.
func TestRedactor_ShortSecret(t *testing.T) {
	s := startServer(t, config{keys: llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return &llmhttp.Key{ID: "k"}, nil })})
	r := s.chat("{", withSecret("e"))
	assert.Equal(t, "We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)", r.checkError(t, 400).Message)
}
