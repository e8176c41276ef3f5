package llmhttp_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/pricing"
)

// callPrices are prices that are not proportional to tokens: above 100 tokens of the prompt all tokens
// cost ten times as much, and each request 1000.
func callPrices(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
	if r.Model == "free of a price" {
		return llmhttp.Cost{}, errors.New("no price")
	}
	per := llm.Money(1)
	if r.Units.PromptTokens > 100 {
		per = 10
	}
	return llmhttp.Cost{
		Input: per * llm.Money(r.Units.PromptTokens), Output: per * llm.Money(r.Units.CompletionTokens),
		Other: 1000 + 1000*llm.Money(r.Units.Images),
	}, nil
}

// costOf returns the cost of calls with these numbers of tokens of the prompt and the completion.
func costOf(calls ...[2]int64) (sum llmhttp.Cost) {
	for _, c := range calls {
		cost, _ := callPrices(&llmhttp.UsageRecord{Units: llmhttp.Units{PromptTokens: c[0], CompletionTokens: c[1]}})
		sum.Add(cost)
	}
	return sum
}

func TestStartCall(t *testing.T) {
	call := func(ctx context.Context, model string, prompt, completion int) {
		_, end := llm.StartCall(ctx, model)
		end(llm.CallResult{Usage: new(usageOf(prompt, completion))})
	}
	say := func(yield yieldFunc, u *llm.Usage) {
		yield(&llm.ChatChunk{Choices: llm.TextChunk("one").Choices, Usage: u}, nil)
	}
	for name, test := range map[string]struct {
		serve     func(ctx context.Context, yield yieldFunc)
		want      llm.Usage
		cost      llmhttp.Cost
		estimated bool
		unpriced  bool
	}{
		"calls alone": {serve: func(ctx context.Context, yield yieldFunc) {
			call(ctx, "", 60, 5)
			call(ctx, "other", 70, 6)
			say(yield, nil)
		}, want: usageOf(130, 11), cost: costOf([2]int64{60, 5}, [2]int64{70, 6})},
		"with their total": {serve: func(ctx context.Context, yield yieldFunc) {
			call(ctx, "", 60, 5)
			call(ctx, "", 70, 6)
			llm.ReportUsage(ctx, usageOf(130, 11))
			say(yield, new(usageOf(130, 11)))
		}, want: usageOf(130, 11), cost: costOf([2]int64{60, 5}, [2]int64{70, 6})},
		"with the usage of the last one": {serve: func(ctx context.Context, yield yieldFunc) {
			call(ctx, "", 60, 5)
			call(ctx, "", 70, 6)
			say(yield, new(usageOf(70, 6)))
		}, want: usageOf(130, 11), cost: costOf([2]int64{60, 5}, [2]int64{70, 6})},
		"with a larger total": {serve: func(ctx context.Context, yield yieldFunc) {
			call(ctx, "", 60, 5)
			say(yield, new(usageOf(150, 11)))
		}, want: usageOf(150, 11), cost: costOf([2]int64{60, 5}, [2]int64{90, 6})},
		"a long prompt": {serve: func(ctx context.Context, yield yieldFunc) {
			call(ctx, "", 60, 5)
			call(ctx, "", 101, 6)
			say(yield, nil)
		}, want: usageOf(161, 11), cost: costOf([2]int64{60, 5}, [2]int64{101, 6})},
		"nothing but calls, and no chunk": {serve: func(ctx context.Context, _ yieldFunc) {
			call(ctx, "", 60, 5)
		}, want: usageOf(60, 5), cost: costOf([2]int64{60, 5})},
		"a call that failed": {serve: func(ctx context.Context, yield yieldFunc) {
			_, end := llm.StartCall(ctx, "")
			end(llm.CallResult{Err: errCause})
			_, end = llm.StartCall(ctx, "")
			end(llm.CallResult{Err: errCause, Usage: new(usageOf(20, 1))})
			call(ctx, "", 60, 5)
			say(yield, nil)
		}, want: usageOf(80, 6), cost: costOf([2]int64{20, 1}, [2]int64{60, 5})},
		"the request fails": {serve: func(ctx context.Context, yield yieldFunc) {
			call(ctx, "", 60, 5)
			yield(nil, errCause)
		}, want: usageOf(60, 5), cost: costOf([2]int64{60, 5})},
		"the model is not found after a call": {serve: func(ctx context.Context, yield yieldFunc) {
			call(ctx, "", 60, 5)
			yield(nil, llm.ModelNotFound("other"))
		}, want: usageOf(60, 5), cost: costOf([2]int64{60, 5})},
		"a panic": {serve: func(ctx context.Context, yield yieldFunc) {
			callCtx, _ := llm.StartCall(ctx, "")
			llm.ReportUsage(callCtx, usageOf(60, 5))
			panic("boom")
		}, want: usageOf(60, 5), cost: costOf([2]int64{60, 5})},
		"not ended": {serve: func(ctx context.Context, yield yieldFunc) {
			outer, _ := llm.StartCall(ctx, "")
			inner, _ := llm.StartCall(outer, "")
			llm.ReportUsage(inner, usageOf(10, 1))
			llm.ReportUsage(outer, usageOf(60, 5))
			say(yield, nil)
		}, want: usageOf(60, 5), cost: costOf([2]int64{10, 1}, [2]int64{50, 4})},
		"reported with the context of the call": {serve: func(ctx context.Context, yield yieldFunc) {
			callCtx, end := llm.StartCall(ctx, "")
			llm.ReportUsage(callCtx, usageOf(10, 1))
			llm.ReportUsage(callCtx, usageOf(60, 5))
			llm.ReportUsage(callCtx, usageOf(20, 2))
			end(llm.CallResult{Usage: new(usageOf(30, 3))})
			end(llm.CallResult{Usage: new(usageOf(90, 9))}) // does nothing
			llm.ReportUsage(callCtx, usageOf(900, 9))       // likewise
			call(ctx, "", 70, 6)
			say(yield, nil)
		}, want: usageOf(130, 11), cost: costOf([2]int64{60, 5}, [2]int64{70, 6})},
		"calls within calls": {serve: func(ctx context.Context, yield yieldFunc) {
			outer, end := llm.StartCall(ctx, "agent")
			call(outer, "", 60, 5)
			middle, endMiddle := llm.StartCall(outer, "agent")
			call(middle, "", 70, 6)
			endMiddle(llm.CallResult{Usage: new(usageOf(70, 6))})
			end(llm.CallResult{Usage: new(usageOf(135, 12))})
			say(yield, new(usageOf(135, 12)))
		}, want: usageOf(135, 12), cost: costOf([2]int64{60, 5}, [2]int64{70, 6}, [2]int64{5, 1})},
		"calls within a call that ends first": {serve: func(ctx context.Context, yield yieldFunc) {
			outer, end := llm.StartCall(ctx, "")
			inner, endInner := llm.StartCall(outer, "")
			llm.ReportUsage(inner, usageOf(60, 5))
			end(llm.CallResult{Usage: new(usageOf(70, 6))})
			endInner(llm.CallResult{Usage: new(usageOf(65, 5))})
			call(outer, "", 20, 2) // of the request
			say(yield, nil)
		}, want: usageOf(90, 8), cost: costOf([2]int64{60, 5}, [2]int64{10, 1}, [2]int64{20, 2})},
		"at the same time": {serve: func(ctx context.Context, yield yieldFunc) {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					callCtx, end := llm.StartCall(ctx, "")
					llm.ReportUsage(callCtx, usageOf(90, 5))
					call(callCtx, "", 40, 2)
					_, _ = llm.Spent(ctx)
					end(llm.CallResult{})
				})
			}
			all.Wait()
			say(yield, nil)
		}, want: usageOf(20*90, 20*5), cost: func() (sum llmhttp.Cost) {
			for range 20 {
				sum.Add(costOf([2]int64{40, 2}, [2]int64{50, 3}))
			}
			return sum
		}()},
		"only a total": {serve: func(ctx context.Context, yield yieldFunc) {
			_, end := llm.StartCall(ctx, "")
			end(llm.CallResult{Usage: &llm.Usage{PromptTokens: 60, TotalTokens: 65}})
			_, end = llm.StartCall(ctx, "")
			end(llm.CallResult{Usage: &llm.Usage{TotalTokens: 7}})
			say(yield, nil)
		}, want: usageOf(67, 5), cost: costOf([2]int64{60, 5}, [2]int64{7, 0})},
		"no price": {serve: func(ctx context.Context, yield yieldFunc) {
			call(ctx, "free of a price", 60, 5)
			call(ctx, "", 70, 6)
			say(yield, nil)
		}, want: usageOf(130, 11), cost: costOf([2]int64{70, 6}), unpriced: true},
		"no usage, as the estimate of the request": {serve: func(ctx context.Context, yield yieldFunc) {
			_, end := llm.StartCall(ctx, "")
			end(llm.CallResult{})
			say(yield, nil)
		}, want: usageOf(4, 1), cost: costOf([2]int64{4, 1}), estimated: true},
		"no usage of one of two": {serve: func(ctx context.Context, yield yieldFunc) {
			_, end := llm.StartCall(ctx, "")
			end(llm.CallResult{Usage: new(llm.Usage)})
			call(ctx, "", 60, 5)
			say(yield, nil)
		}, want: usageOf(60, 5), cost: costOf([2]int64{60, 5}), estimated: true},
		"negative and large numbers": {serve: func(ctx context.Context, yield yieldFunc) {
			call(ctx, "", -60, -5)
			call(ctx, "", 60, 5)
			say(yield, nil)
		}, want: usageOf(60, 5), cost: costOf([2]int64{60, 5}), estimated: true},
	} {
		for mode, body := range chatModes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				s := startServer(t, config{backend: streamBackend(test.serve), opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Price: callPrices}})
				s.chat(body)
				record := s.record()
				assert.Equal(t, llmhttp.UnitsOf(test.want), record.Units)
				assert.Equal(t, test.cost, record.Cost)
				assert.Equal(t, test.estimated, record.Estimated)
				assert.Equal(t, test.unpriced, record.Unpriced)
				assert.Equal(t, test.unpriced, s.summary().PriceErr != nil)
			})
		}
	}
}

