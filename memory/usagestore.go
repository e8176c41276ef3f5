// UsageStore and its entries.

package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/claims"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/quotawatch"
)

// A UsageStore is a [manage.UsageReporter] in memory. The zero value is an empty store. Its methods
// are safe for concurrent use, and fail only for queries that it does not support. It can sum for
// subjects of all kinds, and of what records have beside their units and cost it keeps the account,
// key, subjects, end user, labels, operation, model, target, error class and time.
//
// The store is bounded. It keeps at most 65536 entries. A record is an entry at first.
// When the store is full, it adds up the older half by account, key, subjects, model and hour;
// such an entry has the time at which its hour began, and nothing else, so that reports that need more
// lack the older half. If this leaves the store more than three quarters full, it
// drops the older half, which then is missing in all sums.
//
// For queries about end users, it keeps at most 65536 further entries. When these are too many,
// it adds up the older half by user, model and hour, and if that is not enough by calendar month
// in UTC. Such an entry has the time of its last use, so that a [llmhttp.Quota] of an end
// user counts it rather too long than too short. If this is not enough either, it forgets the
// users whose last use is the longest time ago, until three quarters are left, and logs that with
// [slog.Warn]: their quotas begin anew. So it is for some 50,000 end users in a month. Stores in
// databases have no such bound.
//
// A record is skipped if its ID is among the last 32768 that were stored, and may
// be skipped if it is among the last 65536.
type UsageStore struct {
	mu       sync.Mutex                          // guards the fields below
	accounts map[string]map[usageSource]*[]entry // entries by account, in any order
	count    int                                 // number of all entries
	reduced  time.Time                           // entries from before it may add up an hour
	dropped  time.Time                           // entries from before it may be missing
	users    userSums
	events   claims.Set // has a mutex of its own
	seed     maphash.Seed
	ids      [2]map[uint64]struct{} // hashes of the IDs of stored records: the newer ones, and those before
}

// A usageSource is what entries have in common. subjects is the result of encodeSubjects, and
// labels that of encodeLabels. Entries that add up an hour have only a key, a model and subjects.
type usageSource struct {
	keyID, model, subjects, user, labels, target string

	operation  llmhttp.Operation
	errorClass llmhttp.ErrorClass
}

// encodeSubjects returns subjects as a text: a line break, and then each as appendSubject does.
// It is empty if there are none.
func encodeSubjects(subjects []llmhttp.SubjectID) string {
	if len(subjects) == 0 {
		return ""
	}
	b := []byte{'\n'}
	for _, s := range subjects {
		b = appendSubject(b, s)
	}
	return string(b)
}

// appendSubject appends a line for s. A quoted text has no line break, so that a text of several
// lines contains a line break and this line only if s is one of them.
func appendSubject(b []byte, s llmhttp.SubjectID) []byte {
	b = append(strconv.AppendQuote(b, s.Kind), ' ')
	return append(strconv.AppendQuote(b, s.ID), '\n')
}

// selects returns a function that reports whether entries of a source count toward subject, or
// an error if the store cannot tell. The account of the entries is given.
func selects(subject llmhttp.SubjectID, account string) (func(usageSource) bool, error) {
	switch {
	case subject == llmhttp.SubjectID{}:
		return func(usageSource) bool { return true }, nil
	case subject.Kind == llmhttp.KindKey:
		return func(s usageSource) bool { return s.keyID == subject.ID }, nil
	case subject.Kind == llmhttp.KindAccount:
		return func(usageSource) bool { return subject.ID == account }, nil
	case subject.Kind == "":
		return nil, fmt.Errorf("memory: cannot sum the usage of a %q: %w", subject.Kind, errors.ErrUnsupported)
	}
	line := encodeSubjects([]llmhttp.SubjectID{subject})
	return func(s usageSource) bool { return strings.Contains(s.subjects, line) }, nil
}

// An entry is a UsageSum without a model, of at most one lifetime of cache writes: a sum with several
// has further entries with nothing else. It has no pointers, so that the garbage collector
// does not look at the entries; see the budget "whole 0.5 KB: CPU, of bare" in
// docs/performance.md.
type entry struct {
	seconds, nanoseconds int64 // of Start, since 1970
	requests, unpriced   int64
	units                [numUnits]int64 // in the order of Units.All
	lifetime             time.Duration   // zero for none
	written              int64           // for lifetime
	cost                 llmhttp.Cost
}

const numUnits = 12

