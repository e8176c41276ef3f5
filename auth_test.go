package llmhttp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// A key comes in the Authorization header as a Bearer, and nowhere else.
func TestBearer(t *testing.T) {
	const none, bad, good = "none", "bad", "good"
	long := "sk-" + strings.Repeat("x", 4093)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+fxSecret))
	tests := []struct {
		name    string
		headers []string // whole lines
		path    string
		want    string
	}{
		{"missing", nil, "", none},
		{"empty", []string{"Authorization:"}, "", none},
		{"scheme alone", []string{"Authorization: Bearer"}, "", none},
		{"scheme and space", []string{"Authorization: Bearer   "}, "", none},
		{"no scheme", []string{"Authorization: " + fxSecret}, "", none},
		{"Basic", []string{"Authorization: " + basic}, "", none},
		{"Token", []string{"Authorization: Token " + fxSecret}, "", none},
		{"no space", []string{"Authorization: Bearer" + fxSecret}, "", none},
		{"tab", []string{"Authorization: Bearer\t" + fxSecret}, "", none},
		{"query", nil, "?api_key=" + fxSecret + "&key=" + fxSecret + "&access_token=" + fxSecret, none},
		{"cookie", []string{"Cookie: Authorization=Bearer " + fxSecret}, "", none},
		{"X-Api-Key", []string{"X-Api-Key: " + fxSecret, "Api-Key: " + fxSecret}, "", none},
		{"proxy", []string{"Proxy-Authorization: Bearer " + fxSecret}, "", none},
		{"Bearer", []string{"Authorization: Bearer " + fxSecret}, "", good},
		{"bearer", []string{"Authorization: bearer " + fxSecret}, "", good},
		{"BEARER", []string{"authorization: BEARER " + fxSecret}, "", good},
		{"two spaces", []string{"Authorization: Bearer  " + fxSecret}, "", good},
		{"space behind", []string{"Authorization: Bearer " + fxSecret + "  "}, "", good},
		{"unknown", []string{"Authorization: Bearer sk-wrong"}, "", bad},
		{"other case", []string{"Authorization: Bearer " + strings.ToUpper(fxSecret)}, "", bad},
		{"a part", []string{"Authorization: Bearer " + fxSecret[:len(fxSecret)-1]}, "", bad},
		{"more", []string{"Authorization: Bearer " + fxSecret + "x"}, "", bad},
		{"two words", []string{"Authorization: Bearer " + fxSecret + " x"}, "", bad},
		{"quoted", []string{`Authorization: Bearer "` + fxSecret + `"`}, "", bad},
		{"twice in one", []string{"Authorization: Bearer " + fxSecret + ", Bearer " + fxSecret}, "", bad},
		{"two headers", []string{"Authorization: Bearer " + fxSecret, "Authorization: Bearer " + fxSecret}, "", bad},
		{"not ASCII", []string{"Authorization: Bearer sk-schlüssel"}, "", bad},
		{"not UTF-8", []string{"Authorization: Bearer sk-\xff\xfe"}, "", bad},
		{"as long as can be", []string{"Authorization: Bearer " + long}, "", bad},
		{"too long", []string{"Authorization: Bearer " + long + "x"}, "", bad},
		{"huge", []string{"Authorization: Bearer " + strings.Repeat("x", 500<<10)}, "", bad},
	}
	var asked atomic.Int64
	s := fxStart(t, fxConfig{keys: llmhttp.KeyFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret == llmhttp.Anonymous {
			return nil, llmhttp.ErrKeyNotFound
		}
		asked.Add(1)
		assert.NotEmpty(t, secret)
		assert.LessOrEqual(t, len(secret), 4096)
		for _, c := range []byte(secret) {
			assert.True(t, c > ' ' && c < 0x7f, "%q", secret)
		}
		if secret != fxSecret {
			return nil, fmt.Errorf("store: %w", llmhttp.ErrKeyNotFound)
		}
		k := fxKey()
		return &k, nil
	})})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked.Store(0)
			request := "GET /v1/models" + tt.path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
			for _, line := range tt.headers {
				request += line + "\r\n"
			}
			r := fxParse(t, "GET", s.raw(request+"\r\n"))
			switch tt.want {
			case good:
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				assert.Empty(t, r.Header.Get("Www-Authenticate"))
				return
			case none:
				e := r.checkError(t, 401)
				assert.Empty(t, e.Code)
				assert.True(t, strings.HasPrefix(e.Message, "You didn't provide an API key."), e.Message)
				assert.Equal(t, "Bearer", r.Header.Get("Www-Authenticate"))
				assert.Zero(t, asked.Load(), "the store was asked")
			case bad:
				assert.Equal(t, fxErrorBody("Incorrect API key provided.", "invalid_request_error", "", "invalid_api_key"), r.body)
				r.checkError(t, 401)
				assert.Equal(t, `Bearer error="invalid_token"`, r.Header.Get("Www-Authenticate"))
			}
		})
	}
	t.Run("in the body", func(t *testing.T) {
		r := s.chat(fxMember(`"api_key":"`+fxSecret+`","authorization":"Bearer `+fxSecret+`"`), fxNoKey)
		assert.Empty(t, r.checkError(t, 401).Code)
	})
}

