package llmhttp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/keycache"
	"github.com/llmhttp/llmhttp/llm"
)

// A key is accepted only as a Bearer token in the Authorization header.
func TestAuth_Bearer(t *testing.T) {
	const missing, wrong, good = "missing", "wrong", "good"
	longest := "sk-" + strings.Repeat("x", 4093)
	tests := []struct {
		name    string
		headers []string // whole lines
		query   string
		want    string
	}{
		{"no header", nil, "", missing},
		{"empty header", []string{"Authorization:"}, "", missing},
		{"only the scheme", []string{"Authorization: Bearer"}, "", missing},
		{"only the scheme and spaces", []string{"Authorization: Bearer   "}, "", missing},
		{"no scheme", []string{"Authorization: " + testSecret}, "", missing},
		{"Basic", []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+testSecret))}, "", missing},
		{"Token", []string{"Authorization: Token " + testSecret}, "", missing},
		{"no space", []string{"Authorization: Bearer" + testSecret}, "", missing},
		{"tab", []string{"Authorization: Bearer\t" + testSecret}, "", missing},
		{"in the query", nil, "?api_key=" + testSecret + "&key=" + testSecret + "&access_token=" + testSecret, missing},
		{"in a cookie", []string{"Cookie: Authorization=Bearer " + testSecret}, "", missing},
		{"in X-Api-Key", []string{"X-Api-Key: " + testSecret, "Api-Key: " + testSecret}, "", missing},
		{"for a proxy", []string{"Proxy-Authorization: Bearer " + testSecret}, "", missing},
		{"Bearer", []string{"Authorization: Bearer " + testSecret}, "", good},
		{"bearer", []string{"Authorization: bearer " + testSecret}, "", good},
		{"BEARER", []string{"authorization: BEARER " + testSecret}, "", good},
		{"two spaces", []string{"Authorization: Bearer  " + testSecret}, "", good},
		{"spaces at the end", []string{"Authorization: Bearer " + testSecret + "  "}, "", good},
		{"unknown", []string{"Authorization: Bearer sk-wrong"}, "", wrong},
		{"upper case", []string{"Authorization: Bearer " + strings.ToUpper(testSecret)}, "", wrong},
		{"part of a key", []string{"Authorization: Bearer " + testSecret[:len(testSecret)-1]}, "", wrong},
		{"more than a key", []string{"Authorization: Bearer " + testSecret + "x"}, "", wrong},
		{"two words", []string{"Authorization: Bearer " + testSecret + " x"}, "", wrong},
		{"quoted", []string{`Authorization: Bearer "` + testSecret + `"`}, "", wrong},
		{"twice in a header", []string{"Authorization: Bearer " + testSecret + ", Bearer " + testSecret}, "", wrong},
		{"two headers", []string{"Authorization: Bearer " + testSecret, "Authorization: Bearer " + testSecret}, "", wrong},
		{"not ASCII", []string{"Authorization: Bearer sk-schlüssel"}, "", wrong},
		{"not UTF-8", []string{"Authorization: Bearer sk-\xff\xfe"}, "", wrong},
		{"longest", []string{"Authorization: Bearer " + longest}, "", wrong},
		{"too long", []string{"Authorization: Bearer " + longest + "x"}, "", wrong},
		{"huge", []string{"Authorization: Bearer " + strings.Repeat("x", 500<<10)}, "", wrong},
	}
	var lookups atomic.Int64
	s := startServer(t, config{keys: llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret == llmhttp.Anonymous {
			return nil, llmhttp.ErrKeyNotFound
		}
		lookups.Add(1)
		assert.NotEmpty(t, secret)
		assert.LessOrEqual(t, len(secret), 4096)
		for _, c := range []byte(secret) {
			assert.True(t, c > ' ' && c < 0x7f, "%q", secret)
		}
		if secret != testSecret {
			return nil, fmt.Errorf("store: %w", llmhttp.ErrKeyNotFound)
		}
		k := testKey()
		return &k, nil
	})})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lookups.Store(0)
			lines := append([]string{"GET /v1/models" + tt.query + " HTTP/1.1", "Host: x", "Connection: close"}, tt.headers...)
			r := parseReply(t, "GET", s.raw(strings.Join(lines, "\r\n")+"\r\n\r\n"))
			switch tt.want {
			case good:
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				assert.Empty(t, r.Header.Get("Www-Authenticate"))
			case missing:
				e := r.checkError(t, 401)
				assert.Empty(t, e.Code)
				assert.True(t, strings.HasPrefix(e.Message, "You didn't provide an API key."), e.Message)
				assert.Equal(t, "Bearer", r.Header.Get("Www-Authenticate"))
				assert.Zero(t, lookups.Load())
			case wrong:
				r.checkError(t, 401)
				assert.Equal(t, errorBody("Incorrect API key provided.", "invalid_request_error", "", "invalid_api_key"), r.body)
				assert.Equal(t, `Bearer error="invalid_token"`, r.Header.Get("Www-Authenticate"))
			}
		})
	}
	t.Run("in the body", func(t *testing.T) {
		r := s.chat(chatWith(`"api_key":"`+testSecret+`","authorization":"Bearer `+testSecret+`"`), withoutKey)
		assert.Empty(t, r.checkError(t, 401).Code)
	})
}

