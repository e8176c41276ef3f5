package llmhttptest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/llmhttp/llmhttp"
)

// A usageList is a UsageStore in its plainest form, with places for faults.
type usageList struct {
	mu      sync.Mutex
	records []llmhttp.UsageRecord

	key    func(r *llmhttp.UsageRecord) string                                          // of records that are the same
	keep   func(r *llmhttp.UsageRecord)                                                 // changes what is stored
	ask    func(q *llmhttp.UsageQuery)                                                  // changes what is asked
	answer func(q llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum       // changes what is answered
	record func(l *usageList, ctx context.Context, records []llmhttp.UsageRecord) error // instead
	query  func(l *usageList, ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error)
}

func (l *usageList) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	if l.record != nil {
		return l.record(l, ctx, records)
	}
	return l.store(records)
}

func (l *usageList) store(records []llmhttp.UsageRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		l.keep(&r)
		if !l.has(&r) {
			l.records = append(l.records, r)
		}
	}
	return nil
}

func (l *usageList) has(r *llmhttp.UsageRecord) bool {
	key := l.key(r)
	for i := range l.records {
		if l.key(&l.records[i]) == key {
			return true
		}
	}
	return false
}

func (l *usageList) holds(r llmhttp.UsageRecord) bool { return l.has(&r) }

func (l *usageList) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	if l.query != nil {
		return l.query(l, ctx, q)
	}
	return l.find(q)
}

func (l *usageList) find(q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask(&q)
	return l.answer(q, addUp(q, l.records)), nil
}

// usageFixture returns a usageList with a fault.
func usageFixture(fault func(*usageList)) func(testing.TB) usageTest {
	return func(testing.TB) usageTest {
		l := &usageList{
			key:    func(r *llmhttp.UsageRecord) string { return r.ID },
			keep:   func(*llmhttp.UsageRecord) {},
			ask:    func(*llmhttp.UsageQuery) {},
			answer: func(_ llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum { return sums },
		}
		fault(l)
		return usageTest{l, unique("account")}
	}
}

// stores is the fault of a store that changes records.
func stores(change func(r *llmhttp.UsageRecord)) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.keep = change })
}

// asks is the fault of a store that misunderstands queries.
func asks(change func(q *llmhttp.UsageQuery)) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.ask = change })
}

// answers is the fault of a store that answers something else.
func answers(change func(q llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.answer = change })
}

// same is the fault of a store that takes some IDs for others.
func same(key func(r *llmhttp.UsageRecord) string) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.key = key })
}

// records is the fault of a store that records in its own way.
func records(record func(l *usageList, ctx context.Context, records []llmhttp.UsageRecord) error) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.record = record })
}

// A usageKeeper keeps references to what it is passed.
type usageKeeper struct{ batches [][]llmhttp.UsageRecord }

func (k *usageKeeper) Record(_ context.Context, records ...llmhttp.UsageRecord) error {
	k.batches = append(k.batches, records)
	return nil
}

func (k *usageKeeper) Query(_ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return addUp(q, slices.Concat(k.batches...)), nil
}
