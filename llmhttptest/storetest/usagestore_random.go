// Random calls of a UsageStore, and what they must return.

package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// A usageCall is a call of Record or Query. Its IDs and accounts are what follows those of the test.
// Of a Query, a From and a To of zero are those of allUsage.
type usageCall struct {
	method    string
	Records   []llmhttp.UsageRecord
	Query     llmhttp.UsageQuery
	ZeroFrom  bool // From is the zero Time
	Cancelled bool // the context of a Record, which is repeated if it fails, or of a second Query
}

var usageSequences = kit.Sequences[usageTest, usageCall]{
	Count: 150, Generate: randomUsageCalls, Begin: beginUsageCalls, Simpler: kit.SimplerEach(kit.SimplerFields[usageCall]),
	Describe: func(c usageCall) string { return c.method + kit.Describe(c) },
}

// allUsage is a query of one period with all records of the test's account.
var allUsage = llmhttp.UsageQuery{From: noon.Add(-1000 * day), To: noon.Add(1000 * day)}

// beginUsageCalls keeps the records that count. It overwrites what it passed to Record, which the
// store must not keep.
func beginUsageCalls(t testing.TB, s usageTest) func(usageCall) {
	account, prefix := kit.Unique("account"), kit.Unique("request")
	seen := map[string]bool{}
	var records []llmhttp.UsageRecord
	record := func(ctx context.Context, c usageCall) {
		batch := slices.Clone(c.Records)
		for i := range batch {
			r := &batch[i]
			r.RequestID = prefix + cmp.Or(r.RequestID, r.ID)
			r.ID, r.Account = prefix+r.ID, account+r.Account
			r.Time, r.Model, r.Operation = orTime(r.Time, noon), cmp.Or(r.Model, "a"), cmp.Or(r.Operation, llmhttp.OperationChat)
			if !seen[r.ID] {
				seen[r.ID] = true
				records = append(records, *r)
			}
		}
		if err := s.record(t, ctx, batch...); err != nil {
			if !c.Cancelled {
				kit.Must(t, "Record", err)
			}
			s.mustRecord(t, batch...)
		}
		clear(batch)
	}
	return func(c usageCall) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if c.Cancelled {
			cancel()
		}
		if c.method == "Record" {
			record(ctx, c)
			return
		}
		q := c.Query
		q.Account = account + q.Account
		if q.Subject.Kind == llmhttp.KindAccount {
			q.Subject.ID = account + q.Subject.ID
		}
		if q.From, q.To = orTime(q.From, allUsage.From), orTime(q.To, allUsage.To); c.ZeroFrom {
			q.From = time.Time{}
		}
		err := s.wantSums(t, t.Context(), q, records)
		if err == nil && c.Cancelled {
			_ = s.wantSums(t, ctx, q, records)
		}
		if q.Subject.Kind == "" || !errors.Is(err, errors.ErrUnsupported) {
			kit.Must(t, "Query", err)
		}
	}
}

func orTime(t, ifZero time.Time) time.Time {
	if t.IsZero() {
		return ifZero
	}
	return t
}

// usageZones are time zones of records and queries. In Berlin and New York, one of the days
// around noon has 23 hours.
var usageZones = func() []*time.Location {
	zones := []*time.Location{time.UTC, time.UTC, time.Local, time.FixedZone("east", 5*3600+1800), time.FixedZone("west", -9*3600)}
	for _, name := range []string{"Europe/Berlin", "America/New_York"} {
		if zone, err := time.LoadLocation(name); err == nil { // the database of zones may be missing
			zones = append(zones, zone)
		}
	}
	return zones
}()

