package manage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/option"
)

// A UsageReporter is a [llmhttp.UsageStore] that can sum up the usage of several accounts
// and keys. A [llmhttp.Handler] does not need one; programs that report usage do. Its
// methods are safe for concurrent use.
type UsageReporter interface {
	llmhttp.UsageStore

	// Report returns the sums for q by group and model. A store that cannot group or
	// select in a way that q asks for, or that does not know q.By, returns an error that
	// wraps [errors.ErrUnsupported].
	Report(ctx context.Context, q ReportQuery) (Report, error)
}

// ReporterOf returns what reports the usage in s: s itself or what it wraps, as [llmhttp.StoreAs]
// finds it. If there is none, the error wraps [errors.ErrUnsupported] and names the type of the
// store.
//
// What reports may also be behind a buffer, which is a UsageStore with the methods
//
//	Flush(ctx context.Context) error // writes the records that wait
//	Store() llmhttp.UsageStore       // to which it writes
//
// such as a Buffer of package usagebuffer. Each report then calls Flush before. If that fails, which
// the buffer logs, the report lacks what waits.
func ReporterOf(s llmhttp.UsageStore) (UsageReporter, error) {
	if r, ok := llmhttp.StoreAs[UsageReporter](s); ok {
		return r, nil
	}
	b, ok := llmhttp.StoreAs[buffer](s)
	if !ok || option.IsNil(b) {
		return nil, fmt.Errorf("manage: a %T cannot report usage, because it is no manage.UsageReporter: %w", s, errors.ErrUnsupported)
	}
	inner, err := ReporterOf(b.Store())
	if err != nil {
		return nil, fmt.Errorf("the store of the %T: %w", b, err)
	}
	return &bufferReporter{b, inner}, nil
}

// A buffer is a UsageStore that writes to another one later.
type buffer interface {
	llmhttp.UsageStore
	Flush(ctx context.Context) error
	Store() llmhttp.UsageStore
}

// A bufferReporter reports the usage behind a buffer.
type bufferReporter struct {
	buffer
	store UsageReporter
}

// Unwrap returns the buffer for [llmhttp.StoreAs], so that Serve closes it.
func (r *bufferReporter) Unwrap() llmhttp.UsageStore { return r.buffer }

// Report gives the buffer half of the time of ctx.
func (r *bufferReporter) Report(ctx context.Context, q ReportQuery) (Report, error) {
	r.flush(ctx)
	return r.store.Report(ctx, q)
}

func (r *bufferReporter) flush(ctx context.Context) {
	if end, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		ctx = half
	}
	_ = r.Flush(ctx) // the buffer logs failures
}

// A ReportQuery selects usage and says how to group it. Conditions that are not zero
// must all hold.
//
// Stores keep sums by account, key and model, but what they know of end users and labels
// may be kept for some time only: see [ReportQuery.NeedsDetail] and [Report].Since.
type ReportQuery struct {
	Account  string        // empty means all accounts
	KeyID    string        // empty means all keys
	Model    string        // the name that clients used; empty means all models
	User     string        // an end user, of the Account if that is set; empty means all
	Label    llmhttp.Label // with an empty Name, all labels; otherwise records with this name and value
	From, To time.Time     // midnights in UTC; To is exclusive
	By       ReportGroup

	// GroupLabel is the name of the label whose values are the groups of ByLabel. It has
	// no effect on other groups.
	GroupLabel string

	// Limit is the maximum number of groups. If there are more, those with the
	// most tokens are returned, and of groups with equally many those with the
	// most requests. Zero and negative mean no limit.
	Limit int
}

// NeedsDetail reports whether q groups or selects by end user or label.
func (q *ReportQuery) NeedsDetail() bool {
	return q.User != "" || q.Label.Name != "" || q.By == ByUser || q.By == ByLabel
}

// A ReportGroup says what a [ReportSum] adds up.
type ReportGroup string

// The groups of a [ReportQuery].
const (
	ByTotal   ReportGroup = ""
	ByDay     ReportGroup = "day" // days begin at midnight in UTC
	ByKey     ReportGroup = "key" // keys of different accounts are different keys
	ByAccount ReportGroup = "account"
	ByModel   ReportGroup = "model" // as ByTotal, but Limit is the number of models
	ByUser    ReportGroup = "user"  // users of different accounts are different users
	ByLabel   ReportGroup = "label" // the values of the label GroupLabel
)

// A Report is the result of a [ReportQuery].
type Report struct {
	// Sums are sorted by Start, Account, KeyID, User, Label and Model, as Go compares
	// strings. The caller may change them.
	Sums []ReportSum

	// Since is zero if Sums have all that the query selects. Otherwise the store has lost
	// some of what it needs: Sums have all usage from Since on, and none from before it.
	Since time.Time
}

// A ReportSum is the usage of one model in one group. Start is that of the day
// with ByDay, and otherwise the From of the query.
type ReportSum struct {
	KeyID   string // only with ByKey
	Account string // only with ByKey, ByAccount and ByUser
	User    string // only with ByUser; empty for requests that named none
	Label   string // only with ByLabel: a value; empty also for records without the label
	llmhttp.UsageSum
}
