package manage

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// A ReportInterval divides the time of a report.
type ReportInterval string

// The intervals of a [ReportQuery].
const (
	NoInterval ReportInterval = "" // the whole time is one interval
	EveryHour  ReportInterval = "hour"
	EveryDay   ReportInterval = "day"
	EveryMonth ReportInterval = "month"
)

// MaxIntervals is the maximum number of intervals of a [ReportQuery].
const MaxIntervals = 10_000

// Intervals returns when the intervals of q begin, in order and in q.Location. The first one begins at
// From, in its own location if there is no Interval; the last one ends at To. There is none if From is
// not before To.
//
// Hours begin when minutes and seconds of the clock in q.Location are zero, and when the clock is
// changed. So the hour that is repeated in autumn is two intervals. Days and months begin when
// the clock shows their date first, which is not at midnight if that is skipped.
//
// The error tells that there are more than [MaxIntervals], or wraps [errors.ErrUnsupported] because
// there is no such Interval.
func (q *ReportQuery) Intervals() ([]time.Time, error) {
	var next func(t time.Time) time.Time
	switch q.Interval {
	case NoInterval:
		if !q.From.Before(q.To) {
			return nil, nil
		}
		return []time.Time{q.From}, nil
	case EveryHour:
		next = nextHour
	case EveryDay:
		next = func(t time.Time) time.Time {
			year, month, day := t.Date()
			return startOfDate(year, month, day+1, t.Location())
		}
	case EveryMonth:
		next = func(t time.Time) time.Time {
			year, month, _ := t.Date()
			return startOfDate(year, month+1, 1, t.Location())
		}
	default:
		return nil, fmt.Errorf("manage: usage cannot be divided by %q: %w", string(q.Interval), errors.ErrUnsupported)
	}
	var starts []time.Time
	// A wall clock has no monotonic reading.
	for t := q.From.Round(0).In(cmp.Or(q.Location, time.UTC)); t.Before(q.To); t = next(t) {
		if len(starts) == MaxIntervals {
			return nil, fmt.Errorf("manage: from %s to %s there are more than %d intervals of one %s",
				q.From.Format(time.RFC3339), q.To.Format(time.RFC3339), MaxIntervals, q.Interval)
		}
		starts = append(starts, t)
	}
	return starts, nil
}

// nextHour returns when the hour begins that follows the one of t.
func nextHour(t time.Time) time.Time {
	const hour = 3600
	_, offset := t.Zone()
	local := t.Unix() + int64(offset)
	next := time.Unix(t.Unix()-((local%hour)+hour)%hour+hour, 0).In(t.Location())
	if _, change := t.ZoneBounds(); !change.IsZero() && change.Before(next) {
		return change
	}
	return next
}

// startOfDate returns the first time at which the clock in a location shows a date or a later one. day
// and month may be outside their usual ranges, as those of [time.Date].
func startOfDate(year int, month time.Month, day int, loc *time.Location) time.Time {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() // as the clock shows it
	// No clock differs from UTC by more than 26 hours.
	for t := time.Unix(midnight, 0).Add(-26 * time.Hour).In(loc); ; {
		_, offset := t.Zone()
		start, end := t.ZoneBounds()
		first := time.Unix(midnight-int64(offset), 0).In(loc)
		if first.Before(start) {
			first = start
		}
		if end.IsZero() || first.Before(end) {
			return first
		}
		t = end
	}
}
