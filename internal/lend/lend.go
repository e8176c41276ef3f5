// Package lend lets a Handler have back the memory of a request that it has
// passed to a Backend of this module.
//
// A Backend may keep what it gets, so that memory is the garbage collector's
// afterwards. Those here that only pass a request on keep nothing, and say so
// by being a [Borrower].
package lend

import (
	"context"
	"sync/atomic"
)

// A Borrower is embedded by a Backend that keeps no text of a request, and
// reads none after it has yielded the first chunk, unless it holds the
// [Memory]. Nobody but the Backend itself is one: whatever embeds that in turn,
// and may keep what it likes, is not.
type Borrower struct{ self any }

// NewBorrower returns what self, a pointer, is to embed.
func NewBorrower(self any) Borrower { return Borrower{self} }

func (b Borrower) borrower() any { return b.self }

// Borrows reports whether backend is a Borrower.
func Borrows(backend any) (is bool) {
	b, ok := backend.(interface{ borrower() any })
	if !ok {
		return false
	}
	defer func() {
		if recover() != nil {
			is = false // what it embeds is a nil pointer
		}
	}()
	return b.borrower() == backend
}

// A Memory is lent until all who hold it have let go. A nil Memory is nobody's.
type Memory struct {
	holders atomic.Int32
	back    func()
}

// New returns a Memory that is held once. When the last has let go of it, back
// is called, on their goroutine.
func New(back func()) *Memory {
	m := &Memory{back: back}
	m.holders.Store(1)
	return m
}

// Hold keeps m until one more [Memory.Release]. It reports false if m was given
// back already.
func (m *Memory) Hold() bool {
	if m == nil {
		return true
	}
	for {
		n := m.holders.Load()
		if n <= 0 {
			return false
		}
		if m.holders.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release lets go of m. It panics if nobody held it.
func (m *Memory) Release() {
	if m == nil {
		return
	}
	switch n := m.holders.Add(-1); {
	case n == 0:
		m.back()
	case n < 0:
		panic("lend: memory is released that nobody holds")
	}
}

// Key is the key of a context's value that is the [Memory] of its request.
type Key struct{}

// From returns the Memory of the request that ctx is the context of, or nil.
func From(ctx context.Context) *Memory {
	m, _ := ctx.Value(Key{}).(*Memory)
	return m
}
