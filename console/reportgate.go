// Bounds how many reports are read at a time, and by whom.

package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

const (
	defaultReportTimeout = 30 * time.Second

	// maxReports is how many reports and lists are read at the same time. It is less than the
	// number of connections that a sqlstore.Store has by default for requests of the API.
	maxReports = 3

	// maxPersonReports is how many of them are of one person.
	maxPersonReports = 2

	// maxPersonWaiting is how many more of one person wait for their turn.
	maxPersonWaiting = 10
)

// A reportGate bounds how much of a store people use: how many reports and lists are read at the
// same time, of all and of each person, and how long a page may take.
type reportGate struct {
	timeout time.Duration // of a page; negative means no limit
	slots   chan struct{} // has a value for each report that is read

	mu      sync.Mutex // guards the fields below
	persons map[string]*personReports
}

// personReports are the reports of a person.
type personReports struct {
	slots chan struct{} // has a value for each report that is read or waits for reportGate.slots
	calls int           // of read that have not ended; guarded by reportGate.mu
}

func newReportGate(timeout time.Duration) *reportGate {
	return &reportGate{timeout: timeout, slots: make(chan struct{}, maxReports), persons: make(map[string]*personReports)}
}

// A visit is the value of the context of a request of a person who is signed in.
type visit struct {
	person string
	end    time.Time // of the time for reports; zero means no limit
}

type visitKey struct{}

// withVisit returns a context with the visit of u, which begins now. All who see the same account
// are one person, because a tenant can have any number of keys.
func (g *reportGate) withVisit(ctx context.Context, u *User) context.Context {
	v := &visit{person: "account " + u.Account}
	if u.Admin {
		v.person = "administrator " + u.Name
	}
	if g.timeout >= 0 {
		v.end = time.Now().Add(g.timeout)
	}
	return context.WithValue(ctx, visitKey{}, v)
}

var (
	errTooManyReports = &pageError{
		http.StatusTooManyRequests, "Too many of your pages wait for reports. Please let these finish, and try again.",
	}
	errReportsBusy = &pageError{
		http.StatusServiceUnavailable, "Other reports have taken all the time that this page had. Please try again later.",
	}
)

// read calls f when it is the turn of the person in ctx. The time of f is what is left of that of
// the page. The error is a pageError if that ends first, or if too many reports of the person wait.
func (g *reportGate) read(ctx context.Context, f func(ctx context.Context) error) error {
	v, ok := ctx.Value(visitKey{}).(*visit)
	if !ok {
		v = new(visit)
	}
	p := g.join(v.person)
	if p == nil {
		return errTooManyReports
	}
	defer g.leave(v.person, p)
	timed := ctx
	if !v.end.IsZero() {
		var cancel context.CancelFunc
		timed, cancel = context.WithDeadline(ctx, v.end)
		defer cancel()
	}
	for _, slots := range []chan struct{}{p.slots, g.slots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-timed.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errReportsBusy
		}
	}
	if !v.end.IsZero() && !time.Now().Before(v.end) { // a turn that came too late
		return errReportsBusy
	}
	err := f(timed)
	if err != nil && ctx.Err() == nil && errors.Is(timed.Err(), context.DeadlineExceeded) {
		return &pageError{http.StatusGatewayTimeout, fmt.Sprintf(
			"This page takes longer than %v. Please choose a shorter period, or a single account, key or model.", g.timeout)}
	}
	return err
}

// join counts a call of read, and returns nil if the person has too many.
func (g *reportGate) join(person string) *personReports {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.persons[person]
	if p == nil {
		p = &personReports{slots: make(chan struct{}, maxPersonReports)}
		g.persons[person] = p
	}
	if p.calls >= maxPersonReports+maxPersonWaiting {
		return nil
	}
	p.calls++
	return p
}

func (g *reportGate) leave(person string, p *personReports) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.calls--; p.calls == 0 {
		delete(g.persons, person)
	}
}

// readThrough is read for a function with a result.
func readThrough[T any](ctx context.Context, g *reportGate, f func(ctx context.Context) (T, error)) (result T, err error) {
	err = g.read(ctx, func(ctx context.Context) (err error) {
		result, err = f(ctx)
		return err
	})
	return result, err
}

// gatedKeys are keys whose lists are read through a reportGate.
type gatedKeys struct {
	manage.KeyManager
	gate *reportGate
}

func (k gatedKeys) ListKeys(ctx context.Context, q manage.KeyQuery) ([]manage.KeyInfo, error) {
	return readThrough(ctx, k.gate, func(ctx context.Context) ([]manage.KeyInfo, error) { return k.KeyManager.ListKeys(ctx, q) })
}

// gatedAccounts are accounts whose lists are read through a reportGate.
type gatedAccounts struct {
	manage.AccountManager
	gate *reportGate
}

func (a gatedAccounts) ListAccounts(ctx context.Context, q manage.AccountQuery) ([]manage.AccountInfo, error) {
	return readThrough(ctx, a.gate, func(ctx context.Context) ([]manage.AccountInfo, error) {
		return a.AccountManager.ListAccounts(ctx, q)
	})
}

func (a gatedAccounts) ListCredit(ctx context.Context, q manage.CreditQuery) ([]manage.CreditEntry, error) {
	return readThrough(ctx, a.gate, func(ctx context.Context) ([]manage.CreditEntry, error) {
		return a.AccountManager.ListCredit(ctx, q)
	})
}

// gatedUsage is usage that is read through a reportGate.
type gatedUsage struct {
	manage.UsageReporter
	gate *reportGate
}

func (u gatedUsage) Report(ctx context.Context, q manage.ReportQuery) (manage.Report, error) {
	return readThrough(ctx, u.gate, func(ctx context.Context) (manage.Report, error) { return u.UsageReporter.Report(ctx, q) })
}

func (u gatedUsage) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return readThrough(ctx, u.gate, func(ctx context.Context) ([]llmhttp.UsageSum, error) { return u.UsageReporter.Query(ctx, q) })
}