// appendEntries appends the entries of s.
func appendEntries(entries []entry, s *llmhttp.UsageSum) []entry {
	e := entry{seconds: s.Start.Unix(), nanoseconds: int64(s.Start.Nanosecond()), requests: s.Requests, unpriced: s.Unpriced, cost: s.Cost}
	i := 0
	for _, n := range s.Units.All() {
		e.units[i] = *n
		i++
	}
	for lifetime, n := range s.Units.CacheWrites.All() {
		if e.lifetime != 0 {
			entries = append(entries, e)
			e = entry{seconds: e.seconds, nanoseconds: e.nanoseconds}
		}
		e.lifetime, e.written = lifetime, n
	}
	return append(entries, e)
}

func (e *entry) start() time.Time { return time.Unix(e.seconds, e.nanoseconds).UTC() }

func (e *entry) sum() llmhttp.UsageSum {
	s := llmhttp.UsageSum{Start: e.start(), Requests: e.requests, Unpriced: e.unpriced, Cost: e.cost}
	i := 0
	for _, n := range s.Units.All() {
		*n = e.units[i]
		i++
	}
	if e.lifetime != 0 {
		s.Units.CacheWrites = llm.CacheWrites{e.lifetime: e.written}
	}
	return s
}

var (
	_ manage.UsageReporter  = (*UsageStore)(nil)
	_ quotawatch.EventStore = (*UsageStore)(nil)
)

// NewUsageStore returns an empty UsageStore.
func NewUsageStore() *UsageStore { return &UsageStore{} }

const (
	maxEntries = 1 << 16
	maxIDs     = 1 << 15 // in each of UsageStore.ids
)

// Record implements [llmhttp.UsageStore].
func (u *UsageStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.accounts == nil {
		u.accounts = make(map[string]map[usageSource]*[]entry)
		u.seed = maphash.MakeSeed()
		u.ids = [2]map[uint64]struct{}{make(map[uint64]struct{}), make(map[uint64]struct{})}
	}
	for i := range records {
		if u.addID(records[i].ID) {
			u.addEntry(&records[i])
			if records[i].User != "" {
				u.users.add(&records[i])
			}
		}
	}
	return nil
}

// addEntry adds an entry for r. The caller holds mu.
func (u *UsageStore) addEntry(r *llmhttp.UsageRecord) {
	sources := u.accounts[r.Account]
	if sources == nil {
		sources = make(map[usageSource]*[]entry)
		u.accounts[r.Account] = sources
	}
	source := usageSource{
		keyID: r.KeyID, model: r.Model, subjects: encodeSubjects(r.Subjects), user: r.User, labels: encodeLabels(r.Labels),
		target: r.Target, operation: r.Operation, errorClass: r.ErrorClass,
	}
	entries := sources[source]
	if entries == nil {
		entries = new([]entry)
		// These may refer to the memory of a request's body.
		source.model, source.user = strings.Clone(r.Model), strings.Clone(r.User)
		sources[source] = entries
	}
	before, sum := len(*entries), r.Sum()
	*entries = appendEntries(*entries, &sum)
	if u.count += len(*entries) - before; u.count > maxEntries {
		u.compact()
	}
}

// addID adds id to ids. It reports whether id is new. The caller holds mu.
func (u *UsageStore) addID(id string) bool {
	hash := maphash.String(u.seed, id) // an ID may have any length
	newer, older := u.ids[0], u.ids[1]
	if _, ok := older[hash]; ok {
		return false
	}
	count := len(newer)
	if newer[hash] = struct{}{}; len(newer) == count {
		return false
	}
	if len(newer) == maxIDs {
		clear(older)
		u.ids = [2]map[uint64]struct{}{older, newer}
	}
	return true
}

// Query implements [llmhttp.UsageStore].
func (u *UsageStore) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	if q.Subject.Kind == llmhttp.KindUser {
		return u.queryUser(&q), nil
	}
	isSelected, err := selects(q.Subject, q.Account)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var periods usageAdder
	for source, entries := range u.accounts[q.Account] {
		if !isSelected(source) {
			continue
		}
		for e := range sumsBetween(*entries, q.From, q.To) {
			periods.add(q.PeriodStart(e.Start), source.model, e)
		}
	}
	return periods.sorted(), nil
}

// queryUser is Query for an end user.
func (u *UsageStore) queryUser(q *llmhttp.UsageQuery) []llmhttp.UsageSum {
	u.mu.Lock()
	defer u.mu.Unlock()
	var periods usageAdder
	u.users.query(q, &periods)
	return periods.sorted()
}

// ClaimQuotaEvent implements [quotawatch.EventStore]. The store remembers 65536 events. Of more,
// it forgets those first whose period ends first.
func (u *UsageStore) ClaimQuotaEvent(
	ctx context.Context,
	id string,
	lease time.Duration,
	keep time.Time,
) (claimed bool, wait time.Duration, err error) {
	claimed, wait = u.events.Claim(id, time.Now(), lease, keep)
	return claimed, wait, nil
}

