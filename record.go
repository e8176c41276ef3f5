// What is stored of a request and its sums: UsageRecord, UsageStore, Label.

package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/saturating"
)

// A UsageStore stores what accounts used. It must be safe for concurrent use.
//
// A store may have more methods, which are found with [StoreAs]:
//
//	Close(ctx context.Context) error // Serve calls it when no request is left that could add a record
//	Delay() time.Duration            // how long Query of other processes may miss what Record has returned for; see Quota
//
// Package quotawatch says what remembers events of quotas, and package manage what reports usage. Package
// usagebuffer has a UsageStore that writes to another one later.
type UsageStore interface {
	// Record stores records. It skips records whose ID is already stored, so that a call that
	// failed can be repeated. It must not retain the slice. A store may round times down to
	// microseconds.
	Record(ctx context.Context, records ...UsageRecord) error

	// Query returns the sums for q, sorted by Start and then by Model, which is
	// compared as Go compares strings. They include all records of the calls of
	// Record that have returned without an error; package usagebuffer documents an exception. What
	// may count twice is told with [ReportDoubtful].
	// There are no sums for periods without usage. For an empty range, an unknown
	// account and an unknown subject, Query returns no sums and no error.
	//
	// A store that cannot sum for a q.Subject of that Kind returns an error that
	// wraps [errors.ErrUnsupported]. A [Handler] needs a store that can sum for the
	// kinds of those that have a [Quota], such as [KindKey].
	Query(ctx context.Context, q UsageQuery) ([]UsageSum, error)
}

// A UsageRecord is what a request used, or a part of that. There is one for each request for
// which the Backend was called for an operation that calls a model, whether it succeeded, failed or
// was abandoned by its client. The exception is a request for which the Backend has no such
// model or no such method, and says so with a 404 before it has returned any part of a reply
// or reported any usage.
//
// There is also one for each chat that was refused before that, but after it had loaded
// something: see [CountLoaded]. Its PromptTokens are then an estimate of what was loaded and
// sent, and it has no completion.
//
// The Units agree with each other, whatever a server sends: see [llm.Usage.Reconcile]. Tokens that only
// the total of a reply counts are divided between the prompt and the completion of a chat by
// estimate, which matters if these differ in price.
//
// A host may record further parts of a request itself, such as a try that was charged although
// it failed: with an ID of their own, the RequestID of the request and a Part above zero. A
// Handler makes only the first record.
type UsageRecord struct {
	ID        string // unique for all time; of the first record of a request its RequestID
	RequestID string
	Part      int       // 0 for the first record of a request; only that counts in UsageSum.Requests
	Time      time.Time // when the request arrived

	Account  string
	KeyID    string
	User     string      // the end user: see Options.User; empty if the client names none
	Subjects []SubjectID // what else the request counts toward, of kinds that the host defines; each keeps SubjectID.Validate
	Labels   []Label     // see Key.Labels and AddLabel

	Protocol     string    // the name of the wire format; "chat" for the endpoints of OpenAI's API
	Operation    Operation // what the Backend was asked for
	Model        string    // the name that the client used; at most 512 bytes, without control characters
	ServedModel  string    // the name in the Backend's reply, bounded like Model; empty if the Backend set none
	Target       string    // the target of the last [StartTry], bounded like Model; empty if there was none
	ServiceTier  string    // the service_tier in the Backend's reply to a chat, bounded like Model; empty if there was none. Of an estimate: see Options.Price
	ImageSize    string    // of the request for images, such as "1024x1024"; "auto" or empty if the client leaves it to the Backend, which prices by size need a default for
	ImageQuality string    // of the request for images; empty for the Backend's choice

	Units     Units // with those of all calls of [llm.StartCall]
	Estimated bool  // some of the Units are an estimate of the Handler, because the Backend reported none, or none that it knows

	// ErrorClass tells why the request failed; empty if it did not. The record of a request that
	// succeeds is stored before the last bytes of the reply are sent, and does not tell whether
	// the client got them.
	ErrorClass ErrorClass

	Cost     Cost // the sum of the calls of StartCall, and of what else was used
	Unpriced bool // a price could not be determined: Cost is what was reserved for a Quota in money, or that of the rest if this is more
}

// A Label is a name and a value that a host gives to records, such as a project.
type Label struct {
	Name  string
	Value string // may be empty
}

// The bounds of labels.
const (
	maxLabels     = 8
	maxLabelName  = 64
	maxLabelValue = 256
)

