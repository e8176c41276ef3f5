// Calls of Redis with a timeout and a circuit breaker. Redis may have executed a call that failed, so
// no call is repeated.

package redislimit

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A client calls Redis. It bounds the time of each call and has a circuit breaker: after
// failureThreshold failures in a row, calls fail at once. Then one call per retryInterval is sent,
// to find out whether Redis answers again.
type client struct {
	redis         redis.UniversalClient
	timeout       time.Duration
	retryInterval time.Duration

	mu       sync.Mutex // guards the fields below
	failures int        // in a row
	lastErr  error
	retryAt  time.Time // when the half-open breaker allows the next call
}

// failureThreshold is the number of failures that open the circuit breaker. A
// single failure may be due to one broken connection.
const failureThreshold = 3

// A callError is the error of a call that Redis did not execute, or did not
// answer in time.
type callError struct {
	message string
	err     error
	notSent bool // Redis cannot have executed the call
}

// Error reveals neither addresses nor other parts of the configuration.
func (e *callError) Error() string { return "redislimit: " + e.message + ": " + describe(e.err) }

func (e *callError) Unwrap() error { return e.err }

// describe returns the text of err without addresses.
func describe(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + describe(op.Err)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Err
	}
	text := err.Error()
	// An address follows these words of Redis.
	if word, _, _ := strings.Cut(text, " "); word == "MOVED" || word == "ASK" || word == "REDIRECT" {
		return word
	}
	return text
}

// A script is a Lua script with the hash by which Redis knows it.
type script struct{ source, sha string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

// run runs a script by its hash. It sends the source only if Redis does not know it.
func (c *client) run(ctx context.Context, s *script, keys []string, args ...any) (*redis.Cmd, error) {
	return call(ctx, c, func(ctx context.Context) (*redis.Cmd, error) {
		cmd := c.eval(ctx, "evalsha", s.sha, keys, args)
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			cmd = c.eval(ctx, "eval", s.source, keys, args)
		}
		return cmd, cmd.Err()
	})
}

// eval is used instead of redis.Script because the client would repeat a script when the connection
// breaks, which Redis may have executed.
func (c *client) eval(ctx context.Context, command, script string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, command, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	_ = c.redis.Process(ctx, noRetry{cmd}) // returns cmd.Err()
	return cmd
}

type noRetry struct{ *redis.Cmd }

func (noRetry) NoRetry() bool { return true }

// call calls f and returns when f does, when ctx is done, or after the timeout. f runs on its own
// goroutine, because a redis client without ContextTimeoutEnabled ignores the deadline of its
// context.
func call[T any](ctx context.Context, c *client, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var r result
	if err := ctx.Err(); err != nil {
		return r.value, err
	}
	if err := c.allow(); err != nil {
		return r.value, err
	}
	callCtx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil { // in a hook of the redis client
				r.err = fmt.Errorf("panic: %v", p)
			}
			done <- r
		}()
		r.value, r.err = f(callCtx)
	}()
	select {
	case r = <-done:
	case <-callCtx.Done():
		r.err = callCtx.Err()
	}
	return r.value, c.report(ctx, r.err)
}

// allow returns an error if the circuit breaker is open.
func (c *client) allow() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures < failureThreshold {
		return nil
	}
	now := time.Now()
	if now.Before(c.retryAt) {
		return &callError{message: "Redis did not answer a moment ago", err: c.lastErr, notSent: true}
	}
	c.retryAt = now.Add(c.retryInterval) // half-open: one call is sent
	return nil
}

// report records the result of a call in the circuit breaker and returns the error for
// the caller.
func (c *client) report(ctx context.Context, err error) error {
	var reply redis.Error
	answered := err == nil || errors.As(err, &reply)
	if !answered {
		if cause := contextErr(ctx); cause != nil {
			return cause // the deadline of the caller was too short to count it as a failure of Redis
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !answered {
		c.failures++
		c.lastErr, c.retryAt = err, time.Now().Add(c.retryInterval)
		return &callError{message: "Redis does not answer", err: err}
	}
	c.failures, c.lastErr = 0, nil
	if err != nil {
		return &callError{message: "Redis refuses", err: err}
	}
	return nil
}

// contextErr returns ctx.Err(). Unlike that, it is not nil once the deadline has passed: a
// connection may report it before the timer of ctx has fired.
func contextErr(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
