package route_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// FuzzRouter has three targets behave as the bytes say, in the order in which
// they are called, and checks what must be true of every reply.
func FuzzRouter(f *testing.F) {
	f.Add(byte(0), []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d"))
	f.Add(byte(1), []byte("\x02\x02\x02\x02\x02\x02\x02\x02\x02\x00"))
	f.Add(byte(2), []byte("\x06\x0a\x03\x02\x07\x00\x04\x08\x08\x08\x01"))
	f.Add(byte(5), []byte("\x09\x09\x09\x09\x02\x02\x02\x0b\x0c\x00"))
	f.Fuzz(func(t *testing.T, how byte, script []byte) {
		if len(script) > 200 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) {
			opts := &route.Options{Tries: 5, Rounds: 2, Failures: 2, TryTimeout: time.Second}
			var calls []string // of targets, for the present request
			spoke := ""        // the target that has said something
			backend := func(name string) llmhttp.Backend {
				return steps(func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
					if spoke != "" {
						t.Errorf("%s was called after %s had begun", name, spoke)
					}
					calls = append(calls, name)
					op := byte(0)
					if len(script) > 0 {
						op, script = script[0]%13, script[1:]
					}
					talk := func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
						spoke = name
						yield(llmhttp.TextChunk(name), nil)
					}
					end := func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
						yield(llmhttp.TextChunk("."), nil)
					}
					role := says("")
					[]step{
						then(talk, end), then(role, talk, end), // whole replies
						status(500), fails(errBoom), limited(2 * time.Second), limited(0), status(400), fails(llmhttp.ModelNotFound("m")),
						hangs, then(role, hangs), then(role, status(503)),
						then(talk, fails(errBoom)), then(talk, hangs),
					}[op](ctx, yield)
				})
			}
			list := targets(backend("a"), backend("b"), backend("c"))
			r := newRouter(t, opts, route.Route{Model: "m", Targets: list,
				Strategy: []route.Strategy{route.Weighted, route.LeastInFlight, route.InOrder}[how%3]})
			for range 20 {
				calls, spoke = nil, ""
				gone := errors.New("gone")
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(1+how/3)*time.Second, gone)
				text, err := say(ctx, r)
				cancel()
				switch {
				case err == nil:
					assert.Equal(t, spoke+".", text)
				case spoke != "" && err == gone:
					assert.Contains(t, []string{spoke, spoke + "."}, text)
				case spoke != "":
					assert.Equal(t, spoke, text)
				default:
					assert.Empty(t, text)
				}
				assert.LessOrEqual(t, len(calls), 5)
				for _, name := range []string{"a", "b", "c"} {
					assert.LessOrEqual(t, strings.Count(strings.Join(calls, ""), name), 2)
				}
				for _, s := range r.Status() {
					assert.Zero(t, s.InFlight)
				}
				time.Sleep(700 * time.Millisecond)
			}
		})
	})
}