// A key that expired is like one that never was.
func TestExpiry(t *testing.T) {
	expires := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	key := fxKey()
	key.Expires = expires
	var now atomic.Pointer[time.Time]
	s := fxStart(t, fxConfig{keys: fxKeys(key), opts: llmhttp.Options{Now: func() time.Time { return *now.Load() }}})
	at := func(d time.Duration) fxReply {
		v := expires.Add(d).In(time.FixedZone("elsewhere", 3600))
		now.Store(&v)
		return s.chat(fxWhole)
	}
	assert.Equal(t, 200, at(-time.Nanosecond).StatusCode)
	unknown := s.chat(fxWhole, fxHeader("Authorization", "Bearer sk-wrong"))
	for _, d := range []time.Duration{0, 1, time.Hour} {
		r := at(d)
		r.checkError(t, 401)
		assert.Equal(t, unknown.body, r.body)
		assert.Equal(t, unknown.Header.Get("Www-Authenticate"), r.Header.Get("Www-Authenticate"))
	}
}

// A store that cannot tell is the server's fault, never the client's.
func TestKeyStoreFails(t *testing.T) {
	const marker = "marker-of-the-cause"
	tests := []struct {
		name   string
		lookup func(context.Context, string) (*llmhttp.Key, error)
		status int
		after  string
	}{
		{"error", func(context.Context, string) (*llmhttp.Key, error) { return nil, errors.New(marker) }, 503, "1"},
		{"error beside a key", func(context.Context, string) (*llmhttp.Key, error) { return &llmhttp.Key{}, errors.New(marker) }, 503, "1"},
		{"neither", func(context.Context, string) (*llmhttp.Key, error) { return nil, nil }, 503, "1"},
		{"timeout", func(context.Context, string) (*llmhttp.Key, error) {
			return nil, fmt.Errorf("%s: %w", marker, context.DeadlineExceeded)
		}, 503, "1"},
		{"unsupported", func(context.Context, string) (*llmhttp.Key, error) { return nil, errors.ErrUnsupported }, 503, "1"},
		{"not found", func(context.Context, string) (*llmhttp.Key, error) {
			return nil, fmt.Errorf("%s: %w", marker, llmhttp.ErrKeyNotFound)
		}, 401, ""},
		{"not found beside a key", func(context.Context, string) (*llmhttp.Key, error) { return &llmhttp.Key{}, llmhttp.ErrKeyNotFound }, 401, ""},
		{"told", func(context.Context, string) (*llmhttp.Key, error) {
			return nil, fmt.Errorf("%s: %w", marker, &llmhttp.Error{Status: 403, Code: "account_disabled", Message: "Your account is disabled.", Err: errors.New(marker)})
		}, 403, ""},
		{"panic", func(context.Context, string) (*llmhttp.Key, error) { panic(marker) }, 500, ""},
		{"typed nil", func(context.Context, string) (*llmhttp.Key, error) { var e *llmhttp.Error; return nil, e }, 503, "1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fxStart(t, fxConfig{keys: llmhttp.KeyFunc(tt.lookup)})
			r := s.chat(fxWhole)
			e := r.checkError(t, tt.status)
			assert.Equal(t, tt.after, r.Header.Get("Retry-After"))
			assert.NotContains(t, r.body, marker)
			if tt.status >= 500 {
				assert.Contains(t, s.log.String(), `"level":"ERROR"`)
				assert.Equal(t, "server_error", e.Type)
			}
			if tt.name == "told" {
				assert.Equal(t, "account_disabled", e.Code)
			}
			assert.Empty(t, s.usage.all())
		})
	}
}

