// The calls of models that StartCall has begun, and the sum of what they have used and cost. settle
// adds what else the request used.

package llmhttp

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// A callSum is what the calls of a request, or the calls within one, have used.
type callSum struct {
	usage   llm.Usage
	cost    Cost
	err     error // why the cost of a call is not known; nil if all are
	unknown bool  // the usage of a call is not known
}

func (s *callSum) add(other *callSum) {
	s.usage.Add(&other.usage)
	s.cost.Add(other.cost)
	s.unknown = s.unknown || other.unknown
	if s.err == nil {
		s.err = other.err
	}
}

// callTree has the calls of a request that StartCall has begun. Its methods may be called
// concurrently.
type callTree struct {
	notes  *requestNotes
	books  *books
	record UsageRecord // of the request, as it was when the first call began

	mu     sync.Mutex // guards the fields below, and those of the calls
	sum    callSum    // of the calls of the request that have ended
	open   []*call    // in the order in which they began, so that inner ones follow
	closed bool       // the Backend has returned
}

// A call is a call of a model that StartCall has begun. To the calls within it, it is what the
// request is to those that are in no other.
type call struct {
	ctx      context.Context // that it began with
	tree     *callTree
	outer    *call // nil if it is a call of the request
	model    string
	reported *llm.Usage // nil if nothing was reported
	inner    callSum    // of the calls within it that have ended
	ended    bool
}

// callKey is the key of the call that a context belongs to.
type callKey struct{}

// start begins a call of a model within outer, or within the request if outer is nil.
func (t *callTree) start(ctx context.Context, outer *call, model string) (_ context.Context, end func(llm.CallResult)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for outer != nil && outer.ended {
		outer = outer.outer
	}
	c := &call{ctx: ctx, tree: t, outer: outer, model: model, ended: t.closed}
	if !t.closed {
		t.open = append(t.open, c)
	}
	return context.WithValue(ctx, callKey{}, c), c.finish
}

// spent returns the sum of the calls within c that have ended, or of those of the request if c is
// nil.
func (t *callTree) spent(c *call) callSum {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c != nil {
		return c.inner
	}
	return t.sum
}

// close ends the calls that have not ended, and returns the sum of all. target is that of the last
// try.
func (t *callTree) close(target string) *callSum {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endWithin(nil, target)
	t.closed = true
	sum := t.sum
	sum.usage.Bound()
	sum.usage.Reconcile()
	return &sum
}

// endWithin ends the calls within outer, or all if that is nil, the inner ones first. The caller holds
// the mutex.
func (t *callTree) endWithin(outer *call, target string) {
	for _, c := range slices.Backward(slices.Clone(t.open)) {
		if !c.ended && (outer == nil || c.outer == outer) {
			c.end(llm.CallResult{Err: errCallNotEnded}, target)
		}
	}
}

var (
	errCallNotEnded = errors.New("llmhttp: the Backend has not ended the call")
	errUsageUnknown = errors.New("llmhttp: a model has not reported what a call has used")
)

// report implements ReportUsage for a call. It reports false if the call has ended.
func (c *call) report(u llm.Usage) bool {
	u.Bound()
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	if !c.ended {
		c.raise(&u)
	}
	return !c.ended
}

// raise sets what the call has used, unless that is less than what was reported before.
func (c *call) raise(u *llm.Usage) {
	if c.reported == nil || c.reported.Total() <= u.Total() {
		c.reported = u
	}
}

// finish is the function end of StartCall.
func (c *call) finish(how llm.CallResult) {
	target, _ := c.tree.notes.get()
	if how.Usage != nil {
		u := *how.Usage
		u.Bound()
		how.Usage = &u
	}
	c.tree.mu.Lock()
	defer c.tree.mu.Unlock()
	if !c.ended {
		c.end(how, target)
	}
}

// end adds the call to the sum of the one that it is in. The caller holds the mutex. Price is called
// with it: it has no context, so it cannot wait for another call of the request.
func (c *call) end(how llm.CallResult, target string) {
	t := c.tree
	t.endWithin(c, target)
	c.ended = true
	t.open = slices.DeleteFunc(t.open, func(o *call) bool { return o == c })
	if u := tokens.Reported(how.Usage); u != nil {
		c.raise(u)
	}
	sum := c.inner
	if u := tokens.Reported(c.reported); u != nil {
		total := *u
		divideTotal(&total)
		total.Reconcile()
		if own := total.Beyond(&sum.usage); own.TotalTokens > 0 {
			sum.add(c.price(own, how, target))
		}
	} else if (how.Err == nil || c.ctx.Err() != nil && how.Err != errCallNotEnded && !errors.Is(how.Err, llm.ErrNotSent)) && sum.usage.TotalTokens == 0 {
		sum.unknown = true
	}
	if c.outer != nil {
		c.outer.inner.add(&sum)
	} else {
		t.sum.add(&sum)
	}
}

// price returns own, what the call has used beside the calls within it, with its cost.
func (c *call) price(own llm.Usage, how llm.CallResult, target string) *callSum {
	sum := &callSum{usage: own}
	if c.tree.books.price == nil {
		return sum
	}
	r := c.tree.record
	r.Model, r.ServedModel, r.ServiceTier = recordedName(c.model), recordedName(how.Model), recordedName(how.ServiceTier)
	r.Target, r.Units = target, UnitsOf(own)
	sum.cost, sum.err = callPrice(c.tree.books.price, &r)
	return sum
}

// divideTotal is ledger.divideTotal for a call, whose request is not known: if neither tokens of the
// prompt nor of the completion are told, all are of the prompt.
func divideTotal(u *llm.Usage) {
	switch rest := u.TotalTokens - u.PromptTokens - u.CompletionTokens; {
	case rest <= 0:
	case u.PromptTokens > 0:
		u.CompletionTokens += rest
	default:
		u.PromptTokens += rest
	}
}
