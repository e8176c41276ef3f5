package memory

import (
	"cmp"
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A UsageStore is a [llmhttp.UsageStore] in memory. The zero value is ready to use,
// and so is what [NewUsageStore] returns; its methods are safe for concurrent use,
// and never fail.
//
// Its memory is bounded. It keeps about 64 MiB of usage, which is a million
// requests, to the nanosecond. When there is more, the older half is added up
// by account, model and hour, and counts as used when the hour began. If that
// does not make room, for which it takes years or a great many models, the
// older half is forgotten.
//
// A record is skipped if its ID is among the last 131072 that were stored, and
// may be if it is among the last 262144. Names of models are kept to 1 KiB.
type UsageStore struct {
	mu      sync.Mutex
	ids     idSet
	ledgers map[string]*ledger // by account
	size    int                // in bytes, about
	limit   int                // of size; 0 means maxUsage
}

var _ llmhttp.UsageStore = (*UsageStore)(nil)

// NewUsageStore returns a new Usage.
func NewUsageStore() *UsageStore { return &UsageStore{} }

const (
	maxUsage = 64 << 20
	maxModel = 1 << 10

	entrySize = 56  // of an entry, in bytes
	nameSize  = 128 // what a name takes beside its bytes
)

// A ledger is what one account used.
type ledger struct {
	models   []string
	indices  map[string]uint32 // of models
	entries  []entry
	unsorted bool // whether entries are not in the order of their times
}

// An entry is what one request used, or several. It has no pointers, so that
// the garbage collector need not look at a million of them.
type entry struct {
	second     int64 // Unix time: nanoseconds would not last for every time.Time
	nano       uint32
	model      uint32 // its index
	requests   int64
	prompt     int64
	completion int64
	images     int64
}

func compareTimes(a, b entry) int {
	return cmp.Or(cmp.Compare(a.second, b.second), cmp.Compare(a.nano, b.nano))
}

// isBefore reports whether e was before t.
func (e *entry) isBefore(t time.Time) bool {
	s := t.Unix()
	return e.second < s || e.second == s && int64(e.nano) < int64(t.Nanosecond())
}

// add adds what other says was used. Sums beyond what an int64 holds stay at
// the greatest or least it does.
func (e *entry) add(other *entry) {
	e.requests = sum(e.requests, other.requests)
	e.prompt = sum(e.prompt, other.prompt)
	e.completion = sum(e.completion, other.completion)
	e.images = sum(e.images, other.images)
}

func sum(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// Record implements [llmhttp.UsageStore].
func (u *UsageStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range records {
		r := &records[i]
		if !u.ids.add(r.ID) {
			continue
		}
		l := u.ledgers[r.Account]
		if l == nil {
			l = u.open(r.Account)
		}
		u.size += l.add(r.Model, entry{
			second:     r.Time.Unix(),
			nano:       uint32(r.Time.Nanosecond()),
			requests:   1,
			prompt:     int64(r.Usage.PromptTokens),
			completion: int64(r.Usage.CompletionTokens),
			images:     int64(r.Images),
		})
		if u.size > cmp.Or(u.limit, maxUsage) {
			u.compact()
		}
	}
	return nil
}

func (u *UsageStore) open(account string) *ledger {
	if u.ledgers == nil {
		u.ledgers = make(map[string]*ledger)
	}
	l := &ledger{indices: make(map[string]uint32)}
	u.ledgers[strings.Clone(account)] = l
	u.size += nameSize + len(account)
	return l
}

// add adds an entry, and returns how many bytes that takes.
func (l *ledger) add(model string, e entry) int {
	size := entrySize
	if len(model) > maxModel {
		model = model[:maxModel]
	}
	index, ok := l.indices[model]
	if !ok {
		model = strings.Clone(model) // it may be part of a whole request
		index = uint32(len(l.models))
		l.models = append(l.models, model)
		l.indices[model] = index
		size += nameSize + len(model)
	}
	e.model = index
	if n := len(l.entries); n > 0 && compareTimes(e, l.entries[n-1]) < 0 {
		l.unsorted = true
	}
	l.entries = append(l.entries, e)
	return size
}

func (l *ledger) sort() {
	if l.unsorted {
		slices.SortStableFunc(l.entries, compareTimes)
		l.unsorted = false
	}
}

// Query implements [llmhttp.UsageStore].
func (u *UsageStore) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.ledgers[q.Account]
	if l == nil || !q.From.Before(q.To) {
		return nil, nil
	}
	l.sort()
	search := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(l.entries, t, func(e entry, t time.Time) int {
			if e.isBefore(t) {
				return -1
			}
			return 1
		})
		return i
	}
	var sums []llmhttp.UsageSum
	for entries := l.entries[search(q.From):search(q.To)]; len(entries) > 0; {
		start, n := q.From, len(entries)
		if q.Step > 0 {
			start = periodOf(time.Unix(entries[0].second, int64(entries[0].nano)), q.From, q.Step)
			if end := start.Add(q.Step); end.After(start) { // not beyond what a time.Time holds
				if i := slices.IndexFunc(entries, func(e entry) bool { return !e.isBefore(end) }); i >= 0 {
					n = i
				}
			}
		}
		sums = append(sums, l.sum(start, entries[:n])...)
		entries = entries[n:]
	}
	return sums, nil
}

