package route_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// FuzzUpdate changes the routes as the bytes of a script say, while requests run. It checks that
// what stays keeps its state, that mistakes change nothing, and that no request is left.
func FuzzUpdate(f *testing.F) {
	f.Add([]byte("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"))
	f.Add([]byte("\x03\x10\x03\x17\x05\x00\x0b\x1f\x0b\x10\x13\x01\x0b"))
	f.Add([]byte("\x0f\x0f\x0f\x07\x80\x0f\x81\x0f\x40\x0f"))
	f.Fuzz(func(t *testing.T, script []byte) {
		script = script[:min(len(script), 100)]
		synctest.Test(t, func(t *testing.T) {
			backends := []llmhttp.Backend{
				newFake(say("a")), newFake(failStatus(500)), newFake(rateLimit(time.Minute)), newFake(pause(time.Second), say("d")),
			}
			r := newRouter(t, &route.Options{Failures: 1, OpenFor: time.Minute}, route.Route{Model: "m", Targets: targets(backends...)})
			var running sync.WaitGroup
			defer running.Wait()
			for _, b := range script {
				config := fuzzRoute(b, backends)
				before := statusByTarget(r)
				err := r.Update([]route.Route{config})
				after := statusByTarget(r)
				if mistake := len(config.Targets) == 0 || b>>6 == 3; mistake {
					assert.Error(t, err)
					assert.Equal(t, before, after)
					continue
				}
				assert.NoError(t, err)
				assert.Len(t, after, len(config.Targets))
				for name, status := range after {
					if old, stayed := before[name]; stayed {
						assert.Equal(t, old, status)
					} else {
						assert.Equal(t, route.TargetStatus{Route: "m", Target: name, State: route.StateClosed}, status)
					}
				}
				running.Go(func() { ask(context.Background(), r) })
				synctest.Wait()
			}
			running.Wait()
			for _, s := range r.Status() {
				assert.Zero(t, s.InFlight)
			}
		})
	})
}

// fuzzRoute returns a route with the targets that the low bits of b select. The high bits select
// the order and the strategy, or a mistake.
func fuzzRoute(b byte, backends []llmhttp.Backend) route.Route {
	config := route.Route{Model: "m", Strategy: []route.Strategy{route.InOrder, route.LeastInFlight, route.Affinity, "unknown"}[b>>6]}
	for i, t := range targets(backends...) {
		if b>>i&1 == 1 {
			t.Weight = int(b >> 4 & 3)
			config.Targets = append(config.Targets, t)
		}
	}
	if b>>5&1 == 1 {
		slices.Reverse(config.Targets)
	}
	return config
}

func statusByTarget(r *route.Router) map[string]route.TargetStatus {
	return maps.Collect(func(yield func(string, route.TargetStatus) bool) {
		for _, s := range r.Status() {
			if !yield(s.Target, s) {
				return
			}
		}
	})
}
