// Limits and their Rate, Limiter and its optional interfaces, and the errors of refusals.

package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/retryheader"
	"github.com/llmhttp/llmhttp/llm"
)

// Limits bound the use of a [Key], of another [Subject] or of an end user. A zero field sets no
// limit, and a negative one permits nothing.
type Limits struct {
	// Requests limits requests to all endpoints. Requests that only count tokens have a
	// bucket of their own, with the same rate and a burst of at least 100, because agents
	// make dozens of them at once. Those that load stored items take from both.
	Requests Rate

	// Tokens limits the tokens of prompts and completions together. A request reserves those of its
	// prompt and of its longest reply: what the client or MaxCompletionTokens sets, or without one
	// [TokenEstimates].ReserveCompletion. At its end the difference to what was used is settled, which
	// may put the bucket into debt. So each request in progress can overrun the limit by what its
	// prompt was estimated too low, by a reply beyond what was reserved, and by the tokens of images and
	// speech, which count only if the Backend reports them. MaxCompletionTokens and Concurrent bound that.
	Tokens Rate

	// Quota limits the same tokens, or their cost, over a long period.
	Quota Quota

	// MaxCompletionTokens is the largest number of tokens that a choice of a chat
	// may have. A request that asks for more, or sets no limit, gets this one
	// before the Backend sees it. The text of a Backend that ignores it is cut,
	// with [llm.FinishLength], at 8 bytes for each token and 64 more, which no
	// Backend that counts tokens should reach. Zero means no limit; negative
	// permits none: chats get a 403.
	MaxCompletionTokens int

	// Concurrent is the largest number of requests in progress at a time. A request is in progress
	// until its reply is written, except for the last 32 KiB, so that a client may send the next
	// one when it has the reply. One whose client has left is in progress until its Backend has
	// returned. Zero means no limit; negative permits none. Each Handler counts its own requests
	// unless its Limiter is a [ConcurrencyLimiter].
	Concurrent int
}

// Validate returns an error that names the first field of l whose value is a mistake: a
// [Rate] whose N is zero although its Per or Burst is set, a [Quota] without an amount
// although its Per is set, or a negative Per or Burst of a Rate.
//
// Programs and stores call it when a key is made or when its limits change. A [Handler] does
// not, and treats such values as the fields tell.
func (l *Limits) Validate() error {
	switch {
	case !l.Quota.isSet() && l.Quota.Per != 0: // Since may remain of a quota that was removed
		return errors.New("Limits.Quota.Per: is set, but neither Tokens nor Cost")
	}
	return cmp.Or(l.Requests.validate("Limits.Requests"), l.Tokens.validate("Limits.Tokens"))
}

// A Rate describes a token bucket: it holds at most Burst tokens and gains N
// tokens every Per, evenly spread over that time. The zero Rate means no limit.
type Rate struct {
	N     int           // zero means no limit; negative permits nothing
	Per   time.Duration // zero means a minute, and so does a negative value, which Limits.Validate refuses
	Burst int           // zero means N, and so does a negative value, which Limits.Validate refuses
}

// PerMinute returns a Rate of n per minute with a burst of n. If n is zero or negative, the
// Rate permits nothing.
func PerMinute(n int) Rate {
	if n <= 0 {
		n = -1
	}
	return Rate{N: n, Per: time.Minute}
}

// validate returns an error that begins with the name of the field that is a mistake.
func (r Rate) validate(name string) error {
	switch {
	case r.Per < 0:
		return fmt.Errorf("%s.Per: must not be negative", name)
	case r.Burst < 0:
		return fmt.Errorf("%s.Burst: must not be negative", name)
	case r.N == 0 && r != Rate{}:
		return fmt.Errorf("%s.N: is zero, but Per or Burst is set", name)
	}
	return nil
}

// WithDefaults returns r with its defaults filled in: Per is positive, and N and Burst are not
// negative. A Rate that permits nothing has an N and a Burst of zero, so the result is not for a
// Key, where a zero N means no limit. Limiters use it to read the Rate of a [BucketAmount].
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

