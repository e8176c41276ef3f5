package llmhttp

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A UsageStore remembers what accounts used. It must be safe for concurrent
// use.
type UsageStore interface {
	// Record stores records. Those whose ID is already stored are skipped,
	// so a call that failed may be repeated. It keeps no reference to records.
	// A store may round times down to microseconds.
	Record(ctx context.Context, records ...UsageRecord) error

	// Query returns the sums q asks for, oldest first, and those of one
	// period by model, in the order of its bytes. It sees what Record has
	// accepted. A period without usage has no sum, and neither has an empty
	// range nor an account that is not known: that is not an error.
	Query(ctx context.Context, q UsageQuery) ([]UsageSum, error)
}

// A UsageRecord is what one request used. There is one for each request that
// reached the Backend, whether it succeeded, failed or was abandoned, unless
// the Backend did not know the model or does nothing of the kind.
type UsageRecord struct {
	ID        string    // the request's ID, unique for all time
	Time      time.Time // of its arrival
	Account   string
	KeyID     string
	Model     string // as the client named it, of at most 512 bytes
	Endpoint  Endpoint
	Usage     Usage
	Images    int
	Estimated bool // the Backend reported no Usage; the Handler counted
}

// A UsageQuery asks what Account used in [From, To), in periods of Step.
// Periods begin at From; the last may be shorter. A zero or negative Step asks
// for one period.
type UsageQuery struct {
	Account  string
	From, To time.Time
	Step     time.Duration
}

// A UsageSum is what was used of one model in the period that begins at Start.
type UsageSum struct {
	Start                          time.Time
	Model                          string
	Requests                       int64
	PromptTokens, CompletionTokens int64
	Images                         int64
}

// recordGrace is how long a store has for a record after the request is over.
const recordGrace = 10 * time.Second

// settle gives back what was reserved and not used, and records what was used.
// It does so once, whether the client is still there or not. If the request
// succeeds, that is before the client can know: it may ask what it used, or for
// the next thing.
func (x *exchange) settle() {
	if x.settled || (!x.reached && !x.grant.taken) {
		return
	}
	x.settled = true
	x.waive()
	x.try("usage not counted", x.measure)
	x.record.Usage.TotalTokens = x.record.Usage.total()
	x.try("limits not settled", x.refund)
	if x.h.opts.Usage != nil && x.reached && isBilled(x.record.Endpoint) && !x.notFound() {
		x.late.Context = &x.ctx
		defer x.late.stop()
		x.try("usage not recorded", func() error { return x.h.opts.Usage.Record(&x.late, x.records[:]...) })
	}
	x.release()
}

// notFound reports whether the Backend knows no such model, or nothing of the
// kind: then there was nothing to use.
func (x *exchange) notFound() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err != nil && x.chunks == 0 && x.record.Images == 0 && tell(x.r, x.err).Status == http.StatusNotFound
}

// try calls what belongs to the host, and logs what goes wrong.
func (x *exchange) try(failure string, call func() error) {
	defer func() {
		if p := recover(); p != nil {
			x.log(slog.LevelError, failure, newPanicError(p))
		}
	}()
	if err := call(); err != nil {
		x.log(slog.LevelError, failure, err)
	}
}

func isBilled(e Endpoint) bool {
	return e == EndpointChat || e == EndpointImages || e == EndpointEmbeddings
}

// measure sets what the request used: what the Backend reported, or else an
// estimate. A request that failed before it brought anything used nothing,
// unless it was the client that ended it.
func (x *exchange) measure() error {
	x.mu.Lock()
	err := x.err
	x.mu.Unlock()
	u := &x.record.Usage
	reported := x.reported
	if x.shape.usage != nil {
		reported = x.shape.usage
	}
	switch {
	case reported != nil:
		*u = *reported
		for _, n := range []*int{&u.PromptTokens, &u.CompletionTokens, &u.TotalTokens} {
			*n = min(max(*n, 0), math.MaxInt/2) // two of them can be added
		}
	case !x.reached, !isBilled(x.record.Endpoint), x.record.Endpoint == EndpointImages:
	case err != nil && x.chunks == 0 && x.cause() != errGone:
	default:
		x.record.Estimated = true
		u.PromptTokens, u.CompletionTokens = x.prompt, estimate(x.shape.bytes)
		if x.shape.counting {
			u.CompletionTokens = x.count(string(x.shape.text))
		}
	}
	return nil
}

