package llmhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
)

// These tests check that tokens are settled and usage is recorded, including after
// failures.

// keysWithThousandTokens are keys with a limit of tokens, so that requests are settled.
var keysWithThousandTokens = limitedKeys(llmhttp.Limits{Tokens: llmhttp.PerMinute(1000)})

// Settling a request returns the reserved tokens that it did not use, and takes those
// that it used beyond its reservation: BerriAI/litellm#18730.
func TestSettle_ReservationIsSettled(t *testing.T) {
	const limit = 1000
	tests := []struct {
		name     string
		backend  llmhttp.Backend
		members  string
		status   int
		reserved int // as the headers of the reply show
		used     int // as the headers of the next reply show
	}{
		{"less is used", usageBackend(4, 6), `"max_tokens":50`, 200, 54, 10},
		{"less is used, stream", usageBackend(4, 6), `"max_tokens":50,"stream":true`, 200, 54, 10},
		{"more is used", usageBackend(40, 600), `"max_tokens":50`, 200, 54, 640},
		{"more is used, without max_tokens", usageBackend(4, 200), `"n":1`, 200, 4 + 512, 204},
		{"without max_tokens, several choices", usageBackend(4, 200), `"n":3`, 200, limit, 204},
		{"exactly the reservation is used", usageBackend(4, 50), `"max_tokens":50`, 200, 54, 54},
		{"more is used than the limit", usageBackend(4, 3000), `"max_tokens":50`, 200, 54, limit},
		{"no usage is reported", textBackend("three words here"), `"max_tokens":50`, 200, 54, 4 + 3},
		{"no usage is reported, stream", textBackend("three words here"), `"max_tokens":50,"stream":true`, 200, 54, 4 + 3},
		{"failure", failingBackend(errCause), `"max_tokens":50`, 500, 54, 0},
		{"failure, stream", failingBackend(errCause), `"max_tokens":50,"stream":true`, 500, 54, 0},
		{"panic", streamBackend(func(context.Context, yieldFunc) { panic("boom") }), `"max_tokens":50`, 500, 54, 0},
		{"several choices", usageBackend(4, 6), `"max_tokens":50,"n":3`, 200, 154, 10},
		{"max_completion_tokens", usageBackend(4, 6), `"max_tokens":500,"max_completion_tokens":50`, 200, 54, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := startServer(t, config{
				backend: tt.backend,
				opts:    llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
				keys:    limitedKeys(llmhttp.Limits{Requests: noRefill(100), Tokens: noRefill(limit), Quota: llmhttp.Quota{Tokens: 100000}}),
			})
			r := s.chat(chatWith(tt.members))
			require.Equal(t, tt.status, r.StatusCode, "%s", r.body)
			checkRemaining(t, r, 99, limit-tt.reserved)
			s.summary()
			r = s.chat("{") // takes no tokens
			r.checkError(t, 400)
			checkRemaining(t, r, 99, limit-tt.used)
		})
	}
}

// A client that leaves is charged for the tokens generated until then. The rest of the
// reservation is returned.
func TestSettle_ClientLeavesAStream(t *testing.T) {
	l := new(stubLimiter)
	yielded := make(chan struct{})
	s := startServer(t, config{
		keys: keysWithThousandTokens,
		opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Limiter: l},
		backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			yield(llm.TextChunk("three words here"), nil)
			close(yielded)
			<-ctx.Done()
		}),
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.open(ctx, "POST", chatPath, chatWith(`"max_tokens":100,"stream":true`))
	require.NoError(t, err)
	receive(t, "the chunk", yielded)
	cancel()
	resp.Body.Close()
	s.summary()
	_, adjusted := l.calls()
	require.Len(t, adjusted, 1)
	assert.EqualValues(t, 4+3-104, adjusted[0][0].Amount)
	record := s.record()
	assert.Equal(t, llmhttp.Units{PromptTokens: 4, CompletionTokens: 3}, record.Units)
	assert.True(t, record.Estimated)
}