// A Limiter enforces rates with token buckets. Each subject has its own buckets, told apart
// by their names. A bucket is full when it is first used and refills at the [Rate] of the
// latest BucketAmount on it.
//
// A [Handler] uses it in three steps. Before it reads the body of a request, it takes one request
// with Take. Before it calls the Backend, it reserves with Take the tokens of the prompt and of the
// reply; if that or the request is refused, it gives back the one request with Adjust. After the
// reply, it settles with Adjust the difference between the tokens that were reserved and those that
// were used. Each step is one call for all subjects of the request, except that the end user is not
// known before the body is read and has a call of its own.
//
// An implementation on a shared store limits several processes together. If it keeps
// subjects in different places, it takes from one subject after the other, in the order of
// the draws, stops at the first that refuses or fails, and gives back what it has taken from
// those before. Meanwhile other calls may be refused because of it.
//
// When Take returns an error, the Handler refuses the request: with that error if it is an [llm.Error],
// and otherwise with 503. A Limiter that prefers to admit requests while its store is down should
// log the failure and report success. The Handler sets no timeout for Take; a Limiter on a store
// that may hang must limit how long it waits.
//
// Methods may be called concurrently. They must not modify draws or retain it.
//
// In a call, the draws of a subject are adjacent, and no two draws are on the same bucket.
type Limiter interface {
	// Take takes the Amount of each draw from its bucket if every bucket of every subject
	// holds enough. Otherwise it takes nothing from any of them.
	//
	// It returns one BucketLevel for each draw, in the same order. The tokens were taken if RetryAfter is
	// zero in all of them. If not, RetryAfter is positive for the buckets that hold too little, at
	// least those of the first subject that refuses. A Limiter need not ask the subjects after that
	// one: the levels of their draws may then be Unknown.
	//
	// The caller gives nothing back after a refusal, nor after an error. A Take that is
	// refused has no effect that lasts after it has returned. After an error it is unknown
	// whether the draws took effect; the Limiter has tried to give back what it knows to be
	// taken.
	//
	// Amounts must not be negative. An Amount of zero is always available, even from a bucket in
	// debt; a Take with only such draws reads the levels. An Amount above the burst is never
	// available. A Take without draws returns no levels.
	//
	// If ctx is canceled after the store was asked, because the client has left,
	// Take should still wait for the answer for a short time. The Handler can only
	// give back what it knows to be taken.
	Take(ctx context.Context, draws ...BucketAmount) ([]BucketLevel, error)

	// Adjust takes the Amount of each draw from its bucket, no matter how much the bucket holds. A
	// bucket that held less is then in debt: it must refill to zero before it gains tokens. A
	// negative Amount returns tokens to the bucket; those beyond its burst are lost.
	//
	// The subjects are independent: if one fails, the others are adjusted nevertheless.
	// After an error it is unknown which draws took effect.
	Adjust(ctx context.Context, draws ...BucketAmount) error
}

// A ConcurrencyLimiter is a [Limiter] that also counts requests in progress. With one, a [Handler]
// does not count them itself, so that Limits.Concurrent holds for all Handlers that share the
// Limiter or its store. See "Limiters" in the package documentation.
type ConcurrencyLimiter interface {
	Limiter

	// Acquire takes the Amount of every slot, and returns a function that gives them back.
	// If one of the slots has less than its Amount left, Acquire takes nothing from any of
	// them: release and err are then nil, and full is the index of a slot that refused.
	// In other cases full has no meaning. There is at least one slot, and no two have the
	// same Subject and Name; the slots of a subject are adjacent.
	//
	// A Limiter that keeps subjects in different places acquires the slots of one subject
	// after the other, as Take does. After an error the caller has acquired nothing.
	//
	// Slots and buckets are independent, whatever their names: Acquire and release do not
	// change buckets, and Take and Adjust do not change slots.
	//
	// The Handler calls release when the reply is written, except for its last
	// piece: the client gets that piece when release has returned. release must work after
	// ctx is done and from any goroutine. Calls after the first must have no effect.
	// Acquire must not modify slots or retain it.
	//
	// If a process dies, it does not release its slots. A Limiter on a shared store must therefore
	// let them expire, and renew those of the processes that are running.
	Acquire(ctx context.Context, slots ...SlotAmount) (release func(), full int, err error)
}

