package agent_test

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/pricing"
)

// turns are what five turns use. Their prompts together are longer than those that cost more.
var turns = []llm.Usage{
	{PromptTokens: 40_000, CompletionTokens: 500}, {PromptTokens: 45_001, CompletionTokens: 700}, {PromptTokens: 50_003, CompletionTokens: 333},
	{PromptTokens: 60_000, CompletionTokens: 1}, {PromptTokens: 70_007, CompletionTokens: 900},
}

// turning returns a model that uses turns, and calls a tool in all but the last.
func turning() llmhttp.Backend {
	n := 0
	return llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		steps := callLook
		if n == len(turns)-1 {
			steps = answer
		}
		u := turns[n]
		n++
		return memory.Scripted(append([]memory.Step{memory.Chunk(&llm.ChatChunk{Model: "large-2", Usage: &u})}, steps...)...).Chat(ctx, req)
	})
}

// An agent costs exactly what its calls cost, and MaxCost counts the same.
func TestBackend_Cost(t *testing.T) {
	table, err := pricing.Parse([]byte(`{"models": {"large-2": {
		"input": "3", "output": "15", "request": "0.01", "above": [{"prompt_tokens": 200000, "input": "6", "output": "22.5"}]
	}}}`), nil)
	require.NoError(t, err)
	var sums [6]llmhttp.Cost // of the first turns
	var units llmhttp.Units
	for i, u := range turns {
		cost, err := table.Price(&llmhttp.UsageRecord{Model: "large-2", Units: llmhttp.UnitsOf(u)})
		require.NoError(t, err)
		sums[i+1] = sums[i]
		sums[i+1].Add(cost)
		units.Add(llmhttp.UnitsOf(u))
	}
	assert.Equal(t, "0.881543", sums[5].Total().String())

	for name, test := range map[string]struct {
		opts  agent.Options
		turns int
	}{
		"unbounded":          {agent.Options{}, 5},
		"bound after three":  {agent.Options{MaxCost: sums[3].Total()}, 4},
		"bound not reached":  {agent.Options{MaxCost: sums[5].Total()}, 5},
		"bound in the third": {agent.Options{MaxCost: sums[2].Total() + 1}, 4},
	} {
		for _, stream := range []string{"", `,"stream":true`} {
			t.Run(name+cmp.Or(stream, ", whole"), func(t *testing.T) {
				usage := memory.NewUsageStore()
				b := agent.New(turning(), tools(look), &test.opts)
				h := llmhttp.NewHandler(b, llmhttp.AllowAll("ada"), &llmhttp.Options{Usage: usage, Price: table.Price})
				r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"Hi"}]`+stream+`}`))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				require.Equal(t, http.StatusOK, w.Code)
				got, err := usage.Query(t.Context(), llmhttp.UsageQuery{Account: "ada", To: time.Now().Add(time.Hour)})
				require.NoError(t, err)
				require.Len(t, got, 1)
				assert.Equal(t, sums[test.turns], got[0].Cost)
				assert.Zero(t, got[0].Unpriced)
				if test.turns == 5 {
					assert.Equal(t, units, got[0].Units)
				}
			})
		}
	}
}

// An agent of agents counts each call of a model once.
func TestBackend_CostOfAgents(t *testing.T) {
	var priced []int64
	price := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		priced = append(priced, r.Units.Tokens())
		return llmhttp.Cost{Other: 1}, nil
	}
	usage := usageLog{memory.NewUsageStore(), make(chan llmhttp.UsageRecord, 1)}
	inner := agent.New(model(callLook, answer, callLook, answer), tools(look), nil)
	outer := agent.New(inner, tools(), &agent.Options{MaxCost: 1})
	askHandler(t, outer, &llmhttp.Options{Usage: usage, Price: price})
	record := <-usage.records
	assert.Equal(t, int64(30), record.Units.Tokens())
	assert.Equal(t, llmhttp.Cost{Other: 2}, record.Cost)
	assert.Equal(t, []int64{15, 15}, priced)
}
