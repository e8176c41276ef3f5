package llmhttp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A grant is what a request has been given of its key's limits.
type grant struct {
	n          int // how many of draws and levels count
	draws      [3]Draw
	levels     [3]Level
	requests   int // the place in draws of each, or -1
	tokens     int
	quota      int
	reserved   int    // tokens
	taken      bool   // from the buckets
	concurrent bool   // one of those that inUse counts
	end        func() // its part in those in progress, unless nil
	asked      bool   // the Limiter was
	known      bool   // levels are of this request
}

// draw lists the draws of a request that is expected to use cost tokens.
func (g *grant) draw(k *Key, cost int) {
	g.n, g.requests, g.tokens, g.quota = 0, -1, -1, -1
	g.reserved = cost
	l := &k.Limits
	if l.Requests.N == 0 && l.Tokens.N == 0 && l.Quota.N == 0 {
		return
	}
	g.requests = g.add(BucketRequests, l.Requests, 1)
	g.tokens = g.add(BucketTokens, l.Tokens, cost)
	if cost > 0 {
		g.quota = g.add(BucketQuota, l.Quota, cost)
	}
}

func (g *grant) add(bucket string, r Rate, cost int) int {
	if r.N == 0 {
		return -1
	}
	g.draws[g.n] = Draw{Bucket: bucket, Rate: r, Cost: cost}
	g.n++
	return g.n - 1
}

// admit decides over all limits of the request's key at once: it either gets
// what it needs of each, or takes nothing from any. cost is the number of
// tokens that it is expected to use.
func (x *exchange) admit(cost int) error {
	l := &x.key.Limits
	g := &x.grant
	if l.Concurrent != 0 {
		ok, err := x.acquire(l.Concurrent)
		if err != nil {
			return err
		}
		if !ok {
			e := Errorf(http.StatusTooManyRequests, codeRate, "Too many requests in progress: Limit %d. Please try again when one has ended.", max(l.Concurrent, 0))
			e.RetryAfter = time.Second
			return e
		}
	}
	g.draw(x.key, cost)
	if g.n == 0 {
		return nil
	}
	if b := l.Tokens.WithDefaults().Burst; g.tokens >= 0 && cost > b {
		e := Errorf(http.StatusTooManyRequests, codeRate, "Request too large: Limit %d tokens, Requested %d. Ask for fewer tokens, or shorten the messages.", b, cost)
		e.Type, e.NoRetry = "tokens", true
		return e
	}
	if err := x.draw(); err != nil {
		return err
	}
	var refused error
	var longest time.Duration
	for i := range g.n {
		wait := g.levels[i].RetryAfter
		if wait > longest && i != g.quota {
			longest = wait
			refused = errRate(i == g.tokens, g.draws[i], g.levels[i])
		}
	}
	if g.quota >= 0 && g.levels[g.quota].RetryAfter > 0 {
		refused = Errorf(http.StatusTooManyRequests, codeQuota, "You exceeded your current quota, please check your plan and billing details.")
	}
	if refused != nil {
		return refused
	}
	g.taken = true
	return nil
}

const codeRate = "rate_limit_exceeded"

// maxWait is how long a client may be told to wait. What takes longer, such as
// more than a bucket can hold, will not come.
const maxWait = 366 * 24 * time.Hour

// errRate says which limit was reached, in the format's words.
func errRate(tokens bool, d Draw, l Level) *Error {
	burst := d.Rate.WithDefaults().Burst
	noun, short, typ := "requests", "RPM", "requests"
	if tokens {
		noun, short, typ = "tokens", "TPM", "tokens"
	}
	period := "min (" + short + ")"
	if per := d.Rate.WithDefaults().Per; per != time.Minute {
		period = per.String()
	}
	e := Errorf(http.StatusTooManyRequests, codeRate, "Rate limit reached on %s per %s: Limit %d, Used %d, Requested %d. Please try again in %s.",
		noun, period, burst, max(burst-l.Remaining, 0), d.Cost, appendReset(nil, l.RetryAfter))
	e.Type, e.RetryAfter = typ, l.RetryAfter
	if l.RetryAfter > maxWait {
		e.RetryAfter, e.NoRetry = 0, true
		e.Message = fmt.Sprintf("Rate limit reached on %s per %s: Limit %d.", noun, period, burst)
	}
	return e
}

// draw asks the Limiter for the draws of the grant.
func (x *exchange) draw() error {
	g := &x.grant
	g.asked = true
	levels, err := x.h.opts.Limiter.Take(&x.ctx, x.key.ID, g.draws[:g.n]...)
	if err == nil && len(levels) != g.n {
		err = fmt.Errorf("the Limiter returned %d levels for %d draws", len(levels), g.n)
	}
	if err != nil {
		return x.limitsFailed(err)
	}
	x.mu.Lock() // the watch may have to answer in the meantime
	copy(g.levels[:], levels)
	g.known = true
	x.mu.Unlock()
	return nil
}

// limitsFailed returns what the client is told when the Limiter fails with err.
func (x *exchange) limitsFailed(err error) error {
	if cause := x.cause(); cause != nil {
		return cause
	}
	if e, ok := errors.AsType[*Error](err); ok && e != nil {
		return err
	}
	return &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "We could not check your rate limits. Please try again.", Err: err}
}

// peek finds out how the limits of a request stand that was not admitted, as
// every reply to a limited key tells.
func (x *exchange) peek() {
	if x.key == nil || x.grant.asked || x.cause() == errGone {
		return
	}
	g := &x.grant
	g.draw(x.key, 0)
	for i := range g.n {
		g.draws[i].Cost = 0
	}
	if g.n == 0 {
		return
	}
	x.try("limits are not known", x.draw)
}