// A Reserver is a [ConcurrencyLimiter] that keeps what requests use for some time after they
// have ended. With one, a [Handler] shares what it has reserved of a [Quota] with all Handlers
// that share the Limiter or its store. See "Limiters" in the package documentation.
type Reserver interface {
	ConcurrencyLimiter

	// Reserve acquires slots as Acquire does, and returns a function that gives them back:
	// settle is nil if it refuses. Reserve and Acquire count the same slots together.
	//
	// settle replaces the Amount of each slot by that of amounts, which are in the order of
	// the slots, and gives these back when linger has passed. Meanwhile they are in use,
	// even beyond the Limit of the slot, and even if the process dies. A slot whose amount
	// is zero or negative is given back at once. So are all if linger is zero or negative,
	// or if there are no amounts. Otherwise there are as many as slots. settle does not
	// retain amounts.
	//
	// settle must work after ctx is done and from any goroutine. Calls after the first must
	// have no effect. Until then the slots are in use; those of a process that dies expire.
	Reserve(ctx context.Context, slots ...SlotAmount) (settle func(linger time.Duration, amounts ...int64), full int, err error)
}

// A SlotAmount is an amount to acquire of what a subject may have in use at a time. See "Limiters" in
// the package documentation.
type SlotAmount struct {
	Subject SubjectID

	// Name tells what is limited, such as [SlotConcurrent]. Names are compared byte for
	// byte, and a slot is independent of those of other names and other subjects.
	Name string

	// Amount is how much to acquire: 1 for a request in progress. It must be positive.
	Amount int64

	// Limit is the most that the subject may have in use, Amount included. It holds for
	// this call and is not kept. If it is less than Amount, the slot is always full.
	Limit int64
}

// Names of the slots that a [Handler] acquires of a subject. Those for a [Quota] are followed by
// a slash and the account of the key, because usage is summed in each account.
const (
	SlotConcurrent  = "concurrent"   // for Limits.Concurrent
	SlotQuotaTokens = "quota_tokens" // for Quota.Tokens, in tokens; only of a Reserver
	SlotQuotaCost   = "quota_cost"   // for Quota.Cost, in units of Money; only of a Reserver
)

// Names of the buckets in which a [Handler] counts the use of a subject.
const (
	BucketRequests    = "requests"     // for Limits.Requests
	BucketTokenCounts = "token_counts" // for Limits.Requests, of requests that only count tokens: see BindCountTokens
	BucketTokens      = "tokens"       // for Limits.Tokens
)

// minTokenCountBurst is the smallest burst of BucketTokenCounts. The command /context of Claude
// Code counts tokens 27 times at once.
const minTokenCountBurst = 100

// tokenCountRate returns the Rate of BucketTokenCounts.
func (l *Limits) tokenCountRate() Rate {
	r := l.Requests
	if r.N > 0 {
		r = r.WithDefaults()
		r.Burst = max(r.Burst, minTokenCountBurst)
	}
	return r
}

// A BucketAmount is an amount to take from one bucket of a subject.
type BucketAmount struct {
	Subject SubjectID

	// Bucket is the name of the bucket. Two names are the same only if they are equal byte for
	// byte.
	Bucket string

	// Rate is the Rate of the bucket from this call on. Its N must not be zero.
	//
	// When the Rate of a bucket changes, the bucket keeps the tokens that it has gained at the old
	// Rate, up to its new burst, and keeps its debt. A Limiter may evict a full bucket, which is
	// then full at its new burst.
	Rate Rate

	// Amount is the number of tokens to take. Only Adjust accepts a negative
	// Amount, which returns tokens.
	Amount int64
}

// A BucketLevel is the state of a bucket after a Take. See "Limiters" in
// the package documentation.
type BucketLevel struct {
	// Remaining is the number of tokens in the bucket, rounded down, and at most the burst. It is
	// zero for a bucket in debt. Of a burst above 2^53 it has the precision of a float64.
	Remaining int64

	// RetryAfter is zero if the bucket held enough. Otherwise it is the time
	// until it does, provided that nothing else is taken. A caller that waits
	// that long gets the tokens. It is the largest Duration if the bucket can
	// never hold enough.
	RetryAfter time.Duration

	// ResetAfter is the time until the bucket is full, and zero if it is.
	ResetAfter time.Duration

	// Unknown tells that the Limiter did not ask for the bucket, because another subject
	// has refused. The other fields are then zero.
	Unknown bool
}