// What a key may call.
func TestScopes(t *testing.T) {
	calls := map[llmhttp.Endpoint][][3]string{
		llmhttp.EndpointChat:       {{"POST", "/v1/chat/completions", fxWhole}, {"POST", "/v1/chat/completions", fxStream}},
		llmhttp.EndpointImages:     {{"POST", "/v1/images/generations", `{"model":"m","prompt":"p"}`}},
		llmhttp.EndpointEmbeddings: {{"POST", "/v1/embeddings", `{"model":"m","input":"p"}`}},
		llmhttp.EndpointModels:     {{"GET", "/v1/models", ""}, {"GET", "/v1/models/demo-chat", ""}, {"HEAD", "/v1/models", ""}},
		llmhttp.EndpointUsage:      {{"GET", "/v1/dashboard/billing/usage", ""}, {"GET", "/dashboard/billing/usage", ""}},
	}
	all := []llmhttp.Endpoint{}
	for e := range calls {
		all = append(all, e)
	}
	scopes := [][]llmhttp.Endpoint{nil, {}, all, {"nonsense"}}
	for _, e := range all {
		scopes = append(scopes, []llmhttp.Endpoint{e})
	}
	for _, scope := range scopes {
		key := fxKey()
		key.Scopes = scope
		s := fxStart(t, fxConfig{keys: fxKeys(key)})
		for endpoint, list := range calls {
			allowed := scope == nil
			for _, e := range scope {
				allowed = allowed || e == endpoint
			}
			assert.Equal(t, allowed, key.AllowsEndpoint(endpoint))
			for _, c := range list {
				t.Run(fmt.Sprintf("%#v/%s %s", scope, c[0], c[1]), func(t *testing.T) {
					r := s.do(c[0], c[1], c[2])
					if allowed {
						assert.Equal(t, 200, r.StatusCode, "%s", r.body)
					} else if c[0] != "HEAD" {
						e := r.checkError(t, 403)
						assert.Equal(t, "missing_scope", e.Code)
						assert.Contains(t, e.Message, string(endpoint))
					} else {
						assert.Equal(t, 403, r.StatusCode)
					}
				})
			}
		}
	}
}

func TestAllowsModel(t *testing.T) {
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

// A model that a key may not use looks like one that does not exist.
func TestModelsOfKey(t *testing.T) {
	called := false
	b := &fxBackend{
		models: func(context.Context) ([]llmhttp.Model, error) {
			return []llmhttp.Model{{ID: "a"}, {ID: "hf.co/u/Q:Q4"}, {ID: "secret/model"}, {ID: "b", OwnedBy: "x", Created: 5, Extra: llmhttp.Extra{"shutdown_date": json.RawMessage("null")}}}, nil
		},
		chat: func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			called = true
			return llmhttp.Reply("x")
		},
	}
	key := fxKey()
	key.Models = []string{"hf.co/*", "b"}
	s := fxStart(t, fxConfig{backend: b, keys: fxKeys(key)})
	assert.Equal(t, `{"object":"list","data":[{"id":"hf.co/u/Q:Q4","object":"model","created":0,"owned_by":""},{"id":"b","object":"model","created":5,"owned_by":"x","shutdown_date":null}]}`,
		s.do("GET", "/v1/models", "").body)
	assert.Equal(t, 200, s.do("GET", "/v1/models/hf.co/u/Q:Q4", "").StatusCode)
	for _, id := range []string{"secret/model", "a", "missing"} {
		r := s.do("GET", "/v1/models/"+id, "")
		r.checkError(t, 404)
		assert.Equal(t, fxErrorBody("The model `"+id+"` does not exist or you do not have access to it.", "invalid_request_error", "", "model_not_found"), r.body)
		for path, body := range map[string]string{
			"/v1/chat/completions":   `{"model":"` + id + `","messages":[{"role":"user","content":"x"}]}`,
			"/v1/images/generations": `{"model":"` + id + `","prompt":"x"}`,
			"/v1/embeddings":         `{"model":"` + id + `","input":"x"}`,
		} {
			got := s.do("POST", path, body)
			got.checkError(t, 404)
			assert.Equal(t, r.body, got.body)
		}
	}
	assert.False(t, called)
	key.Models = []string{}
	s = fxStart(t, fxConfig{backend: b, keys: fxKeys(key)})
	assert.Equal(t, `{"object":"list","data":[]}`, s.do("GET", "/v1/models", "").body, "[] and not null")
	s = fxStart(t, fxConfig{backend: &fxBackend{models: func(context.Context) ([]llmhttp.Model, error) { return nil, nil }}})
	assert.Equal(t, `{"object":"list","data":[]}`, s.do("GET", "/v1/models", "").body, "[] and not null")
	// IDs are bounded.
	long := strings.Repeat("m", 513)
	s = fxStart(t, fxConfig{})
	e := s.chat(strings.Replace(fxWhole, "demo-chat", long, 1)).checkError(t, 404)
	assert.Equal(t, "model_not_found", e.Code)
	assert.Less(t, len(e.Message), 300)
	assert.Equal(t, 200, s.chat(strings.Replace(fxWhole, "demo-chat", long[1:], 1)).StatusCode)
}

