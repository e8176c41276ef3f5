package llmhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

var (
	acme   = llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}
	search = llmhttp.SubjectID{Kind: "team", ID: "search"}
)

// subject returns a Subject with limits.
func subject(id llmhttp.SubjectID, l llmhttp.Limits) llmhttp.Subject {
	return llmhttp.Subject{ID: id, Limits: l}
}

// sharingKeys returns a KeyStore in which each secret is that of a key of acme with the same
// subjects. Keys with the name of a limit have that.
func sharingKeys(ofKey llmhttp.Limits, subjects ...llmhttp.Subject) llmhttp.KeyStore {
	return llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "key_" + secret, Account: "acme", Limits: ofKey, Subjects: subjects}, nil
	})
}

func TestKey_ValidateSubjects(t *testing.T) {
	team := func(id string) llmhttp.Subject {
		return subject(llmhttp.SubjectID{Kind: "team", ID: id}, llmhttp.Limits{})
	}
	of := func(kind, id string) []llmhttp.Subject {
		return []llmhttp.Subject{team("a"), subject(llmhttp.SubjectID{Kind: kind, ID: id}, llmhttp.Limits{})}
	}
	var many []llmhttp.Subject
	for i := range 9 {
		many = append(many, team(fmt.Sprint(i)))
	}
	for name, tt := range map[string]struct {
		subjects []llmhttp.Subject
		want     string
	}{
		"none":                 {nil, ""},
		"some":                 {append(of("account", "acme"), team("b"), subject(llmhttp.SubjectID{Kind: "cost-center_1", ID: "ö"}, llmhttp.Limits{})), ""},
		"eight":                {many[:8], ""},
		"and the account":      {append(of("account", "acme")[1:], many[:8]...), ""},
		"nine":                 {many, "Key.Subjects: has 9 elements beside that of the account; the maximum is 8"},
		"twice":                {of("team", "a"), `Key.Subjects[1].ID: the team "a" is listed twice`},
		"another account":      {of("account", "other"), `Key.Subjects[1].ID.ID: is "other", and the account of the key is "acme"`},
		"an account, no ID":    {of("account", ""), `Key.Subjects[1].ID.ID: is "", and the account of the key is "acme"`},
		"a key":                {of("key", "k"), `Key.Subjects[1].ID.Kind: is "key"; the limits of the key are Key.Limits`},
		"a user":               {of("user", "u"), `Key.Subjects[1].ID.Kind: is "user"; the limits of end users are Key.PerUser`},
		"no kind":              {of("", "x"), "Key.Subjects[1].ID.Kind: must have 1 to 32 lower-case letters, digits, hyphens and underscores"},
		"a kind in upper case": {of("Team", "x"), "Key.Subjects[1].ID.Kind: must have 1 to 32 lower-case letters, digits, hyphens and underscores"},
		"a long kind":          {of(strings.Repeat("x", 33), "x"), "Key.Subjects[1].ID.Kind: must have 1 to 32 lower-case letters, digits, hyphens and underscores"},
		"no ID":                {of("team", ""), "Key.Subjects[1].ID.ID: must be text of 1 to 512 bytes without control characters"},
		"a long ID":            {of("team", strings.Repeat("x", 513)), "Key.Subjects[1].ID.ID: must be text of 1 to 512 bytes without control characters"},
		"a control character":  {of("team", "a\nb"), "Key.Subjects[1].ID.ID: must be text of 1 to 512 bytes without control characters"},
		"limits":               {[]llmhttp.Subject{subject(search, llmhttp.Limits{Requests: llmhttp.Rate{Burst: 1}})}, "Key.Subjects[0].Limits.Requests.N: is zero, but Per or Burst is set"},
	} {
		t.Run(name, func(t *testing.T) {
			k := llmhttp.Key{ID: "k", Account: "acme", Subjects: tt.subjects}
			if err := k.Validate(); tt.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, tt.want)
			}
		})
	}
	own := llmhttp.Key{ID: "k", Subjects: []llmhttp.Subject{subject(llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "k"}, llmhttp.Limits{})}}
	assert.NoError(t, own.Validate(), "the account of a key without one is its ID")
}

