package llmhttp_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

// A pricer is an Options.Price that keeps what it gets.
type pricer struct {
	price func(*llmhttp.UsageRecord) (llmhttp.Cost, error)

	mu  sync.Mutex // guards got
	got []llmhttp.UsageRecord
}

func (p *pricer) Price(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, *r)
	return p.price(r)
}

var aPrice = llmhttp.Cost{Input: 1, CacheRead: 2, CacheWrite: 3, Output: 4, Other: 5}

// Price gets what is recorded, and what it returns is recorded.
func TestPrice_OfARecord(t *testing.T) {
	for name, body := range modelBodies {
		t.Run(name, func(t *testing.T) {
			p := &pricer{price: func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return aPrice, nil }}
			s := startServer(t, config{opts: llmhttp.Options{Price: p.Price}})
			require.Equal(t, 200, s.do("POST", name, body).StatusCode)
			want := s.record()
			assert.Equal(t, aPrice, want.Cost)
			assert.False(t, want.Unpriced)
			want.Cost = llmhttp.Cost{}
			assert.Equal(t, []llmhttp.UsageRecord{want}, p.got, "there is no estimate without a quota in money")
			assert.NoError(t, s.summary().PriceErr)
			assert.Equal(t, aPrice, s.summary().Record.Cost)
		})
	}
}

// Price is not called for requests that are not recorded.
func TestPrice_NotCalled(t *testing.T) {
	p := &pricer{price: func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return aPrice, nil }}
	s := startServer(t, config{opts: llmhttp.Options{Price: p.Price}, backend: failingBackend(llm.ModelNotFound("m"))})
	s.chat(chatBody).checkError(t, 404)
	s.chat("{").checkError(t, 400)
	s.get(modelsPath)
	s.shutdown()
	assert.Empty(t, p.got)
}

// An error of the final price does not fail the request. It is recorded as unpriced.
func TestPrice_Fails(t *testing.T) {
	for name, price := range map[string]func(*llmhttp.UsageRecord) (llmhttp.Cost, error){
		"error":     func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return aPrice, errCause },
		"an *Error": func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return aPrice, llm.ModelNotFound("m") },
		"panic":     func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { panic(secretCause) },
		"changes":   func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) { r.Units.PromptTokens = 99; return aPrice, errCause },
	} {
		for mode, body := range chatModes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				s := startServer(t, config{backend: usageBackend(4, 6), opts: llmhttp.Options{Price: price}})
				require.Equal(t, 200, s.chat(body).StatusCode)
				record := s.record()
				assert.True(t, record.Unpriced)
				assert.Zero(t, record.Cost)
				assert.Equal(t, llmhttp.Units{PromptTokens: 4, CompletionTokens: 6}, record.Units)
				assert.Error(t, s.summary().PriceErr)
				assert.Contains(t, s.log.String(), `"level":"ERROR","msg":"usage not priced"`)
			})
		}
	}
}