// sum returns the sums of entries of one period, by model.
func (l *ledger) sum(start time.Time, entries []entry) []llmhttp.UsageSum {
	totals := make(map[uint32]*entry)
	for i := range entries {
		e := &entries[i]
		if total := totals[e.model]; total != nil {
			total.add(e)
		} else {
			first := *e
			totals[e.model] = &first
		}
	}
	sums := make([]llmhttp.UsageSum, 0, len(totals))
	for model, e := range totals {
		sums = append(sums, llmhttp.UsageSum{
			Start:            start,
			Model:            l.models[model],
			Requests:         e.requests,
			PromptTokens:     e.prompt,
			CompletionTokens: e.completion,
			Images:           e.images,
		})
	}
	slices.SortFunc(sums, func(a, b llmhttp.UsageSum) int { return strings.Compare(a.Model, b.Model) })
	return sums
}

// periodOf returns when the period of t begins, which is not before from. What
// is between the two may be more than a time.Duration holds.
func periodOf(t, from time.Time, step time.Duration) time.Time {
	hi, lo := bits.Mul64(uint64(t.Unix()-from.Unix()), uint64(time.Second))
	nanos := int64(t.Nanosecond()) - int64(from.Nanosecond())
	var carry uint64
	if nanos >= 0 {
		lo, carry = bits.Add64(lo, uint64(nanos), 0)
		hi += carry
	} else {
		lo, carry = bits.Sub64(lo, uint64(-nanos), 0)
		hi -= carry
	}
	into := bits.Rem64(hi, lo, uint64(step))
	return t.Add(-time.Duration(into)).In(from.Location())
}

// compact makes room: at least a quarter of what there is.
func (u *UsageStore) compact() {
	limit := cmp.Or(u.limit, maxUsage)
	cutoff := u.median()
	u.rewrite(func(l *ledger) []entry { return l.byHour(cutoff) })
	if u.size <= limit/4*3 {
		return
	}
	u.rewrite(func(l *ledger) []entry {
		return slices.DeleteFunc(l.entries, func(e entry) bool { return e.second <= cutoff })
	})
}

// median returns the time that half of all entries are not after.
func (u *UsageStore) median() int64 {
	var times []int64
	for _, l := range u.ledgers {
		for i := range l.entries {
			times = append(times, l.entries[i].second)
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// rewrite replaces the entries of all ledgers, and forgets the names that are
// not needed any more.
func (u *UsageStore) rewrite(change func(*ledger) []entry) {
	u.size = 0
	for account, old := range u.ledgers {
		old.sort()
		entries := change(old)
		if len(entries) == 0 {
			delete(u.ledgers, account)
			continue
		}
		l := &ledger{indices: make(map[string]uint32), entries: make([]entry, 0, len(entries))}
		u.size += nameSize + len(account)
		for _, e := range entries {
			u.size += l.add(old.models[e.model], e)
		}
		u.ledgers[account] = l
	}
}

// byHour returns the entries with those up to cutoff added up by hour.
func (l *ledger) byHour(cutoff int64) []entry {
	type slot struct {
		hour  int64
		model uint32
	}
	slots := make(map[slot]int)
	kept := l.entries[:0]
	for _, e := range l.entries {
		if e.second > cutoff {
			kept = append(kept, e)
			continue
		}
		hour := e.second - (e.second%3600+3600)%3600
		at := slot{hour, e.model}
		if i, ok := slots[at]; ok {
			kept[i].add(&e)
			continue
		}
		slots[at] = len(kept)
		e.second, e.nano = hour, 0
		kept = append(kept, e)
	}
	return kept
}

// An idSet remembers IDs: the last generation of them, and what there is of the
// one after it. It keeps 128-bit hashes, which differ if the IDs do, as far as
// anybody can tell who does not know the seeds.
type idSet struct {
	limit        int // of a generation; 0 means maxGeneration
	seeds        [2]maphash.Seed
	newer, older map[[2]uint64]struct{}
}

const maxGeneration = 1 << 17

// add adds id. It reports false if it was there.
func (s *idSet) add(id string) bool {
	if s.newer == nil {
		s.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
		s.newer, s.older = make(map[[2]uint64]struct{}), make(map[[2]uint64]struct{})
	}
	key := [2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}
	if _, ok := s.newer[key]; ok {
		return false
	}
	if _, ok := s.older[key]; ok {
		return false
	}
	if len(s.newer) == cmp.Or(s.limit, maxGeneration) {
		s.newer, s.older = s.older, s.newer
		clear(s.newer)
	}
	s.newer[key] = struct{}{}
	return true
}
