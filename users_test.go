package llmhttp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// perUserKeys returns a KeyStore in which each secret is that of a key of acme.
func perUserKeys(ofKey, perUser llmhttp.Limits, subjects ...llmhttp.Subject) llmhttp.KeyStore {
	return llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "key_" + secret, Account: "acme", Limits: ofKey, PerUser: perUser, Subjects: subjects}, nil
	})
}

// asUser returns chatBody as sent for an end user, whose name is a token. It reserves ten.
func asUser(user string) string { return chatWith(`"max_tokens":5,"user":"` + user + `"`) }

// Every format names the end user, who is recorded.
func TestUsers_AreNamed(t *testing.T) {
	const chat, tail = `{"model":"m","messages":[{"role":"user","content":"Hi"}]`, `,"max_tokens":5}`
	long, control := strings.Repeat("é", 65), "a\tb"
	type testCase struct{ path, body, want string }
	tests := map[string]testCase{
		"user":                      {chatPath, chat + `,"user":"ann"}`, "ann"},
		"safety_identifier":         {chatPath, chat + `,"safety_identifier":"ann"}`, "ann"},
		"both":                      {chatPath, chat + `,"user":"cache","safety_identifier":"ann"}`, "ann"},
		"an empty one of both":      {chatPath, chat + `,"user":"ann","safety_identifier":""}`, "ann"},
		"none":                      {chatPath, chat + `}`, ""},
		"null":                      {chatPath, chat + `,"user":null}`, ""},
		"a number":                  {chatPath, chat + `,"user":5}`, ""},
		"128 bytes":                 {chatPath, chat + `,"user":"` + strings.Repeat("é", 64) + `"}`, strings.Repeat("é", 64)},
		"130 bytes":                 {chatPath, chat + `,"user":"` + long + `"}`, "sha256:" + llmhttp.HashSecret(long)},
		"the API key":               {chatPath, chat + `,"user":"` + testSecret + `"}`, "[redacted]"},
		"a control character":       {chatPath, chat + `,"user":"a\tb"}`, "sha256:" + llmhttp.HashSecret(control)},
		"Messages":                  {"/v1/messages", chat + `,"metadata":{"user_id":"ann"}` + tail, "ann"},
		"Messages, none":            {"/v1/messages", chat + tail, ""},
		"Responses":                 {"/v1/responses", `{"model":"m","input":"Hi","user":"ann"}`, "ann"},
		"Responses, by the new one": {"/v1/responses", `{"model":"m","input":"Hi","user":"cache","safety_identifier":"ann"}`, "ann"},
	}
	for _, op := range testOperations {
		tests[string(op.name)] = testCase{op.path, op.with(`"user":"ann"`), "ann"}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{opts: llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)}}})
			r := s.do("POST", tt.path, tt.body)
			require.Equal(t, 200, r.StatusCode, r.body)
			assert.Equal(t, tt.want, s.record().User)
		})
	}
}

// Each end user has rates of its own, in every format and with every key of the account. What
// a user is refused takes nothing from the key.
func TestUsers_Rates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{
			backend: usageBackend(4, 6),
			keys:    perUserKeys(llmhttp.Limits{Requests: noRefill(20), Tokens: noRefill(1000)}, llmhttp.Limits{Requests: noRefill(2)}, subject(acme, llmhttp.Limits{Requests: noRefill(100)})),
			opts:    llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Protocols: []llmhttp.Protocol{messages.New(nil)}},
		})
		require.Equal(t, 200, s.chat(asUser("ann"), withSecret("a")).StatusCode)
		const body = `{"model":"m","max_tokens":6,"messages":[{"role":"user","content":"Hi"}],"metadata":{"user_id":"ann"}}`
		r := s.do("POST", "/v1/messages", body, withSecret("b"))
		require.Equal(t, 200, r.StatusCode, r.body)
		for range 3 {
			r = s.chat(asUser("ann"), withSecret("a"))
			e := r.checkError(t, 429)
			assert.Equal(t, "Rate limit reached for this end user on requests per 8760h0m0s: Limit 2, Used 2, Requested 1. Please try again in 4380h0m0s.", e.Message)
			assert.Equal(t, "2", r.Header.Get("X-Ratelimit-Limit-Requests"))
			assert.Equal(t, "0", r.Header.Get("X-Ratelimit-Remaining-Requests"))
		}
		assert.Equal(t, llmhttp.LimitRefusal{Subject: llmhttp.UserSubject("acme", "ann"), Limit: llmhttp.BucketRequests}, lastSummary(s).Refused)
		assert.Equal(t, "ann", lastSummary(s).Record.User)
		for range 2 {
			require.Equal(t, 200, s.chat(asUser("bob"), withSecret("a")).StatusCode)
			require.Equal(t, 200, s.chat(chatBody, withSecret("a")).StatusCode)
		}
		s.chat(asUser("bob"), withSecret("a")).checkError(t, 429)
		s.chat(chatBody, withSecret("a")).checkError(t, 429) // those who name none share the limits
		r = s.get(modelsPath, withSecret("a"))
		assert.Equal(t, "20", r.Header.Get("X-Ratelimit-Limit-Requests"))
		assert.Equal(t, "15", r.Header.Get("X-Ratelimit-Remaining-Requests"), "five chats, and not the list, which the Backend does not have")
	})
}

