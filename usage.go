package llmhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A UsageStore stores what accounts used. It must be safe for concurrent use.
type UsageStore interface {
	// Record stores records. It skips records whose ID is already stored, so
	// that a call that failed can be repeated. It must not retain the slice. A
	// store may round times down to microseconds.
	Record(ctx context.Context, records ...UsageRecord) error

	// Query returns the sums for q, sorted by Start and then by Model, which is
	// compared as Go compares strings. They include all records of the calls of
	// Record that have returned without an error; [UsageBuffer] documents an exception.
	// There are no sums for periods without usage. For an empty range and for an unknown
	// account, Query returns no sums and no error.
	Query(ctx context.Context, q UsageQuery) ([]UsageSum, error)
}

// A KeyUsageStore is a [UsageStore] that knows which key used what. Without
// one, a [Handler] enforces the tokens of Limits.Quota with its Limiter, and cannot
// enforce a Quota with a Cost.
type KeyUsageStore interface {
	UsageStore

	// QueryKey is like Query, but returns the sums only of the records of
	// q.Account that have the given KeyID.
	QueryKey(ctx context.Context, keyID string, q UsageQuery) ([]UsageSum, error)
}

// QueryKey returns what a key used. If s is not a [KeyUsageStore], or is a wrapper
// of a store that is not, the error wraps [errors.ErrUnsupported].
func QueryKey(ctx context.Context, s UsageStore, keyID string, q UsageQuery) ([]UsageSum, error) {
	if k, ok := s.(KeyUsageStore); ok {
		return k.QueryKey(ctx, keyID, q)
	}
	return nil, fmt.Errorf("llmhttp: the usage of a key is not known: %w", errors.ErrUnsupported)
}

// A UsageRecord is what one request used. There is one for each request for which
// the Backend was asked for a chat, images or embeddings, whether it succeeded,
// failed or was abandoned by its client. The exception is a request for which the
// Backend has no such model or no such method, and says so with a 404 before it has
// returned any part of a reply.
//
// There is also one for each chat that was refused before that, but after it had loaded
// something: see [CountLoaded]. Its PromptTokens are then an estimate of what was loaded and
// sent, and it has no completion.
type UsageRecord struct {
	ID        string    // the ID of the request, unique for all time
	Time      time.Time // when the request arrived
	Account   string
	KeyID     string
	Model     string // the name that the client used; at most 512 bytes, without control characters
	Endpoint  Endpoint
	Protocol  string // the name of the wire format; "chat" for the endpoints of OpenAI's API
	Usage     Usage
	Images    int  // number of images that were generated, or asked for if the client left before the Backend returned them
	Estimated bool // Usage or Images is an estimate of the Handler, because the Backend reported none
}

// A UsageQuery selects the usage of Account at times from From, inclusive, to To,
// exclusive, and divides it into periods of Step. The first period begins at From;
// the last may be shorter. If Step is zero or negative, there is one period.
type UsageQuery struct {
	Account  string
	From, To time.Time
	Step     time.Duration
}

// PeriodStart returns the start of the period that contains t, in the location
// of From.
func (q UsageQuery) PeriodStart(t time.Time) time.Time {
	if q.Step <= 0 {
		return q.From
	}
	// Times can be further apart than a Duration, so this compares the offsets
	// of both times from a multiple of Step since the zero Time.
	offset := t.Sub(t.Truncate(q.Step)) - q.From.Sub(q.From.Truncate(q.Step))
	if offset < 0 {
		offset += q.Step
	}
	return t.Add(-offset).In(q.From.Location())
}

// A UsageSum is the usage of one model in the period that begins at Start.
type UsageSum struct {
	Start                          time.Time
	Model                          string
	Requests                       int64
	PromptTokens, CompletionTokens int64
	CachedTokens                   int64 // the PromptTokens that were read from a prompt cache
	ReasoningTokens                int64 // the CompletionTokens that were used for reasoning
	Images                         int64
}