const (
	day = 24 * time.Hour

	// defaultDays and maxDays bound what the usage endpoint reports.
	defaultDays = 100
	maxDays     = 366
)

// usage serves GET /v1/dashboard/billing/usage: the legacy answer of the
// format, in US cents, and beside it the tokens, requests and images.
func (x *exchange) usage() error {
	store := x.h.opts.Usage
	if store == nil {
		return errUnknownURL(x.r)
	}
	from, to, err := usageRange(x.r.URL.Query(), x.record.Time.UTC())
	if err != nil {
		return err
	}
	if err := x.admit(0); err != nil {
		return err
	}
	if err := x.work(); err != nil {
		return err
	}
	sums, err := store.Query(&x.ctx, UsageQuery{Account: x.key.Account, From: from, To: to, Step: day})
	if err != nil {
		if cause := x.cause(); cause != nil {
			return cause
		}
		return &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "We could not read your usage. Please try again.", Err: err}
	}
	return x.reply(x.billing(sums))
}

// usageRange reads the dates of a query. Days begin in UTC, and end_date is
// not part of the range: clients of the original ask for tomorrow to see today.
func usageRange(query url.Values, now time.Time) (from, to time.Time, err error) {
	today := now.Truncate(day)
	date := func(param string, otherwise time.Time) time.Time {
		if err != nil || !query.Has(param) {
			return otherwise
		}
		s := query.Get(param)
		t, e := time.Parse(time.DateOnly, s)
		if e != nil {
			err = invalidText(param, s, "a date of the form YYYY-MM-DD")
		}
		return t
	}
	to = date("end_date", today.Add(day))
	from = date("start_date", to.Add(-defaultDays*day))
	switch {
	case err != nil:
	case !from.Before(to):
		param := "end_date"
		if !query.Has(param) {
			param = "start_date"
		}
		err = badRequest("invalid_value", param, "Invalid '%s': the range has no day. 'end_date', which is not part of the range, must be after 'start_date'.", param)
	case to.Sub(from) > maxDays*day:
		err = badRequest("invalid_value", "start_date", "Invalid 'start_date': the range is too long. Expected at most %d days.", maxDays)
	}
	return from, to, err
}

// A billingReply is the reply of the usage endpoint.
type billingReply struct {
	Object     string      `json:"object"`
	DailyCosts []dailyBill `json:"daily_costs"`
	TotalUsage float64     `json:"total_usage"` // in US cents
	*billedUsage
}

type dailyBill struct {
	Timestamp json.RawMessage `json:"timestamp"` // Unix time in seconds, with a fraction of zero
	LineItems []lineItem      `json:"line_items"`
}

type lineItem struct {
	Name string  `json:"name"` // of the model
	Cost float64 `json:"cost"` // in US cents
	*billedUsage
}

// A billedUsage is what was used, in the members that the legacy reply lacks.
type billedUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	Requests         int64 `json:"requests"`
	Images           int64 `json:"images"`
}

func newBilledUsage(s *UsageSum) *billedUsage {
	return &billedUsage{s.PromptTokens, s.CompletionTokens, s.PromptTokens + s.CompletionTokens, s.Requests, s.Images}
}

// billing returns the reply for sums, which are in the order of their days.
func (x *exchange) billing(sums []UsageSum) *billingReply {
	reply := &billingReply{Object: objectList}
	var all UsageSum
	var dollars float64
	for i, s := range sums {
		if i == 0 || !s.Start.Equal(sums[i-1].Start) {
			reply.DailyCosts = append(reply.DailyCosts, dailyBill{Timestamp: json.RawMessage(strconv.FormatInt(s.Start.Unix(), 10) + ".0")})
		}
		cost := 0.0
		if x.h.opts.Cost != nil {
			cost = x.h.opts.Cost(s)
		}
		dollars += cost
		all.add(s)
		day := &reply.DailyCosts[len(reply.DailyCosts)-1]
		day.LineItems = append(day.LineItems, lineItem{s.Model, cents(cost), newBilledUsage(&s)})
	}
	reply.TotalUsage, reply.billedUsage = cents(dollars), newBilledUsage(&all)
	return reply
}

// cents rounds away what floating point adds to sums of dollars.
func cents(dollars float64) float64 { return math.Round(dollars*100*1e6) / 1e6 }

func (s *UsageSum) add(t UsageSum) {
	s.Requests += t.Requests
	s.PromptTokens += t.PromptTokens
	s.CompletionTokens += t.CompletionTokens
	s.Images += t.Images
}