func TestUsers_Tokens(t *testing.T) {
	s := startServer(t, config{
		backend: usageBackend(4, 6),
		keys:    perUserKeys(llmhttp.Limits{Requests: noRefill(20), Tokens: noRefill(1000)}, llmhttp.Limits{Requests: noRefill(9), Tokens: noRefill(25), MaxCompletionTokens: 6}),
		opts:    llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
	})
	for range 2 {
		require.Equal(t, 200, s.chat(chatWith(`"max_tokens":500,"user":"ann"`)).StatusCode, "at most 6 are reserved")
	}
	r := s.chat(asUser("ann"))
	assert.Contains(t, r.checkError(t, 429).Message, "Rate limit reached for this end user on tokens per 8760h0m0s: Limit 25, Used 20, Requested 10.")
	assert.Equal(t, "25", r.Header.Get("X-Ratelimit-Limit-Tokens"))
	assert.Equal(t, "5", r.Header.Get("X-Ratelimit-Remaining-Tokens"))
	assert.Equal(t, "7", r.Header.Get("X-Ratelimit-Remaining-Requests"), "the request is given back to the user")
	r = s.chat(asUser("bob"))
	require.Equal(t, 200, r.StatusCode)
	assert.Equal(t, "15", r.Header.Get("X-Ratelimit-Remaining-Tokens"))
	assert.Equal(t, "17", s.get(modelsPath).Header.Get("X-Ratelimit-Remaining-Requests"), "three chats are taken from the key")
}

// A user who has too many requests in progress keeps no slot of the key.
func TestUsers_Concurrent(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := startServer(t, config{
		backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			entered <- struct{}{}
			<-leave
			yield(llm.TextChunk("Hello!"), nil)
		}),
		keys: perUserKeys(llmhttp.Limits{Concurrent: 2}, llmhttp.Limits{Concurrent: 1}),
	})
	replies := make(chan reply, 2)
	go func() { replies <- s.chat(asUser("ann")) }()
	receive(t, "the first request", entered)
	for range 3 {
		e := s.chat(asUser("ann")).checkError(t, 429)
		assert.Equal(t, "Too many requests in progress for this end user: Limit 1. Please try again when one has ended.", e.Message)
	}
	go func() { replies <- s.chat(asUser("bob")) }()
	receive(t, "the request of another user", entered)
	assert.Equal(t, "Too many requests in progress: Limit 2. Please try again when one has ended.", s.chat(asUser("cleo")).checkError(t, 429).Message)
	close(leave)
	for range 2 {
		assert.Equal(t, 200, receive(t, "a reply", replies).StatusCode)
	}
	go func() { <-entered }()
	assert.Equal(t, 200, s.chat(asUser("ann")).StatusCode)
}

// Counts of tokens are taken from a bucket of the end user too, and stored responses once.
func TestUsers_OtherOperations(t *testing.T) {
	taken := func(t *testing.T, path, body string) (draws []llmhttp.BucketAmount) {
		limiter := new(stubLimiter)
		s := startServer(t, config{
			keys: perUserKeys(llmhttp.Limits{}, llmhttp.Limits{Requests: noRefill(5)}),
			opts: llmhttp.Options{Limiter: limiter, Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(&responses.Options{Store: memory.NewResponseStore()})}},
		})
		r := s.do("POST", path, body)
		require.Equal(t, 200, r.StatusCode, r.body)
		var stored struct{ ID string }
		if path == "/v1/responses" {
			require.NoError(t, json.Unmarshal([]byte(r.body), &stored))
			r = s.do("POST", path, strings.TrimSuffix(body, "}")+`,"previous_response_id":"`+stored.ID+`"}`)
			require.Equal(t, 200, r.StatusCode, r.body)
		}
		calls, adjusted := limiter.calls()
		assert.Empty(t, adjusted)
		for _, c := range calls {
			draws = append(draws, c...)
		}
		return draws
	}
	ann := llmhttp.BucketAmount{Subject: llmhttp.UserSubject("acme", "ann"), Bucket: llmhttp.BucketRequests, Rate: noRefill(5), Amount: 1}
	assert.Equal(t, []llmhttp.BucketAmount{ann, ann}, taken(t, "/v1/responses", `{"model":"m","input":"Hi","user":"ann"}`))
	ann.Bucket, ann.Rate.Burst = llmhttp.BucketTokenCounts, 100
	assert.Equal(t, []llmhttp.BucketAmount{ann}, taken(t, "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"Hi"}],"metadata":{"user_id":"ann"}}`))
}

// forEachUserStore calls f, in a bubble, with each kind of UsageStore that can sum for users.
func forEachUserStore(t *testing.T, f func(t *testing.T, usage llmhttp.UsageStore)) {
	for name, newStore := range map[string]func() llmhttp.UsageStore{
		"log":      func() llmhttp.UsageStore { return new(usageLog) },
		"memory":   func() llmhttp.UsageStore { return memory.NewUsageStore() },
		"a buffer": func() llmhttp.UsageStore { return usagebuffer.New(memory.NewUsageStore(), nil) },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, newStore()) }) })
	}
}

