package llmhttp

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

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
	from, to, err := usageRange(q.r.URL.Query(), q.accounting.record.Time.UTC())
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
	return callHost(q, func(ctx context.Context) (T, error) {
		ctx, cancel := context.WithTimeout(ctx, usageTimeout)
		defer cancel()
		q.observer.stepClass = ClassUsageStore
		v, err := ask(ctx)
		if err != nil {
			err = &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: "We could not read your usage. Please try again.", Err: err}
		}
		return v, err
	})
}

// usageRange reads the dates of a query. Days begin at midnight in UTC. end_date is
// exclusive, because clients of OpenAI's API send tomorrow to see today. An end_date that
// equals start_date selects that day.
func usageRange(query url.Values, now time.Time) (from, to time.Time, err error) {
	today := now.Truncate(day)
	date := func(param string, otherwise time.Time) time.Time {
		if err != nil || !query.Has(param) {
			return otherwise
		}
		s := query.Get(param)
		t, e := time.Parse("2006-1-2", s) // also accepts leading zeros
		if e != nil {
			err = errInvalidText(param, s, "a date of the form YYYY-MM-DD")
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