// AllowAll admits everybody, but only by itself.
func TestAllowAll(t *testing.T) {
	var account atomic.Value
	b := fxChat(func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		account.Store(llmhttp.KeyFrom(ctx).Account)
		yield(llmhttp.TextChunk("x"), nil)
	})
	s := fxStart(t, fxConfig{backend: b, keys: llmhttp.AllowAll("everybody")})
	for _, mod := range []fxMod{fxNoKey, fxHeader("Authorization", "Bearer anything"), fxHeader("Authorization", "Basic x"),
		fxHeader("Authorization", "Bearer \xff"), fxHeader("Authorization", "Bearer "+strings.Repeat("x", 10000))} {
		assert.Equal(t, 200, s.chat(fxWhole, mod).StatusCode)
		assert.Equal(t, "everybody", account.Load())
	}
	for _, r := range s.usage.all() {
		assert.Equal(t, "everybody", r.Account)
	}
	all := llmhttp.AllowAll("everybody")
	s = fxStart(t, fxConfig{backend: b, keys: llmhttp.KeyFunc(all.Lookup)})
	assert.Equal(t, 200, s.chat(fxWhole, fxNoKey).StatusCode, "a wrapped AllowAll admits requests without a key, too")
	assert.Equal(t, 200, s.chat(fxWhole).StatusCode)
}

// Keys without an ID or Account get one that tells nothing.
func TestKeyNames(t *testing.T) {
	s := fxStart(t, fxConfig{keys: fxKeys(llmhttp.Key{})})
	s.chat(fxWhole)
	r := s.usage.only(t)
	assert.Equal(t, "key_"+llmhttp.HashSecret(fxSecret)[:12], r.KeyID)
	assert.Equal(t, r.KeyID, r.Account)
	s = fxStart(t, fxConfig{keys: fxKeys(llmhttp.Key{ID: "k"})})
	s.chat(fxWhole)
	assert.Equal(t, "k", s.usage.only(t).Account)

	assert.Nil(t, llmhttp.KeyFrom(t.Context()))
	assert.Empty(t, llmhttp.RequestIDFrom(t.Context()))
	assert.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", llmhttp.HashSecret("abc"))
	a, b := llmhttp.NewSecret("sk-"), llmhttp.NewSecret("sk-")
	assert.NotEqual(t, a, b)
	assert.Regexp(t, `^sk-[A-Za-z0-9_-]{43}$`, a)
}