// An expired key gets the same reply as an unknown one.
func TestAuth_ExpiredKeyIsRefused(t *testing.T) {
	key := testKey()
	key.Expires = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	var now time.Time
	s := startServer(t, config{keys: keysFor(key), opts: llmhttp.Options{Now: func() time.Time { return now }}})
	at := func(d time.Duration) reply {
		now = key.Expires.Add(d).In(time.FixedZone("elsewhere", 3600))
		return s.chat(chatBody)
	}
	assert.Equal(t, 200, at(-time.Nanosecond).StatusCode)
	unknown := s.chat(chatBody, withSecret("sk-wrong"))
	for _, d := range []time.Duration{0, 1, time.Hour} {
		r := at(d)
		r.checkError(t, 401)
		assert.Equal(t, unknown.body, r.body)
		assert.Equal(t, unknown.Header.Get("Www-Authenticate"), r.Header.Get("Www-Authenticate"))
	}
}

// An error of the KeyStore other than ErrKeyNotFound is not reported as an invalid key.
func TestAuth_KeyStoreFails(t *testing.T) {
	var nilError *llm.Error
	disabled := &llm.Error{Status: 403, Code: "account_disabled", Message: "Your account is disabled.", Err: errCause}
	tests := []struct {
		name       string
		key        *llmhttp.Key
		err        error
		status     int
		code       string
		retryAfter string
	}{
		{"error", nil, errCause, 503, "", "1"},
		{"error and a key", new(llmhttp.Key), errCause, 503, "", "1"},
		{"neither error nor key", nil, nil, 503, "", "1"},
		{"deadline exceeded", nil, fmt.Errorf("%w: %w", errCause, context.DeadlineExceeded), 503, "", "1"},
		{"unsupported", nil, errors.ErrUnsupported, 503, "", "1"},
		{"nil *Error", nil, nilError, 503, "", "1"},
		{"not found", nil, fmt.Errorf("%w: %w", errCause, llmhttp.ErrKeyNotFound), 401, "invalid_api_key", ""},
		{"not found and a key", new(llmhttp.Key), llmhttp.ErrKeyNotFound, 401, "invalid_api_key", ""},
		{"*Error is shown", nil, fmt.Errorf("%w: %w", errCause, disabled), 403, "account_disabled", ""},
		{"panic", nil, nil, 500, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := startServer(t, config{keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
				if tt.name == "panic" {
					panic(secretCause)
				}
				return tt.key, tt.err
			})})
			r := s.chat(chatBody)
			e := r.checkError(t, tt.status)
			assert.Equal(t, tt.code, e.Code)
			assert.Equal(t, tt.retryAfter, r.Header.Get("Retry-After"))
			assert.NotContains(t, r.body, secretCause)
			if tt.status >= 500 {
				assert.Equal(t, "server_error", e.Type)
				assert.Contains(t, s.log.String(), `"level":"ERROR"`)
			}
			assert.Empty(t, s.usage.records())
		})
	}
}

