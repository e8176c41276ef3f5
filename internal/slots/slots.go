// Package slots counts what is in use at a time, such as requests in progress, against limits.
package slots

import "sync"

// A Slot is an Amount of what K may have in use at a time: at most Limit.
type Slot[K comparable] struct {
	Key           K
	Amount, Limit int64
}

// A Table has what each K has in use, in memory. The zero value has nothing in use. Its methods may be
// called concurrently.
type Table[K comparable] struct {
	mu    sync.Mutex // guards inUse
	inUse map[K]int64
}

// Acquire takes all of wanted, and returns a function that gives them back and must be called once. If
// one has less than its Amount left, it takes none, and returns nil and the index of that one. No two may
// have the same Key. Acquire retains wanted.
func (t *Table[K]) Acquire(wanted ...Slot[K]) (release func(), full int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, s := range wanted {
		if s.Limit < s.Amount || t.inUse[s.Key] > s.Limit-s.Amount {
			return nil, i
		}
	}
	if t.inUse == nil {
		t.inUse = make(map[K]int64)
	}
	for _, s := range wanted {
		t.inUse[s.Key] += s.Amount
	}
	return func() { t.release(wanted) }, 0
}

// Len returns how many keys have something in use.
func (t *Table[K]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.inUse)
}

func (t *Table[K]) release(held []Slot[K]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range held {
		if t.inUse[s.Key] -= s.Amount; t.inUse[s.Key] <= 0 {
			delete(t.inUse, s.Key)
		}
	}
}
