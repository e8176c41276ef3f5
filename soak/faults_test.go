package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

var errFault = errors.New("a fault of the soak test")

// A fault is what goes wrong in a call of the host's code.
type fault int

const (
	noFault fault = iota
	faultError
	faultPanic
	faultSlow // takes a while
	faultExit // runtime.Goexit
)

// pickFault returns a fault in a few percent of the cases.
func pickFault(rng *rand.Rand) fault {
	if n := rng.IntN(50); n < 4 {
		return faultError + fault(n)
	}
	return noFault
}

// fault returns the fault of a function of the host in request n.
func (w *world) fault(n int, purpose uint64) fault {
	f := pickFault(w.rand(n, purpose))
	if f == faultExit && w.kind != serverHTTP1 {
		return faultPanic // net/http forgets a stream of HTTP/2 whose goroutine exits
	}
	return f
}

// exits reports whether a function of the host ends the goroutine of request n.
func (w *world) exits(n int) bool {
	for purpose := uint64(forKeys); purpose <= forResponses; purpose++ {
		if purpose != forObserver && w.fault(n, purpose) == faultExit {
			return true
		}
	}
	return false
}

// inject performs a fault. It returns the error of the call.
func (f fault) inject(ctx context.Context) error {
	switch f {
	case faultError:
		return errFault
	case faultPanic:
		panic(errFault)
	case faultExit:
		runtime.Goexit()
	case faultSlow:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// keys returns a KeyStore whose keys have limits that are never reached, except
// for that of concurrent requests.
func (w *world) keys() llmhttp.KeyStore {
	return llmhttp.KeyFunc(func(ctx context.Context, secret string) (*llmhttp.Key, error) {
		if err := w.fault(number(ctx), forKeys).inject(ctx); err != nil {
			return nil, err
		}
		key := &llmhttp.Key{ID: secret, Limits: llmhttp.Limits{
			Requests: llmhttp.Rate{N: 1_000_000_000}, Tokens: llmhttp.Rate{N: 1_000_000_000_000}, Concurrent: 100,
			Quota: llmhttp.Quota{Tokens: int(w.quota.Load())}}}
		switch secret {
		case "sk-good":
		case "sk-narrow":
			key.Limits.Concurrent = 1
		default:
			return nil, llmhttp.ErrKeyNotFound
		}
		return key, nil
	})
}

// quotaFails reports whether the quota cannot be looked up for a request.
func (w *world) quotaFails(n int) bool { return w.fault(n, forQuota) != noFault }

// keysFail reports whether the KeyStore fails for a request.
func (w *world) keysFail(n int) bool { return w.fault(n, forKeys) != noFault }

// A usageStore notes records, and then fails at times.
type usageStore struct{ w *world }

func (s *usageStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	s.w.record(records)
	return s.w.fault(number(ctx), forUsage).inject(ctx)
}

func (w *world) record(records []llmhttp.UsageRecord) {
	for _, r := range records {
		w.account(r.ID, func(a *requestAccount) { a.records = append(a.records, r) })
	}
}

func (s *usageStore) Query(ctx context.Context, _ llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, s.w.fault(number(ctx), forUsage).inject(ctx)
}

func (s *usageStore) QueryKey(ctx context.Context, keyID string, _ llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return []llmhttp.UsageSum{{Model: "m", PromptTokens: int64(s.w.recorded(keyID))}}, s.w.fault(number(ctx), forQuota).inject(ctx)
}

// recorded returns the tokens that are recorded of a key.
func (w *world) recorded(keyID string) (tokens int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.accounts {
		for _, r := range a.records {
			if r.KeyID == keyID {
				tokens += r.Usage.TotalTokens
			}
		}
	}
	return tokens
}

// A bufferedStore is the store of a UsageBuffer. It takes nothing during an outage,
// and sometimes fails after it has stored.
type bufferedStore struct {
	usageStore

	mu          sync.Mutex // guards the fields below
	rng         *rand.Rand
	calls       int
	outage, end int             // the calls between which it takes nothing
	stored      map[string]bool // IDs of records
}

func (s *bufferedStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.calls >= s.outage && s.calls < s.end {
		return errFault
	}
	for _, r := range records {
		if !s.stored[r.ID] { // the buffer repeats what failed
			s.stored[r.ID] = true
			s.w.record([]llmhttp.UsageRecord{r})
		}
	}
	if s.rng.IntN(5) == 0 {
		return errFault
	}
	return nil
}

func (w *world) usageFails(n int) bool { return w.fault(n, forUsage) != noFault }

// A limiter keeps a book for each request. It fails before it takes anything, or
// after it has settled.
type limiter struct {
	w    *world
	base llmhttp.Limiter
}

func (l *limiter) Take(ctx context.Context, key string, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	if err := l.w.fault(number(ctx), forLimiter).inject(ctx); err != nil {
		return nil, err
	}
	levels, err := l.base.Take(ctx, key, draws...)
	for _, level := range levels {
		if level.RetryAfter > 0 {
			l.w.fail("a limit was reached: %+v", levels)
		}
	}
	l.note(ctx, draws)
	return levels, err
}

func (l *limiter) Adjust(ctx context.Context, key string, draws ...llmhttp.Draw) error {
	err := l.base.Adjust(ctx, key, draws...)
	l.note(ctx, draws)
	if fault := l.w.fault(number(ctx), forAdjust).inject(ctx); fault != nil {
		return fault
	}
	return err
}

func (l *limiter) note(ctx context.Context, draws []llmhttp.Draw) {
	l.w.account(llmhttp.RequestIDFrom(ctx), func(a *requestAccount) {
		for _, d := range draws {
			switch d.Bucket {
			case llmhttp.BucketRequests:
				a.requests += d.Cost
			case llmhttp.BucketTokens:
				a.tokens += d.Cost
			}
		}
	})
}

// Acquire implements [llmhttp.ConcurrencyLimiter].
func (l *limiter) Acquire(ctx context.Context, key string, limit int) (func(), error) {
	if err := l.w.fault(number(ctx), forAcquire).inject(ctx); err != nil {
		return nil, err
	}
	c, ok := l.base.(llmhttp.ConcurrencyLimiter)
	if !ok {
		return func() {}, nil
	}
	release, err := c.Acquire(ctx, key, limit)
	if release == nil {
		return nil, err
	}
	l.w.count(1)
	return sync.OnceFunc(func() { l.w.count(-1); release() }), err
}

func (w *world) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inUse += n
}

// limiterFails reports whether the Limiter fails for a request.
func (w *world) limiterFails(n int) bool {
	return w.fault(n, forLimiter) != noFault || w.fault(n, forAcquire) != noFault
}

// observe is an Observer that panics at times.
func (w *world) observe(ctx context.Context, r *http.Request) (context.Context, llmhttp.Observation) {
	id := llmhttp.RequestIDFrom(ctx)
	rng := w.rand(number(ctx), forObserver)
	switch rng.IntN(100) {
	case 0:
		panic(errFault)
	case 1:
		return nil, llmhttp.Observation{}
	}
	w.account(id, func(a *requestAccount) { a.begun++ })
	started, tried, ended := pickFault(rng), pickFault(rng), pickFault(rng)
	return context.WithValue(ctx, soakKey{}, id), llmhttp.Observation{
		Started: func(ctx context.Context, info *llmhttp.RequestInfo) context.Context {
			started.panics()
			return context.WithValue(ctx, startedKey{}, id)
		},
		Try: func(ctx context.Context, target string) (context.Context, func(llmhttp.Try)) {
			tried.panics()
			w.account(id, func(a *requestAccount) { a.triesBegun++ })
			return nil, func(llmhttp.Try) {
				w.account(id, func(a *requestAccount) { a.triesEnded++ })
			}
		},
		Transcript: func(*llmhttp.Transcript) { ended.panics() },
		Ended: func(s *llmhttp.RequestSummary) {
			w.account(id, func(a *requestAccount) { a.ended = append(a.ended, s) })
			if s.ID != id {
				w.fail("request %s: the Observer got the summary of %s", id, s.ID)
			}
			ended.panics()
		},
	}
}

func (f fault) panics() {
	if f == faultPanic {
		panic(errFault)
	}
}

type startedKey struct{}

type soakKey struct{}

// observerFails reports whether the Observer panics before the reply.
func (w *world) observerFails(n int) bool {
	rng := w.rand(n, forObserver)
	return rng.IntN(100) == 0 || pickFault(rng) == faultPanic || pickFault(rng) == faultPanic
}

// A responseStore fails at times.
type responseStore struct {
	w *world
	llmhttp.ResponseStore
}

func (s *responseStore) SaveResponse(ctx context.Context, r *llmhttp.StoredResponse) error {
	if err := s.w.fault(number(ctx), forResponses).inject(ctx); err != nil {
		return err
	}
	return s.ResponseStore.SaveResponse(ctx, r)
}

func (w *world) responsesFail(n int) bool {
	return w.fault(n, forResponses) != noFault
}
