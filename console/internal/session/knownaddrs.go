// The addresses and browsers from which administrators have signed in.

package session

import (
	"sync"
	"time"
)

// knownFor is how long addresses and browsers are known.
const knownFor = 30 * 24 * time.Hour

const maxKnownAddrs = 10_000

// knownAddrs remembers from which addresses administrators have used the console. The
// zero value is ready to use.
type knownAddrs struct {
	mu   sync.Mutex // guards last
	last map[knownAddr]time.Time
}

// A knownAddr is an address from which the administrator with that name has signed in.
type knownAddr struct{ name, addr string }

// add remembers that the administrator has used the console from addr.
func (k *knownAddrs) add(name, addr string, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		k.last = make(map[knownAddr]time.Time)
	}
	known := knownAddr{name, addr}
	if _, ok := k.last[known]; !ok && len(k.last) >= maxKnownAddrs {
		k.deleteOldest()
	}
	k.last[known] = now
}

// deleteOldest deletes the address that was not used for the longest time. The caller
// holds mu.
func (k *knownAddrs) deleteOldest() {
	var oldest knownAddr
	for known, at := range k.last {
		if oldest == (knownAddr{}) || at.Before(k.last[oldest]) {
			oldest = known
		}
	}
	delete(k.last, oldest)
}

// has reports whether the administrator has used the console from addr lately.
func (k *knownAddrs) has(name, addr string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.last[knownAddr{name, addr}]
	return ok && now.Sub(at) < knownFor
}
