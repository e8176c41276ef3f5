package llmhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// ScopeUsage is the [Scope] of what the account used, and of the quota of the key.
const ScopeUsage Scope = "usage"

// Usage is the number of tokens that a request used. A [Handler] takes negative numbers for
// zero, and lowers details that are more than what they are a part of. It is decoded
// leniently: see [ChatChunk].
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
// (https://openrouter.ai/docs/use-cases/usage-accounting). CacheWrites are LiteLLM's
// cache_creation_token_details, with members such as ephemeral_5m_input_tokens; those of an hour are also
// cache_write_1h_tokens.
type PromptTokensDetails struct {
	CachedTokens     int         `json:"cached_tokens,omitzero"`                // read from the prompt cache
	CacheWriteTokens int         `json:"cache_write_tokens,omitzero"`           // written to the prompt cache; if the sum of CacheWrites is more, a Handler takes that
	CacheWrites      CacheWrites `json:"cache_creation_token_details,omitzero"` // the CacheWriteTokens by their lifetime, as far as it is known
	AudioTokens      int         `json:"audio_tokens,omitzero"`
	ImageTokens      int         `json:"image_tokens,omitzero"`
	Extra            Extra       `json:"-"`
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
	jsonwire.Struct(
		"prompt_tokens_details",
		func(u *Usage) *PromptTokensDetails { return &u.PromptTokensDetails },
		promptTokensDetailsJSON,
	),
	jsonwire.Struct(
		"completion_tokens_details",
		func(u *Usage) *CompletionTokensDetails { return &u.CompletionTokensDetails },
		completionTokensDetailsJSON,
	),
	jsonwire.Extra(func(u *Usage) *Extra { return &u.Extra }),
)

var totalTokensField = jsonwire.Int("total_tokens", func(u *Usage) *int { return &u.TotalTokens }).
	Always().AppendWith(func(u *Usage, b []byte) ([]byte, error) { return strconv.AppendInt(b, int64(u.total()), 10), nil })

var promptTokensDetailsJSON = jsonwire.NewObject(
	jsonwire.Int("cached_tokens", func(p *PromptTokensDetails) *int { return &p.CachedTokens }),
	jsonwire.Int("cache_write_tokens", func(p *PromptTokensDetails) *int { return &p.CacheWriteTokens }),
	cacheWritesField,
	cacheWrite1hField,
	jsonwire.Int("audio_tokens", func(p *PromptTokensDetails) *int { return &p.AudioTokens }),
	jsonwire.Int("image_tokens", func(p *PromptTokensDetails) *int { return &p.ImageTokens }),
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

// Add adds the numbers of other to those of u. A negative number
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
	p := &u.PromptTokensDetails
	p.CacheWrites = p.CacheWrites.plus(other.PromptTokensDetails.CacheWrites)
	if hasTotal {
		u.TotalTokens = total
	}
}

// addTokens returns the sum of two numbers of tokens, as Usage.Add does.
func addTokens(a, b int) int {
	a, b = max(a, 0), max(b, 0)
	return a + min(b, math.MaxInt-a)
}

// counts returns all numbers of u but CacheWrites.
func (u *Usage) counts() [9]*int {
	p, c := &u.PromptTokensDetails, &u.CompletionTokensDetails
	return [...]*int{&u.PromptTokens, &u.CompletionTokens, &u.TotalTokens,
		&p.CachedTokens, &p.CacheWriteTokens, &p.AudioTokens, &p.ImageTokens, &c.ReasoningTokens, &c.AudioTokens}
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
	p := &u.PromptTokensDetails
	p.CacheWrites = p.CacheWrites.normal(math.MaxInt / 4)
}

