// Package outage keeps an outage from filling a log.
package outage

import (
	"sync"
	"time"
)

// interval is the time between two lines that a Log allows for a store.
const interval = 10 * time.Second

// A Log keeps an outage of a store from filling the log of a server: each request would add a line or two. The
// zero Log is ready to use. Its methods may be called concurrently. A nil Log allows every line.
type Log struct {
	mu      sync.Mutex // guards the field below
	outages map[string]*outage
}

// An outage is what the log has of the failures of a store.
type outage struct {
	next    time.Time // when the next failure is logged
	skipped int       // failures since the last that was logged
}

// Allow reports whether a failure of a store is logged, and how many were not since the last one.
func (l *Log) Allow(store string) (skipped int, ok bool) {
	if l == nil {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.outages[store]
	if o == nil {
		if l.outages == nil {
			l.outages = make(map[string]*outage)
		}
		o = new(outage)
		l.outages[store] = o
	}
	now := time.Now()
	if now.Before(o.next) {
		o.skipped++
		return 0, false
	}
	skipped = o.skipped
	o.next, o.skipped = now.Add(interval), 0
	return skipped, true
}