// Add adds the numbers of other to s. It does not change Start and Model.
func (s *UsageSum) Add(other UsageSum) {
	s.Requests += other.Requests
	s.PromptTokens += other.PromptTokens
	s.CompletionTokens += other.CompletionTokens
	s.CachedTokens += other.CachedTokens
	s.ReasoningTokens += other.ReasoningTokens
	s.Images += other.Images
}

// Sum returns r as the sum of a single request, whose Start is the time of r.
func (r *UsageRecord) Sum() UsageSum {
	u := &r.Usage
	return UsageSum{
		Start: r.Time, Model: r.Model, Requests: 1, Images: int64(r.Images),
		PromptTokens: int64(u.PromptTokens), CompletionTokens: int64(u.CompletionTokens), CachedTokens: int64(u.PromptTokensDetails.CachedTokens),
		ReasoningTokens: int64(u.CompletionTokensDetails.ReasoningTokens),
	}
}

// Usage is the number of tokens that a request used. It is decoded leniently: see
// [ChatChunk].
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"` // if zero, the sum of the other two is encoded

	PromptTokensDetails     PromptTokensDetails     `json:"prompt_tokens_details,omitzero"`
	CompletionTokensDetails CompletionTokensDetails `json:"completion_tokens_details,omitzero"`
	Extra                   Extra                   `json:"-"`
}

// PromptTokensDetails counts some of the PromptTokens of a [Usage] by their kind.
// The name of CacheWriteTokens is OpenRouter's
// (https://openrouter.ai/docs/use-cases/usage-accounting).
type PromptTokensDetails struct {
	CachedTokens     int   `json:"cached_tokens,omitzero"`      // read from the prompt cache
	CacheWriteTokens int   `json:"cache_write_tokens,omitzero"` // written to the prompt cache
	AudioTokens      int   `json:"audio_tokens,omitzero"`
	Extra            Extra `json:"-"`
}

// CompletionTokensDetails counts some of the CompletionTokens of a [Usage] by
// their kind.
type CompletionTokensDetails struct {
	ReasoningTokens int   `json:"reasoning_tokens,omitzero"`
	AudioTokens     int   `json:"audio_tokens,omitzero"`
	Extra           Extra `json:"-"`
}

var usageJSON = jsonwire.NewObject(
	jsonwire.Int("prompt_tokens", func(u *Usage) *int { return &u.PromptTokens }).Always(),
	jsonwire.Int("completion_tokens", func(u *Usage) *int { return &u.CompletionTokens }).Always(),
	totalTokensField,
	jsonwire.Struct("prompt_tokens_details", func(u *Usage) *PromptTokensDetails { return &u.PromptTokensDetails }, promptTokensDetailsJSON),
	jsonwire.Struct("completion_tokens_details", func(u *Usage) *CompletionTokensDetails { return &u.CompletionTokensDetails }, completionTokensDetailsJSON),
	jsonwire.Extra(func(u *Usage) *Extra { return &u.Extra }),
)

var totalTokensField = jsonwire.Int("total_tokens", func(u *Usage) *int { return &u.TotalTokens }).
	Always().AppendWith(func(u *Usage, b []byte) ([]byte, error) { return strconv.AppendInt(b, int64(u.total()), 10), nil })

var promptTokensDetailsJSON = jsonwire.NewObject(
	jsonwire.Int("cached_tokens", func(p *PromptTokensDetails) *int { return &p.CachedTokens }),
	jsonwire.Int("cache_write_tokens", func(p *PromptTokensDetails) *int { return &p.CacheWriteTokens }),
	jsonwire.Int("audio_tokens", func(p *PromptTokensDetails) *int { return &p.AudioTokens }),
	jsonwire.Extra(func(p *PromptTokensDetails) *Extra { return &p.Extra }),
)

var completionTokensDetailsJSON = jsonwire.NewObject(
	jsonwire.Int("reasoning_tokens", func(c *CompletionTokensDetails) *int { return &c.ReasoningTokens }),
	jsonwire.Int("audio_tokens", func(c *CompletionTokensDetails) *int { return &c.AudioTokens }),
	jsonwire.Extra(func(c *CompletionTokensDetails) *Extra { return &c.Extra }),
)

// MarshalJSON encodes u.
func (u Usage) MarshalJSON() ([]byte, error) { return marshal(usageJSON, &u) }