// The client sees the sum as usage, whole and streamed.
func TestStartCall_ClientSeesTheSum(t *testing.T) {
	s := startServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		for range 2 {
			_, end := llm.StartCall(ctx, "")
			end(llm.CallResult{Usage: new(usageOf(60, 5))})
		}
		yield(llm.TextChunk("one"), nil)
	})})
	const usage = `"usage":{"prompt_tokens":120,"completion_tokens":10,"total_tokens":130`
	for _, body := range []string{chatBody, chatBody[:len(chatBody)-1] + `,"stream":true,"stream_options":{"include_usage":true}}`} {
		res := s.chat(body)
		assert.Contains(t, res.body, usage)
	}
}

// What Options.Price gets for each call, and what Spent returns meanwhile.
func TestStartCall_Price(t *testing.T) {
	var mu sync.Mutex
	var priced []llmhttp.UsageRecord
	price := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		mu.Lock()
		defer mu.Unlock()
		priced = append(priced, *r)
		return llmhttp.Cost{Output: llm.Money(len(priced))}, nil
	}
	s := startServer(t, config{opts: llmhttp.Options{Price: price}, backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		spent := func(ctx context.Context, want llm.Money) {
			cost, err := llm.Spent(ctx)
			assert.NoError(t, err)
			assert.Equal(t, want, cost)
		}
		spent(ctx, 0)
		_, endTry := llmhttp.StartTry(ctx, "the target")
		outer, end := llm.StartCall(ctx, "large")
		inner, endInner := llm.StartCall(outer, "")
		spent(inner, 0)
		endInner(llm.CallResult{Model: "small-2", ServiceTier: "batch", Usage: new(usageOf(7, 3))})
		endTry(nil)
		spent(outer, 1)
		spent(ctx, 0)
		end(llm.CallResult{Model: "large-2\n", Usage: new(usageOf(9, 9))})
		spent(ctx, 1+2)
		_, end = llm.StartCall(ctx, "")
		end(llm.CallResult{})
		_, err := llm.Spent(ctx)
		assert.ErrorContains(t, err, "has not reported what a call has used")
		yield(&llm.ChatChunk{Model: "served", Choices: llm.TextChunk("one").Choices, Usage: new(usageOf(10, 9))}, nil)
	})})
	s.chat(chatBody)
	record := s.record()
	assert.Equal(t, llm.Money(1+2+3), record.Cost.Total())
	require.Len(t, priced, 3)
	for i, want := range []struct {
		model, served, tier string
		prompt, completion  int64
	}{{record.Model, "small-2", "batch", 7, 3}, {"large", "", "", 2, 6}, {record.Model, "served", "", 1, 0}} {
		r := priced[i]
		assert.Equal(t, want.model, r.Model)
		assert.Equal(t, want.served, r.ServedModel)
		assert.Equal(t, want.tier, r.ServiceTier)
		assert.Equal(t, llmhttp.Units{PromptTokens: want.prompt, CompletionTokens: want.completion}, r.Units)
		assert.Equal(t, record.ID+record.Account+record.KeyID, r.ID+r.Account+r.KeyID)
		assert.Equal(t, record.Time, r.Time)
		assert.Equal(t, "the target", r.Target)
		assert.False(t, r.Unpriced || r.Estimated)
	}
}