// Subjects that cannot be told apart would not be limited, so no request gets them.
func TestSubjects_MistakesOfAKeyStore(t *testing.T) {
	s := startServer(t, config{keys: sharingKeys(llmhttp.Limits{}, subject(search, llmhttp.Limits{}), subject(search, llmhttp.Limits{}))})
	s.chat(chatBody).checkError(t, 500)
	assert.Contains(t, s.log.String(), `Key.Subjects[1].ID: the team \"search\" is listed twice`)
	assert.Equal(t, llmhttp.ClassKeyStore, lastSummary(s).ErrorClass)
}

// Keys of an account share its limits. Refusals and headers tell the subject that is nearest to
// its end.
func TestSubjects_RatesAreShared(t *testing.T) {
	for name, tt := range map[string]struct {
		subject     llmhttp.Subject
		wantMessage string
		wantRefusal llmhttp.LimitRefusal
		wantHeader  string // the limit of requests that the second reply tells
	}{
		"requests of the account": {subject(acme, llmhttp.Limits{Requests: noRefill(2)}),
			"Rate limit reached for your account on requests per 8760h0m0s: Limit 2, Used 2, Requested 1. Please try again in 4380h0m0s.", llmhttp.LimitRefusal{Subject: acme, Limit: llmhttp.BucketRequests}, "2"},
		"tokens of the account": {subject(acme, llmhttp.Limits{Tokens: noRefill(29)}),
			"Rate limit reached for your account on tokens per 8760h0m0s: Limit 29, Used 20, Requested 10. Please try again in 302h4m8.276s.", llmhttp.LimitRefusal{Subject: acme, Limit: llmhttp.BucketTokens}, "10"},
		"requests of a team": {subject(search, llmhttp.Limits{Requests: noRefill(2)}),
			"Rate limit reached for your team on requests per 8760h0m0s: Limit 2, Used 2, Requested 1. Please try again in 4380h0m0s.", llmhttp.LimitRefusal{Subject: search, Limit: llmhttp.BucketRequests}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					backend: usageBackend(4, 6),
					keys:    sharingKeys(llmhttp.Limits{Requests: noRefill(10), Tokens: noRefill(1000)}, tt.subject),
					opts:    llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
				})
				require.Equal(t, 200, s.chat(chatWith(tenTokens), withSecret("a")).StatusCode)
				r := s.chat(chatWith(tenTokens), withSecret("b"))
				require.Equal(t, 200, r.StatusCode)
				assert.Equal(t, tt.wantHeader, r.Header.Get("X-Ratelimit-Limit-Requests"))
				for range 3 {
					r = s.chat(chatWith(tenTokens), withSecret("c"))
					e := r.checkError(t, 429)
					assert.Equal(t, "rate_limit_exceeded", e.Code)
					assert.True(t, strings.HasPrefix(e.Message, tt.wantMessage), e.Message)
				}
				assert.Equal(t, tt.wantRefusal, lastSummary(s).Refused)
				r = s.get(modelsPath, withSecret("c"))
				if tt.wantRefusal.Limit == llmhttp.BucketTokens { // the refused requests are given back
					assert.Equal(t, "10", r.Header.Get("X-Ratelimit-Remaining-Requests"), "nor is the list, which the Backend does not have, taken")
					assert.Equal(t, "9", r.Header.Get("X-Ratelimit-Remaining-Tokens"))
				}
			})
		})
	}
}

