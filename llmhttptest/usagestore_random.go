package llmhttptest

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A usageCall is a Query, or a Record if query is nil. Its IDs and accounts are what follows
// those of the test.
type usageCall struct {
	records []llmhttp.UsageRecord
	query   *llmhttp.UsageQuery
}

var usageSequences = sequences[usageTest, usageCall]{
	count: 150, generate: randomUsageCalls, begin: beginUsageCalls, simpler: simplerEach(usageCall.simpler), describe: usageCall.String,
	causes: []cause[usageCall]{
		{
			"a Query with a Subject does not select by the Subject and by the account, differs from others in something else, or ignores a kind that the store does not know.",
			anyQuery(func(q *llmhttp.UsageQuery) bool { return q.Subject.Kind != "" }),
		},
		{
			"a record whose ID is stored is added, replaces the stored one, or affects the rest of its batch; or the store relies on something else than the ID.",
			repeatsID,
		},
		{"usage of another account is added.", anyRecord(func(r *llmhttp.UsageRecord) bool { return r.Account != "" })},
		{"times are compared by the clock of their time zone, or periods are calendar days.", hasTimeZone},
		{
			"periods do not begin at From, have another length than Step, or are cut wrongly at To; a Step that is not positive is not read as one period; or an early From overflows.",
			anyQuery(func(q *llmhttp.UsageQuery) bool { return q.Step != 0 || q.From.Before(allUsage.From) }),
		},
		{
			"a range that is empty or reversed is an error, or its bounds are swapped.",
			anyQuery(func(q *llmhttp.UsageQuery) bool { return !q.From.Before(q.To) }),
		},
		{"From is exclusive, To is inclusive, or times are rounded to more than microseconds.",
			anyQuery(func(q *llmhttp.UsageQuery) bool { return q.From != allUsage.From || q.To != allUsage.To })},
		{
			"a further part of a request counts as a request, or is skipped because of the ID of its request.",
			anyRecord(func(r *llmhttp.UsageRecord) bool { return r.Part != 0 }),
		},
		{
			"a unit, cache writes of a lifetime, a part of the cost or the number of unpriced records is dropped, read from another field, or kept as a 32-bit integer or a float.",
			anyRecord(func(r *llmhttp.UsageRecord) bool {
				return r.Unpriced || !r.Units.IsZero() || r.Cost != llmhttp.Cost{}
			}),
		},
		{
			"sums are grouped by something else than the model, or are not sorted by the bytes of the model.",
			anyRecord(func(r *llmhttp.UsageRecord) bool { return r.Model != "a" }),
		},
		{"the store relies on records that arrive in the order of their times. A long request is recorded after later ones.",
			anyRecord(func(r *llmhttp.UsageRecord) bool { return !r.Time.Equal(noon) })},
		{"a query without a result is an error or a sum of zeros, or Record needs at least one record.", func(calls []usageCall) bool {
			return !anyRecord(func(*llmhttp.UsageRecord) bool { return true })(calls)
		}},
		{
			"records are skipped, a result is cached, or the store keeps the slice that Record was passed, or the one that Query returned.",
			func([]usageCall) bool { return true },
		},
	},
}

// allUsage is a query of one period with all records of the test's account.
var allUsage = llmhttp.UsageQuery{From: noon.Add(-1000 * day), To: noon.Add(1000 * day)}

func anyQuery(has func(q *llmhttp.UsageQuery) bool) func([]usageCall) bool {
	return anyCall(func(c usageCall) bool { return c.query != nil && has(c.query) })
}

func anyRecord(has func(r *llmhttp.UsageRecord) bool) func([]usageCall) bool {
	return anyCall(func(c usageCall) bool {
		return slices.ContainsFunc(c.records, func(r llmhttp.UsageRecord) bool { return has(&r) })
	})
}

func repeatsID(calls []usageCall) bool {
	seen := map[string]bool{}
	return anyRecord(func(r *llmhttp.UsageRecord) bool {
		repeated := seen[r.ID]
		seen[r.ID] = true
		return repeated
	})(calls)
}