// A quota of each user needs a store that can sum for users, and a user.
func TestUsers_Quota(t *testing.T) {
	quota := llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 20}}
	forEachUserStore(t, func(t *testing.T, usage llmhttp.UsageStore) {
		s := startPipeServer(t, config{backend: usageBackend(4, 6), keys: perUserKeys(llmhttp.Limits{}, quota), opts: llmhttp.Options{Usage: usage, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}}})
		for _, user := range []string{"ann", "bob"} {
			require.Equal(t, 200, s.chat(asUser(user), withSecret("a")).StatusCode)
			require.Equal(t, 200, s.chat(asUser(user), withSecret("b")).StatusCode)
			e := s.chat(asUser(user)).checkError(t, 429)
			assert.Equal(t, "You exceeded your current quota for this end user, please check your plan and billing details.", e.Message)
		}
		restarted := startPipeServer(t, config{keys: perUserKeys(llmhttp.Limits{}, quota), opts: llmhttp.Options{Usage: usage}})
		restarted.chat(asUser("ann")).checkError(t, 429)
		e := s.chat(chatBody).checkError(t, 400)
		assert.Equal(t, "missing_required_parameter", e.Code)
	})
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{keys: perUserKeys(llmhttp.Limits{}, quota), opts: llmhttp.Options{Usage: new(accountLog)}})
		s.chat(asUser("ann")).checkError(t, 500)
		assert.Contains(t, s.log.String(), "the quota of user acme/ann needs a UsageStore that can sum for each user")
	})
}

// Options.User decides who the end user is.
func TestUsers_OptionsUser(t *testing.T) {
	var refuse error
	s := startServer(t, config{
		keys: perUserKeys(llmhttp.Limits{}, llmhttp.Limits{Requests: noRefill(1)}),
		opts: llmhttp.Options{User: func(r *http.Request, named string) (string, error) {
			assert.Equal(t, "key_"+testSecret, llmhttp.KeyFrom(r.Context()).ID)
			if user := r.Header.Get("X-User"); user != "" {
				return user, refuse
			}
			return named, refuse
		}},
	})
	require.Equal(t, 200, s.chat(asUser("ann"), withHeader("X-User", "bob")).StatusCode)
	assert.Equal(t, "bob", s.record().User)
	s.chat(asUser("cleo"), withHeader("X-User", "bob")).checkError(t, 429)
	assert.Equal(t, 200, s.chat(asUser("ann")).StatusCode)
	refuse = llm.Errorf(http.StatusForbidden, "no_user", "Who are you?")
	assert.Equal(t, "no_user", s.chat(chatBody).checkError(t, 403).Code)
	refuse = errCause
	s.chat(chatBody).checkError(t, 500)
	assert.Len(t, s.usage.records(), 2)
}

func TestHashUser(t *testing.T) {
	hash := func(salt, user string) string {
		h, err := llmhttp.HashUser(salt)(nil, user)
		require.NoError(t, err)
		return h
	}
	assert.Empty(t, hash("salt", ""))
	assert.Equal(t, "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8",
		hash("key", "The quick brown fox jumps over the lazy dog"), "a known HMAC") // https://en.wikipedia.org/wiki/HMAC#Examples
	assert.NotEqual(t, hash("salt", "ann"), hash("pepper", "ann"))
	assert.Equal(t, hash("salt", "ann"), hash("salt", "ann"))
}

// No two users of any accounts are the same subject.
func TestUserSubject(t *testing.T) {
	seen := map[llmhttp.SubjectID]bool{}
	names := []string{"", "a", "b", "a/b", "/", "a%2Fb", "%", "é"}
	for _, account := range names {
		for _, user := range names {
			s := llmhttp.UserSubject(account, user)
			assert.Equal(t, llmhttp.KindUser, s.Kind)
			assert.False(t, seen[s], "%q, %q", account, user)
			seen[s] = true
		}
	}
}
