// A request of a client: rounds of tries, the waiting between them, and the error for the client.

package route

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

// A call serves one request of a client. It tries targets until one answers or none
// is left. It is used by one goroutine.
type call struct {
	router *Router
	route  *route
	ctx    context.Context // of the client's request
	info   *requestInfo

	round        int    // from 1
	tries        int    // so far
	sent         bool   // the request may have reached a target
	eligibleFrom []int  // for each target, the first round in which it may be tried next
	bestFailure  result // the failed try, or the refusal, whose error the client gets if no target answers

	toldDropped, toldRenamed bool // a header tells of changed parameters: see try.changeParams
}

// excluded is the eligibleFrom of a target that must not be tried again.
const excluded = math.MaxInt

// A sendFunc sends the request to the target of a try and passes on the reply. It returns nil after
// a complete reply, and errClientLeft if the client wants no more of it.
type sendFunc func(ctx context.Context, t *try) error

// errClientLeft ends a call whose client stopped reading the reply. The client
// gets no error.
var errClientLeft = errors.New("route: the client left")

// newCall returns the call for a request, or an error if no route serves it.
func (r *Router) newCall(ctx context.Context, req Request) (*call, error) {
	rt, err := r.current.Load().routeFor(ctx, req.Model, req.Operation)
	if err != nil {
		return nil, err
	}
	c := &call{router: r, route: rt, ctx: ctx, info: rt.newRequestInfo(ctx, req), round: 1}
	if !c.info.allowed {
		return nil, c.notFound(errNoTarget)
	}
	c.info.serving = slices.DeleteFunc(c.info.serving, c.refuses)
	c.info.Body = nil // so that a long stream does not retain it
	c.eligibleFrom = slices.Repeat([]int{excluded}, len(rt.targets))
	for _, i := range c.info.serving {
		c.eligibleFrom[i] = 1
	}
	return c, nil
}

// refuses reports whether target i refuses a parameter of the request.
func (c *call) refuses(i int) bool {
	err := c.route.targets[i].params.refusal(c.info.Body)
	if err != nil {
		c.bestFailure = result{err: err, rank: rankRefused}
	}
	return err != nil
}

// run tries targets until the call has an answer. It returns the error for the
// client.
func (c *call) run(send sendFunc) error {
	for {
		t := c.nextTry()
		if t == nil {
			return c.finalError()
		}
		res := t.run(send)
		if res.final {
			return res.err
		}
		c.recordFailure(t, &res)
	}
}

// nextTry returns the next try, after waiting for the next round if this one has
// no target left. It returns nil if the call has failed.
func (c *call) nextTry() *try {
	for c.tries < c.router.opts.Tries && c.ctx.Err() == nil {
		if t := c.pickTarget(); t != nil {
			return t
		}
		if !c.awaitRound() {
			return nil
		}
		c.round++
	}
	return nil
}

// pickTarget returns a try of one of the targets that are left in this round, or
// nil. Until a target has answered or failed, it may pick one whose breaker is open:
// that target may be the only one that knows the model.
func (c *call) pickTarget() *try {
	opts := pickOptions{allowResting: c.round == 1, allowOpenBreaker: c.bestFailure.rank < rankFailure}
	a, ok := c.route.pool.pick(c.info, c.candidates(c.round), opts, time.Now())
	if !ok {
		return nil
	}
	c.tries++
	return &try{call: c, target: c.route.targets[a.index], admission: a}
}

// candidates returns the targets that the call may try in a round.
func (c *call) candidates(round int) []int {
	list := make([]int, 0, len(c.eligibleFrom))
	for i, from := range c.eligibleFrom {
		if from <= round {
			list = append(list, i)
		}
	}
	return list
}

// awaitRound waits until the next round may begin. It returns false if there is no
// next round, or if the client's context ends first.
func (c *call) awaitRound() bool {
	o := &c.router.opts
	if c.tries == 0 || c.round >= o.Rounds {
		return false
	}
	now := time.Now()
	recovery, ok := c.route.pool.nextRecovery(c.info, c.candidates(c.round+1), now)
	if !ok || recovery > o.MaxWait {
		return false
	}
	delay := max(backoff(o, c.round), recovery)
	if deadline, ok := c.ctx.Deadline(); ok && now.Add(delay).After(deadline) {
		return false
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// backoff returns the delay after a round: Options.Backoff, doubled with each
// round up to Options.MaxWait, less up to half of it at random.
func backoff(o *Options, round int) time.Duration {
	const maxDoublings = 62 // of which a nanosecond becomes longer than every MaxWait
	delay := min(o.Backoff, o.MaxWait)
	for range min(round-1, maxDoublings) {
		delay = min(2*delay, o.MaxWait)
	}
	return delay - time.Duration(rand.Float64()*float64(delay/2))
}

// recordFailure records the result of a failed try, and when its target may be tried
// again.
func (c *call) recordFailure(t *try, res *result) {
	c.updateBest(res)
	c.eligibleFrom[t.admission.index] = excluded
	if res.retry {
		c.eligibleFrom[t.admission.index] = c.round + 1
	}
}

// updateBest keeps the result of a failed try if its rank is not below that of
// bestFailure. Of several 429s it keeps the one with the shortest RetryAfter.
func (c *call) updateBest(res *result) {
	if res.rank == rankLimit && c.bestFailure.rank == rankLimit {
		shorter := res.retryAfter > 0 && (c.bestFailure.retryAfter <= 0 || res.retryAfter < c.bestFailure.retryAfter)
		if !shorter {
			return
		}
	}
	if res.rank >= c.bestFailure.rank {
		c.bestFailure = *res
	}
}

// finalError returns the error of a call that no target answered.
func (c *call) finalError() error {
	switch {
	case c.ctx.Err() != nil:
		return c.contextError()
	case c.bestFailure.rank >= rankRefused:
		return c.bestFailure.err
	case c.bestFailure.rank == rankNotFound:
		return c.notFound(c.bestFailure.err)
	case c.bestFailure.rank == rankUnsupported:
		return c.bestFailure.err
	}
	return c.notFound(errUnsupported(c.info.Operation))
}

// contextError returns the error of a call whose context has ended.
func (c *call) contextError() error {
	cause := context.Cause(c.ctx)
	if !c.sent {
		return fmt.Errorf("%w: %w", llm.ErrNotSent, cause)
	}
	return cause
}

// notFound returns the error for a model that no target knows. It has the
// client's name of the model, which may differ from those in cause.
func (c *call) notFound(cause error) error {
	e := llm.ModelNotFound(c.info.Model)
	e.Err = cause
	return e
}

// tryTargets runs a call whose reply is a single value. ask sends the request to a
// target and returns its reply.
func tryTargets[T any](ctx context.Context, r *Router, req Request, ask func(context.Context, *try) (*T, error)) (*T, error) {
	c, err := r.newCall(ctx, req)
	if err != nil {
		return nil, err
	}
	var reply *T
	err = c.run(func(ctx context.Context, t *try) (err error) {
		reply, err = ask(ctx, t)
		if err == nil && reply == nil {
			err = errors.New("route: the target returned neither a reply nor an error")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}