// Without a price, a request or a running Backend, nothing is counted.
func TestStartCall_WithoutRequest(t *testing.T) {
	ctx, end := llm.StartCall(t.Context(), "m")
	assert.Equal(t, t.Context(), ctx)
	end(llm.CallResult{})
	_, err := llm.Spent(ctx)
	assert.ErrorIs(t, err, errors.ErrUnsupported)

	var late context.Context
	var endLate func(llm.CallResult)
	s := startServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		_, err := llm.Spent(ctx)
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		late, endLate = llm.StartCall(ctx, "")
		llm.ReportUsage(late, usageOf(7, 3))
		yield(llm.TextChunk("one"), nil)
	})})
	s.chat(chatBody)
	s.summary()
	endLate(llm.CallResult{Usage: new(usageOf(70, 30))})
	ctx, end = llm.StartCall(late, "")
	assert.Equal(t, late, ctx)
	end(llm.CallResult{Usage: new(usageOf(70, 30))})
	assert.Contains(t, s.log.String(), "reported usage after it")
	record := s.record()
	assert.Equal(t, llmhttp.UnitsOf(usageOf(7, 3)), record.Units)
	assert.Zero(t, record.Cost)
	assert.False(t, record.Unpriced)
}

// A Price that panics for a call does not end the Backend, and the others are billed.
func TestStartCall_PricePanics(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		if r.Model == "x" {
			panic("boom")
		}
		return callPrices(r)
	}}, backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		for _, model := range []string{"x", "y"} {
			_, end := llm.StartCall(ctx, model)
			end(llm.CallResult{Usage: new(usageOf(60, 5))})
		}
		yield(llm.TextChunk("one"), nil)
	})})
	assert.Equal(t, http.StatusOK, s.chat(chatBody).StatusCode)
	record := s.record()
	assert.True(t, record.Unpriced)
	assert.Equal(t, costOf([2]int64{60, 5}), record.Cost)
}