// writeHeaders tells how the limits of requests and tokens stand.
func (g *grant) writeHeaders(h http.Header, values *headerValues) {
	if !g.known {
		return
	}
	// The values share one string.
	var space [128]byte
	var ends [len(limitHeaders)]int
	b := space[:0]
	n := 0
	for _, i := range [...]int{g.requests, g.tokens} {
		if i >= 0 {
			b = strconv.AppendInt(b, int64(g.draws[i].Rate.WithDefaults().Burst), 10)
			ends[n] = len(b)
			b = strconv.AppendInt(b, int64(g.levels[i].Remaining), 10)
			ends[n+1] = len(b)
			b = appendReset(b, g.levels[i].ResetAfter)
			ends[n+2] = len(b)
		}
		n += 3
	}
	text, start := string(b), 0
	for i, end := range ends {
		if end > 0 {
			values.set(h, limitHeaders[i], text[start:end])
			start = end
		}
	}
}

// appendReset appends a duration, rounded up to milliseconds, as the format
// has it, which is as [time.Duration] has it: 0s, 120ms, 1.5s, 6m0s.
func appendReset(b []byte, d time.Duration) []byte {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	if ms > 0 && ms < 1000 {
		return append(strconv.AppendInt(b, ms, 10), "ms"...)
	}
	seconds, ms := ms/1000, ms%1000
	if hours := seconds / 3600; hours > 0 {
		b = append(strconv.AppendInt(b, hours, 10), 'h')
	}
	if seconds >= 60 {
		b = append(strconv.AppendInt(b, seconds/60%60, 10), 'm')
	}
	b = strconv.AppendInt(b, seconds%60, 10)
	if ms > 0 {
		b = append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
		b = bytes.TrimRight(b, "0")
	}
	return append(b, 's')
}

// refund corrects what was reserved of tokens to what was used.
func (x *exchange) refund() error {
	g := &x.grant
	used := x.record.Usage.TotalTokens
	if !g.taken || used == g.reserved {
		return nil
	}
	g.taken = false
	// The draws of tokens and of the quota are behind that of requests.
	draws := g.draws[g.requests+1 : g.n]
	if len(draws) == 0 {
		return nil
	}
	for i := range draws {
		draws[i].Cost = used - g.reserved
	}
	late := &lateContext{Context: &x.ctx} // a Limiter that hangs does not take the store's time
	defer late.stop()
	return x.h.opts.Limiter.Adjust(late, x.key.ID, draws...)
}

// acquire makes the request one of those in progress, of whom there may be
// limit, and reports whether it is.
func (x *exchange) acquire(limit int) (bool, error) {
	c, ok := x.h.opts.Limiter.(ConcurrencyLimiter)
	if !ok {
		x.grant.concurrent = x.h.inUse.acquire(x.key.ID, limit)
		return x.grant.concurrent, nil
	}
	end, err := c.Acquire(&x.ctx, x.key.ID, limit)
	if err != nil {
		return false, x.limitsFailed(err)
	}
	x.grant.end = end
	return end != nil, nil
}

// release ends the request's part in those in progress.
func (x *exchange) release() {
	g := &x.grant
	if g.concurrent {
		x.h.inUse.release(x.key.ID)
		g.concurrent = false
	}
	if end := g.end; end != nil {
		g.end = nil
		x.waive()
		x.try("request in progress not released", func() error { end(); return nil })
	}
}

// A gauge counts requests in progress by key.
type gauge struct {
	mu sync.Mutex
	n  map[string]int
}

func (g *gauge) acquire(key string, limit int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n[key] >= limit {
		return false
	}
	if g.n == nil {
		g.n = make(map[string]int)
	}
	g.n[key]++
	return true
}

func (g *gauge) release(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n[key]--; g.n[key] <= 0 {
		delete(g.n, key)
	}
}

// count counts the tokens of a text, or estimates them.
func (x *exchange) count(text string) int {
	if c := x.h.opts.CountTokens; c != nil {
		return max(c(x.record.Model, text), 0)
	}
	return estimate(len(text))
}

// estimate is how many tokens so many bytes of text may be.
func estimate(bytes int) int { return (bytes + 3) / 4 }

// What a chat costs beside its texts. The format counts an image seen in low
// detail as 85 tokens, and a few for each message.
const (
	tokensPerMessage = 4
	tokensPerMedia   = 85
)

// countPrompt estimates the tokens of a chat's prompt.
func (x *exchange) countPrompt(r *ChatRequest) int {
	n := 0
	for i := range r.Messages {
		m := &r.Messages[i]
		n += tokensPerMessage + x.count(m.Name) + x.count(m.Reasoning)
		for j := range m.Content {
			if p := &m.Content[j]; p.Type == PartText {
				n += x.count(p.Text)
			} else {
				n += tokensPerMedia
			}
		}
		for j := range m.ToolCalls {
			f := &m.ToolCalls[j].Function
			n += x.count(f.Name) + x.count(f.Arguments)
		}
	}
	for i := range r.Tools {
		if f := r.Tools[i].Function; f != nil {
			n += x.count(f.Name) + x.count(f.Description) + x.count(string(f.Parameters))
		}
	}
	return n
}

// chatCost is what a chat is expected to use: its prompt, and as much as the
// client allows for each choice. Without such a limit only the prompt is
// known; the rest becomes a debt when the reply is settled.
func chatCost(prompt int, r *ChatRequest) int {
	limit, ok := r.TokenLimit()
	if !ok {
		return prompt
	}
	n := r.Choices()
	if limit > (math.MaxInt32-prompt)/n {
		return math.MaxInt32
	}
	return prompt + limit*n
}

// limitsTokens reports whether x's key has a limit that counts tokens.
func (x *exchange) limitsTokens() bool {
	return x.key.Limits.Tokens.N != 0 || x.key.Limits.Quota.N != 0
}