func hasTimeZone(calls []usageCall) bool {
	return anyRecord(func(r *llmhttp.UsageRecord) bool { return r.Time.Location() != time.UTC })(calls) ||
		anyQuery(func(q *llmhttp.UsageQuery) bool {
			return q.From.Location() != time.UTC || q.To.Location() != time.UTC
		})(calls)
}

func (c usageCall) String() string {
	if c.query != nil {
		return fmt.Sprintf("Query(account %q, %s)", c.query.Account, describeQuery(*c.query))
	}
	var list []string
	for i := range c.records {
		r := &c.records[i]
		sum := r.Sum()
		s := fmt.Sprintf("%s at %s of %q with %s", r.ID, r.Time.Format(time.RFC3339Nano), r.Model, describeNumbers(&sum))
		for _, f := range [][2]string{{"account", r.Account}, {"key", r.KeyID}, {"user", r.User}, {"protocol", r.Protocol}} {
			if f[1] != "" {
				s += fmt.Sprintf(", %s %q", f[0], f[1])
			}
		}
		for _, subject := range r.Subjects {
			s += fmt.Sprintf(", %s %q", subject.Kind, subject.ID)
		}
		if r.RequestID != r.ID {
			s += ", of the request " + r.RequestID
		}
		if r.Estimated {
			s += ", estimated"
		}
		list = append(list, s)
	}
	return "Record(" + strings.Join(list, "; ") + ")"
}

// beginUsageCalls keeps the records that count. It overwrites what it passed to Record and what
// Query returned, which the store must not keep.
func beginUsageCalls(t testing.TB, s usageTest) func(usageCall) {
	account, prefix := unique("account"), unique("request")
	seen := map[string]bool{}
	var records []llmhttp.UsageRecord
	record := func(batch []llmhttp.UsageRecord) {
		batch = slices.Clone(batch)
		for i := range batch {
			r := &batch[i]
			r.ID, r.RequestID, r.Account = prefix+r.ID, prefix+r.RequestID, account+r.Account
			if !seen[r.ID] {
				seen[r.ID] = true
				records = append(records, *r)
			}
		}
		s.mustRecord(t, batch...)
	}
	return func(c usageCall) {
		if c.query == nil {
			record(c.records)
			return
		}
		q := *c.query
		q.Account = account + q.Account
		if q.Subject.Kind == llmhttp.KindAccount {
			q.Subject.ID = account + q.Subject.ID
		}
		got, err := s.Query(t.Context(), q)
		if q.Subject.Kind != "" && errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if err != nil {
			t.Fatalf("Query of %s returned the error %v, want nil", describeQuery(q), err)
		}
		if diff := diffSums(got, sumRecords(q, records)); diff != "" {
			t.Errorf("Query of %s: %s", describeQuery(q), diff)
		}
		for i := range got {
			got[i] = llmhttp.UsageSum{Model: "overwritten"}
		}
	}
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

// randomUsageCalls records some records, several of them again, and queries them.
func randomUsageCalls(rng *rand.Rand, s usageTest, sequence int) []usageCall {
	pool := s.randomRecords(rng, []int{1, 2, 2, 5, 40}[sequence%5])
	accounts, repeats := []string{""}, sequence%3 == 0
	if repeats && sequence%2 == 0 || sequence%7 == 0 {
		accounts = append(accounts, " of another")
	}
	for i := range pool {
		r := &pool[i]
		r.ID, r.Account, r.KeyID = fmt.Sprint("r", i), accounts[i%len(accounts)], pick(rng, "key", "another key", "'%", "")
		r.RequestID = r.ID
		if sequence%4 == 1 {
			enlarge(r)
		}
		r.User = pick(rng, "", "ann", "ANN", "key", "it's")
		team := llmhttp.SubjectID{Kind: "team", ID: pick(rng, "a", "b", "key")}
		r.Subjects = pick(rng, nil, []llmhttp.SubjectID{team}, []llmhttp.SubjectID{team, {Kind: "group", ID: "ann"}, team})
		if other := pool[rng.IntN(i+1)]; rng.IntN(3) == 0 {
			r.RequestID = other.RequestID // a part of the same request
		}
		if repeats && rng.IntN(3) > 0 {
			r.ID = "r0" // another record with the same ID
		}
	}
	var queries []*llmhttp.UsageQuery
	calls := make([]usageCall, 16)
	for i := range calls {
		if rng.IntN(3) == 0 {
			for range rng.IntN(8) {
				calls[i].records = append(calls[i].records, pick(rng, pool...))
			}
			continue
		}
		if len(queries) == 0 || rng.IntN(4) > 0 {
			q := s.randomQuery(rng, sequence*len(calls)+i, pool)
			q.Account = pick(rng, slices.Concat(accounts, accounts, accounts, []string{" of nobody"})...)
			queries = append(queries, &q)
		}
		calls[i].query = pick(rng, queries...)
	}
	return calls
}

// randomRecords returns n records of some days around noon. Many of their times are equal and
// many are whole hours.
func (s *usageTest) randomRecords(rng *rand.Rand, n int) []llmhttp.UsageRecord {
	days := pick(rng, 3*day, 3*day, 24*day)
	unit := pick(rng, time.Microsecond, time.Hour, time.Hour)
	records := make([]llmhttp.UsageRecord, n)
	for i := range records {
		at := noon.Add(time.Duration(rng.Int64N(int64(days))) - days/3).Truncate(pick(rng, unit, randomUnit(rng)))
		r := s.newRecord(at.In(pick(rng, usageZones...)), pick(rng, "a", "B", "a-b", "ab", "demo-chat", "\u00e9"), 0, 0)
		randomNumbers(rng, &r)
		r.Protocol = pick(rng, "chat", "messages", "responses")
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
		*m = llmhttp.Money(rng.Int64N(int64(llmhttp.MoneyUnit)))
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
		lifetime := pick(rng, time.Second, 5*time.Minute, 30*time.Minute, time.Hour, 12*time.Hour)
		writes[lifetime] = 1 + rng.Int64N(1000)
	}
	return writes
}

func randomUnit(rng *rand.Rand) time.Duration {
	return pick(rng, time.Microsecond, time.Millisecond, time.Second, time.Hour)
}

// earlyTimes are times before Unix time 1. The time since the first one is more
// than a Duration can hold.
var earlyTimes = []time.Time{{}, time.Unix(0, 0).UTC(), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)}