// No secret and nothing that was said leaves by any door, even where a host's
// own parts put it into their errors: BerriAI/litellm#31620, #39293, #39964,
// #30736, one-api middleware/recover.go.
func TestNothingLeaks(t *testing.T) {
	const said = "marker-of-what-was-said"
	say := func(path, content string) string {
		switch path {
		case "/v1/images/generations":
			return `{"model":"m","prompt":"` + content + `","user":"` + content + `"}`
		case "/v1/embeddings":
			return `{"model":"m","input":["` + content + `"]}`
		}
		return `{"model":"m","messages":[{"role":"system","content":"` + content + `"},{"role":"user","name":"` + content + `","content":[{"type":"text","text":"` + content + `"}]}],"metadata":{"x":"` + content + `"}`
	}
	chat := say("/v1/chat/completions", said)
	whole, stream := chat+"}", chat+`,"stream":true}`
	type yield = func(*llmhttp.ChatChunk, error) bool
	for _, secret := range []string{"sk-fixture-5d41402abc4b2a76b9719d91", "llm_no-usual-prefix_0123456789abcdefgh", `odd-key+with<html>&'marks/=`, "sk-" + strings.Repeat("long", 40)} {
		boom := errors.New("it was " + secret + ", and " + secret)
		told := &llmhttp.Error{Status: 500, Type: "type_" + secret, Code: "code_" + secret, Param: "param_" + secret, Message: "message " + secret, Err: boom}
		keyed := llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) {
			k := fxKey()
			k.Limits = llmhttp.Limits{Requests: hourly(1000), Tokens: hourly(1 << 30)}
			return &k, nil
		})
		stores := func(f func() (*llmhttp.Key, error)) llmhttp.KeyStore {
			return llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return f() })
		}
		limiter := func(take func() ([]llmhttp.Level, error), adjust func(context.Context) error) llmhttp.Options {
			l := &scriptedLimiter{adjust: adjust}
			if take != nil {
				l.take = func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) { return take() }
			}
			return llmhttp.Options{Limiter: l}
		}
		requests := map[string][3]string{
			"whole":            {"POST", "/v1/chat/completions", whole},
			"stream":           {"POST", "/v1/chat/completions", stream},
			"images":           {"POST", "/v1/images/generations", say("/v1/images/generations", said)},
			"embeddings":       {"POST", "/v1/embeddings", say("/v1/embeddings", said)},
			"models":           {"GET", "/v1/models", ""},
			"usage":            {"GET", "/v1/dashboard/billing/usage", ""},
			"cut JSON":         {"POST", "/v1/chat/completions", chat},
			"wrong type":       {"POST", "/v1/chat/completions", chat + `,"n":"` + said + `"}`},
			"a key in the URL": {"GET", "/v1/models?api_key=" + strings.NewReplacer(`"`, "%22", `\`, "%5C", "<", "%3C", ">", "%3E", "&", "%26").Replace(secret), ""},
		}
		if !strings.ContainsAny(secret, `"\<`) {
			// Clients that put their key in the wrong place hear nothing of it.
			requests["a key as a model"] = [3]string{"GET", "/v1/models/" + secret, ""}
			requests["a key in the path"] = [3]string{"GET", "/v1/" + secret + "/models", ""}
			requests["a key as a path"] = [3]string{"POST", "/" + secret, "{}"}
			requests["a key as a date"] = [3]string{"GET", "/v1/dashboard/billing/usage?start_date=" + secret, ""}
			requests["a key as a role"] = [3]string{"POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"` + secret + `","content":"x"}]}`}
			requests["a key as a member"] = [3]string{"POST", "/v1/chat/completions", `{"` + secret + `":1,"` + secret + `":2}`}
			requests["a key as a size"] = [3]string{"POST", "/v1/images/generations", `{"model":"m","prompt":"p","size":"` + secret + `"}`}
			requests["a key as a number"] = [3]string{"POST", "/v1/chat/completions", `{"model":"m","messages":[],"x":{"` + secret + `":1,"` + secret + `":1}}`}
			requests["a key as a tool"] = [3]string{"POST", "/v1/chat/completions", chat + `,"tool_choice":{"type":"function","function":{"name":"` + secret + `"}}}`}
			requests["a key as a choice"] = [3]string{"POST", "/v1/chat/completions", chat + `,"tool_choice":"` + secret + `"}`}
		}
		configs := map[string]fxConfig{
			"fine":                  {},
			"KeyStore error":        {keys: stores(func() (*llmhttp.Key, error) { return nil, boom })},
			"KeyStore told":         {keys: stores(func() (*llmhttp.Key, error) { return nil, told })},
			"KeyStore panic":        {keys: stores(func() (*llmhttp.Key, error) { panic(boom) })},
			"KeyStore panic string": {keys: stores(func() (*llmhttp.Key, error) { panic(secret) })},
			"Limiter error":         {opts: limiter(func() ([]llmhttp.Level, error) { return nil, boom }, nil)},
			"Limiter told":          {opts: limiter(func() ([]llmhttp.Level, error) { return nil, told }, nil)},
			"Limiter panic":         {opts: limiter(func() ([]llmhttp.Level, error) { panic(boom) }, nil)},
			"Adjust error":          {opts: limiter(nil, func(context.Context) error { return boom })},
			"Adjust panic":          {opts: limiter(nil, func(context.Context) error { panic(secret) })},
			"Backend error":         {backend: fxFail(boom)},
			"Backend told":          {backend: fxFail(told)},
			"Backend wrapped":       {backend: fxFail(fmt.Errorf("call %q: %w", secret, boom))},
			"Backend panic":         {backend: fxChat(func(context.Context, yield) { panic(boom) })},
			"Backend panic told":    {backend: fxChat(func(context.Context, yield) { panic(told) })},
			"Backend panic struct":  {backend: fxChat(func(context.Context, yield) { panic(struct{ Key string }{secret}) })},
			"mid error":             {backend: fxChat(func(_ context.Context, y yield) { _ = y(llmhttp.TextChunk("hi"), nil) && y(nil, boom) })},
			"mid told":              {backend: fxChat(func(_ context.Context, y yield) { _ = y(llmhttp.TextChunk("hi"), nil) && y(nil, told) })},
			"mid panic":             {backend: fxChat(func(_ context.Context, y yield) { y(llmhttp.TextChunk("hi"), nil); panic(secret) })},
			"UsageStore error":      {usage: &fxUsage{before: func(context.Context) error { return boom }}},
			"UsageStore panic":      {usage: &fxUsage{before: func(context.Context) error { panic(secret) }}},
			"ImageURL error":        {opts: llmhttp.Options{ImageURL: func(context.Context, []byte, string) (string, error) { return "", boom }}},
			"CountTokens panic":     {opts: llmhttp.Options{CountTokens: func(string, string) int { panic(secret) }}},
			"Observer panic": {opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
				return ctx, func(*llmhttp.RequestSummary) { panic(secret) }
			}}},
		}
		for name, c := range configs {
			if c.keys == nil {
				c.keys = keyed
			}
			s := fxStart(t, c)
			for kind, rq := range requests {
				t.Run(secret[:3]+"/"+name+"/"+kind, func(t *testing.T) {
					r := s.do(rq[0], rq[1], rq[2], fxHeader("Authorization", "Bearer "+secret))
					got := fmt.Sprintf("%v %v %s", r.Status, r.Header, r.body)
					assert.NotContains(t, unescaped(got), secret, "in the reply")
					if len(secret) > 64 {
						assert.NotContains(t, got, secret[:40], "in the reply, cut")
					}
					assert.NotContains(t, got, said, "in the reply")
				})
			}
			require.NoError(t, s.h.Shutdown(t.Context()))
			assert.NotContains(t, unescaped(s.log.String()), secret, "%s: in the log", name)
			assert.NotContains(t, s.log.String(), said, "%s: in the log", name)
			for _, e := range s.watch.exchanges() {
				text := fmt.Sprintf("%v %+v %#v", e, e, e)
				for err := e.Err; err != nil; err = errors.Unwrap(err) {
					text += fmt.Sprintf(" %v %+v", err, err)
				}
				if b, err := json.Marshal(e.UsageRecord); assert.NoError(t, err) {
					text += string(b)
				}
				assert.NotContains(t, unescaped(text), secret, "%s: in the Exchange", name)
				assert.NotContains(t, text, said, "%s: in the Exchange", name)
			}
		}
	}
}

