package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// Short names for the signatures of mutants.
type (
	usageRecord = llmhttp.UsageRecord
	usageQuery  = llmhttp.UsageQuery
	usageSum    = llmhttp.UsageSum
)

// A usageList is a simple correct UsageStore. Mutants replace its functions.
type usageList struct {
	mu      sync.Mutex
	records []usageRecord   // guarded by mu, as is ids
	ids     map[string]bool // of records

	id     func(r *usageRecord) string                    // records with equal results are duplicates
	save   func(r *usageRecord)                           // changes what is stored
	ask    func(q *usageQuery)                            // changes the query
	answer func(q usageQuery, sums []usageSum) []usageSum // changes the result
	record recordFunc                                     // replaces store
	query  queryFunc                                      // replaces find
}

type (
	recordFunc func(l *usageList, ctx context.Context, records []usageRecord) error
	queryFunc  func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error)
)

func (l *usageList) Record(ctx context.Context, records ...usageRecord) error {
	return l.record(l, ctx, records)
}

func (l *usageList) Query(ctx context.Context, q usageQuery) ([]usageSum, error) {
	return l.query(l, ctx, q)
}

func (l *usageList) store(_ context.Context, records []usageRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		l.save(&r)
		if !l.has(r) {
			l.append(r)
		}
	}
	return nil
}

// storeOne is store for one record.
func (l *usageList) storeOne(r usageRecord) { _ = l.store(context.Background(), []usageRecord{r}) }

// add stores records without looking for duplicates.
func (l *usageList) add(records []usageRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.append(records...)
	return nil
}

// fresh returns those of records that are not stored.
func (l *usageList) fresh(records []usageRecord) []usageRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(records), l.has)
}

// has reports whether r is a duplicate. l.mu must be locked.
func (l *usageList) has(r usageRecord) bool { return l.ids[l.id(&r)] }

// append is add with l.mu locked.
func (l *usageList) append(records ...usageRecord) {
	for _, r := range records {
		l.records = append(l.records, r)
		l.ids[l.id(&r)] = true
	}
}

func (l *usageList) find(_ context.Context, q usageQuery) ([]usageSum, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask(&q)
	return l.answer(q, sumRecords(q, l.records)), nil
}

// usageFixture returns a constructor of a usageList with a fault.
func usageFixture(fault func(*usageList)) func(testing.TB) usageTest {
	return func(testing.TB) usageTest {
		l := &usageList{
			ids:    map[string]bool{},
			id:     func(r *usageRecord) string { return r.ID },
			save:   func(*usageRecord) {},
			ask:    func(*usageQuery) {},
			answer: func(_ usageQuery, sums []usageSum) []usageSum { return sums },
			record: (*usageList).store,
			query:  (*usageList).find,
		}
		fault(l)
		return usageTest{l, kit.Unique("account")}
	}
}

// storing returns a constructor of a store that changes the records it stores.
func storing(change func(r *usageRecord)) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.save = change })
}

// asking returns a constructor of a store that changes queries.
func asking(change func(q *usageQuery)) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.ask = change })
}

// answering returns a constructor of a store that changes the results of
// queries.
func answering(change func(q usageQuery, sums []usageSum) []usageSum) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.answer = change })
}

// startingAt returns a constructor of a store that changes the starts of
// periods.
func startingAt(change func(q usageQuery, start time.Time) time.Time) func(testing.TB) usageTest {
	return answering(func(q usageQuery, sums []usageSum) []usageSum {
		for i := range sums {
			sums[i].Start = change(q, sums[i].Start)
		}
		return sums
	})
}

// identifying returns a constructor of a store that compares other fields to find
// duplicates.
func identifying(id func(r *usageRecord) string) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.id = id })
}

// recording returns a constructor of a store with another Record.
func recording(f recordFunc) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.record = f })
}

// skipping returns a constructor of a store that does not store some records.
func skipping(skip func(r usageRecord) bool) func(testing.TB) usageTest {
	return recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		return l.store(ctx, slices.DeleteFunc(slices.Clone(rs), skip))
	})
}

// querying returns a constructor of a store with another Query.
func querying(f queryFunc) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) { l.query = f })
}

// A usageKeeper is a UsageStore that keeps the slices it is passed.
type usageKeeper struct{ batches [][]usageRecord }

func (k *usageKeeper) Record(_ context.Context, records ...usageRecord) error {
	k.batches = append(k.batches, records)
	return nil
}

func (k *usageKeeper) Query(_ context.Context, q usageQuery) ([]usageSum, error) {
	return sumRecords(q, slices.Concat(k.batches...)), nil
}

// wallClock returns the time in UTC with the same date and time of day that t has in its
// time zone.
func wallClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}
