package manage_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/storetest"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A plainStore is a UsageStore that cannot report.
type plainStore struct{ llmhttp.UsageStore }

// A wrapper changes nothing.
type wrapper struct{ llmhttp.UsageStore }

func (w wrapper) Unwrap() llmhttp.UsageStore { return w.UsageStore }

func newBuffer(t testing.TB, s llmhttp.UsageStore) *usagebuffer.Buffer {
	b := usagebuffer.New(s, &usagebuffer.Options{Delay: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

func TestReporterOf(t *testing.T) {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	q := manage.ReportQuery{From: today, To: today.AddDate(0, 0, 1)}
	for name, wrap := range map[string]func(s llmhttp.UsageStore) llmhttp.UsageStore{
		"a store":                     func(s llmhttp.UsageStore) llmhttp.UsageStore { return s },
		"a wrapper":                   func(s llmhttp.UsageStore) llmhttp.UsageStore { return wrapper{s} },
		"a buffer":                    func(s llmhttp.UsageStore) llmhttp.UsageStore { return newBuffer(t, s) },
		"a wrapped buffer of another": func(s llmhttp.UsageStore) llmhttp.UsageStore { return wrapper{newBuffer(t, wrapper{newBuffer(t, s)})} },
	} {
		t.Run(name, func(t *testing.T) {
			s := wrap(memory.NewUsageStore())
			r, err := manage.ReporterOf(s)
			require.NoError(t, err)
			require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{ID: "1", Account: "acme", Model: "m", Time: time.Now()}))
			report, err := r.Report(t.Context(), q)
			require.NoError(t, err)
			assert.EqualValues(t, 1, report.Total().Requests, "what waits in a buffer is written first")
		})
	}
	for name, s := range map[string]llmhttp.UsageStore{
		"nothing":          nil,
		"a plain store":    plainStore{memory.NewUsageStore()},
		"behind a buffer":  newBuffer(t, plainStore{memory.NewUsageStore()}),
		"behind a wrapper": wrapper{plainStore{memory.NewUsageStore()}},
		"a nil buffer":     (*usagebuffer.Buffer)(nil),
	} {
		_, err := manage.ReporterOf(s)
		assert.ErrorIs(t, err, errors.ErrUnsupported, name)
	}
	_, err := manage.ReporterOf(newBuffer(t, plainStore{}))
	assert.ErrorContains(t, err, "the store of the *usagebuffer.Buffer: manage: a manage_test.plainStore cannot report usage")
}

// A report lacks what the store does not take.
func TestReporterOf_StoreThatTakesNothing(t *testing.T) {
	store := memory.NewUsageStore()
	b := newBuffer(t, failingStore{store})
	require.NoError(t, b.Record(t.Context(), llmhttp.UsageRecord{ID: "1", Account: "acme", Model: "m", Time: time.Now()}))
	r, err := manage.ReporterOf(b)
	require.NoError(t, err)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	report, err := r.Report(t.Context(), manage.ReportQuery{From: today, To: today.AddDate(0, 0, 1)})
	require.NoError(t, err)
	assert.Empty(t, report.Rows)
	assert.Equal(t, 1, b.Waiting())
}

type failingStore struct{ manage.UsageReporter }

func (failingStore) Record(context.Context, ...llmhttp.UsageRecord) error { return errors.New("down") }

func TestReporterOf_Kit(t *testing.T) {
	storetest.TestUsageReporter(t, func(t testing.TB) manage.UsageReporter {
		r, err := manage.ReporterOf(newBuffer(t, memory.NewUsageStore()))
		require.NoError(t, err)
		return r
	})
}