// A key with scopes may call only the endpoints that they name. Nil scopes permit all
// endpoints, empty ones none.
func TestAuth_Scopes(t *testing.T) {
	calls := map[llmhttp.Scope][][3]string{
		llmhttp.ScopeChat:   {{"POST", chatPath, streamBody}},
		llmhttp.ScopeModels: {{"GET", modelsPath, ""}, {"GET", modelsPath + "/demo-chat", ""}, {"HEAD", modelsPath, ""}},
		llmhttp.ScopeUsage:  {{"GET", usagePath, ""}, {"GET", "/dashboard/billing/usage", ""}},
	}
	for _, op := range testOperations {
		calls[op.scope] = append(calls[op.scope], [3]string{"POST", op.path, op.body})
	}
	all := slices.Sorted(maps.Keys(calls))
	assert.ElementsMatch(t, llmhttp.Scopes(), all)
	keys := [][]llmhttp.Scope{nil, {}, all, {"nonsense"}}
	for _, e := range all {
		keys = append(keys, []llmhttp.Scope{e})
	}
	for _, scopes := range keys {
		key := testKey()
		key.Scopes = scopes
		s := startServer(t, config{keys: keysFor(key)})
		for endpoint, requests := range calls {
			allowed := scopes == nil || slices.Contains(scopes, endpoint)
			assert.Equal(t, allowed, key.AllowsScope(endpoint))
			for _, request := range requests {
				t.Run(fmt.Sprintf("%#v/%s %s", scopes, request[0], request[1]), func(t *testing.T) {
					r := s.do(request[0], request[1], request[2])
					switch {
					case allowed:
						assert.Equal(t, 200, r.StatusCode, "%s", r.body)
					case request[0] == "HEAD":
						assert.Equal(t, 403, r.StatusCode)
					default:
						e := r.checkError(t, 403)
						assert.Equal(t, "missing_scope", e.Code)
						assert.Contains(t, e.Message, string(endpoint))
					}
				})
			}
		}
	}
}

func TestKey_AllowsModel(t *testing.T) {
	tests := []struct {
		models []string
		id     string
		want   bool
	}{
		{nil, "anything", true},
		{nil, "", true},
		{[]string{}, "anything", false},
		{[]string{"*"}, "any/thing:7b", true},
		{[]string{"*"}, "", true},
		{[]string{""}, "", true},
		{[]string{""}, "x", false},
		{[]string{"gpt"}, "gpt", true},
		{[]string{"gpt"}, "gpt-4", false},
		{[]string{"gpt"}, "GPT", false},
		{[]string{"gpt*"}, "gpt", true},
		{[]string{"gpt*"}, "gpt-4/mini", true},
		{[]string{"gpt*"}, "my-gpt", false},
		{[]string{"*-mini"}, "gpt-mini", true},
		{[]string{"*-mini"}, "gpt-mini-2", false},
		{[]string{"*-mini"}, "-mini", true},
		{[]string{"a*c"}, "ac", true},
		{[]string{"a*c"}, "abc", true},
		{[]string{"a*a"}, "a", false},
		{[]string{"ab*ba"}, "aba", false},
		{[]string{"a*b*c"}, "axxbyyc", true},
		{[]string{"a*b*c"}, "acb", false},
		{[]string{"a*bc*bc"}, "abcbc", true},
		{[]string{"a*bc*bc"}, "abc", false},
		{[]string{"**"}, "x", true},
		{[]string{"a**b"}, "ab", true},
		{[]string{"hf.co/*/q"}, "hf.co/a/b/q", true},
		{[]string{"hf.co/*"}, "hf.com/x", false},
		{[]string{"no", "gp*", "x"}, "gpt", true},
		{[]string{"*a*a*a*a*a*a*a*a*a*a*b"}, strings.Repeat("a", 500), false},
		{[]string{"?"}, "x", false},
		{[]string{"[a-z]"}, "x", false},
	}
	for _, tt := range tests {
		k := llmhttp.Key{Models: tt.models}
		assert.Equal(t, tt.want, k.AllowsModel(tt.id), "%q %q", tt.models, tt.id)
	}
}