// randomUsageCalls records some records, several of them again, and queries them. In most sequences,
// either IDs, accounts, models or subjects are names that a store may confuse.
func randomUsageCalls(rng *rand.Rand, s usageTest, sequence int) []usageCall {
	names, part := similarNames(sequence/5), sequence%5
	size := kit.Pick(rng, 1, 2, 2, 5, 40)
	if part < 4 {
		size = kit.Pick(rng, 8, 40)
	}
	pool := s.randomRecords(rng, size)
	accounts, repeats := []string{""}, sequence%3 == 0
	users, teams, keys := []string{"", "ann", "ANN", "key", "it's"}, []string{"a", "b", "key"}, []string{"key", "another key", "'%", ""}
	switch {
	case part == 0:
		accounts = append(accounts, names...)
	case part == 1:
		users, keys = names, names
		teams = append(names, "a", "b", `a"},{"kind":"team","id":"b`)
	case sequence%2 == 0:
		accounts = append(accounts, " of another")
	}
	for i := range pool {
		r := &pool[i]
		r.ID, r.Account, r.KeyID = fmt.Sprint("r", i), accounts[i%len(accounts)], kit.Pick(rng, keys...)
		switch part {
		case 2:
			r.ID = kit.Pick(rng, names...)
		case 3:
			r.Model = kit.Pick(rng, names...)
		}
		r.RequestID = r.ID
		if sequence%7 == 1 {
			enlarge(r)
		}
		r.User = kit.Pick(rng, users...)
		team := llmhttp.SubjectID{Kind: "team", ID: kit.Pick(rng, teams...)}
		r.Subjects = kit.Pick(rng, nil, []llmhttp.SubjectID{team}, []llmhttp.SubjectID{team, {Kind: "group", ID: "ann"}, team})
		if other := pool[rng.IntN(i+1)]; rng.IntN(3) == 0 {
			r.RequestID = other.RequestID // a part of the same request
		}
		if repeats && part != 2 && rng.IntN(3) > 0 {
			r.ID = "r0" // another record with the same ID
		}
	}
	var queries []usageCall
	calls := make([]usageCall, 16)
	for i := range calls {
		if rng.IntN(3) == 0 {
			calls[i].method, calls[i].Cancelled = "Record", rng.IntN(8) == 0
			for range rng.IntN(8) {
				calls[i].Records = append(calls[i].Records, kit.Pick(rng, pool...))
			}
			continue
		}
		if len(queries) == 0 || rng.IntN(4) > 0 {
			c := usageCall{method: "Query", Query: s.randomQuery(rng, sequence*len(calls)+i, pool), Cancelled: rng.IntN(16) == 0}
			c.ZeroFrom = c.Query.From.IsZero()
			c.Query.Account = kit.Pick(rng, slices.Concat(accounts, accounts, accounts, []string{" of nobody", "%"})...)
			if rng.IntN(3) == 0 || part == 1 && rng.IntN(2) == 0 {
				ids := map[string][]string{llmhttp.KindKey: keys, llmhttp.KindUser: users, llmhttp.KindAccount: accounts, "team": teams, "unknown": users}
				kind := kit.Pick(rng, llmhttp.KindKey, llmhttp.KindUser, llmhttp.KindUser, llmhttp.KindAccount, "team", "unknown")
				c.Query.Subject = llmhttp.SubjectID{Kind: kind, ID: kit.Pick(rng, ids[kind]...)}
			}
			queries = append(queries, c)
		}
		calls[i] = kit.Pick(rng, queries...)
	}
	return calls
}

// similarNames returns up to 4 of the names that a store may confuse. 30 values of n, one after the other,
// are enough for each name to be together with those that are most alike.
func similarNames(n int) []string {
	all := kit.TrickyNames()
	names := []string{all[0]}
	for i := range 3 {
		if name := all[(2*n+i)%len(all)]; name != all[0] {
			names = append(names, name)
		}
	}
	return names
}

// randomRecords returns n records of some days around noon. Many of their times are equal and
// many are whole hours.
func (s *usageTest) randomRecords(rng *rand.Rand, n int) []llmhttp.UsageRecord {
	days := kit.Pick(rng, 3*day, 3*day, 24*day)
	unit := kit.Pick(rng, time.Microsecond, time.Hour, time.Hour)
	records := make([]llmhttp.UsageRecord, n)
	for i := range records {
		at := noon.Add(time.Duration(rng.Int64N(int64(days))) - days/3).Truncate(kit.Pick(rng, unit, randomUnit(rng)))
		r := s.newRecord(at.In(kit.Pick(rng, usageZones...)), kit.Pick(rng, "a", "B", "a-b", "ab", "demo-chat", "\u00e9"), 0, 0)
		randomNumbers(rng, &r)
		r.Protocol = kit.Pick(rng, "chat", "messages", "responses")
		if rng.IntN(4) == 0 {
			r.Operation, r.Estimated = llmhttp.OperationImages, true
		}
		records[i] = r
	}
	return records
}

