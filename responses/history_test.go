package responses_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/responsestore"
)

// A countingStore counts what is loaded.
type countingStore struct {
	responsestore.Store
	turns, responses, items int
	bytes                   int // of the items that were loaded
}

func (s *countingStore) add(items ...responsestore.Item) {
	for i := range items {
		s.bytes += len(items[i].Body)
	}
}

func (s *countingStore) LoadTurn(ctx context.Context, account, id string, maxBytes int) (*responsestore.Response, error) {
	s.turns++
	r, err := s.Store.LoadTurn(ctx, account, id, maxBytes)
	if err == nil {
		s.add(slices.Concat(r.Input, r.Output)...)
	}
	return r, err
}

func (s *countingStore) LoadResponse(ctx context.Context, account, id string) (*responsestore.Response, error) {
	s.responses++
	return s.Store.LoadResponse(ctx, account, id)
}

func (s *countingStore) LoadItems(ctx context.Context, account string, ids []string, maxBytes int) ([]responsestore.Item, error) {
	s.items++
	items, err := s.Store.LoadItems(ctx, account, ids, maxBytes)
	s.add(items...)
	return items, err
}

func newCountingServer(t *testing.T) (*server, *countingStore) {
	store := memory.NewResponseStore()
	store.MaxBytes = 1 << 30
	counting := &countingStore{Store: store}
	return newServer(t, &responses.Options{Store: counting}, chunkText), counting
}

// save saves a conversation of n responses in which each has a body and an item of the given
// sizes. It returns the ID of the last one.
func (s *countingStore) save(t *testing.T, n, bodySize, itemSize int) (id string) {
	for i := range n {
		r := &responsestore.Response{ID: fmt.Sprint("resp_", i), Account: "acme", Previous: id, Body: bytes.Repeat([]byte("b"), bodySize)}
		r.Input = []responsestore.Item{
			{ID: fmt.Sprint("small_", i), Body: []byte(`{"role":"user","content":"x"}`)},
			{ID: fmt.Sprint("large_", i), Body: []byte(`{"role":"user","content":"` + strings.Repeat("a", itemSize) + `"}`)},
		}
		require.NoError(t, s.SaveResponse(t.Context(), r))
		id = r.ID
	}
	return id
}

// A long conversation is continued without the bodies of its responses, which repeat tools and
// instructions.
func TestHistory_LoadsNoBodies(t *testing.T) {
	s, store := newCountingServer(t)
	s.create(`{"model":"m","input":"Hi"` + continued(store.save(t, 10, 10<<20, 10)) + `}`)
	assert.Len(t, s.request.Messages, 21, "100 MiB of bodies do not count")
	assert.Equal(t, 10, store.turns)
	assert.Zero(t, store.responses)
}

// What a conversation loads is bounded, and nothing beyond the bound is loaded.
func TestHistory_TooLong(t *testing.T) {
	s, store := newCountingServer(t)
	e := s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","input":"x"`+continued(store.save(t, 6, 10, 15<<20))+`}`)
	assert.Equal(t, "context_length_exceeded", e.Code)
	assert.Equal(t, "previous_response_id", e.Param)
	assert.Less(t, store.bytes, 64<<20)
	assert.Equal(t, 5, store.turns, "four turns of 15 MiB are within 64 MiB, and the fifth is refused unloaded")

	s, store = newCountingServer(t)
	s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","input":"x"`+continued(store.save(t, 4097, 10, 10))+`}`)
	assert.Equal(t, 4097, store.turns)
}

func TestHistory_TooManyItems(t *testing.T) {
	s, store := newCountingServer(t)
	previous := ""
	for i := range 6 {
		r := &responsestore.Response{ID: fmt.Sprint("resp_", i), Account: "acme", Previous: previous}
		for n := range 14_000 {
			r.Input = append(r.Input, responsestore.Item{ID: fmt.Sprint("msg_", i, "_", n), Body: []byte(`{"role":"user","content":"x"}`)})
		}
		require.NoError(t, store.SaveResponse(t.Context(), r))
		previous = r.ID
	}
	e := s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","input":"x"`+continued(previous)+`}`)
	assert.Equal(t, "context_length_exceeded", e.Code)
	assert.Equal(t, 5, store.turns, "70,000 items")
}

func continued(id string) string { return `,"previous_response_id":"` + id + `"` }