func TestSubjects_ConcurrentIsShared(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := startServer(t, config{
		backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			entered <- struct{}{}
			<-leave
			yield(llm.TextChunk("Hello!"), nil)
		}),
		keys: sharingKeys(llmhttp.Limits{Concurrent: 5}, subject(search, llmhttp.Limits{Concurrent: 3}), subject(acme, llmhttp.Limits{Concurrent: 1})),
	})
	first := make(chan reply, 1)
	go func() { first <- s.chat(chatBody, withSecret("a")) }()
	receive(t, "the first request", entered)
	e := s.chat(chatBody, withSecret("b")).checkError(t, 429)
	assert.Equal(t, "Too many requests in progress for your account: Limit 1. Please try again when one has ended.", e.Message)
	close(leave)
	assert.Equal(t, 200, receive(t, "its reply", first).StatusCode)
	go func() { <-entered }()
	assert.Equal(t, 200, s.chat(chatBody, withSecret("b")).StatusCode)
}

// The smallest MaxCompletionTokens of the subjects holds, and one that permits none.
func TestSubjects_MaxCompletionTokens(t *testing.T) {
	for _, tt := range []struct{ ofKey, ofTeam, ofAccount, want int }{
		{0, 0, 0, 0}, {5, 0, 0, 5}, {0, 5, 0, 5}, {9, 7, 8, 7}, {7, 0, 9, 7}, {7, -1, 9, -1}, {-1, 5, 0, -1},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			var got int
			s := startServer(t, config{
				backend: llmhttp.BackendFunc(func(_ context.Context, r *llm.ChatRequest) llm.ChatStream {
					got, _ = r.TokenLimit()
					return llm.Reply("Hello!")
				}),
				keys: sharingKeys(llmhttp.Limits{MaxCompletionTokens: tt.ofKey},
					subject(search, llmhttp.Limits{MaxCompletionTokens: tt.ofTeam}), subject(acme, llmhttp.Limits{MaxCompletionTokens: tt.ofAccount})),
			})
			r := s.chat(chatBody)
			if tt.want < 0 {
				r.checkError(t, 403)
				return
			}
			require.Equal(t, 200, r.StatusCode)
			assert.Equal(t, tt.want, got)
		})
	}
}

// Records list the subjects other than the key and the account, with limits or without.
func TestSubjects_AreRecorded(t *testing.T) {
	s := startServer(t, config{keys: sharingKeys(llmhttp.Limits{}, subject(search, llmhttp.Limits{}), subject(acme, llmhttp.Limits{Requests: noRefill(5)}))})
	require.Equal(t, 200, s.chat(chatBody).StatusCode)
	assert.Equal(t, []llmhttp.SubjectID{search}, s.usage.records()[0].Subjects)
}

// Keys of a subject share its quota, which counts what was recorded before.
func TestSubjects_QuotasAreShared(t *testing.T) {
	for _, id := range []llmhttp.SubjectID{acme, search} {
		t.Run(id.Kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewUsageStore()
				start := func() *testServer {
					return startPipeServer(t, config{
						backend: usageBackend(4, 6),
						keys:    sharingKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 30}}, subject(id, llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 40}})),
						opts:    llmhttp.Options{Usage: store, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
					})
				}
				ask := func(s *testServer, secret string) reply { return s.chat(chatWith(tenTokens), withSecret(secret)) }
				s := start()
				for range 3 {
					require.Equal(t, 200, ask(s, "a").StatusCode)
				}
				e := ask(s, "a").checkError(t, 429)
				assert.Equal(t, "You exceeded your current quota, please check your plan and billing details.", e.Message)
				s = start()
				require.Equal(t, 200, ask(s, "b").StatusCode)
				for _, secret := range []string{"b", "c"} {
					e = ask(s, secret).checkError(t, 429)
					assert.Equal(t, "insufficient_quota", e.Code)
					assert.Equal(t, "You exceeded your current quota for your "+id.Kind+", please check your plan and billing details.", e.Message)
					assert.Equal(t, llmhttp.LimitRefusal{Subject: id, Limit: llmhttp.LimitQuota}, lastSummary(s).Refused)
				}
			})
		})
	}
}