// Images of a request are priced beside the calls of models that are needed for them.
func TestStartCall_Images(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{Price: callPrices}, backend: &stubBackend{
		images: func(ctx context.Context, _ *llm.ImageRequest) (*llm.ImageResponse, error) {
			_, end := llm.StartCall(ctx, "writer")
			end(llm.CallResult{Usage: new(usageOf(60, 5))})
			return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("x")}}}, nil
		},
	}})
	s.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a cat"}`)
	record := s.record()
	assert.Equal(t, llmhttp.Units{PromptTokens: 60, CompletionTokens: 5, Images: 1}, record.Units)
	want := costOf([2]int64{60, 5})
	want.Other += 2000
	assert.Equal(t, want, record.Cost)
}

// A quota in money counts the calls by themselves.
func TestStartCall_Quota(t *testing.T) {
	key := testKey()
	key.Limits.Quota = llmhttp.Quota{Cost: 5000}
	s := startServer(t, config{keys: keysFor(key), opts: llmhttp.Options{Price: callPrices}, backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		for range 2 { // 2130 together, and 2310 as one
			_, end := llm.StartCall(ctx, "")
			end(llm.CallResult{Usage: new(usageOf(60, 5))})
		}
		yield(llm.TextChunk("one"), nil)
	})})
	for _, want := range []int{200, 200, 429} {
		assert.Equal(t, want, s.chat(chatBody[:len(chatBody)-1]+`,"max_tokens":9}`).StatusCode)
	}
}

// Dollars of an agent are those of its calls, to the billionth.
func TestStartCall_PublishedPrices(t *testing.T) {
	table, err := pricing.Parse([]byte(`{"models": {"large": {
		"input": "3", "output": "15", "request": "0.01", "above": [{"prompt_tokens": 200000, "input": "6", "output": "22.5"}]
	}}, "aliases": {"m": "large"}}`), nil)
	require.NoError(t, err)
	var want llmhttp.Cost
	calls := []llm.Usage{usageOf(40_000, 500), usageOf(45_001, 700), usageOf(50_003, 333), usageOf(60_000, 1), usageOf(70_007, 900)}
	for _, u := range calls {
		cost, err := table.Price(&llmhttp.UsageRecord{Model: "large", Units: llmhttp.UnitsOf(u), Time: time.Now()})
		require.NoError(t, err)
		want.Add(cost)
	}
	s := startServer(t, config{opts: llmhttp.Options{Price: table.Price}, backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
		var sum llm.Usage
		for _, u := range calls {
			_, end := llm.StartCall(ctx, "m")
			end(llm.CallResult{Model: "large", Usage: &u})
			sum.Add(&u)
		}
		yield(chunkWithUsage("one", sum), nil)
	})})
	s.chat(chatBody)
	record := s.record()
	assert.Equal(t, "0.881543", want.Total().String())
	assert.Equal(t, want, record.Cost)
}
