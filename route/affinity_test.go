package route_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/route"
)

// newAffinityRouter returns a Router for the model m with targets that reply with their names:
// a, b and so on. The weight of a is 2.
func newAffinityRouter(t testing.TB, n int, opts *route.Options) (*route.Router, []*fake) {
	t.Helper()
	var fakes []*fake
	var backends []llmhttp.Backend
	for i := range n {
		fakes = append(fakes, newFake(say(string(rune('a'+i)))))
		backends = append(backends, fakes[i])
	}
	list := targets(backends...)
	list[0].Weight = 2
	return newRouter(t, opts, route.Route{Model: "m", Strategy: route.Affinity, Targets: list}), fakes
}

// askWith returns the text of the reply to a request with a member in Extra.
func askWith(t testing.TB, b llmhttp.Backend, name, value string) string {
	t.Helper()
	req := newRequest("m")
	req.Extra = llm.Extra{name: json.RawMessage(fmt.Sprintf("%q", value))}
	resp, err := join.Collect(b.Chat(t.Context(), req))
	require.NoError(t, err)
	return resp.Choices[0].Message.Content.Text()
}

// askAll returns the targets of n sessions.
func askAll(t testing.TB, b llmhttp.Backend, n int) (targets []string) {
	t.Helper()
	for i := range n {
		targets = append(targets, askWith(t, b, "prompt_cache_key", fmt.Sprint("session ", i)))
	}
	return targets
}

func count(list []string, value string) (n int) {
	for _, v := range list {
		if v == value {
			n++
		}
	}
	return n
}

func TestAffinity_Distribution(t *testing.T) {
	const sessions = 4000
	r, _ := newAffinityRouter(t, 3, nil)
	all := askAll(t, r, sessions)
	for name, share := range map[string]float64{"a": 0.5, "b": 0.25, "c": 0.25} {
		assert.InDelta(t, share, float64(count(all, name))/sessions, 0.03, name)
	}
	assert.Equal(t, all, askAll(t, r, sessions))

	// Another process has the targets in another order.
	list := []route.Target{{Name: "c", Backend: newFake(say("c"))}, {Name: "a", Weight: 2, Backend: newFake(say("a"))}, {Name: "b", Backend: newFake(say("b"))}}
	other := newRouter(t, nil, route.Route{Model: "*", Strategy: route.Affinity, Targets: list})
	assert.Equal(t, all, askAll(t, other, sessions))
}

// Only the sessions of a target that cannot be tried move, and they return.
func TestAffinity_TargetRests(t *testing.T) {
	for name, fault := range map[string]step{"breaker": failStatus(500), "resting": rateLimit(time.Minute)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const sessions = 400
				r, fakes := newAffinityRouter(t, 4, &route.Options{Failures: 1})
				before := askAll(t, r, sessions)
				working := fakes[1].steps
				fakes[1].steps = []step{fault}
				during := askAll(t, r, sessions)
				moved := map[string]int{}
				for i := range sessions {
					if before[i] != "b" {
						assert.Equal(t, before[i], during[i])
						continue
					}
					moved[during[i]]++
				}
				assert.Len(t, moved, 3, "each session moves to a target of its own: %v", moved)
				fakes[1].steps = working
				time.Sleep(5 * time.Minute)
				assert.Equal(t, before, askAll(t, r, sessions))
			})
		})
	}
}

// A new target takes sessions from the others, and leaves all others where they are.
func TestAffinity_TargetIsAdded(t *testing.T) {
	const sessions = 400
	three, _ := newAffinityRouter(t, 3, nil)
	four, _ := newAffinityRouter(t, 4, nil)
	before, after := askAll(t, three, sessions), askAll(t, four, sessions)
	for i := range sessions {
		if after[i] != "d" {
			assert.Equal(t, before[i], after[i])
		}
	}
	assert.InDelta(t, sessions/5, count(after, "d"), 25)
}