func TestAllowAll(t *testing.T) {
	var account atomic.Value
	b := streamBackend(func(ctx context.Context, yield yieldFunc) {
		account.Store(llmhttp.KeyFrom(ctx).Account)
		yield(llm.TextChunk("x"), nil)
	})
	s := startServer(t, config{backend: b, keys: llmhttp.AllowAll("everybody")})
	for name, option := range map[string]requestOption{
		"no key":     withoutKey,
		"any key":    withSecret("anything"),
		"Basic":      withHeader("Authorization", "Basic x"),
		"not UTF-8":  withSecret("\xff"),
		"a long key": withSecret(strings.Repeat("x", 10000)),
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, 200, s.chat(chatBody, option).StatusCode)
			assert.Equal(t, "everybody", account.Load())
		})
	}
	for _, r := range s.usage.records() {
		assert.Equal(t, "everybody", r.Account)
	}
}

// A KeyStore that wraps AllowAll admits every request.
func TestAllowAll_Wrapped(t *testing.T) {
	s := startServer(t, config{keys: llmhttp.KeyStoreFunc(llmhttp.AllowAll("everybody").Lookup)})
	assert.Equal(t, 200, s.chat(chatBody, withoutKey).StatusCode)
	assert.Equal(t, 200, s.chat(chatBody).StatusCode)
}

// A key without an ID gets one that does not reveal its secret, and a key without an
// Account has its ID as Account.
func TestKey_DefaultIDAndAccount(t *testing.T) {
	s := startServer(t, config{keys: keysFor(llmhttp.Key{})})
	s.chat(chatBody)
	r := s.record()
	assert.Equal(t, "key_"+llmhttp.HashSecret(testSecret)[:12], r.KeyID)
	assert.Equal(t, r.KeyID, r.Account)

	s = startServer(t, config{keys: keysFor(llmhttp.Key{ID: "k"})})
	s.chat(chatBody)
	assert.Equal(t, "k", s.record().Account)
}

// A Backend gets the Data of the key itself, also if the Handler names the key. Nobody else
// looks at it: values that cannot be compared or encoded do no harm.
func TestKey_Data(t *testing.T) {
	type data struct {
		f     func()
		cycle any
	}
	d := &data{f: func() {}}
	d.cycle = d
	for _, id := range []string{"", "key_1"} {
		var got any
		s := startServer(t, config{
			keys: keysFor(llmhttp.Key{ID: id, Data: d, Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(5)}}),
			backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
				got = llmhttp.KeyFrom(ctx).Data
				yield(llm.TextChunk("x"), nil)
			}),
			opts: llmhttp.Options{Observe: llmhttp.LogRequests(nil)},
		})
		assert.Equal(t, 200, s.chat(chatBody).StatusCode)
		assert.Same(t, d, got)
	}
}

func TestKeyFrom_OutsideOfARequest(t *testing.T) {
	assert.Nil(t, llmhttp.KeyFrom(t.Context()))
	assert.Empty(t, llmhttp.RequestIDFrom(t.Context()))
}

func TestNewSecretAndHashSecret(t *testing.T) {
	assert.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", llmhttp.HashSecret("abc"))
	a, b := llmhttp.NewSecret("sk-"), llmhttp.NewSecret("sk-")
	require.NotEqual(t, a, b)
	assert.Regexp(t, `^sk-[A-Za-z0-9_-]{43}$`, a)
}

