package route

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A call is one request of a client. It tries targets until one answers or none
// is left. It is used by one goroutine.
type call struct {
	router   *Router
	route    *route
	endpoint llmhttp.Endpoint
	ctx      context.Context // of the client's request
	model    string          // the client's name

	tries   int
	tryFrom []int  // for each target, the first round in which it may be tried
	best    result // of the failed tries, the one whose error the client should get
	blocked bool   // a breaker kept the last round from trying a target
}

// never is the tryFrom of a target that is not tried again.
const never = math.MaxInt

// A sendFunc sends the request to the target of a try and passes on the reply.
// It returns nil after a complete reply, and errClientLeft if the client wants
// no more of it.
type sendFunc func(ctx context.Context, t *try) error

// errClientLeft ends a call whose client stopped reading the reply. The client
// gets no error.
var errClientLeft = errors.New("route: the client left")

// newCall returns the call for a request, or an error if no route serves it.
func (r *Router) newCall(ctx context.Context, model string, endpoint llmhttp.Endpoint) (*call, error) {
	rt, err := r.routeFor(model, endpoint)
	if err != nil {
		return nil, err
	}
	c := &call{router: r, route: rt, endpoint: endpoint, ctx: ctx, model: model, tryFrom: make([]int, len(rt.targets))}
	for i, t := range rt.targets {
		if !t.supports(endpoint) {
			c.tryFrom[i] = never
		}
	}
	return c, nil
}

// run tries targets until the call has an answer. It returns the error for the
// client.
func (c *call) run(send sendFunc) error {
	for round := 1; ; round++ {
		for c.tries < c.router.opts.Tries && c.ctx.Err() == nil {
			i, tk, blocked := c.route.pool.pick(c.candidates(round), round == 1, time.Now())
			if i < 0 {
				c.blocked = blocked
				break
			}
			c.tries++
			t := &try{call: c, index: i, target: c.route.targets[i], ticket: tk}
			res := t.run(send)
			if res.final {
				return res.err
			}
			c.remember(&res)
			c.tryFrom[i] = never
			if res.retry {
				c.tryFrom[i] = round + 1
			}
		}
		again := c.wait(round)
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		if !again {
			return c.failure(round)
		}
	}
}

// candidates returns the targets that the call may try in a round.
func (c *call) candidates(round int) []int {
	list := make([]int, 0, len(c.tryFrom))
	for i, from := range c.tryFrom {
		if from <= round {
			list = append(list, i)
		}
	}
	return list
}

// remember keeps the result of a failed try if its error tells the client more
// than the one it would get so far. Of several 429s, the shortest RetryAfter
// counts.
func (c *call) remember(res *result) {
	if res.rank == rankLimit && c.best.rank == rankLimit {
		shorter := res.retryAfter > 0 && (c.best.retryAfter <= 0 || res.retryAfter < c.best.retryAfter)
		if !shorter {
			return
		}
	}
	if res.rank >= c.best.rank {
		c.best = *res
	}
}

// failure returns the error of a call that no target answered. The given round
// was the last.
func (c *call) failure(round int) error {
	switch {
	case c.best.rank >= rankFailure:
		return c.best.err
	case c.blocked:
		// The blocked target might know the model, so this is not a 404.
		return &llmhttp.Error{
			Status:     http.StatusServiceUnavailable,
			Message:    "The model is not available at the moment. Please try again.",
			RetryAfter: c.route.pool.nextHalfOpen(c.candidates(round), time.Now()),
			Err:        errors.New("route: the circuit breakers of all targets that could answer are open"),
		}
	case c.best.rank == rankNotFound:
		return c.notFound(c.best.err)
	case c.best.rank == rankUnsupported:
		return c.best.err
	}
	return c.notFound(errUnsupported(c.endpoint))
}

// notFound returns the error for a model that no target knows. It has the
// client's name of the model, which may differ from those in cause.
func (c *call) notFound(cause error) error {
	e := llmhttp.ModelNotFound(c.model)
	e.Err = cause
	return e
}

// wait waits until the round after the given one may begin. It reports false if
// there is none, or if the client's context ends first.
func (c *call) wait(round int) bool {
	o := &c.router.opts
	if c.tries == 0 || c.tries >= o.Tries || round >= o.Rounds {
		return false
	}
	now := time.Now()
	recovery, ok := c.route.pool.nextRecovery(c.candidates(round+1), now)
	if !ok || recovery > o.MaxWait {
		return false
	}
	delay := max(backoff(o, round), recovery)
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
	delay := min(o.Backoff, o.MaxWait)
	for range round - 1 {
		delay = min(2*delay, o.MaxWait)
	}
	return delay - time.Duration(rand.Float64()*float64(delay/2))
}

// tryTargets runs a call whose reply is a single value, which ask requests from
// a target.
func tryTargets[T any](ctx context.Context, r *Router, model string, endpoint llmhttp.Endpoint,
	ask func(context.Context, *target) (*T, error)) (*T, error) {
	c, err := r.newCall(ctx, model, endpoint)
	if err != nil {
		return nil, err
	}
	var reply *T
	err = c.run(func(ctx context.Context, t *try) (err error) {
		if reply, err = ask(ctx, t.target); err == nil && reply == nil {
			err = errors.New("route: the target returned neither a reply nor an error")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

func errUnsupported(endpoint llmhttp.Endpoint) error {
	return fmt.Errorf("route: no target supports %s: %w", endpoint, errors.ErrUnsupported)
}