// randomQuery returns a query whose bounds are often times of records, or next to them. form
// selects what is usual and what is not.
func (s *usageTest) randomQuery(rng *rand.Rand, form int, records []llmhttp.UsageRecord) llmhttp.UsageQuery {
	const us = time.Microsecond
	bound := func() time.Time {
		at := pick(rng, records...).Time.Add(pick(rng, 0, 0, 0, us, -us, 500*us, time.Hour, -day))
		if rng.IntN(4) == 0 {
			at = noon.Add(time.Duration(rng.Int64N(int64(30*day))) - 10*day).Truncate(randomUnit(rng))
		}
		return at.In(pick(rng, usageZones...))
	}
	q := llmhttp.UsageQuery{From: bound(), To: bound()}
	if q.To.Before(q.From) {
		q.From, q.To = q.To, q.From
	}
	switch form % 8 {
	case 0:
		q.From = pick(rng, earlyTimes...)
	case 1:
		q.To = pick(rng, time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC), noon.Add(40*day))
	case 2:
		q.From, q.To = q.To, q.From
	case 3, 4:
		q.From, q.To = allUsage.From, allUsage.To
	}
	length := q.To.Sub(q.From)
	switch form / 8 % 6 {
	case 0:
		q.Step = pick(rng, 0, -1, -day, math.MinInt64, length, length+1, 1000*day, math.MaxInt64/1000*1000, math.MaxInt64)
	case 1, 2:
		q.Step = day
	case 3:
		q.Step = pick(rng, 250*time.Millisecond, 7*time.Hour, 7*time.Hour+us, 10*time.Second, 7*day)
	case 4:
		part := length / time.Duration(1+rng.IntN(10))
		q.Step = max(us, part.Truncate(us))
	}
	if q.Step > 0 && length/q.Step > 10_000 && q.From.After(allUsage.From) {
		q.Step = day
	}
	if rng.IntN(3) == 0 {
		q.Subject.Kind = pick(rng, llmhttp.KindKey, llmhttp.KindUser, llmhttp.KindAccount, "team", "unknown")
		q.Subject.ID = pick(rng, "key", "another key", "'%", "ann", "ANN", "it's", "a", "b", "")
		if q.Subject.Kind == llmhttp.KindAccount {
			q.Subject.ID = pick(rng, "", " of another")
		}
	}
	return q
}

