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

// A server is a Redis as seen from here: it answers in time, or it is away.
// While it is away, only now and then a call waits to see whether it is back.
type server struct {
	client  redis.UniversalClient
	heeds   bool          // the client heeds deadlines of contexts
	timeout time.Duration // of a call
	pause   time.Duration // from one attempt to the next while it is away

	mu       sync.Mutex
	failures int // in a row
	last     error
	next     time.Time // when to try again
}

// patience is after how many failures in a row a server is away: one may be
// a moment's.
const patience = 3

// A failure is what became of a call that Redis did not do, or not in time.
type failure struct {
	what    string
	err     error
	skipped bool // nothing was sent
}

// Error tells neither addresses nor anything else that was configured.
func (f *failure) Error() string { return "redislimit: " + f.what + ": " + describe(f.err) }

func (f *failure) Unwrap() error { return f.err }

func describe(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + describe(op.Err)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Err
	}
	text := err.Error()
	if word, _, _ := strings.Cut(text, " "); word == "MOVED" || word == "ASK" || word == "REDIRECT" {
		return word // an address follows
	}
	return text
}

// A script is one in Lua, and its name in Redis.
type script struct{ source, sha string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

// run runs a script.
func (s *server) run(ctx context.Context, sc *script, keys []string, args ...any) (*redis.Cmd, error) {
	return call(ctx, s, func(ctx context.Context) (*redis.Cmd, error) {
		cmd := s.eval(ctx, "evalsha", sc.sha, keys, args)
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			// Redis has lost it, or never had it. It remembers what it is sent.
			cmd = s.eval(ctx, "eval", sc.source, keys, args)
		}
		return cmd, cmd.Err()
	})
}

func (s *server) eval(ctx context.Context, name, script string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	_ = s.client.Process(ctx, once{cmd}) // its error is cmd's
	return cmd
}

// once is a command that the client does not repeat by itself. Where the
// connection breaks, Redis may have done it.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// heeds reports whether calls of client end when their context does.
func heeds(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// call calls f, for as long as a call may take. With a client that does not
// heed its context, f goes on after that.
func call[T any](ctx context.Context, s *server, f func(context.Context) (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	if err := s.enter(); err != nil {
		return zero, err
	}
	timed, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.heeds {
		value, err := f(timed)
		return value, s.leave(ctx, err)
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil { // by a hook of the client's
				r.err = fmt.Errorf("panic: %v", p)
			}
			done <- r
		}()
		r.value, r.err = f(timed)
	}()
	var r result
	select {
	case r = <-done:
	case <-timed.Done():
		r.err = timed.Err()
	}
	return r.value, s.leave(ctx, r.err)
}

// ended is ctx.Err(), which may come a moment after the deadline of ctx, when
// a connection has met it already.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// enter returns an error if the server is away and was tried a moment ago.
func (s *server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures < patience {
		return nil
	}
	now := time.Now()
	if now.Before(s.next) {
		return &failure{"Redis did not answer a moment ago", s.last, true}
	}
	s.next = now.Add(s.pause)
	return nil
}

// leave learns from the end of a call, and returns its error.
func (s *server) leave(ctx context.Context, err error) error {
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) {
		if cause := ended(ctx); cause != nil {
			return cause // it is the caller that did not wait
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failures++
		s.last, s.next = err, time.Now().Add(s.pause)
		return &failure{what: "Redis does not answer", err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.last = 0, nil
	if err != nil {
		return &failure{what: "Redis refuses", err: err}
	}
	return nil
}