// With a quota in money, Price is called with an estimate first. Its error refuses the request.
func TestPrice_Estimate(t *testing.T) {
	limits := llmhttp.Limits{Quota: llmhttp.Quota{Cost: llm.MoneyUnit}}
	serve := func(price func(*llmhttp.UsageRecord) (llmhttp.Cost, error)) (*testServer, *pricer) {
		p := &pricer{price: price}
		return startServer(t, config{backend: usageBackend(4, 6), keys: limitedKeys(limits), opts: llmhttp.Options{Price: p.Price, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Usage: memory.NewUsageStore()}}), p
	}
	s, p := serve(func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{}, nil })
	require.Equal(t, 200, s.chat(chatWith(`"max_tokens":10`)).StatusCode)
	s.shutdown()
	require.Len(t, p.got, 2)
	assert.Equal(t, llmhttp.Units{PromptTokens: 4, CompletionTokens: 10}, p.got[0].Units)
	assert.True(t, p.got[0].Estimated)
	assert.Equal(t, "demo-chat", p.got[0].Model)
	assert.Equal(t, llmhttp.OperationChat, p.got[0].Operation)
	assert.False(t, p.got[1].Estimated)

	s, p = serve(func(*llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{}, llm.Errorf(http.StatusBadRequest, "no_price", "This model has no price.")
	})
	assert.Equal(t, "no_price", s.chat(chatBody).checkError(t, 400).Code)
	s.shutdown()
	assert.Len(t, p.got, 1, "the Backend was not called")

	s, _ = serve(func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{}, errCause })
	s.chat(chatBody).checkError(t, 500)
	assert.Contains(t, s.log.String(), "llmhttp: Options.Price: ")
	assert.Equal(t, llmhttp.ClassInternal, s.summary().ErrorClass)

	// The images of a request and their parameters are known.
	p = &pricer{price: func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{}, nil }}
	s = startServer(t, config{keys: limitedKeys(limits), opts: llmhttp.Options{Price: p.Price, Usage: memory.NewUsageStore()}})
	s.do("POST", imagesPath, `{"model":"m","prompt":"x","n":2,"quality":"hd"}`)
	s.shutdown()
	require.NotEmpty(t, p.got)
	assert.EqualValues(t, 2, p.got[0].Units.Images)
	assert.Equal(t, "hd", p.got[0].ImageQuality)
	assert.Equal(t, "1024x1024", p.got[0].ImageSize)
}

// The service tier that the client asks for is that of the estimate, and the one of the reply that
// of the record.
func TestPrice_ServiceTier(t *testing.T) {
	limits := llmhttp.Limits{Quota: llmhttp.Quota{Cost: 100}}
	const chat = `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"Hi"}]`
	for name, tt := range map[string]struct {
		path, body string // an empty path means that of chat completions
		reply      string // the member of the reply; empty if it has none
		want       []string
	}{
		"none":                 {"", chat + `}`, "", []string{"", ""}},
		"asked for":            {"", chat + `,"service_tier":"flex"}`, `"flex"`, []string{"flex", "flex"}},
		"another one serves":   {"", chat + `,"service_tier":"priority"}`, `"default"`, []string{"priority", "default"}},
		"the reply tells none": {"", chat + `,"service_tier":"priority"}`, "", []string{"priority", ""}},
		"not asked for":        {"", chat + `}`, `"default"`, []string{"", "default"}},
		"too long":             {"", chat + `,"service_tier":"` + strings.Repeat("x", 513) + `"}`, "", []string{"", ""}},
		"Messages":             {"/v1/messages", chat + `,"service_tier":"standard_only"}`, `"default"`, []string{"default", "default"}},
		"Responses":            {"/v1/responses", `{"model":"m","input":"Hi","max_output_tokens":16,"service_tier":"flex"}`, `"flex"`, []string{"flex", "flex"}},
		"refused":              {"", chat + `,"service_tier":"expensive"}`, "", []string{"expensive"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pricer{price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
				if r.ServiceTier == "expensive" {
					return llmhttp.Cost{Input: 101}, nil
				}
				return llmhttp.Cost{Input: 1}, nil
			}}
			s := startServer(t, config{
				backend: streamBackend(func(_ context.Context, yield yieldFunc) {
					c := llm.TextChunk("Hello!")
					if tt.reply != "" {
						c.Extra = llm.Extra{"service_tier": json.RawMessage(tt.reply)}
					}
					yield(c, nil)
				}),
				keys: limitedKeys(limits),
				opts: llmhttp.Options{Price: p.Price, Usage: memory.NewUsageStore(), Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)}},
			})
			r := s.do("POST", cmp.Or(tt.path, chatPath), tt.body)
			if len(tt.want) == 1 {
				r.checkError(t, 429)
			} else {
				require.Equal(t, 200, r.StatusCode, r.body)
			}
			s.shutdown()
			var tiers []string
			for i := range p.got {
				tiers = append(tiers, p.got[i].ServiceTier)
			}
			assert.Equal(t, tt.want, tiers)
		})
	}
}

