// Monitor, which collects what the overview shows.

package console

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A Monitor collects what the overview shows: the requests in flight, and the
// errors and times of the last hour. Its memory is bounded: about 150 kB. Create
// one with [NewMonitor] and pass its method Observe to the Handler of the API. Its
// methods are safe for concurrent use.
type Monitor struct {
	now func() time.Time

	mu       sync.Mutex // guards the fields below
	inFlight int
	byKey    map[string]int           // requests in flight that have called Started, by the ID of their key
	minutes  [monitoredMinutes]minute // a ring buffer, indexed by minute.number modulo its length
}

const monitoredMinutes = 60

// A minute counts the requests that ended in one minute.
type minute struct {
	number     int64 // the minutes from 1970 until it began; tells a minute from one an hour before
	requests   int64
	errors     map[string]int64 // by class
	refused    int64            // of the errors, those with a 429
	left       int64            // of the errors, those of clients that left
	duration   histogram
	firstToken histogram // the times to the first token of streams
}

// NewMonitor returns a Monitor without requests.
func NewMonitor() *Monitor { return &Monitor{now: time.Now, byKey: make(map[string]int)} }

// Observe is an [llmhttp.Observer].
func (m *Monitor) Observe(ctx context.Context, r *http.Request) (context.Context, llmhttp.Observation) {
	m.mu.Lock()
	m.inFlight++
	m.mu.Unlock()
	var keyID string // empty until the request has started
	return ctx, llmhttp.Observation{
		Started: func(ctx context.Context, info *llmhttp.RequestInfo) context.Context {
			keyID = info.KeyID
			m.start(keyID)
			return ctx
		},
		Ended: func(s *llmhttp.RequestSummary) { m.end(keyID, s) },
	}
}

func (m *Monitor) start(keyID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byKey[keyID]++
}

// concurrent returns the number of requests in progress of a key.
func (m *Monitor) concurrent(keyID string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byKey[keyID]
}

func (m *Monitor) end(keyID string, s *llmhttp.RequestSummary) {
	class := errorClass(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight--
	m.byKey[keyID]--
	if m.byKey[keyID] <= 0 { // negative if the request has not started
		delete(m.byKey, keyID)
	}
	current := m.minuteAt(minuteNumber(m.now()))
	current.requests++
	if class != "" {
		if current.errors == nil {
			current.errors = make(map[string]int64)
		}
		current.errors[class]++
		switch s.ErrorClass {
		case llmhttp.ClassRateLimit:
			current.refused++
		case llmhttp.ClassCanceled:
			current.left++
		}
		return
	}
	current.duration.add(s.Duration)
	if s.Streamed && s.FirstToken > 0 {
		current.firstToken.add(s.FirstToken)
	}
}

// minuteNumber returns the number of the minute that contains t.
func minuteNumber(t time.Time) int64 { return t.Unix() / 60 }

// minuteAt returns the minute with the given number. It replaces the minute of an
// hour before. The caller holds mu.
func (m *Monitor) minuteAt(number int64) *minute {
	found := &m.minutes[number%monitoredMinutes]
	if found.number != number {
		*found = minute{number: number}
	}
	return found
}

// errorClass returns a text for the class of a request's error, with the limit that
// refused it. There are few such texts. It returns "" if the request succeeded.
func errorClass(s *llmhttp.RequestSummary) string {
	if s.Err == nil {
		return ""
	}
	class := string(s.ErrorClass)
	if s.Refused.Limit != "" {
		class += ", "
		if kind := s.Refused.Subject.Kind; kind != llmhttp.KindKey {
			class += kind + " "
		}
		class += s.Refused.Limit
	}
	if s.Aborted() {
		class += ", in the middle of a stream"
	}
	return strings.ReplaceAll(class, "_", " ")
}

// A snapshot is what a Monitor has collected.
type snapshot struct {
	InFlight   int
	Requests   int64
	Refused    int64        // with a 429: limits have done what they are for
	Left       int64        // by their clients
	Failed     int64        // all others that did not succeed
	Errors     []errorCount // most frequent first
	Duration   percentiles  // of requests that succeeded
	FirstToken percentiles  // of streams that succeeded
	minutes    []minuteStats
}

type errorCount struct {
	Class string
	Count int64
}

type minuteStats struct {
	time                             time.Time
	succeeded, refused, left, failed int64 // as in snapshot
}

// percentiles are durations that 50, 95 and 99 % of requests did not exceed, with an
// error of up to 5 %.
type percentiles struct {
	Count         int64
	P50, P95, P99 time.Duration
}

// snapshot returns the state of the last hour.
func (m *Monitor) snapshot() *snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &snapshot{InFlight: m.inFlight}
	var duration, firstToken histogram
	classes := make(map[string]int64)
	last := minuteNumber(m.now())
	for number := last - monitoredMinutes + 1; number <= last; number++ {
		counted := m.minuteAt(number)
		stats := minuteStats{
			time: time.Unix(number*60, 0).UTC(), succeeded: counted.requests,
			refused: counted.refused, left: counted.left, failed: -counted.refused - counted.left,
		}
		for class, n := range counted.errors {
			classes[class] += n
			stats.failed += n
			stats.succeeded -= n
		}
		s.minutes = append(s.minutes, stats)
		s.Requests += counted.requests
		s.Refused += stats.refused
		s.Left += stats.left
		s.Failed += stats.failed
		duration.merge(&counted.duration)
		firstToken.merge(&counted.firstToken)
	}
	for class, n := range classes {
		s.Errors = append(s.Errors, errorCount{class, n})
	}
	slices.SortFunc(s.Errors, func(a, b errorCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Class, b.Class))
	})
	s.Duration, s.FirstToken = duration.percentiles(), firstToken.percentiles()
	return s
}

// A histogram counts durations in buckets whose bounds grow by histogramGrowth
// from a millisecond to about an hour. Its zero value is empty.
type histogram struct {
	counts [histogramBuckets]uint32
	total  int64
}

const (
	histogramBuckets = 160
	histogramGrowth  = 1.1
)

func (h *histogram) add(d time.Duration) {
	i := 0
	if ms := float64(d) / float64(time.Millisecond); ms > 1 {
		i = min(int(math.Log(ms)/math.Log(histogramGrowth))+1, histogramBuckets-1)
	}
	h.counts[i]++
	h.total++
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
}

func (h *histogram) percentiles() percentiles {
	return percentiles{Count: h.total, P50: h.quantile(0.5), P95: h.quantile(0.95), P99: h.quantile(0.99)}
}

// quantile returns the middle of the bucket that contains the quantile q, or zero if h
// is empty.
func (h *histogram) quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank, seen := int64(math.Ceil(q*float64(h.total))), int64(0)
	for i, n := range h.counts {
		seen += int64(n)
		if seen >= rank {
			ms := math.Pow(histogramGrowth, float64(i)-0.5)
			return time.Duration(ms * float64(time.Millisecond))
		}
	}
	return 0
}