// UnmarshalJSON decodes a usage leniently.
func (u *Usage) UnmarshalJSON(data []byte) error { return unmarshalReply(data, usageJSON, u) }

// MarshalJSON encodes p.
func (p PromptTokensDetails) MarshalJSON() ([]byte, error) {
	return marshal(promptTokensDetailsJSON, &p)
}

// UnmarshalJSON decodes details leniently.
func (p *PromptTokensDetails) UnmarshalJSON(data []byte) error {
	return unmarshalReply(data, promptTokensDetailsJSON, p)
}

// MarshalJSON encodes c.
func (c CompletionTokensDetails) MarshalJSON() ([]byte, error) {
	return marshal(completionTokensDetailsJSON, &c)
}

// UnmarshalJSON decodes details leniently.
func (c *CompletionTokensDetails) UnmarshalJSON(data []byte) error {
	return unmarshalReply(data, completionTokensDetailsJSON, c)
}

// Add adds the numbers of other to those of u, for a Backend that serves a request with
// several calls of other Backends and reports the sum with [ReportUsage]. A negative number
// counts as zero, and a sum that does not fit into an int is [math.MaxInt]. A TotalTokens of
// zero counts as the sum of the other two. The members of Extra are not added, because what
// they mean is not known: those of u and of its details stay as they are. A nil other adds
// nothing.
func (u *Usage) Add(other *Usage) {
	if other == nil {
		return
	}
	total, hasTotal := addTokens(u.total(), other.total()), u.TotalTokens != 0 || other.TotalTokens != 0
	from := other.counts()
	for i, n := range u.counts() {
		*n = addTokens(*n, *from[i])
	}
	if hasTotal {
		u.TotalTokens = total
	}
}

// addTokens returns the sum of two numbers of tokens, as Usage.Add does.
func addTokens(a, b int) int {
	a, b = max(a, 0), max(b, 0)
	return a + min(b, math.MaxInt-a)
}

// counts returns all numbers of u.
func (u *Usage) counts() [8]*int {
	p, c := &u.PromptTokensDetails, &u.CompletionTokensDetails
	return [...]*int{&u.PromptTokens, &u.CompletionTokens, &u.TotalTokens,
		&p.CachedTokens, &p.CacheWriteTokens, &p.AudioTokens, &c.ReasoningTokens, &c.AudioTokens}
}

// total returns TotalTokens, or the sum of the other two if that is zero.
func (u *Usage) total() int {
	return cmp.Or(u.TotalTokens, addTokens(u.PromptTokens, u.CompletionTokens))
}

// nilIfZero returns u, or nil if no number in it is above zero. Some servers send
// such a usage if they do not count tokens.
func nilIfZero(u *Usage) *Usage {
	if u == nil || u.PromptTokens <= 0 && u.CompletionTokens <= 0 && u.TotalTokens <= 0 {
		return nil
	}
	return u
}

func (u *Usage) dropInvalid() bool {
	return dropInvalid(u.Extra, u.PromptTokensDetails.Extra, u.CompletionTokensDetails.Extra)
}

// canGrowTo reports whether next can be the usage of the same request at a later
// time. Servers send a running total in each chunk, such as vLLM with
// continuous_usage_stats, and the prompts of an agent add up.
func (u *Usage) canGrowTo(next *Usage) bool {
	return u.PromptTokens <= next.PromptTokens && u.CompletionTokens <= next.CompletionTokens && u.total() <= next.total()
}

// bound makes negative numbers zero, and the others small enough to be added.
func (u *Usage) bound() {
	for _, n := range u.counts() {
		*n = min(max(*n, 0), math.MaxInt/4)
	}
}

// reconcile makes the numbers of u, which are bounded, agree with each other: the total is the
// sum, and details are no more than the tokens that they are a part of. Otherwise a price
// for uncached tokens would become negative.
func (u *Usage) reconcile() {
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	p, c := &u.PromptTokensDetails, &u.CompletionTokensDetails
	p.CachedTokens = min(p.CachedTokens, u.PromptTokens)
	p.CacheWriteTokens = min(p.CacheWriteTokens, u.PromptTokens-p.CachedTokens)
	p.AudioTokens = min(p.AudioTokens, u.PromptTokens)
	c.ReasoningTokens = min(c.ReasoningTokens, u.CompletionTokens)
	c.AudioTokens = min(c.AudioTokens, u.CompletionTokens)
}