// reconcile makes the numbers of u, which are bounded, agree with each other: the total is the
// sum, and details are no more than the tokens that they are a part of. Otherwise a price
// for uncached tokens would become negative.
func (u *Usage) reconcile() {
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	p, c := &u.PromptTokensDetails, &u.CompletionTokensDetails
	p.CachedTokens = min(p.CachedTokens, u.PromptTokens)
	p.CacheWriteTokens = int(min(max(int64(p.CacheWriteTokens), p.CacheWrites.total()), int64(u.PromptTokens-p.CachedTokens)))
	p.CacheWrites = p.CacheWrites.atMost(int64(p.CacheWriteTokens))
	p.AudioTokens = min(p.AudioTokens, u.PromptTokens)
	p.ImageTokens = min(p.ImageTokens, u.PromptTokens)
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

var usageOperation = operation{scope: ScopeUsage}

// serveUsage serves GET /v1/dashboard/billing/usage. The reply has the members of
// OpenAI's legacy format, with costs in US cents, and others for tokens, requests
// and images.
func serveUsage(q *request) error {
	store := q.h.opts.Usage
	if store == nil {
		return errUnknownURL(q.r)
	}
	from, to, err := usageRange(q.r.URL.RawQuery, q.record.Time.UTC())
	if err != nil {
		return err
	}
	sums, err := askUsageStore(q, func(ctx context.Context) ([]UsageSum, error) {
		return store.Query(ctx, UsageQuery{Account: q.key.Account, From: from, To: to, Step: day})
	})
	if err != nil {
		return err
	}
	return q.replyJSON(newBillingReply(sums))
}

// askUsageStore calls ask, which asks the usage store.
func askUsageStore[T any](q *request, ask func(ctx context.Context) (T, error)) (T, error) {
	return callUnrecorded(q, ClassUsageStore, func(ctx context.Context) (T, error) {
		ctx, cancel := context.WithTimeout(ctx, usageTimeout)
		defer cancel()
		v, err := ask(ctx)
		if err != nil {
			err = &Error{
				Status:     http.StatusServiceUnavailable,
				RetryAfter: time.Second,
				Message:    "We could not read your usage. Please try again.",
				Err:        err,
			}
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
		err = errBadRequest(
			"invalid_value",
			param,
			"Invalid '%s': the range has no day. 'end_date', which is not part of the range, must not be before 'start_date'.",
			param,
		)
	case to.Sub(from) > maxDays*day:
		err = errBadRequest(
			"invalid_value",
			"start_date",
			"Invalid 'start_date': the range is too long. Expected at most %d days.",
			maxDays,
		)
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

// serveSubscription serves GET /v1/dashboard/billing/subscription: the quotas and the
// expiry of the key. Of several quotas in money, or in tokens, it tells the one of which the
// least is left.
func serveSubscription(q *request) error {
	q.ledger.commit()
	p := newQuotaReport(q)
	if q.h.opts.Usage != nil && len(p.quotas) > 0 {
		if err := p.addOtherUsage(q); err != nil {
			return err
		}
	}
	reply := subscriptionReply{Object: "billing_subscription", HasPayment: p.monthly}
	dollars := math.Inf(1)
	for i, q := range p.quotas {
		limit := p.limits[i]
		if q.Tokens != 0 && (reply.TokenLimit == nil || limit.tokens < *reply.TokenLimit) {
			reply.TokenLimit = &limit.tokens
		}
		if left := limit.cost.Float64(); q.Cost != 0 && left < dollars {
			dollars = left
		}
	}
	if math.IsInf(dollars, 1) {
		dollars = unlimitedDollars
	}
	reply.SoftLimit, reply.HardLimit, reply.SystemHardLimit = dollars, dollars, dollars
	if !q.key.Expires.IsZero() {
		reply.AccessUntil = q.key.Expires.Unix()
	}
	return q.replyJSON(&reply)
}

// A quotaReport has what the subscription endpoint tells about the quotas of a key and of its
// subjects.
type quotaReport struct {
	monthly  bool // all quotas are by calendar month
	subjects []SubjectID
	quotas   []Quota
	limits   []amount // of each quota; negative ones are zero
}

func newQuotaReport(q *request) *quotaReport {
	p := &quotaReport{monthly: true}
	for i := range q.ledger.subjects {
		s := &q.ledger.subjects[i]
		quota := s.limits.Quota
		p.monthly = p.monthly && quota.Per == 0
		if quota.isSet() {
			p.subjects, p.quotas = append(p.subjects, s.id), append(p.quotas, quota)
			p.limits = append(p.limits, amount{int64(max(quota.Tokens, 0)), max(quota.Cost, 0)})
		}
	}
	return p
}

// addOtherUsage adds to each limit what the usage endpoint reports for the days that clients ask
// about, without what counts toward the quota. The difference is that of periods, and the
// usage of other keys of the account.
func (p *quotaReport) addOtherUsage(q *request) error {
	now := q.record.Time.UTC()
	tomorrow := now.Truncate(day).Add(day)
	reported := UsageQuery{Account: q.key.Account, From: tomorrow.Add(-defaultDays * day), To: tomorrow}
	if p.monthly {
		reported.From = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	store := q.h.opts.Usage
	_, err := askUsageStore(q, func(ctx context.Context) (struct{}, error) {
		all, err := store.Query(ctx, reported)
		if err != nil {
			return struct{}{}, err
		}
		for i, s := range p.subjects {
			own, err := store.Query(ctx, UsageQuery{Account: q.key.Account, Subject: s, From: p.quotas[i].Start(now), To: tomorrow})
			if errors.Is(err, errors.ErrUnsupported) {
				continue // requests that count toward the quota fail with an error that tells why
			}
			if err != nil {
				return struct{}{}, err
			}
			p.limits[i] = p.limits[i].plus(sumAmounts(all).minus(sumAmounts(own)))
		}
		return struct{}{}, nil
	})
	return err
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
	u := &s.Units
	return &billedUsage{u.PromptTokens, u.CompletionTokens, u.Tokens(), s.Requests, u.Images}
}

// newBillingReply returns the reply for sums, which are in the order of their days.
func newBillingReply(sums []UsageSum) *billingReply {
	reply := &billingReply{Object: objectList, DailyCosts: []dailyBill{}}
	var all UsageSum
	for i, s := range sums {
		if i == 0 || !s.Start.Equal(sums[i-1].Start) {
			reply.DailyCosts = append(reply.DailyCosts, dailyBill{Timestamp: json.RawMessage(strconv.FormatInt(s.Start.Unix(), 10) + ".0")})
		}
		all.Add(s)
		bill := &reply.DailyCosts[len(reply.DailyCosts)-1]
		bill.LineItems = append(bill.LineItems, lineItem{s.Model, cents(s.Cost.Total()), newBilledUsage(&s)})
	}
	reply.TotalUsage, reply.billedUsage = cents(all.Cost.Total()), newBilledUsage(&all)
	return reply
}

// cents returns an amount in hundredths of the currency's unit.
func cents(m Money) float64 { return float64(m) / float64(MoneyUnit/100) }
