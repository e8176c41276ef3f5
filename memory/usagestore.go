package memory

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A UsageStore is a [llmhttp.KeyUsageStore] and a [llmhttp.UsageReporter] in
// memory. The zero value is an empty store. Its methods are safe for concurrent
// use and never fail.
//
// The store is bounded. It keeps 65536 entries of about 100 bytes, one for each
// record. When it is full, it adds up the older half by account, key, model and
// hour; such an entry has the time at which its hour began. If this leaves the store
// more than three quarters full, it drops the older half.
//
// A record is skipped if its ID is among the last 32768 that were stored, and may
// be skipped if it is among the last 65536.
type UsageStore struct {
	mu       sync.Mutex             // guards the fields below
	accounts map[string][]entry     // entries by account, in any order
	seeds    [2]maphash.Seed        // for idHash
	count    int                    // number of all entries
	ids      [2]map[idHash]struct{} // IDs of stored records; ids[0] has the newer ones
}

// An entry is the usage of a model by a key at or from the time Start.
type entry struct {
	keyID string
	llmhttp.UsageSum
}

// An idHash is a hash of an ID. It is stored in place of the ID, which may have any
// length.
type idHash [2]uint64

var (
	_ llmhttp.KeyUsageStore = (*UsageStore)(nil)
	_ llmhttp.UsageReporter = (*UsageStore)(nil)
)

// NewUsageStore returns an empty UsageStore.
func NewUsageStore() *UsageStore { return &UsageStore{} }

const (
	maxEntries = 1 << 16
	maxIDs     = 1 << 15 // in each element of UsageStore.ids
)

// Record implements [llmhttp.UsageStore].
func (u *UsageStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.accounts == nil {
		u.accounts = make(map[string][]entry)
		u.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	}
	for i := range records {
		r := &records[i]
		if !u.addID(r.ID) {
			continue
		}
		u.addEntry(r.Account, entry{r.KeyID, llmhttp.UsageSum{
			Start:            r.Time,
			Model:            r.Model,
			Requests:         1,
			PromptTokens:     int64(r.Usage.PromptTokens),
			CompletionTokens: int64(r.Usage.CompletionTokens),
			CachedTokens:     int64(r.Usage.PromptTokensDetails.CachedTokens),
			ReasoningTokens:  int64(r.Usage.CompletionTokensDetails.ReasoningTokens),
			Images:           int64(r.Images),
		}})
	}
	return nil
}

// addEntry appends an entry of an account. The caller holds mu.
func (u *UsageStore) addEntry(account string, e entry) {
	entries := u.accounts[account]
	if n := len(entries); n > 0 && entries[n-1].Model == e.Model {
		e.Model = entries[n-1].Model
	} else {
		e.Model = strings.Clone(e.Model) // e.Model may refer to the memory of a request's body
	}
	u.accounts[account] = append(entries, e)
	if u.count++; u.count > maxEntries {
		u.compact()
	}
}

// accumulate adds the numbers of other to e.
func (e *entry) accumulate(other *entry) {
	e.Requests += other.Requests
	e.PromptTokens += other.PromptTokens
	e.CompletionTokens += other.CompletionTokens
	e.CachedTokens += other.CachedTokens
	e.ReasoningTokens += other.ReasoningTokens
	e.Images += other.Images
}

// addID adds id to ids. It reports whether id is new. The caller holds mu.
func (u *UsageStore) addID(id string) bool {
	hash := idHash{maphash.String(u.seeds[0], id), maphash.String(u.seeds[1], id)}
	for _, ids := range u.ids {
		if _, ok := ids[hash]; ok {
			return false
		}
	}
	if u.ids[0] == nil || len(u.ids[0]) == maxIDs {
		u.ids[0], u.ids[1] = make(map[idHash]struct{}), u.ids[0]
	}
	u.ids[0][hash] = struct{}{}
	return true
}

// Query implements [llmhttp.UsageStore].
func (u *UsageStore) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return u.query(q, func(string) bool { return true }), nil
}

// QueryKey implements [llmhttp.KeyUsageStore].
func (u *UsageStore) QueryKey(ctx context.Context, keyID string, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return u.query(q, func(id string) bool { return id == keyID }), nil
}

func (u *UsageStore) query(q llmhttp.UsageQuery, includes func(keyID string) bool) []llmhttp.UsageSum {
	u.mu.Lock()
	defer u.mu.Unlock()
	var periods usageAdder
	for _, e := range u.accounts[q.Account] {
		if includes(e.keyID) && !e.Start.Before(q.From) && e.Start.Before(q.To) {
			e.keyID = ""
			periods.add(q.PeriodStart(e.Start), e)
		}
	}
	slices.SortFunc(periods.entries, func(a, b entry) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Model, b.Model))
	})
	var sums []llmhttp.UsageSum
	for _, e := range periods.entries {
		sums = append(sums, e.UsageSum)
	}
	return sums
}

// compact reduces the entries to at most three quarters of maxEntries. The caller
// holds mu.
func (u *UsageStore) compact() {
	var times []time.Time
	for _, entries := range u.accounts {
		for i := range entries {
			times = append(times, entries[i].Start)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	median := times[len(times)/2]

	u.replaceEntries(func(entries []entry) []entry {
		var hours usageAdder
		recent := slices.DeleteFunc(entries, func(e entry) bool {
			if e.Start.After(median) {
				return false
			}
			hours.add(e.Start.UTC().Truncate(time.Hour), e)
			return true
		})
		return append(recent, hours.entries...)
	})
	if u.count <= maxEntries/4*3 {
		return
	}
	u.replaceEntries(func(entries []entry) []entry {
		return slices.DeleteFunc(entries, func(e entry) bool { return !e.Start.After(median) })
	})
}

// replaceEntries replaces the entries of each account. It drops accounts that are left
// without entries.
func (u *UsageStore) replaceEntries(change func([]entry) []entry) {
	u.count = 0
	for account, entries := range u.accounts {
		entries = change(entries)
		if len(entries) == 0 {
			delete(u.accounts, account)
			continue
		}
		u.accounts[account] = entries
		u.count += len(entries)
	}
}

// A usageAdder adds up entries by period, key and model. Its zero value is ready to
// use.
type usageAdder struct {
	entries []entry
	indices map[usageGroup]int // index in entries
}

type usageGroup struct {
	start        time.Time
	keyID, model string
}

// add adds e to the sum of its key and model in the period that begins at start.
// All starts must have the same location.
func (a *usageAdder) add(start time.Time, e entry) {
	g := usageGroup{start.UTC(), e.keyID, e.Model}
	i, ok := a.indices[g]
	if !ok {
		if a.indices == nil {
			a.indices = make(map[usageGroup]int)
		}
		e.Start = start
		a.indices[g] = len(a.entries)
		a.entries = append(a.entries, e)
		return
	}
	a.entries[i].accumulate(&e)
}