// References to small items of large responses hold the items in memory, and not the
// responses.
func TestHistory_ReferencesAreBounded(t *testing.T) {
	s, store := newCountingServer(t)
	store.save(t, 5, 10, 15<<20)
	var references []string
	for i := range 5 {
		references = append(references, fmt.Sprintf(`{"id":"large_%d"}`, i))
	}
	e := s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","store":false,"input":[`+strings.Join(references, ",")+`]}`)
	assert.Equal(t, "context_length_exceeded", e.Code)
	assert.Equal(t, 1, store.items)
	assert.Zero(t, store.bytes)
	small := strings.ReplaceAll(strings.Join(references, ","), "large", "small")
	s.create(`{"model":"m","store":false,"input":[` + small + `]}`)
	assert.Equal(t, "user: x, user: x, user: x, user: x, user: x", s.messageTexts())
}

// A request that has loaded a conversation counts, even if it is refused afterwards. One
// that the limits refuse loads nothing.
func TestHistory_LimitsBeforeLoading(t *testing.T) {
	never := func(n int) llmhttp.Rate { return llmhttp.Rate{N: n, Per: 365 * 24 * time.Hour} }
	for _, test := range []struct {
		name    string
		limits  llmhttp.Limits
		request string
		loads   int // of 50 requests
	}{
		{"requests", llmhttp.Limits{Requests: never(2)}, `,"tool_choice":"required"`, 2},
		{"too large after loading", llmhttp.Limits{Requests: never(3), Tokens: never(2000)}, "", 1},
		{"tokens", llmhttp.Limits{Tokens: never(2000)}, `,"max_output_tokens":494`, 1},
		{"tokens before loading", llmhttp.Limits{Requests: never(2), Tokens: never(2000)}, `,"max_output_tokens":5000`, 0},
		{"lowered by the key", llmhttp.Limits{Requests: never(2), Tokens: never(2000), MaxCompletionTokens: 10}, `,"max_output_tokens":5000`, 1},
		{"quota", llmhttp.Limits{Quota: llmhttp.Quota{Tokens: -1}}, "", 0},
		{"quota, refused afterwards", llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 20_000}}, `,"tool_choice":"bogus","max_output_tokens":1`, 2},
		{"quota, too large after loading", llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}, `,"max_output_tokens":1`, 1},
		{"tokens, too large after loading", llmhttp.Limits{Tokens: never(2000)}, `,"max_output_tokens":1`, 1},
		{"tokens, refused afterwards", llmhttp.Limits{Tokens: never(20_000)}, `,"tool_choice":"bogus","max_output_tokens":1`, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, store := newCountingServer(t)
			id := s.create(`{"model":"m","input":"` + strings.Repeat("long ", 10_000) + `"}`)["id"].(string)
			store.turns, s.request = 0, nil
			s.limits = test.limits
			s.limits.Quota.Since = time.Now()
			for range 50 {
				status, body := s.send("acme", "POST", "/v1/responses", `{"model":"m","input":"x"`+continued(id)+test.request+`}`)
				assert.Contains(t, []int{400, 429}, status, "%s", body)
			}
			assert.Equal(t, test.loads, store.turns)
			assert.Nil(t, s.request, "the Backend was called")
		})
	}
	t.Run("items", func(t *testing.T) {
		s, store := newCountingServer(t)
		s.create(`{"model":"m","input":[{"role":"user","id":"long","content":"` + strings.Repeat("long ", 10_000) + `"}]}`)
		store.items = 0
		s.limits = llmhttp.Limits{Requests: never(2), Tokens: never(2000)}
		for range 50 {
			s.requireRefused(429, "POST", "/v1/responses", `{"model":"m","input":[{"id":"long"},{"role":"user","content":"x"}]}`)
		}
		assert.Equal(t, 1, store.items)
	})
	t.Run("other model", func(t *testing.T) {
		s, store := newCountingServer(t)
		id := s.create(`{"model":"m","input":"Hi"}`)["id"].(string)
		store.turns = 0
		s.requireRefused(404, "POST", "/v1/responses", `{"model":"`+strings.Repeat("m", 600)+`","input":"x"`+continued(id)+`}`)
		assert.Zero(t, store.turns)
	})
}