const (
	codeRateLimit = "rate_limit_exceeded"
	codeQuota     = "insufficient_quota"
)

// messageLimits is the text of the 503 if a limit could not be checked.
const messageLimits = "We could not check your rate limits. Please try again."

// The functions below return the replies with status 429.

// forSubject returns the words that tell whose limit was reached: none for the key of the
// request, which clients take for granted.
func forSubject(s SubjectID) string {
	switch s.Kind {
	case KindKey:
		return ""
	case KindUser:
		return " for this end user"
	}
	return " for your " + s.Kind
}

// errRateLimit tells which limit was reached, in OpenAI's words.
func errRateLimit(d BucketAmount, l BucketLevel) *llm.Error {
	rate := d.Rate.WithDefaults()
	short, typ := "RPM", "requests"
	if d.Bucket == BucketTokens {
		short, typ = "TPM", "tokens"
	}
	period := "min (" + short + ")"
	if rate.Per != time.Minute {
		period = rate.Per.String()
	}
	whose := forSubject(d.Subject)
	if l.RetryAfter > retryheader.Max {
		e := llm.Errorf(
			http.StatusTooManyRequests,
			codeRateLimit,
			"Rate limit reached%s on %s per %s: Limit %d.",
			whose,
			typ,
			period,
			rate.Burst,
		)
		e.Type, e.NoRetry = typ, true
		return e
	}
	e := llm.Errorf(
		http.StatusTooManyRequests,
		codeRateLimit,
		"Rate limit reached%s on %s per %s: Limit %d, Used %d, Requested %d. Please try again in %s.",
		whose,
		typ,
		period,
		rate.Burst,
		max(int64(rate.Burst)-l.Remaining, 0),
		d.Amount,
		formatReset(l.RetryAfter),
	)
	e.Type, e.RetryAfter = typ, l.RetryAfter
	return e
}

// errRequestTooLarge is the error for a request that needs more tokens than the
// bucket of tokens of a subject can hold.
func errRequestTooLarge(s SubjectID, burst, tokens int) *llm.Error {
	e := llm.Errorf(http.StatusTooManyRequests, codeRateLimit,
		"Request too large%s: Limit %d tokens, Requested %d. Ask for fewer tokens, or shorten the messages.", forSubject(s), burst, tokens)
	e.Type, e.NoRetry = "tokens", true
	return e
}

// errConcurrent is the error for a request beyond Limits.Concurrent.
func errConcurrent(s *SlotAmount) *llm.Error {
	e := llm.Errorf(http.StatusTooManyRequests, codeRateLimit,
		"Too many requests in progress%s: Limit %d. Please try again when one has ended.", forSubject(s.Subject), max(s.Limit, 0))
	e.RetryAfter = time.Second
	return e
}

// errQuota is the error for a quota that is used up.
func errQuota(s SubjectID) *llm.Error {
	return llm.Errorf(
		http.StatusTooManyRequests,
		codeQuota,
		"You exceeded your current quota%s, please check your plan and billing details.",
		forSubject(s),
	)
}

// errQuotaReserved is the error for a quota that is not used up, but reserved.
func errQuotaReserved(s SubjectID) *llm.Error {
	e := llm.Errorf(http.StatusTooManyRequests, codeRateLimit,
		"Requests in progress have reserved the rest of your quota%s. Please try again when one has ended.", forSubject(s))
	e.RetryAfter = time.Second
	return e
}

// formatReset formats a duration as the x-ratelimit-reset headers do: as
// [time.Duration.String] does, here rounded up to milliseconds.
func formatReset(d time.Duration) string {
	d = min(d, maxDuration)
	if rest := d % time.Millisecond; rest > 0 {
		d += time.Millisecond - rest
	}
	return d.String()
}
