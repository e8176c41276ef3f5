package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// /readyz turns no later than the grace after the failure, whenever that is and however
// long the probe takes to notice it.
func TestHealth_TurnsWithinTheGrace(t *testing.T) {
	for _, failsAfter := range []time.Duration{0, 1, 500 * time.Millisecond, 999 * time.Millisecond} {
		t.Run(failsAfter.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				const grace = time.Minute
				failed := time.Now().Add(10*time.Second + failsAfter)
				h := newHealthChecker(ctx)
				h.add("keys", grace, func(ctx context.Context) error {
					if time.Now().Before(failed) {
						return nil
					}
					<-ctx.Done() // the database hangs
					return ctx.Err()
				})
				h.check(ctx)
				go h.run(ctx)
				for ; time.Since(failed) < grace; time.Sleep(100 * time.Millisecond) {
					if ready, _ := h.state(); !ready {
						assert.Less(t, time.Until(failed.Add(grace)), checkInterval+checkTimeout, "not ready too early")
					}
				}
				ready, checks := h.state()
				assert.False(t, ready)
				assert.Equal(t, map[string]bool{"keys": false}, checks)
			})
		})
	}
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var failure error
		h := newHealthChecker(ctx)
		h.add("keys", time.Minute, func(context.Context) error { return nil })
		h.add("limits", neverUnready, func(context.Context) error { return failure })
		readyz := func() (status int, text string) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
			return w.Code, w.Body.String()
		}
		check := func(wantStatus int, wantText string) {
			t.Helper()
			status, text := readyz()
			assert.Equal(t, wantStatus, status)
			assert.Equal(t, wantText, text)
		}
		h.check(ctx)
		check(200, "ok\n")
		failure = errors.New("away")
		h.check(ctx)
		time.Sleep(time.Hour)
		check(200, "ok\nlimits: failing\n")
		failure = nil
		h.check(ctx)
		check(200, "ok\n")
		h.add("usage", time.Minute, func(context.Context) error { return errors.New("away since the start") })
		h.check(ctx)
		check(503, "not ready\nusage: failing\n\n")
		cancel()
		check(503, "draining\n")
		ready, _ := h.state()
		assert.False(t, ready)
	})
}

// A downStore takes no records while down is set.
type downStore struct {
	*memory.UsageStore
	down *atomic.Bool
}

func (s downStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	if s.down.Load() {
		return errors.New("away")
	}
	return s.UsageStore.Record(ctx, records...)
}

// When the database is back, the next check finds that usage is stored, whatever the backoff of the
// buffer has become.
func TestHealth_UsageIsStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var down atomic.Bool
		usage := usagebuffer.New(downStore{memory.NewUsageStore(), &down}, &usagebuffer.Options{Logger: slog.New(slog.DiscardHandler)})
		h := newHealthChecker(ctx)
		h.add("usage", 0, usage.Check)
		go h.run(ctx)
		isReady := func() bool { ready, _ := h.state(); return ready }
		down.Store(true)
		require.NoError(t, usage.Record(ctx, llmhttp.UsageRecord{ID: "1", Time: time.Now()}))
		time.Sleep(10 * time.Minute)
		require.False(t, isReady())
		down.Store(false)
		time.Sleep(checkInterval)
		synctest.Wait()
		assert.True(t, isReady())
		assert.Zero(t, usage.Waiting())
		require.NoError(t, usage.Close(ctx))
	})
}

// When keys that are in use fail because the database is away, the load balancer has been
// told not to send requests.
func TestReadyz_TurnsBeforeKeysFail(t *testing.T) {
	t.Parallel()
	postgres := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	dsn := newDatabase(t, postgres)
	p := startCopy(t, dsn, "", startUpstream(t, 0), "-key-ttl", "5s", "-key-grace", "3s", "-usage-delay", "1h")
	c := client{p.url, createKey(t, dsn).Secret}
	c.mustChat(t, 1)
	read := time.Now()
	// The key was read 3 s before the database goes away, so it is served for 5 s more, and
	// not for the whole of both times.
	eventually(t, func(ct *assert.CollectT) { require.Greater(ct, time.Since(read), 3*time.Second) })
	postgres.Stop(t)
	p.awaitReply(t, "/readyz", "ok\nkeys: failing\nresponses: failing")
	eventually(t, func(ct *assert.CollectT) {
		status, _ := c.chat(t)
		require.Equal(ct, 503, status)
	})
	status, reply := probe(p.url + "/readyz")
	assert.Equal(t, 503, status, reply)
}