// Usage that a Backend reports is recorded and sent unchanged. Usage that it does not
// report is counted. BerriAI/litellm#15740, helixml/helix#3005,
// envoyproxy/ai-gateway#942.
func TestSettle_UsageOfAChat(t *testing.T) {
	usage := func(prompt, completion, total int) *llm.Usage {
		return &llm.Usage{PromptTokens: prompt, CompletionTokens: completion, TotalTokens: total}
	}
	text := func(s string, u *llm.Usage) *llm.ChatChunk {
		c := llm.TextChunk(s)
		c.Usage = u
		return c
	}
	tests := []struct {
		name      string
		backend   llmhttp.Backend
		want      *llm.Usage
		estimated bool
	}{
		{"reported after the text", chunkBackend(func() []*llm.ChatChunk {
			return []*llm.ChatChunk{text("hi", nil), {Usage: usage(7, 3, 10)}}
		}), usage(7, 3, 10), false},
		{"reported with the text", usageBackend(7, 3), usage(7, 3, 10), false},
		{"snapshots are not summed", chunkBackend(func() (list []*llm.ChatChunk) {
			for i := range 5 {
				list = append(list, text("x", usage(7, i, 0)))
			}
			return list
		}), usage(7, 4, 11), false},
		{"negative numbers", chunkBackend(func() []*llm.ChatChunk { return []*llm.ChatChunk{{Usage: usage(-5, -3, -8)}} }), usage(0, 0, 0), false},
		{"not reported", textBackend("one two ", "three"), usage(4, 3, 7), true},
		{"not reported, no text", textBackend(""), usage(4, 0, 4), true},
	}
	modes := map[string]struct {
		members string
		shown   bool
	}{
		"whole":             {`"stream":false`, true},
		"stream":            {`"stream":true`, false},
		"stream with usage": {`"stream":true,"stream_options":{"include_usage":true}`, true},
	}
	for _, tt := range tests {
		for mode, m := range modes {
			t.Run(tt.name+"/"+mode, func(t *testing.T) {
				s := startServer(t, config{backend: tt.backend, opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}}})
				r := s.chat(chatWith(m.members))
				require.NoError(t, r.err)
				record := s.record()
				assert.Equal(t, llmhttp.UnitsOf(*tt.want), record.Units)
				assert.Equal(t, tt.estimated, record.Estimated)
				if !m.shown {
					assert.NotContains(t, r.body, `"usage"`)
					return
				}
				assert.Contains(t, r.body, fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`,
					tt.want.PromptTokens, tt.want.CompletionTokens, tt.want.TotalTokens))
				assert.Equal(t, 1, strings.Count(r.body, `"usage"`), "%s", r.body)
				if mode == "stream with usage" {
					events := r.events(t)
					assert.Equal(t, "[DONE]", events[len(events)-1])
					assert.Contains(t, events[len(events)-2], `"choices":[],"usage":{`, "BerriAI/litellm#28735, #36168, #8450")
				}
			})
		}
	}
}

// A nil chunk is no part of a reply: a Backend that yields nothing else before it fails has
// used nothing.
func TestSettle_FailureAfterANilChunk(t *testing.T) {
	s := startServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
		_ = yield(nil, nil) && yield(nil, errCause)
	})})
	require.Equal(t, 500, s.chat(chatBody).StatusCode)
	assert.Zero(t, s.record().Units)
}

func TestSettle_UsageIsRecordedBeforeTheReplyEnds(t *testing.T) {
	s := startServer(t, config{})
	for i, body := range []string{chatBody, streamBody} {
		require.NoError(t, s.chat(body).err)
		require.Len(t, s.usage.records(), i+1)
	}
}

func TestSettle_UsageStoreFailsOrIsSlow(t *testing.T) {
	tests := []struct {
		name   string
		before func(context.Context) error
		logged bool
	}{
		{"error", func(context.Context) error { return errCause }, true},
		{"panic", func(context.Context) error { panic(secretCause) }, true},
		{"slow", func(context.Context) error { time.Sleep(9 * time.Second); return nil }, false},
	}
	for _, tt := range tests {
		for mode, body := range chatModes {
			t.Run(tt.name+"/"+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := startPipeServer(t, config{usage: &usageLog{before: tt.before}})
					r := s.chat(body)
					require.NoError(t, r.err)
					assert.Equal(t, 200, r.StatusCode)
					assert.Contains(t, r.body, "Hello!")
					assert.NotContains(t, r.body, secretCause)
					assert.Equal(t, tt.logged, strings.Contains(s.log.String(), secretCause))
					assert.NoError(t, s.summary().Err)
					assert.Equal(t, 1, s.usage.calls, "Record is called once")
				})
			})
		}
	}
}

// The context of Record expires after 10 seconds, which ends the wait for a UsageStore
// that hangs.
func TestSettle_UsageStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		s := startPipeServer(t, config{usage: &usageLog{before: func(ctx context.Context) error {
			start := time.Now()
			<-ctx.Done()
			took = time.Since(start)
			return ctx.Err()
		}}})
		assert.Equal(t, 200, s.chat(chatBody).StatusCode)
		assert.Equal(t, 10*time.Second, took)
		assert.Contains(t, s.log.String(), "usage not recorded")
	})
}

// Record gets a context that outlives the request: it is not canceled when the client
// leaves, and has its own deadline.
func TestSettle_UsageIsRecordedAfterTheClientHasLeft(t *testing.T) {
	checkNoLeaks(t)
	type recordContext struct {
		err      error
		deadline bool
	}
	got := make(chan recordContext, 1)
	s := startServer(t, config{
		usage: &usageLog{before: func(ctx context.Context) error {
			deadline, ok := ctx.Deadline()
			got <- recordContext{ctx.Err(), ok && time.Until(deadline) > 0}
			return nil
		}},
		backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			yield(llm.TextChunk("one"), nil)
			<-ctx.Done()
		}),
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.open(ctx, "POST", chatPath, streamBody)
	require.NoError(t, err)
	cancel()
	resp.Body.Close()
	assert.Equal(t, recordContext{err: nil, deadline: true}, receive(t, "Record", got))
	s.record()
}

// A Limiter that hangs when a request is settled does not shorten the deadline of the
// UsageStore.
func TestSettle_AdjustHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{keys: keysWithThousandTokens, opts: llmhttp.Options{
			Limiter: &stubLimiter{adjust: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		}})
		s.chat(chatBody)
		s.record()
		assert.Contains(t, s.log.String(), "limits not settled")
		assert.NotContains(t, s.log.String(), "usage not recorded")
	})
}

func TestSettle_AdjustFails(t *testing.T) {
	for name, adjust := range map[string]func(context.Context) error{
		"error": func(context.Context) error { return errCause },
		"panic": func(context.Context) error { panic(secretCause) },
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{keys: keysWithThousandTokens, opts: llmhttp.Options{Limiter: &stubLimiter{adjust: adjust}}})
			assert.Equal(t, 200, s.chat(chatBody).StatusCode)
			s.summary()
			s.record()
			assert.Contains(t, s.log.String(), "limits not settled")
		})
	}
}

func TestSettle_CountTokensPanics(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: func(_, text string) int {
		if text == "Hello!" {
			panic("boom")
		}
		return 1
	}}}})
	assert.Equal(t, 200, s.chat(chatBody).StatusCode)
	s.shutdown()
	s.record()
	assert.Contains(t, s.log.String(), "usage not counted")
}

// A client gets its error reply even if the UsageStore and the Limiter take longer than
// the write deadline.
func TestSettle_ErrorReachesTheClientAfterSlowSettlement(t *testing.T) {
	for name, limiter := range map[string]llmhttp.Limiter{
		"slow UsageStore": nil,
		"and slow release": &stubConcurrencyLimiter{acquire: func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) {
			return func() { time.Sleep(40 * time.Second) }, 0, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					backend: failingBackend(llm.Errorf(422, "", "no")),
					keys:    limitedKeys(llmhttp.Limits{Concurrent: 5}),
					usage:   &usageLog{before: func(context.Context) error { time.Sleep(9 * time.Second); return nil }},
					opts:    llmhttp.Options{Limiter: limiter, Bounds: llmhttp.Bounds{WriteTimeout: 3 * time.Second, Timeout: 30 * time.Second}},
					server:  func(srv *http.Server) { srv.WriteTimeout = time.Hour },
				})
				s.chat(chatBody).checkError(t, 422)
				s.record()
			})
		})
	}
}

// If a client leaves before the Backend is called, its whole reservation is returned.
func TestSettle_ClientLeavesBeforeTheBackend(t *testing.T) {
	for path, body := range modelBodies {
		t.Run(path, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			l := &stubLimiter{take: func(ctx context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
				cancel()
				<-ctx.Done() // the client has left when the Limiter answers
				return make([]llmhttp.BucketLevel, len(draws)), nil
			}}
			called := false
			s := startServer(t, config{keys: keysWithThousandTokens, opts: llmhttp.Options{Limiter: l}, backend: &stubBackend{
				call: func(context.Context) error { called = true; return errCause },
			}})
			_, err := s.open(ctx, "POST", path, body)
			require.Error(t, err)
			assert.Equal(t, 499, s.summary().Status)
			assert.False(t, called)
			assert.Empty(t, s.usage.records())
			taken, adjusted := l.calls()
			require.Len(t, adjusted, 1)
			assert.Positive(t, taken[0][0].Amount)
			assert.Equal(t, -taken[0][0].Amount, adjusted[0][0].Amount)
		})
	}
}

// Usage that a Backend reports after the client has left is recorded.
func TestSettle_ClientLeavesAfterTheWorkIsDone(t *testing.T) {
	for _, op := range testOperations {
		t.Run(string(op.name), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			want := llm.Usage{PromptTokens: 50, CompletionTokens: 4000, TotalTokens: 4050}
			s := startServer(t, config{backend: &stubBackend{usage: &want, call: func(ctx context.Context) error {
				cancel()
				<-ctx.Done()
				return nil
			}}})
			_, err := s.open(ctx, "POST", op.path, op.body)
			require.Error(t, err)
			record := s.record()
			wantUnits := llmhttp.UnitsOf(want)
			wantUnits.CompletionAudioTokens = record.Units.CompletionAudioTokens
			assert.Equal(t, wantUnits, tokensOf(record.Units))
			assert.False(t, record.Estimated)
			assert.Equal(t, op.scope == llmhttp.ScopeImages, record.Units.Images == 1)
			assert.Equal(t, op.name == audio.OperationSpeech, record.Units.Characters == 19)
		})
	}
}

// Generated images are recorded even if ImageURL fails.
func TestSettle_ImageURLFails(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{ImageURL: func(context.Context, []byte, string) (string, error) {
		return "", fmt.Errorf("link: %w", errors.ErrUnsupported)
	}}})
	s.do("POST", imagesPath, `{"model":"m","prompt":"a","n":3}`)
	assert.EqualValues(t, 3, s.record().Units.Images)
}

func TestSettle_HugeUsageDoesNotOverflow(t *testing.T) {
	l := new(stubLimiter)
	s := startServer(t, config{backend: usageBackend(math.MaxInt, math.MaxInt), keys: keysWithThousandTokens, opts: llmhttp.Options{Limiter: l}})
	assert.Equal(t, 200, s.chat(chatBody).StatusCode)
	assert.Positive(t, s.record().Units.Tokens())
	_, adjusted := l.calls()
	assert.Positive(t, adjusted[0][0].Amount)
}

// If one step of settling fails, the others still run: the Limiter takes as many tokens
// as are recorded, and the request is no longer in progress.
func TestSettle_EveryStepOfSettlingRuns(t *testing.T) {
	const reply = "one two three"
	for _, step := range []string{"CountTokens", "Adjust", "Record", "Price", "release"} {
		for name, fault := range hostFaults {
			t.Run(step+"/"+name, func(t *testing.T) {
				at := func(current string) error {
					if current == step {
						return fault()
					}
					return nil
				}
				mustNotFail := func(current string) {
					if err := at(current); err != nil {
						panic(err)
					}
				}
				estimates := 0 // of the price: the reservation, and the least that is enough
				released := make(chan struct{})
				l := &stubConcurrencyLimiter{acquire: func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) {
					return func() { close(released); mustNotFail("release") }, 0, nil
				}}
				l.adjust = func(context.Context) error { return at("Adjust") }
				var recorded []llmhttp.UsageRecord
				store := recordFunc(func(r llmhttp.UsageRecord) error { recorded = append(recorded, r); return at("Record") })
				s := startServer(t, config{
					backend: textBackend(reply),
					keys:    limitedKeys(llmhttp.Limits{Tokens: noRefill(10_000), Concurrent: 1, Quota: llmhttp.Quota{Cost: llm.USD(1000)}}),
					opts: llmhttp.Options{
						Limiter: l, Usage: store,
						Estimates: llmhttp.TokenEstimates{TextTokens: func(model, text string) int {
							if text == reply {
								mustNotFail("CountTokens")
							}
							return countWords(model, text)
						}},
						Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
							if estimates++; estimates > 2 { // not for a reservation
								return llmhttp.Cost{}, at("Price")
							}
							return llmhttp.Cost{Other: llm.MoneyUnit}, nil
						},
					},
				})
				s.chat(chatBody)
				s.shutdown()
				<-released
				require.Len(t, recorded, 1)
				taken, adjusted := l.calls()
				books := 0
				for _, call := range append(taken, adjusted...) {
					for _, draw := range call {
						books += int(draw.Amount)
					}
				}
				assert.EqualValues(t, recorded[0].Units.Tokens(), books)
				assert.Contains(t, s.log.String(), `"level":"ERROR"`)
			})
		}
	}
}

// A recordFunc is a UsageStore that passes records to itself and reports no usage.
type recordFunc func(llmhttp.UsageRecord) error

func (f recordFunc) Record(_ context.Context, records ...llmhttp.UsageRecord) error {
	return f(records[0])
}

// A request for a model that does not exist is not charged, even if its client leaves
// before it gets the reply.
func TestSettle_ClientLeavesBeforeA404(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	var l stubConcurrencyLimiter
	l.acquire = func(requestCtx context.Context, _ ...llmhttp.SlotAmount) (func(), int, error) {
		return func() { leave(); <-requestCtx.Done() }, 0, nil
	}
	s := startServer(t, config{
		backend: failingBackend(llm.ModelNotFound("demo-chat")),
		keys:    limitedKeys(llmhttp.Limits{Tokens: noRefill(10_000), Concurrent: 1}),
		opts:    llmhttp.Options{Limiter: &l},
	})
	_, err := s.open(ctx, "POST", chatPath, chatBody)
	require.Error(t, err)
	assert.Equal(t, 499, s.summary().Status)
	assert.Empty(t, s.usage.records())
	taken, adjusted := l.calls()
	require.Len(t, adjusted, 1)
	assert.Equal(t, -taken[0][0].Amount, adjusted[0][0].Amount)
}

// An error reply is sent before its usage is recorded.
func TestSettle_ErrorDoesNotWaitForTheUsageStore(t *testing.T) {
	for name, tt := range map[string]struct {
		backend llmhttp.Backend
		status  int
		waits   time.Duration
	}{
		"error":   {failingBackend(llm.Errorf(422, "", "no")), 422, 0},
		"success": {textBackend("Hello!"), 200, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					backend: tt.backend,
					usage:   &usageLog{before: func(context.Context) error { time.Sleep(9 * time.Second); return nil }},
				})
				begin := time.Now()
				assert.Equal(t, tt.status, s.chat(chatBody).StatusCode)
				assert.Equal(t, tt.waits, time.Since(begin))
				s.record()
			})
		})
	}
}

// If a client leaves before its prompt was sent to a model, the prompt is not charged.
func TestSettle_NotSent(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		prompt int
	}{
		"sent":     {errCause, 4},
		"not sent": {fmt.Errorf("no connection: %w", llm.ErrNotSent), 0},
	} {
		t.Run(name, func(t *testing.T) {
			started := make(chan struct{})
			s := startServer(t, config{
				opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
				backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
					close(started)
					<-ctx.Done()
					yield(nil, tt.err)
				}),
			})
			ctx, leave := context.WithCancel(t.Context())
			go func() { <-started; leave() }()
			_, err := s.open(ctx, "POST", chatPath, chatBody)
			require.Error(t, err)
			assert.EqualValues(t, tt.prompt, s.summary().Record.Units.PromptTokens)
			assert.EqualValues(t, tt.prompt, s.record().Units.PromptTokens)
		})
	}
}

// Estimates of the tokens of prompts and replies include the text of unknown members.
func TestTokens_EstimateCountsExtra(t *testing.T) {
	long, _ := json.Marshal(strings.Repeat("word", 1000))
	s := startServer(t, config{backend: chunkBackend(func() []*llm.ChatChunk {
		return []*llm.ChatChunk{{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Extra: llm.Extra{"thinking": long}}}}}}
	})})
	require.Equal(t, 200, s.chat(chatBody).StatusCode)
	assert.InDelta(t, 1000, s.record().Units.CompletionTokens, 100)
	for _, body := range []string{
		chatWith(`"documents":["` + strings.Repeat("word", 1000) + `"]`),
		chatWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","description":"` + strings.Repeat("word", 1000) + `"}}`),
		strings.Replace(chatBody, `"role":"user"`, `"role":"user","thinking":"`+strings.Repeat("word", 1000)+`"`, 1),
	} {
		s := startServer(t, config{})
		require.Equal(t, 200, s.chat(body).StatusCode, body)
		assert.InDelta(t, 1000, s.record().Units.PromptTokens, 100)
	}
}

// streamedReplies are the operations whose usage comes last, with a Backend whose clients leave before
// it comes, and the estimate.
var streamedReplies = map[llmhttp.Operation]struct {
	path, body string
	backend    llmhttp.Backend
	want       llmhttp.Units
}{
	llmhttp.OperationChat: {chatPath, chatWith(`"stream":true`), streamBackend(func(ctx context.Context, yield yieldFunc) {
		untilLeft(ctx, llm.TextChunk("Hello, you"))(yield)
	}), llmhttp.Units{PromptTokens: 9, CompletionTokens: 3}},
	completion.Operation: {"/v1/completions", `{"model":"m","prompt":"Hello, you","stream":true}`, &stubBackend{
		complete: func(ctx context.Context, _ *completion.Request) llm.ChatStream {
			return untilLeft(ctx, llm.TextChunk("Hello, you"))
		},
	}, llmhttp.Units{PromptTokens: 3, CompletionTokens: 3}},
	audio.OperationSpeech: {speechPath, speechEventsBody, &stubBackend{
		speak: func(ctx context.Context, _ *audio.SpeechRequest) audio.SpeechStream {
			return untilLeft(ctx, &audio.SpeechChunk{Audio: make([]byte, 1000)})
		},
	}, llmhttp.Units{PromptTokens: 5, CompletionTokens: 20, CompletionAudioTokens: 20, Characters: 19, AudioMillis: 1000}},
	audio.OperationTranscriptions: {transcriptionsPath, `{"file":"recording","model":"m","stream":true}`, &stubBackend{
		transcribe: func(ctx context.Context, _ *audio.TranscriptionRequest) audio.TranscriptionStream {
			return untilLeft(ctx, &audio.TranscriptionChunk{Text: "Hello, you"})
		},
	}, llmhttp.Units{PromptTokens: 85, CompletionTokens: 3, AudioMillis: 9}},
	llmhttp.OperationImages: {imagesPath, `{"model":"m","prompt":"a cat","stream":true,"partial_images":1,"n":2}`, drawsUntilLeft,
		llmhttp.Units{PromptTokens: 2, CompletionTokens: 2 * 4161, Images: 2}},
	imageedit.Operation: {imageEditsPath, `{"image":"file","prompt":"a cat","model":"m","stream":"true","partial_images":"1","n":"2","quality":"low"}`, drawsUntilLeft,
		llmhttp.Units{PromptTokens: 87, CompletionTokens: 2 * 408, Images: 2}},
}

var drawsUntilLeft = &stubBackend{draw: func(ctx context.Context, _ *llm.ImageRequest) llm.ImageStream {
	return untilLeft(ctx, &llm.ImageChunk{Image: &llm.Image{Data: []byte("x")}, Partial: true})
}}

// untilLeft returns a stream that yields c and ends when the client has left.
func untilLeft[C any](ctx context.Context, c *C) iter.Seq2[*C, error] {
	return func(yield func(*C, error) bool) {
		yield(c, nil)
		<-ctx.Done()
	}
}

// Ten clients that leave before the usage comes pay for what they got, whatever the operation.
func TestSettle_ClientsLeaveBeforeTheUsage(t *testing.T) {
	for op, test := range streamedReplies {
		t.Run(string(op), func(t *testing.T) {
			s := startServer(t, config{
				backend: test.backend, keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Cost: llm.USD(1000)}}),
				opts: llmhttp.Options{Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
					return llmhttp.Cost{Output: llm.MoneyUnit.Scale(r.Units.CompletionTokens, 1000)}, nil
				}},
			})
			for i := range 10 {
				ctx, cancel := context.WithCancel(t.Context())
				resp, err := s.open(ctx, "POST", test.path, test.body)
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
				_, err = resp.Body.Read(make([]byte, 1))
				require.NoError(t, err)
				cancel()
				resp.Body.Close()
				waitFor(t, "the usage record", func() bool { return len(s.usage.records()) > i })
				r := s.usage.records()[i]
				assert.Equal(t, test.want, r.Units)
				assert.True(t, r.Estimated)
				assert.Positive(t, r.Cost.Total())
			}
		})
	}
}

// Every operation that calls a model has its usage last, or replies at once.
func TestSettle_StreamedRepliesAreKnown(t *testing.T) {
	atOnce := []llmhttp.Operation{llmhttp.OperationEmbeddings, rerank.Operation, moderation.Operation}
	for _, op := range llmhttp.Operations() {
		_, known := streamedReplies[op]
		assert.True(t, known || slices.Contains(atOnce, op), "%s", op)
	}
}