// unescaped undoes what JSON and %q do to a text, as often as it takes.
func unescaped(s string) string {
	out := s
	for range 3 {
		s = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(s)
		out += s
	}
	return out
}

// The cause is in the log, with what is needed to find the request.
func TestLog(t *testing.T) {
	s := fxStart(t, fxConfig{backend: fxFail(errors.New("marker-of-the-cause"))})
	r := s.chat(fxWhole)
	var line struct {
		Level, Msg, Error, Endpoint string
		RequestID                   string `json:"request_id"`
		KeyID                       string `json:"key_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(strings.TrimSpace(s.log.String())), &line), "%s", s.log)
	assert.Equal(t, "ERROR", line.Level)
	assert.Equal(t, "marker-of-the-cause", line.Error)
	assert.Equal(t, r.Header.Get("X-Request-Id"), line.RequestID)
	assert.Equal(t, "key_1", line.KeyID)
	assert.Equal(t, "chat", line.Endpoint)
	// What a client did wrong is no news.
	s = fxStart(t, fxConfig{})
	s.chat("{")
	s.chat(fxWhole, fxNoKey)
	s.do("GET", "/x", "")
	assert.Empty(t, s.log.String())
}

// A key of a letter does not turn every such letter into a secret.
func TestShortSecret(t *testing.T) {
	s := fxStart(t, fxConfig{keys: llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return &llmhttp.Key{ID: "k"}, nil })})
	r := s.chat("{", fxHeader("Authorization", "Bearer e"))
	assert.Equal(t, "We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)", r.checkError(t, 400).Message)
}
