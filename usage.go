// The endpoints that tell an account what it has used and what is left, in OpenAI's legacy format.

package llmhttp

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/billing"
	"github.com/llmhttp/llmhttp/internal/budget"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
)

// ScopeUsage is the [Scope] of what the account used, and of the quota of the key. Both endpoints
// have OpenAI's legacy format, and amounts in the currency of Options.Price.
//
// GET /v1/dashboard/billing/usage returns the usage of the account by day in UTC and model, from
// start_date to end_date, of the form 2006-01-02. end_date is not part of the range, unless it is
// start_date, and is tomorrow by default; start_date is 100 days before it by default. A range has
// at most 366 days. total_usage and the costs in daily_costs are cents; prompt_tokens,
// completion_tokens, total_tokens, requests and images are there besides.
//
// GET /v1/dashboard/billing/subscription returns the limits of the [Quota] of the key or of its
// Subjects of which the least is left: of money in soft_limit_usd, hard_limit_usd and
// system_hard_limit_usd, which are 100000000 without one, and of tokens in hard_limit_tokens, with
// what the account used beyond the Quota in the days that clients subtract. access_until is the
// expiry of the key in Unix seconds, 0 if there is none.
const ScopeUsage Scope = "usage"

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
func serveUsage(c *Call) error {
	q := c.q
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
	return c.Reply(contentTypeJSON, func(b []byte) ([]byte, error) { return AppendJSON(b, newBillingReply(sums)) })
}

// askUsageStore calls ask, which asks the usage store.
func askUsageStore[T any](q *request, ask func(ctx context.Context) (T, error)) (T, error) {
	return callUnrecorded(q, ClassUsageStore, func(ctx context.Context) (T, error) {
		ctx, cancel := context.WithTimeout(ctx, usageTimeout)
		defer cancel()
		v, err := ask(ctx)
		if err != nil {
			err = &llm.Error{
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
			return query, invalid.Form(name, value, dateForm)
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
			err = invalid.Form(param, s, dateForm)
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
		err = invalid.Param(
			"invalid_value",
			param,
			"Invalid '%s': the range has no day. 'end_date', which is not part of the range, must not be before 'start_date'.",
			param,
		)
	case to.Sub(from) > maxDays*day:
		err = invalid.Param(
			"invalid_value",
			"start_date",
			"Invalid 'start_date': the range is too long. Expected at most %d days.",
			maxDays,
		)
	}
	return from, to, err
}

// serveSubscription serves GET /v1/dashboard/billing/subscription: the quotas and the
// expiry of the key. Of several quotas in money, or in tokens, it tells the one of which the
// least is left.
func serveSubscription(c *Call) error {
	q := c.q
	q.ledger.commit()
	p := newQuotaReport(q)
	if q.h.opts.Usage != nil && len(p.quotas) > 0 {
		if err := p.addOtherUsage(q); err != nil {
			return err
		}
	}
	reply := billing.Subscription{Object: "billing_subscription", HasPayment: p.monthly}
	dollars := math.Inf(1)
	for i, q := range p.quotas {
		limit := p.limits[i]
		if q.Tokens != 0 && (reply.TokenLimit == nil || limit.Tokens < *reply.TokenLimit) {
			reply.TokenLimit = &limit.Tokens
		}
		if left := llm.Money(limit.Cost).Float64(); q.Cost != 0 && left < dollars {
			dollars = left
		}
	}
	if math.IsInf(dollars, 1) {
		dollars = billing.Unlimited
	}
	reply.SoftLimit, reply.HardLimit, reply.SystemHardLimit = dollars, dollars, dollars
	if !q.key.Expires.IsZero() {
		reply.AccessUntil = q.key.Expires.Unix()
	}
	return c.Reply(contentTypeJSON, func(b []byte) ([]byte, error) { return AppendJSON(b, &reply) })
}

// A quotaReport has what the subscription endpoint tells about the quotas of a key and of its
// subjects.
type quotaReport struct {
	monthly  bool // all quotas are by calendar month
	subjects []SubjectID
	quotas   []Quota
	limits   []budget.Amount // of each quota; negative ones are zero
}

func newQuotaReport(q *request) *quotaReport {
	p := &quotaReport{monthly: true}
	for i := range q.ledger.subjects {
		s := &q.ledger.subjects[i]
		quota := s.limits.Quota
		p.monthly = p.monthly && quota.Per == 0
		if quota.isSet() {
			p.subjects, p.quotas = append(p.subjects, s.id), append(p.quotas, quota)
			p.limits = append(p.limits, budget.Amount{Tokens: int64(max(quota.Tokens, 0)), Cost: int64(max(quota.Cost, 0))})
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
			p.limits[i] = p.limits[i].Plus(sumAmounts(all).Minus(sumAmounts(own)))
		}
		return struct{}{}, nil
	})
	return err
}

func newBilledUsage(s *UsageSum) *billing.Used {
	u := &s.Units
	return &billing.Used{
		PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.Tokens(), Requests: s.Requests, Images: u.Images,
	}
}

// newBillingReply returns the reply for sums, which are in the order of their days.
func newBillingReply(sums []UsageSum) *billing.Usage {
	reply := &billing.Usage{Object: membername.ObjectList, DailyCosts: []billing.Day{}}
	var all UsageSum
	for i, s := range sums {
		if i == 0 || !s.Start.Equal(sums[i-1].Start) {
			reply.DailyCosts = append(reply.DailyCosts, billing.Day{Timestamp: json.RawMessage(strconv.FormatInt(s.Start.Unix(), 10) + ".0")})
		}
		all.Add(s)
		bill := &reply.DailyCosts[len(reply.DailyCosts)-1]
		bill.LineItems = append(bill.LineItems, billing.LineItem{Name: s.Model, Cost: cents(s.Cost.Total()), Used: newBilledUsage(&s)})
	}
	reply.TotalUsage, reply.Used = cents(all.Cost.Total()), newBilledUsage(&all)
	return reply
}

// cents returns an amount in hundredths of the currency's unit.
func cents(m llm.Money) float64 { return float64(m) / float64(llm.MoneyUnit/100) }