// Refusing a request takes little memory even if its key and its path are long and
// similar: the key is searched in the path in linear time.
func TestAuth_RefusalOfALongKey(t *testing.T) {
	const size = 512 << 10
	h := newHandler(t, config{}).handler
	r := httptest.NewRequest("POST", "/v1/"+strings.Repeat("aaaaaaaa...", size/11), nil)
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("a", size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	runtime.ReadMemStats(&after)
	assert.Equal(t, 404, w.Code)
	assert.Less(t, w.Body.Len(), 4<<10)
	assert.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(64), "MiB allocated")
}

// promptMarker is a text in requests that must not appear in replies, logs or summaries.
const promptMarker = "marker-of-the-prompt"

// promptRequest is the body of a chat whose texts are promptMarker, without its last brace, so that
// members can be added.
const promptRequest = `{"model":"m","messages":[{"role":"system","content":"` + promptMarker + `"},{"role":"user","name":"` + promptMarker +
	`","content":[{"type":"text","text":"` + promptMarker + `"}]}],"metadata":{"x":"` + promptMarker + `"}`

// leakRequests returns the method, path and body of requests of every kind. Many have the
// secret in a wrong place, a mistake that clients make.
func leakRequests(secret string) map[string][3]string {
	const chat = promptRequest
	escaped := strings.NewReplacer(`"`, "%22", `\`, "%5C", "<", "%3C", ">", "%3E", "&", "%26").Replace(secret)
	requests := map[string][3]string{
		"whole":            {"POST", chatPath, chat + "}"},
		"stream":           {"POST", chatPath, chat + `,"stream":true}`},
		"models":           {"GET", modelsPath, ""},
		"usage":            {"GET", usagePath, ""},
		"incomplete JSON":  {"POST", chatPath, chat},
		"wrong type":       {"POST", chatPath, chat + `,"n":"` + promptMarker + `"}`},
		"key in the query": {"GET", modelsPath + "?api_key=" + escaped, ""},
	}
	for _, op := range testOperations {
		requests[string(op.name)] = [3]string{"POST", op.path, strings.ReplaceAll(op.with(`"style":"`+op.text+`"`), op.text, promptMarker)}
	}
	if strings.ContainsAny(secret, `"\<`) {
		return requests // the rest would be no valid URL or JSON
	}
	for name, request := range map[string][3]string{
		"key as a model":       {"GET", modelsPath + "/" + secret, ""},
		"key in the path":      {"GET", "/v1/" + secret + "/models", ""},
		"key as the path":      {"POST", "/" + secret, "{}"},
		"key as a user":        {"POST", chatPath, chat + `,"user":"` + secret + `"}`},
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
	shown := &llm.Error{Status: 500, Type: "type_" + secret, Code: "code_" + secret, Param: "param_" + secret, Message: "message " + secret, Err: opaque}
	keys := func(f func() error) config {
		return config{keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return nil, f() })}
	}
	take := func(f func() error) config {
		return config{opts: llmhttp.Options{Limiter: &stubLimiter{take: func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) { return nil, f() }}}}
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
				yield(llm.TextChunk(p), nil)
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
		"CountTokens panic":           {opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: func(string, string) int { panic(secret) }}}},
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
	anySecret := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &key, nil })
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
				record, err := json.Marshal(e.Record)
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
	s := startServer(t, config{keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &llmhttp.Key{ID: "k"}, nil })})
	r := s.chat("{", withSecret("e"))
	assert.Equal(t, "We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)", r.checkError(t, 400).Message)
}

// A store that panics fails the request, and not the process.
func TestAuth_CachePanics(t *testing.T) {
	s := startServer(t, config{keys: keycache.New(llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		panic(errors.New(secretCause))
	}), nil)})
	assert.Equal(t, 503, s.chat(chatBody).StatusCode)
	assert.Contains(t, s.log.String(), secretCause)
}