// What a refused request has loaded is recorded, because it counts toward the quota.
func TestHistory_RefusedIsRecorded(t *testing.T) {
	s, store := newCountingServer(t)
	id := store.save(t, 2, 10, 1<<20)
	for _, request := range []string{`"input":"x","tool_choice":"bogus"` + continued(id), `"input":[{"id":"large_0"},{"id":"none"}]`, `"input":"x","tool_choice":"bogus"`} {
		status, _ := s.send("acme", "POST", "/v1/responses", `{"model":"m",`+request+`}`)
		require.Equal(t, 400, status)
	}
	now := time.Now()
	sums, err := s.usage.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", From: now.Add(-time.Hour), To: now.Add(time.Hour)})
	require.NoError(t, err)
	require.Len(t, sums, 1)
	assert.Equal(t, int64(2), sums[0].Requests)
	assert.InDelta(t, 3<<20/4, sums[0].Units.PromptTokens, 100)
	assert.Zero(t, sums[0].Units.CompletionTokens)
}

// Agents count tokens many times at once, but each count that loads something is a request.
func TestHistory_CountsThatLoad(t *testing.T) {
	s, store := newCountingServer(t)
	id := store.save(t, 1, 10, 1<<20)
	s.limits = llmhttp.Limits{Requests: llmhttp.Rate{N: 2, Per: 365 * 24 * time.Hour}}
	statuses := map[int]int{}
	for range 10 {
		status, _ := s.send("acme", "POST", "/v1/responses/input_tokens", `{"model":"m","input":"x"`+continued(id)+`}`)
		statuses[status]++
	}
	assert.Equal(t, map[int]int{200: 2, 429: 8}, statuses)
	assert.Equal(t, 2, store.turns)
	for range 50 {
		s.ask("acme", "POST", "/v1/responses/input_tokens", `{"model":"m","input":"x"}`)
	}
}

// What is stored without a model getting it counts as text of the prompt.
func TestHistory_UnsentItemsCount(t *testing.T) {
	junk := strings.Repeat("x", 1<<20)
	const asText = 1 << 20 / 4
	count := func(s *server, request string) int {
		return int(s.ask("acme", "POST", "/v1/responses/input_tokens", `{"model":"m",`+request+`}`)["input_tokens"].(float64))
	}
	for name, item := range map[string]string{
		"type":      `{"type":"web_search_call","id":"i","blob":"` + junk + `"}`,
		"member":    `{"role":"user","id":"i","content":"x","blob":"` + junk + `"}`,
		"part":      `{"role":"assistant","id":"i","content":[{"type":"refusal","refusal":"x","blob":"` + junk + `"}]}`,
		"call":      `{"type":"function_call","id":"i","call_id":"c","name":"f","arguments":"{}","blob":"` + junk + `"}`,
		"reasoning": `{"type":"reasoning","id":"i","summary":[],"encrypted_content":"` + junk + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newCountingServer(t)
			input := `"input":[` + item + `,{"role":"user","content":"x"}]`
			assert.InDelta(t, asText, count(s, input), 1000, "would be stored")
			assert.Less(t, count(s, input+`,"store":false`), 20)
			id := s.create(`{"model":"m",` + input + `}`)["id"].(string)
			assert.InDelta(t, asText, count(s, `"input":"x"`+continued(id)), 1000, "loaded")
			assert.InDelta(t, asText, count(s, `"store":false,"input":[{"id":"i"},{"role":"user","content":"x"}]`), 1000, "referenced")

			s.limits = llmhttp.Limits{Tokens: llmhttp.Rate{N: 2000, Per: time.Hour}}
			s.requireRefused(429, "POST", "/v1/responses", `{"model":"m",`+input+`}`)
		})
	}
	t.Run("what is sent does not count twice", func(t *testing.T) {
		s, _ := newCountingServer(t)
		for _, text := range []string{strings.Repeat("word ", 10_000), strings.Repeat(`\u0061`, 10_000), strings.Repeat(`\\\"`, 10_000)} {
			stored := count(s, `"input":"`+text+`"`)
			assert.Equal(t, count(s, `"store":false,"input":"`+text+`"`), stored)
		}
		const image = `"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,%s"}]}]`
		assert.Less(t, count(s, fmt.Sprintf(image, strings.Repeat("QUJD", 100_000))), 1000)
	})
}

