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

	// Report returns the sums for q. What a store cannot do, and what it does not know, such as a
	// field of q or a value of one that it was not made for, is an error that wraps
	// [errors.ErrUnsupported], and never another report: see [ReportQuery.CheckFields]. Every store
	// can do what needs no detail: see [ReportQuery.NeedsDetail].
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