const (
	// defaultDays and maxDays bound what the usage endpoint reports.
	defaultDays = 100
	maxDays     = 366

	// usageTimeout is how long the store may take for the usage endpoint.
	usageTimeout = 10 * time.Second
)

// serveUsage serves GET /v1/dashboard/billing/usage. The reply has the members of
// OpenAI's legacy format, with costs in US cents, and others for tokens, requests
// and images.
func serveUsage(q *request) error {
	store := q.h.opts.Usage
	if store == nil {
		return errUnknownURL(q.r)
	}
	from, to, err := usageRange(q.r.URL.RawQuery, q.accounting.record.Time.UTC())
	if err != nil {
		return err
	}
	sums, err := askUsageStore(q, func(ctx context.Context) ([]UsageSum, error) {
		return store.Query(ctx, UsageQuery{Account: q.key.Account, From: from, To: to, Step: day})
	})
	if err != nil {
		return err
	}
	return q.replyJSON(newBillingReply(sums, q.h.opts.Cost))
}

// askUsageStore calls ask, which asks the usage store.
func askUsageStore[T any](q *request, ask func(ctx context.Context) (T, error)) (T, error) {
	return callUnrecorded(q, func(ctx context.Context) (T, error) {
		ctx, cancel := context.WithTimeout(ctx, usageTimeout)
		defer cancel()
		q.beginStep(ClassUsageStore)
		v, err := ask(ctx)
		if err != nil {
			err = &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "We could not read your usage. Please try again.", Err: err}
		}
		return v, err
	})
}

// dateForm describes a date in an error.
const dateForm = "a date of the form YYYY-MM-DD"

// parseDates parses a query. The error is an *Error for a date that [url.ParseQuery] leaves
// out because it is malformed.
func parseDates(rawQuery string) (url.Values, error) {
	query, err := url.ParseQuery(rawQuery)
	if err == nil {
		return query, nil
	}
	for pair := range strings.SplitSeq(rawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if name, _, _ = strings.Cut(name, ";"); name != "start_date" && name != "end_date" {
			continue
		}
		if _, err := url.ParseQuery(pair); err != nil {
			return query, errInvalidText(name, value, dateForm)
		}
	}
	return query, nil
}

// usageRange reads the dates of a query. Days begin at midnight in UTC. end_date is
// exclusive, because clients of OpenAI's API send tomorrow to see today. An end_date that
// equals start_date selects that day.
func usageRange(rawQuery string, now time.Time) (from, to time.Time, err error) {
	query, err := parseDates(rawQuery)
	today := now.Truncate(day)
	date := func(param string, otherwise time.Time) time.Time {
		if err != nil || !query.Has(param) {
			return otherwise
		}
		s := query.Get(param)
		t, e := time.Parse("2006-1-2", s) // also accepts leading zeros
		if e != nil {
			err = errInvalidText(param, s, dateForm)
		}
		return t
	}
	to = date("end_date", today.Add(day))
	from = date("start_date", to.Add(-defaultDays*day))
	if from.Equal(to) && query.Has("end_date") {
		to = to.Add(day)
	}
	switch {
	case err != nil:
	case !from.Before(to):
		param := "end_date"
		if !query.Has(param) {
			param = "start_date"
		}
		err = errBadRequest("invalid_value", param, "Invalid '%s': the range has no day. 'end_date', which is not part of the range, must not be before 'start_date'.", param)
	case to.Sub(from) > maxDays*day:
		err = errBadRequest("invalid_value", "start_date", "Invalid 'start_date': the range is too long. Expected at most %d days.", maxDays)
	}
	return from, to, err
}

// unlimitedDollars is the limit in the reply of the subscription endpoint for a key
// without one. Clients know it from other servers.
const unlimitedDollars = 100_000_000

