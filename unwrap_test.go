package llmhttp_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A wrappedStore is a wrapper that changes nothing.
type wrappedStore struct{ llmhttp.UsageStore }

func (w wrappedStore) Unwrap() llmhttp.UsageStore { return w.UsageStore }

// A guardStore is a wrapper that hides what it wraps.
type guardStore struct{ llmhttp.UsageStore }

type wrappedLimiter struct{ llmhttp.Limiter }

func (w wrappedLimiter) Unwrap() llmhttp.Limiter { return w.Limiter }

// A slotLimiter is a Reserver that counts its calls, and refuses nothing.
type slotLimiter struct {
	llmhttp.Limiter
	acquired, reserved atomic.Int64
}

func (l *slotLimiter) Acquire(context.Context, ...llmhttp.SlotAmount) (release func(), full int, err error) {
	l.acquired.Add(1)
	return func() {}, 0, nil
}

func (l *slotLimiter) Reserve(context.Context, ...llmhttp.SlotAmount) (settle func(time.Duration, ...int64), full int, err error) {
	l.reserved.Add(1)
	return func(time.Duration, ...int64) {}, 0, nil
}

// An endless Backend wraps itself.
type endless struct{ llmhttp.Backend }

func (e endless) Unwrap(context.Context) llmhttp.Backend { return e }

// A contextual Backend wraps the Backend that the context has.
type contextual struct{ llmhttp.Backend }

func (contextual) Unwrap(ctx context.Context) llmhttp.Backend {
	b, _ := ctx.Value(contextual{}).(llmhttp.Backend)
	return b
}

func TestAs(t *testing.T) {
	stub := new(stubBackend)
	swap := llmhttp.NewSwappableBackend(passing{stub})
	for name, test := range map[string]struct {
		ctx     context.Context
		backend llmhttp.Backend
		want    bool
	}{
		"itself":                     {t.Context(), stub, true},
		"nil":                        {t.Context(), nil, false},
		"another one":                {t.Context(), chatOnly, false},
		"wrapped":                    {t.Context(), passing{passing{stub}}, true},
		"hidden":                     {t.Context(), hiding{stub}, false},
		"hidden by one in the midst": {t.Context(), passing{hiding{passing{stub}}}, false},
		"wraps nil":                  {t.Context(), passing{}, false},
		"wraps itself":               {t.Context(), endless{}, false},
		"Swap":                       {t.Context(), swap, true},
		"Choices":                    {t.Context(), llmhttp.Choices(swap), true},
		"of the context":             {context.WithValue(t.Context(), contextual{}, stub), contextual{}, true},
		"of another context":         {t.Context(), contextual{}, false},
	} {
		found, ok := llmhttp.As[llmhttp.Embedder](test.ctx, test.backend)
		assert.Equal(t, test.want, ok, name)
		if assert.Equal(t, test.want, found != nil, name); ok {
			assert.Same(t, stub, found, name)
		}
	}
	// The outermost one is found, and a T may be a type.
	outer := passing{passing{stub}}
	found, ok := llmhttp.As[passing](t.Context(), outer)
	assert.True(t, ok)
	assert.Equal(t, outer, found)
}

// An endlessStore and an endlessLimiter wrap themselves.
type (
	endlessStore   struct{ llmhttp.UsageStore }
	endlessLimiter struct{ llmhttp.Limiter }
)

func (e endlessStore) Unwrap() llmhttp.UsageStore { return e }
func (e endlessLimiter) Unwrap() llmhttp.Limiter  { return e }

func TestStoreAs(t *testing.T) {
	store := memory.NewUsageStore()
	buffer := usagebuffer.New(store, nil)
	found, ok := llmhttp.StoreAs[*usagebuffer.Buffer](wrappedStore{wrappedStore{buffer}})
	assert.True(t, ok)
	assert.Same(t, buffer, found)
	for name, s := range map[string]llmhttp.UsageStore{"nil": nil, "other": store, "guard": guardStore{buffer}, "wrapped nil": wrappedStore{}, "endless": endlessStore{}} {
		_, ok := llmhttp.StoreAs[*usagebuffer.Buffer](s)
		assert.False(t, ok, name)
	}
}

func TestLimiterAs(t *testing.T) {
	slots := &slotLimiter{Limiter: llmhttp.NewLimiter()}
	found, ok := llmhttp.LimiterAs[llmhttp.Reserver](wrappedLimiter{wrappedLimiter{slots}})
	assert.True(t, ok)
	assert.Same(t, slots, found)
	for name, l := range map[string]llmhttp.Limiter{"nil": nil, "wrapped nil": wrappedLimiter{}, "endless": endlessLimiter{}} {
		_, ok := llmhttp.LimiterAs[llmhttp.Reserver](l)
		assert.False(t, ok, name)
	}
}

// A Handler finds what a Limiter can behind a wrapper.
func TestHandler_WrappedLimiter(t *testing.T) {
	slots := &slotLimiter{Limiter: llmhttp.NewLimiter()}
	key := &llmhttp.Key{ID: "key_1", Limits: llmhttp.Limits{Concurrent: 1, Quota: llmhttp.Quota{Tokens: 1000}}}
	s := startServer(t, config{
		keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil }),
		opts: llmhttp.Options{Limiter: wrappedLimiter{slots}, Usage: memory.NewUsageStore()},
	})
	require.Equal(t, http.StatusOK, s.chat(chatBody).StatusCode)
	assert.EqualValues(t, 1, slots.acquired.Load())
	assert.EqualValues(t, 1, slots.reserved.Load())
}
