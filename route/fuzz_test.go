package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/route"
)

// FuzzRouter sends requests to three targets, whose replies the bytes of a script
// select. It checks properties that every reply must have.
func FuzzRouter(f *testing.F) {
	f.Add(byte(0), []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d"))
	f.Add(byte(1), []byte("\x02\x02\x02\x02\x02\x02\x02\x02\x02\x00"))
	f.Add(byte(2), []byte("\x06\x0a\x03\x02\x07\x00\x04\x08\x08\x08\x01"))
	f.Add(byte(3), []byte("\x02\x05\x00\x03\x03\x00\x00\x00\x06\x0a"))
	f.Add(byte(133), []byte("\x06\x0a\x03\x02\x07\x00\x04\x08\x08\x08\x01"))
	f.Add(byte(5), []byte("\x09\x09\x09\x09\x02\x02\x02\x0b\x0c\x00"))
	f.Fuzz(func(t *testing.T, options byte, script []byte) {
		if len(script) > 200 {
			t.Skip("the script is too long")
		}
		synctest.Test(t, func(t *testing.T) {
			var called []string // the targets of the current request
			started := ""       // the target whose content the client got
			backend := func(name string) llmhttp.Backend {
				return newFake(func(ctx context.Context, yield yieldFunc) {
					if started != "" {
						t.Errorf("%s was tried although %s had started its reply", name, started)
					}
					called = append(called, name)
					start := func(_ context.Context, yield yieldFunc) {
						started = name
						yield(llm.TextChunk(name), nil)
					}
					role, end := say(""), say(".")
					steps := []step{
						sequence(start, end), sequence(role, start, end),
						failStatus(500), fail(errDial), rateLimit(2 * time.Second), rateLimit(0), failStatus(400), fail(llm.ModelNotFound("m")),
						hang, sequence(role, hang), sequence(role, failStatus(503)),
						sequence(start, fail(errDial)), sequence(start, hang),
					}
					chosen := steps[0]
					if len(script) > 0 {
						chosen, script = steps[int(script[0])%len(steps)], script[1:]
					}
					chosen(ctx, yield)
				})
			}
			decisions := 0
			fallback := func(context.Context, error) route.Decision {
				decisions++
				return route.Decision{TryNext: route.Choice(decisions % 3), Failed: route.Choice(decisions / 3 % 3)}
			}
			if options < 128 {
				fallback = nil
			}
			r := newRouter(t, &route.Options{Tries: 5, Rounds: 2, Failures: 2, TryTimeout: time.Second, Fallback: fallback},
				route.Route{Model: "m", Targets: targets(backend("a"), backend("b"), backend("c")),
					Strategy: []route.Strategy{route.Weighted, route.LeastInFlight, route.InOrder, route.Affinity}[options%4]})
			req := newRequest("m")
			req.Extra = llm.Extra{"prompt_cache_key": json.RawMessage(`"a session"`)}
			for range 20 {
				called, started = nil, ""
				gone := errors.New("gone")
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(1+options%128/4)*time.Second, gone)
				resp, err := join.Collect(r.Chat(ctx, req))
				cancel()
				text := ""
				if len(resp.Choices) > 0 {
					text = resp.Choices[0].Message.Content.Text()
				}
				switch {
				case err == nil:
					assert.Equal(t, started+".", text)
				case started != "" && err == gone:
					assert.Contains(t, []string{started, started + "."}, text)
				case started != "":
					assert.Equal(t, started, text)
				default:
					assert.Empty(t, text)
				}
				assert.LessOrEqual(t, len(called), 5)
				for _, name := range []string{"a", "b", "c"} {
					assert.LessOrEqual(t, strings.Count(strings.Join(called, ""), name), 2)
				}
				for _, s := range r.Status() {
					assert.Zero(t, s.InFlight)
				}
				time.Sleep(700 * time.Millisecond)
			}
		})
	})
}
