package llmhttp

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A requestContext does what one of package context would do, whether somebody
// waits for its end or not, and whoever ends it.
func TestRequestContext(t *testing.T) {
	type ctxKey struct{}
	cause, parentCause := errors.New("cause"), errors.New("parent's cause")
	look := func(ctx context.Context) (done bool, err, why error) {
		select {
		case <-ctx.Done():
			done = true
		default:
		}
		return done, ctx.Err(), context.Cause(ctx)
	}
	for _, waits := range []bool{false, true} {
		for name, end := range map[string]func(c *requestContext, parent context.CancelCauseFunc){
			"nothing":           func(*requestContext, context.CancelCauseFunc) {},
			"itself":            func(c *requestContext, _ context.CancelCauseFunc) { c.end(cause) },
			"without a cause":   func(c *requestContext, _ context.CancelCauseFunc) { c.end(nil) },
			"the parent":        func(_ *requestContext, parent context.CancelCauseFunc) { parent(parentCause) },
			"itself and parent": func(c *requestContext, parent context.CancelCauseFunc) { c.end(cause); parent(parentCause) },
			"parent and itself": func(c *requestContext, parent context.CancelCauseFunc) { parent(parentCause); c.end(cause) },
			"itself twice":      func(c *requestContext, _ context.CancelCauseFunc) { c.end(cause); c.end(errGone) },
			"a deadline": func(c *requestContext, _ context.CancelCauseFunc) {
				ctx, cancel := context.WithDeadlineCause(c.parent, time.Time{}, parentCause)
				cancel()
				c.parent = ctx
				c.end(cause)
			},
		} {
			t.Run(name, func(t *testing.T) {
				parent := context.WithValue(t.Context(), ctxKey{}, "value")
				ours, cancelOurs := context.WithCancelCause(parent)
				theirs, cancelTheirs := context.WithCancelCause(parent)
				want, cancelWant := context.WithCancelCause(theirs)
				for _, cancel := range []context.CancelCauseFunc{cancelOurs, cancelTheirs, cancelWant} {
					defer cancel(nil)
				}
				c := &requestContext{parent: ours, x: new(exchange)}
				if waits && name != "a deadline" {
					look(c)
				}
				end(c, cancelOurs)
				switch name {
				case "itself", "itself and parent", "itself twice":
					cancelWant(cause)
				case "without a cause":
					cancelWant(nil)
				case "the parent", "parent and itself":
					cancelTheirs(parentCause)
				case "a deadline":
					var cancel context.CancelFunc
					want, cancel = context.WithDeadlineCause(want, time.Time{}, parentCause)
					defer cancel()
				}
				assert.Equal(t, context.Cause(want), c.why())
				assert.Equal(t, want.Err(), c.Err())
				assert.Equal(t, context.Cause(want), context.Cause(c), "the cause, before anybody waits")
				wantDone, wantErr, wantCause := look(want)
				done, err, why := look(c)
				assert.Equal(t, []any{wantDone, wantErr, wantCause}, []any{done, err, why})
				assert.Equal(t, "value", c.Value(ctxKey{}))
				child, cancel := context.WithTimeout(c, time.Hour)
				defer cancel()
				done, err, why = look(child)
				assert.Equal(t, []any{wantDone, wantErr, wantCause}, []any{done, err, why}, "of a child")
			})
		}
	}
}

// What waits for a requestContext's end is told of it, and takes no goroutine.
func TestRequestContextTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("cause")
		c := &requestContext{parent: t.Context(), x: new(exchange)}
		child, cancel := context.WithCancel(c)
		defer cancel()
		told := false
		context.AfterFunc(c, func() { told = true })
		c.end(cause)
		<-child.Done()
		synctest.Wait()
		assert.True(t, told)
		assert.Equal(t, cause, context.Cause(child))
	})
}

// Exchanges are looked at when they are due or soon after, however many there
// are, and a Handler that has none sets no timer.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler(BackendFunc(func(context.Context, *ChatRequest) ChatStream { return nil }), AllowAll("a"), nil)
		r := httptest.NewRequest("POST", "/v1/chat/completions", nil)
		began := time.Now()
		due := make(map[*exchange]time.Duration)
		for range 200 {
			x := newExchange(h, nil, r)
			x.dead = true // a look at it does nothing
			require.True(t, h.enter(x))
			h.look(x, 10*time.Second)
			due[x] = time.Since(began) + 10*time.Second
			time.Sleep(7 * time.Millisecond)
		}
		for len(due) > 0 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			now := time.Since(began)
			for x, at := range due {
				if x.watch.due.Load() != notDue {
					require.Less(t, now-at, 101*time.Millisecond, "not much too late")
					continue
				}
				require.GreaterOrEqual(t, now, at, "not too early")
				delete(due, x)
				h.leave(x)
			}
		}
		assert.Equal(t, int64(notDue), h.clock.next.Load())
	})
}