// What a request has reserved of one quota is given back if another one refuses it.
func TestSubjects_QuotaThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofTeam := 5
		s := startPipeServer(t, config{
			backend: usageBackend(4, 6),
			keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
				return &llmhttp.Key{ID: "k", Account: "acme", Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 10}},
					Subjects: []llmhttp.Subject{subject(search, llmhttp.Limits{Quota: llmhttp.Quota{Tokens: ofTeam}})}}, nil
			}),
			opts: llmhttp.Options{Usage: memory.NewUsageStore(), Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
		})
		for range 3 {
			assert.Contains(t, s.chat(chatWith(tenTokens)).checkError(t, 429).Message, "for your team")
		}
		ofTeam = 10
		assert.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
	})
}

func TestSubjects_QuotaThatNothingCanSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{
			keys: sharingKeys(llmhttp.Limits{}, subject(search, llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 30}})),
			opts: llmhttp.Options{Usage: new(accountLog)},
		})
		s.chat(chatBody).checkError(t, 500)
		assert.Contains(t, s.log.String(), "the quota of team search needs a UsageStore that can sum for each team: no sums for team: ")
		assert.Equal(t, llmhttp.ClassUsageStore, lastSummary(s).ErrorClass)
	})
}

// Of several quotas, the subscription endpoint tells the one of which the least is left.
func TestSubjects_Subscription(t *testing.T) {
	tokens := func(n int) llmhttp.Limits { return llmhttp.Limits{Quota: llmhttp.Quota{Tokens: n}} }
	for name, tt := range map[string]struct {
		ofKey, ofTeam, ofAccount llmhttp.Limits
		want                     int // the limit less what the account has used, which is 20
		wantPayment              bool
	}{
		"the key":                {tokens(15), tokens(50), tokens(60), 5, true},
		"the team":               {tokens(100), tokens(25), tokens(60), 5, true},
		"the account":            {tokens(100), tokens(50), tokens(25), 5, true},
		"the account, prepaid":   {tokens(100), tokens(50), llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 25, Per: -1}}, 5, false},
		"the account, used up":   {tokens(100), llmhttp.Limits{}, tokens(20), 0, true},
		"the account, with none": {llmhttp.Limits{}, llmhttp.Limits{}, tokens(-1), -20, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewUsageStore()
				use := startPipeServer(t, config{backend: usageBackend(4, 6), keys: sharingKeys(llmhttp.Limits{}, subject(search, llmhttp.Limits{})), opts: llmhttp.Options{Usage: store}})
				for _, secret := range []string{"a", "b"} {
					require.Equal(t, 200, use.chat(chatBody, withSecret(secret)).StatusCode)
				}
				s := startPipeServer(t, config{keys: sharingKeys(tt.ofKey, subject(search, tt.ofTeam), subject(acme, tt.ofAccount)), opts: llmhttp.Options{Usage: store}})
				var got struct {
					HasPaymentMethod bool    `json:"has_payment_method"`
					HardLimitUSD     float64 `json:"hard_limit_usd"`
					HardLimitTokens  int     `json:"hard_limit_tokens"`
				}
				require.NoError(t, json.Unmarshal([]byte(s.get("/v1/dashboard/billing/subscription", withSecret("a")).body), &got))
				assert.Equal(t, tt.want, got.HardLimitTokens-20)
				assert.Equal(t, tt.wantPayment, got.HasPaymentMethod)
				assert.EqualValues(t, 100_000_000, got.HardLimitUSD)
			})
		})
	}
}

// lastSummary returns the summary of the last request, which was answered.
func lastSummary(s *testServer) *llmhttp.RequestSummary {
	s.t.Helper()
	waitFor(s.t, "the end of the request", func() bool {
		s.observer.mu.Lock()
		defer s.observer.mu.Unlock()
		return s.observer.begun > 0 && len(s.observer.ended) == s.observer.begun
	})
	all := s.summaries()
	return all[len(all)-1]
}