// simpler yields c with fewer records, and with one field set to a usual value.
func (c usageCall) simpler() iter.Seq[usageCall] {
	return func(yield func(usageCall) bool) {
		if c.query != nil {
			for _, simplify := range usageQuerySimplifications {
				if q := *c.query; simplify(&q) && !yield(usageCall{query: &q}) {
					return
				}
			}
		}
		for k := range c.records {
			if !yield(usageCall{records: without(c.records, k)}) {
				return
			}
		}
		for k := range c.records {
			for _, simplify := range usageRecordSimplifications {
				changed := slices.Clone(c.records)
				if simplify(&changed[k]) && !yield(usageCall{records: changed}) {
					return
				}
			}
		}
	}
}

// set sets a field and reports whether that changes it.
func set[T comparable](field *T, value T) bool {
	changed := *field != value
	*field = value
	return changed
}

var usageQuerySimplifications = []func(q *llmhttp.UsageQuery) bool{
	func(q *llmhttp.UsageQuery) bool { return set(&q.Subject, llmhttp.SubjectID{}) },
	func(q *llmhttp.UsageQuery) bool { return set(&q.Account, "") },
	func(q *llmhttp.UsageQuery) bool { return set(&q.Step, 0) },
	func(q *llmhttp.UsageQuery) bool { return q.Step > 0 && set(&q.Step, day) },
	func(q *llmhttp.UsageQuery) bool { return set(&q.From, allUsage.From) },
	func(q *llmhttp.UsageQuery) bool { return set(&q.To, allUsage.To) },
	func(q *llmhttp.UsageQuery) bool { return set(&q.From, q.From.UTC()) },
	func(q *llmhttp.UsageQuery) bool { return set(&q.To, q.To.UTC()) },
}

var usageRecordSimplifications = []func(r *llmhttp.UsageRecord) bool{
	func(r *llmhttp.UsageRecord) bool { return set(&r.Account, "") },
	func(r *llmhttp.UsageRecord) bool {
		changed := !r.Units.IsZero()
		r.Units = llmhttp.Units{}
		return changed
	},
	func(r *llmhttp.UsageRecord) bool { return set(&r.Cost, llmhttp.Cost{}) },
	func(r *llmhttp.UsageRecord) bool { return set(&r.Model, "a") },
	func(r *llmhttp.UsageRecord) bool { return set(&r.Time, noon) },
	func(r *llmhttp.UsageRecord) bool { return set(&r.Time, r.Time.UTC()) },
	func(r *llmhttp.UsageRecord) bool { return set(&r.Part, 0) },
	func(r *llmhttp.UsageRecord) bool { return set(&r.Unpriced, false) },
	func(r *llmhttp.UsageRecord) bool { return set(&r.Estimated, false) },
	func(r *llmhttp.UsageRecord) bool { return set(&r.KeyID, "") },
	func(r *llmhttp.UsageRecord) bool { return set(&r.User, "") },
	func(r *llmhttp.UsageRecord) bool { return set(&r.RequestID, r.ID) },
	func(r *llmhttp.UsageRecord) bool { return set(&r.Protocol, "") },
	func(r *llmhttp.UsageRecord) bool {
		changed := r.Subjects != nil
		r.Subjects = nil
		return changed
	},
	func(r *llmhttp.UsageRecord) bool {
		changed := r.Units.CacheWrites != nil
		r.Units.CacheWrites = nil
		return changed
	},
	func(r *llmhttp.UsageRecord) bool { return simplifyNumber(r.Units.All()) },
	func(r *llmhttp.UsageRecord) bool { return simplifyNumber(r.Cost.All()) },
}

// simplifyNumber sets the first of several numbers that are not zero to zero.
func simplifyNumber[N ~int64](numbers iter.Seq2[string, *N]) bool {
	count := 0
	for _, n := range numbers {
		count += cmp.Compare(max(*n, -*n), 0)
	}
	for _, n := range numbers {
		if count > 1 && *n != 0 {
			*n = 0
			return true
		}
	}
	return false
}
