package sqlstore

import (
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
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/pricing"
)

// What is stored of an agent is exactly what its calls cost, whose prompts together cross a tier.
func TestStore_CostOfCalls(t *testing.T) {
	table, err := pricing.Parse([]byte(`{"models": {"m": {
		"input": "3", "output": "15", "request": "0.01", "above": [{"prompt_tokens": 200000, "input": "6", "output": "22.5"}]
	}}}`), nil)
	require.NoError(t, err)
	turns := []llm.Usage{
		{PromptTokens: 40_000, CompletionTokens: 500}, {PromptTokens: 45_001, CompletionTokens: 700}, {PromptTokens: 50_003, CompletionTokens: 333},
		{PromptTokens: 60_000, CompletionTokens: 1}, {PromptTokens: 70_007, CompletionTokens: 900},
	}
	want := llmhttp.UsageSum{Model: "m", Requests: 1}
	for _, u := range turns {
		cost, err := table.Price(&llmhttp.UsageRecord{Model: "m", Units: llmhttp.UnitsOf(u)})
		require.NoError(t, err)
		want.Units.Add(llmhttp.UnitsOf(u))
		want.Cost.Add(cost)
	}
	require.Equal(t, "0.881543", want.Cost.Total().String())

	// turning returns a model that uses turns, and calls a tool in all but the last.
	turning := func() llmhttp.Backend {
		n := 0
		return llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
			step, u := memory.Call("c1", "look", "{}"), turns[n]
			if n++; n == len(turns) {
				step = memory.Say("Done.")
			}
			return memory.Scripted(step, memory.Chunk(&llm.ChatChunk{Usage: &u})).Chat(ctx, req)
		})
	}
	look := agent.Tool{Function: llm.Function{Name: "look"}, Run: func(context.Context, string) (llm.Message, error) {
		return agent.Result("found"), nil
	}}
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		for name, newBackend := range map[string]func() llmhttp.Backend{
			"package agent": func() llmhttp.Backend {
				return agent.New(turning(), func(context.Context) ([]agent.Tool, error) { return []agent.Tool{look}, nil }, nil)
			},
			"a Backend of a host": func() llmhttp.Backend {
				model := turning()
				return llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
					return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
						for range turns {
							callCtx, end := llm.StartCall(ctx, req.Model)
							reply, err := agent.ForwardReply(model.Chat(callCtx, req.Clone()), send)
							end(llm.CallResult{Usage: reply.Usage, Err: err})
							if err != nil {
								return err
							}
						}
						return nil
					})
				})
			},
		} {
			for _, stream := range []string{"", `,"stream":true`} {
				account := name + stream
				h := llmhttp.NewHandler(newBackend(), llmhttp.AllowAll(account), &llmhttp.Options{Usage: s, Price: table.Price})
				r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"Hi"}]`+stream+`}`))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				require.Equal(t, http.StatusOK, w.Code)

				today := time.Now().UTC().Truncate(day)
				q := llmhttp.UsageQuery{Account: account, From: today.Add(-day), To: today.Add(2 * day)}
				want.Start = q.From
				assert.Equal(t, []llmhttp.UsageSum{want}, mustQuery(t, s, q), account)
				report, err := s.Report(t.Context(), manage.ReportQuery{Account: account, From: q.From, To: q.To, PerModel: true})
				require.NoError(t, err)
				assert.Equal(t, []manage.ReportRow{{Sums: []llmhttp.UsageSum{want}}}, report.Rows, account)
			}
		}
	})
}