// A request that is served pays what it uses, and not what was reserved before its
// conversation was loaded.
func TestHistory_ReservationIsSettled(t *testing.T) {
	s, _ := newCountingServer(t)
	id := s.create(`{"model":"m","input":"Hi"}`)["id"].(string)
	s.limits = llmhttp.Limits{Tokens: llmhttp.Rate{N: 1300, Per: 365 * 24 * time.Hour}}
	s.chunks = []string{chunkText, chunkUsage}
	for range 50 { // each reserves more than 600 tokens and uses 12
		s.create(`{"model":"m","input":"x","max_output_tokens":600` + continued(id) + `}`)
	}
	s.requireRefused(429, "POST", "/v1/responses", `{"model":"m","input":"x","max_output_tokens":800`+continued(id)+`}`)

	s.limits = llmhttp.Limits{MaxCompletionTokens: 10}
	r := s.create(`{"model":"m","input":"x","max_output_tokens":600` + continued(id) + `}`)
	assert.Equal(t, 600.0, r["max_output_tokens"], "as in the request")
	assert.Equal(t, 10, *s.request.MaxCompletionTokens)
}

// Small deltas that alternate between reasoning and text open an item each.
func TestCreate_TooManyItems(t *testing.T) {
	alternating := func(n int) []string {
		var chunks []string
		for range n / 2 {
			chunks = append(chunks, `{"choices":[{"delta":{"reasoning_content":"r"}}]}`, `{"choices":[{"delta":{"content":"t"}}]}`)
		}
		return chunks
	}
	s := newServer(t, nil, alternating(4096)...)
	assert.Len(t, s.create(`{"model":"m","input":"Hi"}`)["output"], 4096)
	s.chunks = alternating(20_000)
	e := s.requireRefused(502, "POST", "/v1/responses", `{"model":"m","input":"Hi"}`)
	assert.Equal(t, "The reply of the model has more than 4096 items.", e.Message)
	r := must(accumulate(s.stream(`{"model":"m","input":"Hi"}`)))
	assert.Equal(t, "failed", r["status"])
	assert.Len(t, r["output"], 4096)
}

// Codex sends outputs that no call asked for. Their text stays in the conversation.
func TestCreate_OutputWithoutCall(t *testing.T) {
	const goal = `{"type":"function_call_output","name":"goal_objective","namespace":"agent","output":"Ship it."}`
	const custom = `{"type":"custom_tool_call_output","call_id":null,"output":[{"type":"input_text","text":"Soon."},{"type":"input_image","image_url":"data:,x"}]}`
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			s := newStoringServer(t, chunkText)
			create := func(body string) object {
				if !stream {
					return s.create(body)
				}
				return must(accumulate(s.stream(body)))
			}
			first := create(`{"model":"m","input":[{"role":"user","content":"Hi"},` + goal + `,` + custom + `]}`)
			assert.Equal(t, "user: Hi, user: Ship it., user: Soon.", s.messageTexts())
			assert.Len(t, s.request.Messages[2].Content, 2, "with the image")
			second := create(`{"model":"m","input":"Go on."` + continued(first["id"].(string)) + `}`)
			const all = "user: Hi, user: Ship it., user: Soon., assistant: Hello, user: Go on."
			assert.Equal(t, all, s.messageTexts())
			create(`{"model":"m","input":"And on."` + continued(second["id"].(string)) + `}`)
			assert.Equal(t, all+", assistant: Hello, user: And on.", s.messageTexts())

			page := s.ask("acme", "GET", "/v1/responses/"+first["id"].(string)+"/input_items?order=asc", "")
			item := page["data"].([]any)[1].(object)
			assert.Regexp(t, "^fco_", item["id"])
			delete(item, "id")
			assert.Equal(t, object{"type": "function_call_output", "name": "goal_objective", "namespace": "agent", "output": "Ship it.", "status": "completed"}, item)
			reference := page["data"].([]any)[2].(object)["id"].(string)
			create(`{"model":"m","input":[{"id":"` + reference + `"}]}`)
			assert.Equal(t, "user: Soon.", s.messageTexts())
		})
	}
}

// The error for an unknown address lists what is served, and no address that only exists to
// be refused.
func TestRoutes_NotListed(t *testing.T) {
	s := newServer(t, nil)
	status, body := s.send("acme", "POST", "/v1/conversations", `{}`)
	require.Equal(t, 404, status)
	assert.Contains(t, string(body), "POST /v1/responses, POST /v1/responses/compact, POST /v1/responses/input_tokens")
	assert.NotContains(t, string(body), "GET /v1/responses,")
}
