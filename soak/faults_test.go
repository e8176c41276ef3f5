package soak

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/responsestore"
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
func (sim *simulation) fault(n int, purpose uint64) fault {
	f := pickFault(sim.rand(n, purpose))
	if f == faultExit && sim.kind != serverHTTP1 {
		return faultPanic // net/http forgets a stream of HTTP/2 whose goroutine exits
	}
	return f
}

// exits reports whether a function of the host ends the goroutine of request n.
func (sim *simulation) exits(n int) bool {
	for purpose := uint64(forKeys); purpose <= forResponses; purpose++ {
		if purpose != forObserver && sim.fault(n, purpose) == faultExit {
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
func (sim *simulation) keys() llmhttp.KeyStore {
	return llmhttp.KeyStoreFunc(func(ctx context.Context, secret string) (*llmhttp.Key, error) {
		if err := sim.fault(number(ctx), forKeys).inject(ctx); err != nil {
			return nil, err
		}
		key := &llmhttp.Key{ID: secret, Limits: llmhttp.Limits{
			Requests: llmhttp.Rate{N: 1_000_000_000}, Tokens: llmhttp.Rate{N: min(1_000_000_000_000, math.MaxInt)}, Concurrent: 100,
			Quota: llmhttp.Quota{Tokens: int(sim.quota.Load())}}}
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
func (sim *simulation) quotaFails(n int) bool { return sim.fault(n, forQuota) != noFault }

// keysFail reports whether the KeyStore fails for a request.
func (sim *simulation) keysFail(n int) bool { return sim.fault(n, forKeys) != noFault }

// A usageStore keeps records, and sometimes fails afterwards.
type usageStore struct{ sim *simulation }

func (s *usageStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	s.sim.record(records)
	return s.sim.fault(number(ctx), forUsage).inject(ctx)
}

func (sim *simulation) record(records []llmhttp.UsageRecord) {
	for _, r := range records {
		sim.account(r.ID, func(a *requestAccount) { a.records = append(a.records, r) })
	}
}

func (s *usageStore) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	if q.Subject.Kind != llmhttp.KindKey {
		return nil, s.sim.fault(number(ctx), forUsage).inject(ctx)
	}
	return []llmhttp.UsageSum{{Model: "m", Units: llmhttp.Units{PromptTokens: s.sim.recorded(q.Subject.ID)}}}, s.sim.fault(number(ctx), forQuota).inject(ctx)
}

// recorded returns the tokens that are recorded of a key.
func (sim *simulation) recorded(keyID string) (tokens int64) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for _, a := range sim.accounts {
		for _, r := range a.records {
			if r.KeyID == keyID {
				tokens += r.Units.Tokens()
			}
		}
	}
	return tokens
}

// A bufferedStore is the store of a Buffer. It rejects records during an outage, and
// sometimes fails after it has stored them.
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
			s.sim.record([]llmhttp.UsageRecord{r})
		}
	}
	if s.rng.IntN(5) == 0 {
		return errFault
	}
	return nil
}

func (sim *simulation) usageFails(n int) bool { return sim.fault(n, forUsage) != noFault }

// A limiter counts the draws of each request. Take fails before it takes tokens, and
// Adjust after it has adjusted.
type limiter struct {
	sim  *simulation
	base llmhttp.Limiter
}

func (l *limiter) Take(ctx context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	if err := l.sim.fault(number(ctx), forLimiter).inject(ctx); err != nil {
		return nil, err
	}
	levels, err := l.base.Take(ctx, draws...)
	for _, level := range levels {
		if level.RetryAfter > 0 {
			l.sim.fail("a limit was reached: %+v", levels)
		}
	}
	l.count(ctx, draws)
	return levels, err
}

func (l *limiter) Adjust(ctx context.Context, draws ...llmhttp.BucketAmount) error {
	err := l.base.Adjust(ctx, draws...)
	l.count(ctx, draws)
	if fault := l.sim.fault(number(ctx), forAdjust).inject(ctx); fault != nil {
		return fault
	}
	return err
}

func (l *limiter) count(ctx context.Context, draws []llmhttp.BucketAmount) {
	l.sim.account(llmhttp.RequestIDFrom(ctx), func(a *requestAccount) {
		for _, d := range draws {
			switch d.Bucket {
			case llmhttp.BucketRequests:
				a.requests += int(d.Amount)
			case llmhttp.BucketTokens:
				a.tokens += int(d.Amount)
			}
		}
	})
}

// Acquire implements [llmhttp.ConcurrencyLimiter].
func (l *limiter) Acquire(ctx context.Context, slots ...llmhttp.SlotAmount) (func(), int, error) {
	if err := l.sim.fault(number(ctx), forAcquire).inject(ctx); err != nil {
		return nil, 0, err
	}
	c, ok := l.base.(llmhttp.ConcurrencyLimiter)
	if !ok {
		return func() {}, 0, nil
	}
	release, full, err := c.Acquire(ctx, slots...)
	if release == nil {
		return nil, full, err
	}
	l.sim.count(1)
	return sync.OnceFunc(func() { l.sim.count(-1); release() }), 0, err
}

func (sim *simulation) count(n int) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.inUse += n
}

// limiterFails reports whether the Limiter fails for a request.
func (sim *simulation) limiterFails(n int) bool {
	return sim.fault(n, forLimiter) != noFault || sim.fault(n, forAcquire) != noFault
}

// observe is an Observer that panics at times.
func (sim *simulation) observe(ctx context.Context, r *http.Request) (context.Context, llmhttp.Observation) {
	id := llmhttp.RequestIDFrom(ctx)
	rng := sim.rand(number(ctx), forObserver)
	switch rng.IntN(100) {
	case 0:
		panic(errFault)
	case 1:
		return nil, llmhttp.Observation{}
	}
	sim.account(id, func(a *requestAccount) { a.begun++ })
	started, tried, ended := pickFault(rng), pickFault(rng), pickFault(rng)
	return context.WithValue(ctx, soakKey{}, id), llmhttp.Observation{
		Started: func(ctx context.Context, info *llmhttp.RequestInfo) context.Context {
			started.panics()
			return context.WithValue(ctx, startedKey{}, id)
		},
		Try: func(ctx context.Context, target string) (context.Context, func(llmhttp.TargetTry)) {
			tried.panics()
			sim.account(id, func(a *requestAccount) { a.triesBegun++ })
			return nil, func(llmhttp.TargetTry) {
				sim.account(id, func(a *requestAccount) { a.triesEnded++ })
			}
		},
		Transcript: func(*llmhttp.Transcript) { ended.panics() },
		Ended: func(s *llmhttp.RequestSummary) {
			sim.account(id, func(a *requestAccount) { a.ended = append(a.ended, s) })
			if s.Record.ID != id {
				sim.fail("request %s: the Observer got the summary of %s", id, s.Record.ID)
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
func (sim *simulation) observerFails(n int) bool {
	rng := sim.rand(n, forObserver)
	return rng.IntN(100) == 0 || pickFault(rng) == faultPanic || pickFault(rng) == faultPanic
}

// A responseStore fails at times.
type responseStore struct {
	sim *simulation
	responsestore.Store
}

func (s *responseStore) SaveResponse(ctx context.Context, r *responsestore.Response) error {
	if err := s.sim.fault(number(ctx), forResponses).inject(ctx); err != nil {
		return err
	}
	return s.Store.SaveResponse(ctx, r)
}

func (sim *simulation) responsesFail(n int) bool {
	return sim.fault(n, forResponses) != noFault
}