// ValidateLabels returns an error unless labels can be those of a [UsageRecord]: at most 8,
// with distinct names of 1 to 64 bytes and values of at most 256 bytes, which are UTF-8 without
// control characters. Programs call it when they make a [Key]. A [Handler] does not refuse
// requests of a Key with other labels: it records those that have their place in the bounds,
// drops the rest, and logs that at level Error.
func ValidateLabels(labels []Label) error {
	for i := range labels {
		if err := checkLabel(labels[:i], labels[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkLabel returns an error if l cannot be appended to labels.
func checkLabel(labels []Label, l Label) error {
	switch {
	case len(labels) >= maxLabels:
		return fmt.Errorf("llmhttp: there are more than %d labels", maxLabels)
	case l.Name == "" || len(l.Name) > maxLabelName || !isPlainText(l.Name):
		return fmt.Errorf(
			"llmhttp: the name of label %d must be text of 1 to %d bytes without control characters",
			len(labels),
			maxLabelName,
		)
	case len(l.Value) > maxLabelValue || !isPlainText(l.Value):
		return fmt.Errorf(
			"llmhttp: the value of label %q must be text of at most %d bytes without control characters",
			l.Name,
			maxLabelValue,
		)
	case slices.ContainsFunc(labels, func(other Label) bool { return other.Name == l.Name }):
		return fmt.Errorf("llmhttp: there are two labels with the name %q", l.Name)
	}
	return nil
}

// isPlainText reports whether s is UTF-8 without control characters.
func isPlainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// AddLabel adds a label to the record of the request that ctx belongs to, after those of its
// [Key]. A label with the same name is replaced. Backends call it until their call has
// returned, and Observers before that; later labels may be lost. The error tells that the
// label does not keep the bounds of [ValidateLabels], or that ctx does not belong to a request
// of a Handler. It may be called concurrently.
func AddLabel(ctx context.Context, name, value string) error {
	q := requestFrom(ctx)
	if q == nil {
		return errors.New("llmhttp: AddLabel: the context does not belong to a request")
	}
	return q.notes.addLabel(Label{name, value})
}

// A UsageQuery selects the usage of Account at times from From, inclusive, to To,
// exclusive, and divides it into periods of Step. The first period begins at From;
// the last may be shorter. If Step is zero or negative, there is one period.
type UsageQuery struct {
	Account  string
	Subject  SubjectID // selects what was used by this key or other subject of the account; zero means all of the account. The ID of an end user is that of records
	From, To time.Time
	Step     time.Duration
}

// PeriodStart returns the start of the period that contains t, in the location of From.
func (q UsageQuery) PeriodStart(t time.Time) time.Time {
	if q.Step <= 0 {
		return q.From
	}
	// Times can be further apart than a Duration, so this compares the offsets of both times from a
	// multiple of Step since the zero Time.
	offset := t.Sub(t.Truncate(q.Step)) - q.From.Sub(q.From.Truncate(q.Step))
	if offset < 0 {
		offset += q.Step
	}
	return t.Add(-offset).In(q.From.Location())
}

// Includes reports whether q selects r. It is for stores that look at each record, as
// package usagebuffer does at those that are not written yet.
func (q UsageQuery) Includes(r *UsageRecord) bool {
	if r.Account != q.Account || r.Time.Before(q.From) || !r.Time.Before(q.To) {
		return false
	}
	switch q.Subject.Kind {
	case "":
		return q.Subject.ID == ""
	case KindAccount:
		return r.Account == q.Subject.ID
	case KindKey:
		return r.KeyID == q.Subject.ID
	case KindUser:
		return r.User != "" && r.User == q.Subject.ID
	}
	return slices.Contains(r.Subjects, q.Subject)
}

// A UsageSum is the usage of one model in the period that begins at Start.
type UsageSum struct {
	Start    time.Time
	Model    string
	Requests int64
	Unpriced int64 // the number of records whose price is not known: Cost has what was reserved for them, if anything was
	Units    Units
	Cost     Cost
}

// Add adds the numbers of other to s. It does not change Start and Model. Sums that do not fit
// are the largest int64.
func (s *UsageSum) Add(other UsageSum) {
	s.Requests = saturating.Add(s.Requests, other.Requests)
	s.Unpriced = saturating.Add(s.Unpriced, other.Unpriced)
	s.Units.Add(other.Units)
	s.Cost.Add(other.Cost)
}

// Sum returns r as a sum whose Start is the time of r. It is that of one request, or of none
// if r is a further part of a request.
func (r *UsageRecord) Sum() UsageSum {
	s := UsageSum{Start: r.Time, Model: r.Model, Units: r.Units, Cost: r.Cost}
	if r.Part == 0 {
		s.Requests = 1
	}
	if r.Unpriced {
		s.Unpriced = 1
	}
	return s
}
