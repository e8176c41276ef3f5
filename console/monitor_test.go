package console

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

func TestMonitor(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 30, 0, time.UTC)
	m := NewMonitor()
	SetTime(m, now)
	serve := func(s *llmhttp.RequestSummary) {
		_, o := m.Observe(t.Context(), nil)
		assert.Equal(t, 1, m.snapshot().InFlight)
		o.Ended(s)
	}
	for i := range 100 {
		serve(&llmhttp.RequestSummary{Status: 200, Streamed: true, Timing: llmhttp.Timing{
			FirstToken: time.Duration(i+1) * time.Millisecond, Duration: time.Duration(i+1) * time.Second,
		}})
	}
	failed := errors.New("marker")
	refused := llmhttp.LimitRefusal{Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: "key_1"}, Limit: llmhttp.BucketTokens}
	serve(&llmhttp.RequestSummary{Status: 429, Err: failed, ErrorClass: llmhttp.ClassRateLimit, Refused: refused})
	serve(&llmhttp.RequestSummary{Status: 429, Err: failed, ErrorClass: llmhttp.ClassRateLimit, Refused: refused})
	refused.Subject = llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}
	serve(&llmhttp.RequestSummary{Status: 429, Err: failed, ErrorClass: llmhttp.ClassRateLimit, Refused: refused})
	serve(&llmhttp.RequestSummary{Status: 200, Err: failed, ErrorClass: llmhttp.ClassBackend, Streamed: true})
	serve(&llmhttp.RequestSummary{Status: 499, Err: failed, ErrorClass: llmhttp.ClassCanceled})
	serve(&llmhttp.RequestSummary{Status: 200, Err: failed, ErrorClass: llmhttp.ClassCanceled, Streamed: true})

	s := m.snapshot()
	assert.Zero(t, s.InFlight)
	assert.EqualValues(t, 106, s.Requests)
	assert.EqualValues(t, 1, s.Failed)
	assert.EqualValues(t, 3, s.Refused)
	assert.EqualValues(t, 2, s.Left)
	last := s.minutes[monitoredMinutes-1]
	assert.Equal(t, minuteStats{last.time, 100, 3, 2, 1}, last)
	assert.Equal(t, []errorCount{
		{"rate limit, tokens", 2}, {"backend, in the middle of a stream", 1}, {"canceled", 1}, {"canceled, in the middle of a stream", 1}, {"rate limit, account tokens", 1},
	}, s.Errors)
	assert.EqualValues(t, 100, s.Duration.Count)
	for want, got := range map[time.Duration]time.Duration{
		50 * time.Second: s.Duration.P50, 95 * time.Second: s.Duration.P95, 99 * time.Second: s.Duration.P99,
		50 * time.Millisecond: s.FirstToken.P50, 95 * time.Millisecond: s.FirstToken.P95, 99 * time.Millisecond: s.FirstToken.P99,
	} {
		assert.InEpsilon(t, want, got, 0.05)
	}

	SetTime(m, now.Add(59*time.Minute))
	assert.EqualValues(t, 106, m.snapshot().Requests)
	SetTime(m, now.Add(60*time.Minute))
	s = m.snapshot()
	assert.Zero(t, s.Requests, "an hour later nothing is left")
	assert.Empty(t, s.Errors)
	assert.Zero(t, s.Duration.P99)
	assert.Len(t, s.minutes, monitoredMinutes)
}

func TestHistogram_Bounds(t *testing.T) {
	var h histogram
	h.add(-time.Second)
	h.add(0)
	h.add(1000 * time.Hour)
	assert.EqualValues(t, 3, h.total)
	assert.Positive(t, h.quantile(1))
}
