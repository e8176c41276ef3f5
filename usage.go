package llmhttp

import (
	"context"
	"time"
)

// A UsageStore remembers what accounts used. It must be safe for concurrent
// use.
type UsageStore interface {
	// Record stores records. Those whose ID is already stored are skipped,
	// so a call that failed may be repeated. It keeps no reference to records.
	Record(ctx context.Context, records ...UsageRecord) error

	// Query returns the sums q asks for, oldest first, and those of one
	// period by model. An account without usage has none: that is not an
	// error.
	Query(ctx context.Context, q UsageQuery) ([]UsageSum, error)
}

// A UsageRecord is what one request used. There is one for each request that
// reached the Backend, whether it succeeded, failed or was abandoned.
type UsageRecord struct {
	ID        string    // the request's ID, unique for all time
	Time      time.Time // of its arrival
	Account   string
	KeyID     string
	Model     string // as the client named it
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
