package lend_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp/internal/lend"
)

type backend struct{ lend.Borrower }

func newBackend() *backend {
	b := new(backend)
	b.Borrower = lend.NewBorrower(b)
	return b
}

// What wraps a Borrower is none, however it does so.
func TestBorrows(t *testing.T) {
	b := newBackend()
	c := *b
	for name, test := range map[string]struct {
		backend any
		want    bool
	}{
		"itself":            {b, true},
		"nothing":           {nil, false},
		"another":           {new(int), false},
		"not declared":      {new(backend), false},
		"a copy":            {&c, false},
		"embedded":          {struct{ *backend }{b}, false},
		"embedded, by":      {&struct{ *backend }{b}, false},
		"by its interface":  {struct{ lend.Borrower }{b.Borrower}, false},
		"embedded, and nil": {struct{ *backend }{}, false},
		"not to be compared": {struct {
			*backend
			list []int
		}{b, nil}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, lend.Borrows(test.backend)) })
	}
}

func TestMemory(t *testing.T) {
	back := 0
	m := lend.New(func() { back++ })
	assert.True(t, m.Hold())
	m.Release()
	assert.True(t, m.Hold(), "it is held still")
	m.Release()
	assert.Zero(t, back)
	m.Release()
	assert.Equal(t, 1, back)
	assert.False(t, m.Hold(), "it was given back")
	assert.Panics(t, m.Release)
	assert.False(t, m.Hold())
	assert.Equal(t, 1, back)
}

func TestNobodysMemory(t *testing.T) {
	m := lend.From(context.Background())
	assert.Nil(t, m)
	assert.True(t, m.Hold())
	m.Release()
	ctx := context.WithValue(context.Background(), lend.Key{}, lend.New(func() {}))
	assert.NotNil(t, lend.From(ctx))
}

// Memory comes back once, when the last has let go, however many there are.
func TestMemoryOfMany(t *testing.T) {
	for range 200 {
		var mu sync.Mutex
		holding, back := 1, 0
		m := lend.New(func() {
			mu.Lock()
			defer mu.Unlock()
			back++
			assert.Zero(t, holding)
		})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if !m.Hold() {
					return
				}
				mu.Lock()
				holding++
				mu.Unlock()
				mu.Lock()
				holding--
				mu.Unlock()
				m.Release()
			})
		}
		mu.Lock()
		holding--
		mu.Unlock()
		m.Release()
		wg.Wait()
		assert.Equal(t, 1, back)
	}
}