// EndQuotaEvent implements [quotawatch.EventStore].
func (u *UsageStore) EndQuotaEvent(ctx context.Context, id string, handled bool) error {
	u.events.End(id, handled)
	return nil
}

// sumsBetween returns the entries whose start is not before from, and before to. The
// pointers are valid until the next entry.
func sumsBetween(entries []entry, from, to time.Time) iter.Seq[*llmhttp.UsageSum] {
	return func(yield func(*llmhttp.UsageSum) bool) {
		var sum llmhttp.UsageSum // one for all entries, of which there may be many
		for i := range entries {
			start := entries[i].start()
			if start.Before(from) || !start.Before(to) {
				continue
			}
			if sum = entries[i].sum(); !yield(&sum) {
				return
			}
		}
	}
}

// compact reduces the entries to at most three quarters of maxEntries. The caller
// holds mu.
func (u *UsageStore) compact() {
	times := make([]time.Time, 0, u.count)
	for _, sources := range u.accounts {
		for _, entries := range sources {
			for i := range *entries {
				times = append(times, (*entries)[i].start())
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	median := times[len(times)/2]

	if end := median.Add(1); end.After(u.reduced) {
		u.reduced = end
	}
	u.addUpHours(median)
	if u.count <= maxEntries/4*3 {
		return
	}
	u.dropped = u.reduced
	u.deleteUntil(median, func(string, usageSource, *llmhttp.UsageSum) {})
}

// addUpHours replaces the entries until a time, inclusive, by one for each key, model, list of subjects
// and hour. The caller holds mu.
func (u *UsageStore) addUpHours(until time.Time) {
	type target struct {
		account string
		usageSource
	}
	hours := make(map[target]*usageAdder)
	u.deleteUntil(until, func(account string, s usageSource, sum *llmhttp.UsageSum) {
		s = usageSource{keyID: s.keyID, model: s.model, subjects: s.subjects}
		t := target{account, s}
		if hours[t] == nil {
			hours[t] = new(usageAdder)
		}
		hour := sum.Start.Truncate(time.Hour)
		if hour.Before(u.dropped) && !sum.Start.Before(u.dropped) {
			hour = u.dropped // reports begin there
		}
		hours[t].add(hour, "", sum)
	})
	for t, added := range hours {
		sources := u.accounts[t.account]
		if sources == nil {
			sources = make(map[usageSource]*[]entry)
			u.accounts[t.account] = sources
		}
		entries := sources[t.usageSource]
		if entries == nil {
			entries = new([]entry)
			sources[t.usageSource] = entries
		}
		before := len(*entries)
		for i := range added.sums {
			*entries = appendEntries(*entries, &added.sums[i])
		}
		u.count += len(*entries) - before
	}
}

// deleteUntil deletes the entries until a time, inclusive, and calls f for each of them. It
// drops sources and accounts that are left without entries. The caller holds mu.
func (u *UsageStore) deleteUntil(until time.Time, f func(string, usageSource, *llmhttp.UsageSum)) {
	u.count = 0
	for account, sources := range u.accounts {
		for source, entries := range sources {
			*entries = slices.DeleteFunc(*entries, func(e entry) bool {
				if e.start().After(until) {
					return false
				}
				sum := e.sum()
				f(account, source, &sum)
				return true
			})
			if len(*entries) == 0 {
				delete(sources, source)
			}
			u.count += len(*entries)
		}
		if len(sources) == 0 {
			delete(u.accounts, account)
		}
	}
}

// A usageAdder adds up entries by period and model. Its zero value is ready to use.
type usageAdder struct {
	sums    []llmhttp.UsageSum
	indices map[usagePeriod]int // index in sums
}

type usagePeriod struct {
	start time.Time
	model string
}

// add adds e to the sum of a model in the period that begins at start. All starts must
// have the same location.
func (a *usageAdder) add(start time.Time, model string, e *llmhttp.UsageSum) {
	p := usagePeriod{start.UTC(), model}
	i, ok := a.indices[p]
	if !ok {
		if a.indices == nil {
			a.indices = make(map[usagePeriod]int)
		}
		i = len(a.sums)
		a.indices[p] = i
		a.sums = append(a.sums, llmhttp.UsageSum{Start: start, Model: model})
	}
	a.sums[i].Add(*e)
}

// sorted returns the sums in the order that a [llmhttp.UsageStore] promises.
func (a *usageAdder) sorted() []llmhttp.UsageSum {
	slices.SortFunc(a.sums, func(a, b llmhttp.UsageSum) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Model, b.Model))
	})
	return a.sums
}
