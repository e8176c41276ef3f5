// Of which times a report reads sums, and of which it reads records.

package sqlstore

import (
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/manage"
)

// reportTimes says of which times a report reads sums, and of which it reads records.
type reportTimes struct {
	kind          string      // of the sums
	days, records []timeRange // in order
	from          int64       // the report has usage from then on
	incomplete    bool        // that is later than the query says
	steps         []step
}

// A step is a run of intervals of equal length. One alone has the length zero.
type step struct{ start, length int64 }

// newReportTimes returns the times of the report for q, whose intervals begin at starts, when the records
// from before a stored time may be missing.
//
// A sum of a day can be used unless a bound of an interval divides the day. Then its records must still
// exist. Sums of end users may be those of whole months if records of the month were pruned.
func newReportTimes(q *manage.ReportQuery, starts []time.Time, pruned int64) (r reportTimes) {
	bounds := make([]int64, 0, len(starts)+1)
	for _, t := range append(starts, q.To) {
		bounds = append(bounds, ceilMicros(t))
	}
	r.from, r.steps = bounds[0], newSteps(bounds)
	to := bounds[len(bounds)-1]
	pruned = max(pruned, -maxMicros)
	var ok bool
	if r.kind, ok = sumsFor(q); !ok {
		r.startAt(pruned)
		r.records = appendRange(nil, timeRange{r.from, to})
		return r
	}
	for _, bound := range bounds {
		if end := r.lostUntil(bound, pruned); end > bound {
			r.startAt(end)
		}
	}
	next := r.from
	for _, bound := range bounds {
		day := timeRange{dayOf(bound), dayOf(bound) + dayMicros}
		if bound < r.from || bound == day.from {
			continue
		}
		r.days = appendRange(r.days, timeRange{next, min(day.from, to)})
		r.records = appendRange(r.records, timeRange{max(day.from, next), min(day.to, to)})
		next = max(next, day.to)
	}
	r.days = appendRange(r.days, timeRange{next, to})
	return r
}

// startAt drops what was used before m.
func (r *reportTimes) startAt(m int64) {
	if m > r.from {
		r.from, r.incomplete = m, true
	}
}

// lostUntil returns the end of what is not known around a bound, because neither sums nor records
// tell what was before the bound and what was after it.
func (r *reportTimes) lostUntil(bound, pruned int64) int64 {
	if r.kind == sumOfUser && bound < monthOf(pruned) && bound != monthOf(bound) {
		year, month, _ := fromMicros(bound).Date()
		return micros(time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC))
	}
	if day := dayOf(bound); day != bound && day < pruned {
		return day + dayMicros
	}
	return bound
}

// sumsOfAll returns the kind of sums that are enough for the total of what q selects, if sums are enough for
// q.
func sumsOfAll(q *manage.ReportQuery) (kind string) {
	total := *q
	total.By = manage.ByTotal
	kind, _ = sumsFor(&total)
	return kind
}

// sumsFor returns the kind of sums that are enough for q, unless its times need records. ok is false if
// none are.
func sumsFor(q *manage.ReportQuery) (kind string, ok bool) {
	byKey, byUser := q.KeyID != "" || q.By == manage.ByKey, q.User != "" || q.By == manage.ByUser
	switch {
	case q.Label.Name != "", q.By == manage.ByLabel, q.Operation != "", q.Target != "", q.Status != manage.StatusAny, byKey && byUser:
		return "", false
	case byKey:
		return sumOfKey, true
	case byUser:
		return sumOfUser, true
	case q.Account != "", q.By == manage.ByAccount:
		return sumOfAccount, true
	}
	return sumOfAll, true
}

// appendRange appends r to ranges unless it is empty. A range that touches the last one becomes a part of it.
func appendRange(ranges []timeRange, r timeRange) []timeRange {
	last := len(ranges) - 1
	switch {
	case r.from >= r.to:
		return ranges
	case last >= 0 && ranges[last].to >= r.from:
		ranges[last].to = max(ranges[last].to, r.to)
		return ranges
	}
	return append(ranges, r)
}

// newSteps returns the intervals between bounds.
func newSteps(bounds []int64) (steps []step) {
	for i, start := range bounds[:len(bounds)-1] {
		length := bounds[i+1] - start
		last := len(steps) - 1
		switch {
		case i > 0 && length > 0 && (steps[last].length == length || steps[last].length == 0 && bounds[i]-bounds[i-1] == length):
			steps[last].length = length
		case i == len(bounds)-2 && i > 0 && steps[last].length > length:
			// The end of the last interval divides nothing.
		default:
			steps = append(steps, step{start: start})
		}
	}
	return slices.Clip(steps)
}
