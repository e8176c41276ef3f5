package manage

import (
	"context"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A UsageReporter is a [llmhttp.UsageStore] that can sum up the usage of several accounts
// and keys. A [llmhttp.Handler] does not need one; programs that report usage do. Its
// methods are safe for concurrent use.
type UsageReporter interface {
	llmhttp.UsageStore

	// Report returns the sums for q by group and model. They are sorted
	// by Start, Account, KeyID and Model, as Go compares strings.
	Report(ctx context.Context, q ReportQuery) ([]ReportSum, error)
}

// A ReportQuery selects usage and says how to group it.
type ReportQuery struct {
	Account  string    // empty means all accounts
	KeyID    string    // empty means all keys
	From, To time.Time // midnights in UTC; To is exclusive
	By       ReportGroup

	// Limit is the maximum number of groups. If there are more, those with the
	// most tokens are returned, and of groups with equally many those with the
	// most requests. Zero and negative mean no limit.
	Limit int
}

// A ReportGroup says what a [ReportSum] adds up.
type ReportGroup string

// The groups of a [ReportQuery].
const (
	ByTotal   ReportGroup = ""
	ByDay     ReportGroup = "day" // days begin at midnight in UTC
	ByKey     ReportGroup = "key" // keys of different accounts are different keys
	ByAccount ReportGroup = "account"
)

// A ReportSum is the usage of one model in one group. Start is that of the day
// with ByDay, and otherwise the From of the query.
type ReportSum struct {
	KeyID   string // only with ByKey
	Account string // only with ByKey and ByAccount
	llmhttp.UsageSum
}
