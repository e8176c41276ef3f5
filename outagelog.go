package llmhttp

import (
	"slices"
	"sync"
	"time"
)

// outageInterval is the time between two lines that an outageLog allows for a store.
const outageInterval = 10 * time.Second

// outageClasses are the classes of errors of stores that fail each request while they are away.
var outageClasses = []ErrorClass{ClassKeyStore, ClassLimiter, ClassUsageStore}

// An outageLog keeps an outage of a store from filling the log of a Handler: each request would add a
// line or two. Its methods may be called concurrently. A nil outageLog allows every line.
type outageLog struct {
	mu      sync.Mutex // guards the field below
	outages map[ErrorClass]*outage
}

// An outage is what the log has of the failures of a store.
type outage struct {
	next    time.Time // when the next failure is logged
	skipped int       // failures since the last that was logged
}

// allow reports whether a failure of a class is logged, and how many were not since the last one.
func (l *outageLog) allow(class ErrorClass) (skipped int, ok bool) {
	if l == nil || !slices.Contains(outageClasses, class) {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.outages[class]
	if o == nil {
		if l.outages == nil {
			l.outages = make(map[ErrorClass]*outage)
		}
		o = new(outage)
		l.outages[class] = o
	}
	now := time.Now()
	if now.Before(o.next) {
		o.skipped++
		return 0, false
	}
	skipped = o.skipped
	o.next, o.skipped = now.Add(outageInterval), 0
	return skipped, true
}