// A subscriptionReply is the reply of the subscription endpoint, in OpenAI's legacy
// format. TokenLimit is a member that the format lacks.
//
// Clients subtract from the limit what the usage endpoint reports: for the calendar
// month if HasPayment is set, and otherwise for the last 100 days.
type subscriptionReply struct {
	Object          string  `json:"object"`
	HasPayment      bool    `json:"has_payment_method"`
	SoftLimit       float64 `json:"soft_limit_usd"`
	HardLimit       float64 `json:"hard_limit_usd"`
	SystemHardLimit float64 `json:"system_hard_limit_usd"`
	AccessUntil     int64   `json:"access_until"` // Unix time in seconds; zero means for ever
	TokenLimit      *int64  `json:"hard_limit_tokens,omitempty"`
}

// serveSubscription serves GET /v1/dashboard/billing/subscription: the quota and the
// expiry of the key.
func serveSubscription(q *request) error {
	q.accounting.commitRequest()
	quota := q.key.Limits.Quota
	limit := amount{int64(max(quota.Tokens, 0)), max(quota.Cost, 0)}
	if _, ok := q.h.opts.Usage.(KeyUsageStore); ok && quota.isSet() {
		other, err := otherUsage(q)
		if err != nil {
			return err
		}
		limit = limit.plus(other)
	}
	dollars := cents(limit.dollars) / 100
	if quota.Cost == 0 {
		dollars = unlimitedDollars
	}
	reply := subscriptionReply{Object: "billing_subscription", HasPayment: quota.Per == 0, SoftLimit: dollars, HardLimit: dollars, SystemHardLimit: dollars}
	if quota.Tokens != 0 {
		reply.TokenLimit = &limit.tokens
	}
	if !q.key.Expires.IsZero() {
		reply.AccessUntil = q.key.Expires.Unix()
	}
	return q.replyJSON(&reply)
}

// otherUsage returns what the usage endpoint reports for the days that clients ask
// about, without what counts toward the quota of the key. The difference is that of
// periods, and the usage of other keys of the account.
func otherUsage(q *request) (amount, error) {
	now := q.accounting.record.Time.UTC()
	tomorrow := now.Truncate(day).Add(day)
	reported := UsageQuery{Account: q.key.Account, From: tomorrow.Add(-defaultDays * day), To: tomorrow}
	if q.key.Limits.Quota.Per == 0 {
		reported.From = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	counted := UsageQuery{Account: q.key.Account, From: q.key.Limits.Quota.Start(now), To: tomorrow}
	store, quotas := q.h.opts.Usage, &q.h.quotas
	return askUsageStore(q, func(ctx context.Context) (other amount, err error) {
		all, err := store.Query(ctx, reported)
		if err != nil {
			return other, err
		}
		own, err := QueryKey(ctx, store, q.key.ID, counted)
		if errors.Is(err, errors.ErrUnsupported) {
			return other, nil // the Limiter keeps the quota
		}
		return quotas.sum(all).minus(quotas.sum(own)), err
	})
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

// newBillingReply returns the reply for sums, which are in the order of their days.
func newBillingReply(sums []UsageSum, price func(UsageSum) float64) *billingReply {
	reply := &billingReply{Object: objectList, DailyCosts: []dailyBill{}}
	var all UsageSum
	var dollars float64
	for i, s := range sums {
		if i == 0 || !s.Start.Equal(sums[i-1].Start) {
			reply.DailyCosts = append(reply.DailyCosts, dailyBill{Timestamp: json.RawMessage(strconv.FormatInt(s.Start.Unix(), 10) + ".0")})
		}
		cost := 0.0
		if price != nil {
			cost = price(s)
		}
		dollars += cost
		all.Add(s)
		bill := &reply.DailyCosts[len(reply.DailyCosts)-1]
		bill.LineItems = append(bill.LineItems, lineItem{s.Model, cents(cost), newBilledUsage(&s)})
	}
	reply.TotalUsage, reply.billedUsage = cents(dollars), newBilledUsage(&all)
	return reply
}

// cents rounds away what floating point adds to sums of dollars.
func cents(dollars float64) float64 { return math.Round(dollars*100*1e6) / 1e6 }