func TestAffinity_Session(t *testing.T) {
	const sessions = 40
	r, _ := newAffinityRouter(t, 3, nil)
	var byKey, byUser, byBoth []string
	for i := range sessions {
		name := fmt.Sprint("name ", i)
		byKey = append(byKey, askWith(t, r, "prompt_cache_key", name))
		byUser = append(byUser, askWith(t, r, "user", name))
		assert.Equal(t, byUser[i], askWith(t, r, "safety_identifier", name))
		req := newRequest("m")
		req.Extra = llm.Extra{"prompt_cache_key": json.RawMessage(fmt.Sprintf("%q", name)), "user": json.RawMessage(`"same"`)}
		resp, err := join.Collect(r.Chat(t.Context(), req))
		require.NoError(t, err)
		byBoth = append(byBoth, resp.Choices[0].Message.Content.Text())
	}
	assert.Equal(t, byKey, byBoth, "the key goes before the user")
	assert.NotEqual(t, byKey, byUser, "a key and a user with the same name are two sessions")

	for _, none := range []string{`null`, `""`, `5`, `{}`} {
		r, _ := newAffinityRouter(t, 3, nil)
		texts := ""
		for range 8 {
			req := newRequest("m")
			req.Extra = llm.Extra{"prompt_cache_key": json.RawMessage(none)}
			resp, err := join.Collect(r.Chat(t.Context(), req))
			require.NoError(t, err)
			texts += resp.Choices[0].Message.Content.Text()
		}
		assert.Equal(t, "abcaabca", texts, "without a session, requests are distributed by weight: %s", none)
	}

	// The end user of other operations counts too.
	list := targets(newMultimodal("a", nil), newMultimodal("b", nil))
	r = newRouter(t, nil, route.Route{Model: "m", Strategy: route.Affinity, Targets: list})
	for i := range 10 {
		var urls []string
		for range 4 {
			resp, err := r.GenerateImages(t.Context(), &llm.ImageRequest{Model: "m", Extra: llm.Extra{"user": json.RawMessage(fmt.Sprintf("%q", fmt.Sprint(i)))}})
			require.NoError(t, err)
			urls = append(urls, resp.Data[0].URL)
		}
		assert.Len(t, slices.Compact(urls), 1)
	}
}

// The same name is another session in each account.
func TestAffinity_Accounts(t *testing.T) {
	r, _ := newAffinityRouter(t, 3, nil)
	h := llmhttp.NewHandler(r, llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Account: secret}, nil
	}), nil)
	seen := map[string]bool{}
	for i := range 20 {
		req := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}],"prompt_cache_key":"same"}`))
		req.Header.Set("Authorization", fmt.Sprint("Bearer account", i))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		seen[w.Body.String()[strings.Index(w.Body.String(), `"content"`):][:12]] = true
	}
	assert.Len(t, seen, 3)
}

// The turns of a conversation of the Responses API go to one target.
func TestAffinity_Conversation(t *testing.T) {
	r, _ := newAffinityRouter(t, 3, nil)
	h := llmhttp.NewHandler(r, llmhttp.AllowAll("acme"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{responses.New(&responses.Options{Store: memory.NewResponseStore()})},
	})
	seen := map[string]bool{}
	for range 60 { // IDs are random: with 10, one of 20 runs misses a target
		previous, first := "", ""
		for range 4 {
			body := `{"model":"m","input":"Hello!"}`
			if previous != "" {
				body = `{"model":"m","input":"Go on.","previous_response_id":"` + previous + `"}`
			}
			w := postJSON(h, "/v1/responses", body)
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			var reply struct {
				ID     string
				Output []struct{ Content []struct{ Text string } }
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
			text := reply.Output[0].Content[0].Text
			if previous == "" {
				first = text
			}
			assert.Equal(t, first, text)
			previous = reply.ID
			seen[text] = true
		}
	}
	assert.Len(t, seen, 3)
}

// One session does not overload a target.
func TestAffinity_Overload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 100
		var backends []llmhttp.Backend
		for range 4 {
			backends = append(backends, newFake(sequence(pause(time.Minute), say("done"))))
		}
		r := newRouter(t, nil, route.Route{Model: "m", Strategy: route.Affinity, Targets: targets(backends...)})
		var running sync.WaitGroup
		for i := range requests {
			running.Go(func() { askWith(t, r, "prompt_cache_key", "hot") })
			synctest.Wait()
			busy := 0
			for _, s := range r.Status() {
				busy = max(busy, s.InFlight)
			}
			if i < 8 {
				assert.Equal(t, i+1, busy, "a few requests stay together")
			}
			assert.LessOrEqual(t, busy, max(8, (i+1)*3/8+1))
		}
		running.Wait()
	})
}
