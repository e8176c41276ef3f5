package manage

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A ReportQuery selects usage, and says how to group, divide and order it. Conditions that are not
// zero must all hold. The zero values of the other fields ask for the sum of all usage.
//
// Stores have sums by account, key, end user, model and day in UTC. Reports by label, operation, target
// and status, by hours, and by days that do not begin at midnight in UTC read records: they take longer
// the more requests their period has, and reach back as far as records are kept. There are no reports
// by further subjects.
type ReportQuery struct {
	Account   string            // empty means all accounts
	KeyID     string            // empty means all keys
	Model     string            // the name that clients used; empty means all models
	User      string            // an end user, of the Account if that is set; empty means all
	Label     llmhttp.Label     // with an empty Name, all labels; otherwise records with this name and value
	Operation llmhttp.Operation // empty means all operations
	Target    string            // empty means all targets, and records without one
	Status    ReportStatus
	From, To  time.Time // To is exclusive. If From is not before To, nothing is selected

	By ReportGroup

	// GroupLabel is the name of the label whose values are the groups of ByLabel. It has
	// no effect on other groups.
	GroupLabel string

	// Interval divides the time from From to To: see Intervals. Location is where its days and
	// months begin; nil means UTC, and it has no effect without an Interval.
	Interval ReportInterval
	Location *time.Location

	// PerModel divides each sum by the model.
	PerModel bool

	// Order says which groups are the largest.
	Order ReportOrder

	// Limit is the maximum number of groups that have a row of their own; Report.Others is the sum
	// of the smaller ones. Zero and negative mean no limit.
	Limit int
}

// A ReportGroup says what a [ReportRow] is for.
type ReportGroup string

// The groups of a [ReportQuery].
const (
	ByTotal   ReportGroup = ""    // one group
	ByKey     ReportGroup = "key" // keys of different accounts are different keys
	ByAccount ReportGroup = "account"
	ByModel   ReportGroup = "model"
	ByUser    ReportGroup = "user"  // users of different accounts are different users
	ByLabel   ReportGroup = "label" // the values of the label GroupLabel
)

// A ReportStatus selects requests by whether they failed. Besides those below, each
// [llmhttp.ErrorClass] is one: that of the requests with this class, such as
// ReportStatus(llmhttp.ClassTimeout).
type ReportStatus string

// The values of [ReportQuery].Status that are no classes of errors.
const (
	StatusAny       ReportStatus = ""
	StatusSucceeded ReportStatus = "succeeded" // UsageRecord.ErrorClass is empty
	StatusFailed    ReportStatus = "failed"    // UsageRecord.ErrorClass is set, also to one of the client
)

// Includes reports whether s selects records with an error class.
func (s ReportStatus) Includes(class llmhttp.ErrorClass) bool {
	switch s {
	case StatusAny:
		return true
	case StatusSucceeded:
		return class == ""
	case StatusFailed:
		return class != ""
	}
	return s == ReportStatus(class)
}

// A ReportOrder says by which number groups are compared, the largest first. Besides those below,
// each name of [llmhttp.Units.All] is one, such as "images". Groups for which the number is equal
// are compared by cost, then by tokens and then by requests, and if all are equal by their account,
// key, end user, label and model, as Go compares strings.
type ReportOrder string

// The values of [ReportQuery].Order that are no names of units.
const (
	OrderByCost     ReportOrder = "" // by the total of the cost; without prices, that is by tokens
	OrderByTokens   ReportOrder = "tokens"
	OrderByRequests ReportOrder = "requests"
)

// Number returns the number of s by which o compares. The error wraps [errors.ErrUnsupported], if
// there is no such order.
func (o ReportOrder) Number(s *llmhttp.UsageSum) (int64, error) {
	switch o {
	case OrderByCost:
		return int64(s.Cost.Total()), nil
	case OrderByTokens:
		return s.Units.Tokens(), nil
	case OrderByRequests:
		return s.Requests, nil
	}
	for name, n := range s.Units.All() {
		if name == string(o) {
			return *n, nil
		}
	}
	return 0, fmt.Errorf("manage: usage cannot be ordered by %q: %w", string(o), errors.ErrUnsupported)
}

// NeedsDetail reports whether q asks for more than sums by account, key and model of whole days in
// UTC. Stores keep these for all time. What they know of end users, labels, operations, targets,
// failures and times of day may be kept for some time only: see [Report].Since.
func (q *ReportQuery) NeedsDetail() bool {
	if q.User != "" || q.Label.Name != "" || q.Operation != "" || q.Target != "" || q.Status != StatusAny || q.By == ByUser || q.By == ByLabel {
		return true
	}
	starts, err := q.Intervals()
	return err != nil || slices.ContainsFunc(append(starts, q.To), func(t time.Time) bool { return !t.Equal(t.Truncate(24 * time.Hour)) })
}

// CheckFields returns an error that wraps [errors.ErrUnsupported] and names a field of q, unless all
// fields but the known ones are zero. A store calls it with the names of the fields that it was made
// for. Then it refuses queries that use what a later version of this package adds, and does not
// ignore a condition.
func (q *ReportQuery) CheckFields(known ...string) error {
	v := reflect.ValueOf(q).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !v.Field(i).IsZero() && !slices.Contains(known, name) {
			return fmt.Errorf("manage: the store does not know %s of a ReportQuery: %w", name, errors.ErrUnsupported)
		}
	}
	return nil
}

// A Report is the result of a [ReportQuery].
type Report struct {
	// Rows are the groups with usage, the largest first as ReportQuery.Order says. Of more than
	// Limit groups, they are the largest. The caller may change them.
	Rows []ReportRow

	// Others are the sums of all groups that have no row because of the Limit, like those of a row.
	// It is nil if each group has one.
	Others []llmhttp.UsageSum

	// Since is zero if the report has all that the query selects. Otherwise the store has lost
	// some of what it needs: the report has all usage from Since on, and none from before it.
	Since time.Time
}

// A ReportRow is the usage of one group.
type ReportRow struct {
	Account string // only with ByKey, ByAccount and ByUser
	KeyID   string // only with ByKey
	User    string // only with ByUser; empty for requests that named none
	Label   string // only with ByLabel: a value; empty also for records without the label
	Model   string // only with ByModel

	// Sums are those of each interval, and with PerModel of each model in it, that has usage. They
	// are sorted by Start and then by Model, as Go compares strings. The Start is that of the
	// interval, in ReportQuery.Location, and without an Interval the From of the query. The Model
	// is empty without PerModel, unless the row is that of a model.
	Sums []llmhttp.UsageSum
}

// Total returns the sum of r, without a Start and a Model.
func (r *ReportRow) Total() llmhttp.UsageSum { return addUp(r.Sums) }

// Total returns the sum of all rows and of the others, without a Start and a Model.
func (r *Report) Total() llmhttp.UsageSum {
	total := addUp(r.Others)
	for i := range r.Rows {
		total.Add(r.Rows[i].Total())
	}
	return total
}

func addUp(sums []llmhttp.UsageSum) (total llmhttp.UsageSum) {
	for i := range sums {
		total.Add(sums[i])
	}
	return total
}

// CompareNames compares the account, key, end user, label and model of r with those of other, in
// this order and as [strings.Compare] does.
func (r *ReportRow) CompareNames(other *ReportRow) int {
	return cmp.Or(strings.Compare(r.Account, other.Account), strings.Compare(r.KeyID, other.KeyID),
		strings.Compare(r.User, other.User), strings.Compare(r.Label, other.Label), strings.Compare(r.Model, other.Model))
}