// What has no price at its end costs what was reserved for it, in every kind of reply. It is marked, so
// that a quota in money is not exceeded by what cannot be priced.
func TestPrice_FailsAtTheEnd(t *testing.T) {
	for op, test := range streamedReplies {
		for name, fail := range map[string]func() (llmhttp.Cost, error){
			"error": func() (llmhttp.Cost, error) { return llmhttp.Cost{}, errCause },
			"panic": func() (llmhttp.Cost, error) { panic(secretCause) },
		} {
			t.Run(string(op)+"/"+name, func(t *testing.T) {
				calls, estimates := 0, 1
				if op == llmhttp.OperationChat || op == completion.Operation {
					estimates = 2 // with what may be reserved and what must be
				}
				s := startServer(t, config{
					keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Cost: 20}}),
					opts: llmhttp.Options{Price: func(*llmhttp.UsageRecord) (llmhttp.Cost, error) {
						if calls++; calls <= estimates {
							return aPrice, nil
						}
						return fail()
					}},
				})
				assert.Equal(t, 200, s.do("POST", test.path, test.body).StatusCode)
				record := s.record()
				assert.Equal(t, aPrice, record.Cost)
				assert.True(t, record.Unpriced)
				assert.Error(t, s.summary().PriceErr)
				assert.Contains(t, s.log.String(), `"level":"ERROR","msg":"usage not priced"`)
			})
		}
	}
}

// Requests whose price fails when they end use up a quota in money.
func TestPrice_QuotaOfWhatHasNoPrice(t *testing.T) {
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Cost: 3 * aPrice.Total()}}),
		opts: llmhttp.Options{Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
			if n := r.Units.CompletionTokens; n == 512 || n == 0 { // the estimates
				return aPrice, nil
			}
			return llmhttp.Cost{}, errCause
		}},
	})
	for i := range 10 {
		status := 200
		if i >= 3 {
			status = 429
		}
		assert.Equal(t, status, s.chat(chatBody).StatusCode)
	}
	for _, r := range s.usage.records() {
		assert.Equal(t, aPrice, r.Cost)
		assert.True(t, r.Unpriced)
	}
}

// Tokens of audio and images that nobody reports are estimated if they are what has a price.
func TestPrice_TokensThatAreNotReported(t *testing.T) {
	spoken := strings.Repeat("x", 1000)
	b := &stubBackend{speak: func(context.Context, *audio.SpeechRequest) audio.SpeechStream { return speech(spoken) }}
	for name, test := range map[string]struct {
		path, body string
		price      func(u *llmhttp.Units) int64
		want       llmhttp.Units
		cost       llm.Money
		estimated  bool
	}{
		"speech by tokens":     {speechPath, speechBody, func(u *llmhttp.Units) int64 { return u.Tokens() }, llmhttp.Units{Characters: 19, AudioMillis: 1000, PromptTokens: 5, CompletionTokens: 20, CompletionAudioTokens: 20}, 25, true},
		"speech by characters": {speechPath, speechBody, func(u *llmhttp.Units) int64 { return u.Characters }, llmhttp.Units{Characters: 19, AudioMillis: 1000}, 19, true},
		"free speech":          {speechPath, speechBody, func(*llmhttp.Units) int64 { return 0 }, llmhttp.Units{Characters: 19, AudioMillis: 1000}, 0, true},
		"images by tokens":     {imagesPath, imageBody, func(u *llmhttp.Units) int64 { return u.CompletionTokens }, llmhttp.Units{Images: 1, PromptTokens: 2, CompletionTokens: 4161}, 4161, true},
		"images by number":     {imagesPath, imageBody, func(u *llmhttp.Units) int64 { return u.Images }, llmhttp.Units{Images: 1}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: b, opts: llmhttp.Options{Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
				if n := test.price(&r.Units); n > 0 || name == "free speech" {
					return llmhttp.Cost{Output: llm.Money(n)}, nil
				}
				return llmhttp.Cost{}, errCause
			}}})
			require.Equal(t, 200, s.do("POST", test.path, test.body).StatusCode)
			r := s.record()
			assert.Equal(t, test.want, r.Units)
			assert.Equal(t, test.cost, r.Cost.Total())
			assert.Equal(t, test.estimated, r.Estimated)
			assert.False(t, r.Unpriced)
		})
	}
}
