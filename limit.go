package llmhttp

import (
	"context"
	"time"
)

// Limits bound what a [Key] may use. Zero fields are unlimited.
type Limits struct {
	Requests   Rate // requests begun, of every endpoint
	Tokens     Rate // tokens, prompt and completion together
	Quota      Rate // tokens too, over a long period: beyond it the error is insufficient_quota, which clients do not retry
	Concurrent int  // requests in progress, counted by each Handler for itself unless its Limiter is a ConcurrencyLimiter; negative admits none
}

// A Rate permits N events Per a period, in bursts of at most Burst. The zero
// Rate is no limit.
type Rate struct {
	N     int           // zero means no limit; negative permits nothing
	Per   time.Duration // zero or negative means a minute
	Burst int           // zero or negative means N
}

// PerMinute returns a Rate of n a minute. If n is zero, it is no limit.
func PerMinute(n int) Rate { return Rate{N: n, Per: time.Minute} }

// WithDefaults returns r with its defaults filled in, for Limiters. Where r permits
// nothing, N and Burst are zero.
func (r Rate) WithDefaults() Rate {
	if r.Per <= 0 {
		r.Per = time.Minute
	}
	if r.N < 0 {
		return Rate{Per: r.Per}
	}
	if r.Burst <= 0 {
		r.Burst = r.N
	}
	return r
}

// A Limiter keeps token buckets, each full at first and refilled at a [Rate].
// An implementation backed by a shared store limits a fleet as one. It must be
// safe for concurrent use.
//
// A Limiter that fails refuses requests with 503. One that would rather admit
// them should log the failure and report success.
type Limiter interface {
	// Take takes Cost from every bucket drawn on, or nothing from any.
	// It returns a Level for each draw; all succeeded if none has a
	// RetryAfter, and if not, those have one whose buckets hold too little.
	// No two draws are on the same bucket, and no Cost is negative.
	//
	// A Cost of zero always succeeds: it asks for the Level. A Cost above
	// what the bucket can hold never does.
	Take(ctx context.Context, draws ...Draw) ([]Level, error)

	// Adjust takes Cost from each bucket whatever it holds: more than it holds
	// leaves it below zero, and a negative Cost gives tokens back, up to what
	// the bucket can hold. It settles the difference between what a request
	// was expected to use and did use.
	Adjust(ctx context.Context, draws ...Draw) error
}

// A ConcurrencyLimiter is a [Limiter] that counts requests in progress, too.
// One that is shared by a fleet counts them for all of it. A [Handler] leaves
// Limits.Concurrent to a Limiter that is one.
type ConcurrencyLimiter interface {
	Limiter

	// Acquire counts one more in progress in bucket, unless there are limit
	// already, and returns what ends it. Where there are, or if limit is not
	// positive, release is nil, and so is err. Buckets of requests in progress
	// are none of tokens, whatever their names.
	//
	// To release works after ctx is done, too, and more than once is as once.
	// What is never released, because its process died, is to come free after
	// a while.
	Acquire(ctx context.Context, bucket string, limit int) (release func(), err error)
}

// A Draw is what is to be taken from a bucket, which has the given Rate from
// then on. A bucket whose Rate changes keeps what it holds, debts included, up
// to what it can hold now; one that is full may be forgotten. Buckets that are
// drawn on together have names that are alike up to their last colon, so that a
// sharded store can keep them in one place.
type Draw struct {
	Bucket string
	Rate   Rate // its N is not zero
	Cost   int
}

// A Level is the state of a bucket.
type Level struct {
	Remaining  int           // tokens that are left, at least zero
	RetryAfter time.Duration // how long until there are enough; zero if there were
	ResetAfter time.Duration // how long until the bucket is full
}