// enlarge makes the numbers of r so large that two do not fit in 32 bits, or one in a float64.
func enlarge(r *llmhttp.UsageRecord) {
	for _, n := range r.Units.All() {
		*n = math.MaxInt32 - *n
	}
	for lifetime, n := range r.Units.CacheWrites {
		r.Units.CacheWrites[lifetime] = math.MaxInt32 - n
	}
	r.Cost.Output += 123_456_789_012_345_679
}

// randomNumbers sets the units and the cost of r to random numbers, and sometimes Part and
// Unpriced.
func randomNumbers(rng *rand.Rand, r *llmhttp.UsageRecord) {
	if rng.IntN(6) == 0 {
		return
	}
	for _, n := range r.Units.All() {
		*n = rng.Int64N(1000)
	}
	r.Units.CacheWrites = randomCacheWrites(rng)
	for _, m := range r.Cost.All() {
		*m = llm.Money(rng.Int64N(int64(llm.MoneyUnit)))
	}
	if rng.IntN(8) == 0 {
		r.Cost.Other = -r.Cost.Other // a credit
	}
	if rng.IntN(10) == 0 {
		r.Part = 1 + rng.IntN(3)
	}
	r.Unpriced = rng.IntN(10) == 0
}

// randomCacheWrites returns up to 4 lifetimes of 5, so that sums have others than records.
func randomCacheWrites(rng *rand.Rand) llm.CacheWrites {
	if rng.IntN(2) == 0 {
		return nil
	}
	writes := make(llm.CacheWrites)
	for range 4 {
		lifetime := kit.Pick(rng, time.Second, 5*time.Minute, 30*time.Minute, time.Hour, 12*time.Hour)
		writes[lifetime] = 1 + rng.Int64N(1000)
	}
	return writes
}

func randomUnit(rng *rand.Rand) time.Duration {
	return kit.Pick(rng, time.Microsecond, time.Millisecond, time.Second, time.Hour)
}

// earlyTimes are times before Unix time 1. The time since the first one is more
// than a Duration can hold.
var earlyTimes = []time.Time{{}, time.Unix(0, 0).UTC(), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)}

// randomQuery returns a query whose bounds are often times of records, or next to them. form
// selects what is usual and what is not.
func (s *usageTest) randomQuery(rng *rand.Rand, form int, records []llmhttp.UsageRecord) llmhttp.UsageQuery {
	const us = time.Microsecond
	bound := func() time.Time {
		at := kit.Pick(rng, records...).Time.Add(kit.Pick(rng, 0, 0, 0, us, -us, 500*us, time.Hour, -day))
		if rng.IntN(4) == 0 {
			at = noon.Add(time.Duration(rng.Int64N(int64(30*day))) - 10*day).Truncate(randomUnit(rng))
		}
		return at.In(kit.Pick(rng, usageZones...))
	}
	q := llmhttp.UsageQuery{From: bound(), To: bound()}
	if q.To.Before(q.From) {
		q.From, q.To = q.To, q.From
	}
	switch form % 8 {
	case 0:
		q.From = kit.Pick(rng, earlyTimes...)
	case 1:
		q.To = kit.Pick(rng, time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC), noon.Add(40*day))
	case 2:
		q.From, q.To = q.To, q.From
	case 3, 4:
		q.From, q.To = allUsage.From, allUsage.To
	}
	length := q.To.Sub(q.From)
	switch form / 8 % 6 {
	case 0:
		q.Step = kit.Pick(rng, 0, -1, -day, math.MinInt64, length, length+1, 1000*day, math.MaxInt64/1000*1000, math.MaxInt64)
	case 1, 2:
		q.Step = day
	case 3:
		q.Step = kit.Pick(rng, 250*time.Millisecond, 7*time.Hour, 7*time.Hour+us, 10*time.Second, 7*day)
	case 4:
		part := length / time.Duration(1+rng.IntN(10))
		q.Step = max(us, part.Truncate(us))
	}
	if q.Step > 0 && length/q.Step > 10_000 && q.From.After(allUsage.From) {
		q.Step = day
	}
	return q
}
