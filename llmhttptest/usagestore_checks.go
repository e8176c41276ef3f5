package llmhttptest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

var usageChecks = []check[usageTest]{
	{"NoUsage", "a query without a result is an error or a sum of zeros, or Record needs at least one record.", checkUsageNone},
	{"Sums", "a number is read from the wrong field, records are skipped or grouped by another field, or a result is cached.", checkUsageSums},
	{"OrderOfSums", "sums are not sorted by start and then by model, or models are sorted by a locale.", checkUsageOrder},
	{"OrderOfArrival", "the store relies on records that arrive in the order of their times. A long request is recorded after later ones.", checkUsageArrival},
	{"RangeBounds", "From is exclusive, To is inclusive, or times are rounded to more than microseconds.", checkUsageBounds},
	{"Periods", "periods do not begin at From, have another length than Step, or are cut wrongly at To; or an early From overflows.", checkUsagePeriods},
	{"OnePeriod", "a Step that is not positive is not read as one period, or a large Step or an early From overflows.", checkUsageOnePeriod},
	{"TimeZones", "times are compared by the clock of their time zone, or periods are calendar days.", checkUsageTimeZones},
	{"EmptyRange", "a range that is empty or reversed is an error, or its bounds are swapped.", checkUsageEmptyRange},
	{"DuplicateIDs", "a record whose ID is stored is added, replaces the stored one, or affects the rest of its batch.", checkUsageDuplicates},
	{"SimilarIDs", "IDs are normalised or cut, for example by the collation of a column.", checkUsageSimilarIDs},
	{"SimilarAccounts", "accounts are normalised or cut, or become part of the text of a query.", checkUsageAccounts},
	{"SimilarModels", "models are normalised or cut, for example by the collation of a column.", checkUsageModels},
	{"NoSharedMemory", "the store keeps the slice that Record was passed, or the one that Query returned.", checkUsageMemory},
	{"LargeBatch", "a batch exceeds the number of parameters that a query may have.", checkUsageLargeBatch},
	{"LargeSums", "sums are stored as 32-bit integers or as floats.", checkUsageLargeSums},
	{"CancelledContext", "a cancelled call returns no error although it was not completed, or a repeated call is skipped.", checkUsageCancelled},
	{"UnitsAndCosts", "a unit, a part of the cost or the number of unpriced records is dropped, or read from another field.", checkUsageNumbers},
	{"Parts", "a further part of a request counts as a request, or is skipped because of the ID of its request.", checkUsageParts},
	{"UsageOfKeys", "a Query with a Subject does not select by the key and the account, or differs from others in something else.", checkUsageOfKeys},
	{"UsageOfUsers", "a Query for an end user does not select by the user and the account, or differs from others in something else.", checkUsageOfUsers},
	{"OtherSubjects", "a Query with the account as Subject selects something else than the account, or one with a kind that the store does not know ignores the Subject.", checkUsageOfSubjects},
	{"RandomQueries", "an unusual combination of records and query; the seed repeats it.", checkUsageRandomQueries},
	{"RandomBatches", "duplicates within a batch, or of an earlier batch, are counted.", checkUsageRandomBatches},
	{"ConcurrentCalls", "looking for an ID and storing it is not one atomic step, or Query does not see what Record accepted.", checkUsageConcurrent},
}

// queryAll returns a query of one period that includes all records of the test's
// account.
func (s *usageTest) queryAll() llmhttp.UsageQuery {
	return llmhttp.UsageQuery{Account: s.account, From: noon.Add(-1000 * day), To: noon.Add(1000 * day)}
}

func checkUsageNone(t testing.TB, s usageTest) {
	q := s.queryAll()
	s.wantSums(t, q)
	q.Step = 30 * day
	s.wantSums(t, q)
	s.mustRecord(t)
	s.wantSums(t, q)
}

func checkUsageSums(t testing.TB, s usageTest) {
	chat := s.newRecord(noon, "chat", 10, 5)
	chat.Protocol = "messages"
	chat.Units.CachedTokens = 4
	estimated := s.newRecord(noon.Add(time.Minute), "chat", 1, 2)
	estimated.Estimated = true
	unused := s.newRecord(noon.Add(2*time.Minute), "chat", 0, 0)
	images := s.newRecord(noon.Add(3*time.Minute), "draw", 7, 0)
	images.Operation, images.Units.Images = llmhttp.OperationImages, 4
	more := images
	more.ID, more.Units.Images, more.KeyID = unique("request"), 6, "another key"
	embedding := s.newRecord(noon.Add(4*time.Minute), "embed", 100, 0)
	embedding.Operation = llmhttp.OperationEmbeddings
	s.mustRecord(t, chat, estimated, unused, images, more, embedding)

	q := llmhttp.UsageQuery{From: noon, To: noon.Add(time.Hour)}
	want := []llmhttp.UsageSum{
		{Start: noon, Model: "chat", Requests: 3, Units: llmhttp.Units{PromptTokens: 11, CachedTokens: 4, CompletionTokens: 7}},
		{Start: noon, Model: "draw", Requests: 2, Units: llmhttp.Units{PromptTokens: 14, Images: 10}},
		{Start: noon, Model: "embed", Requests: 1, Units: llmhttp.Units{PromptTokens: 100}},
	}
	s.wantSums(t, q, want...)
	s.mustRecord(t, s.newRecord(noon.Add(5*time.Minute), "embed", 11, 0))
	want[2].Requests, want[2].Units.PromptTokens = 2, 111
	s.wantSums(t, q, want...)
}

func checkUsageOrder(t testing.TB, s usageTest) {
	models := []string{"m", "B", "a", "a b", "a-b", "a.b", "aa", "A", "\u00e9", "z", "10", "9"}
	var records []llmhttp.UsageRecord
	for i := range 5 {
		for _, model := range models {
			r := s.newRecord(noon.Add(time.Duration((i*3)%5)*day), model, 1, 1)
			s.mustRecord(t, r)
			records = append(records, r)
		}
	}
	s.wantSumsOf(t, llmhttp.UsageQuery{From: noon, To: noon.Add(10 * day), Step: day}, records)
	s.wantSumsOf(t, llmhttp.UsageQuery{From: noon, To: noon.Add(10 * day)}, records)
}

// checkUsageArrival records two or three records in every order, each in a call
// of its own and all in one call.
func checkUsageArrival(t testing.TB, s usageTest) {
	for _, order := range [][]int{{1, 0}, {0, 1}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, batch := range []int{1, len(order)} {
			s.account = unique("account")
			var records []llmhttp.UsageRecord
			for _, i := range order {
				records = append(records, s.newRecord(noon.Add(time.Duration(i)*time.Hour), "m", i, 1))
			}
			for rs := range slices.Chunk(records, batch) {
				s.mustRecord(t, rs...)
			}
			for i := range order {
				from := noon.Add(time.Duration(i) * time.Hour)
				s.wantSumsOf(t, llmhttp.UsageQuery{From: from, To: from.Add(time.Hour)}, records)
			}
			s.wantSumsOf(t, llmhttp.UsageQuery{From: noon, To: noon.Add(day), Step: time.Hour}, records)
		}
	}
}

func checkUsageBounds(t testing.TB, s usageTest) {
	const us = time.Microsecond
	var records []llmhttp.UsageRecord
	for _, at := range []time.Time{noon, noon.Add(day), noon.Add(day + 500*time.Millisecond), noon.Add(day + 250*us), noon.Add(-day)} {
		for _, offset := range []time.Duration{-us, 0, us} {
			records = append(records, s.newRecord(at.Add(offset), "m", 1, 1))
		}
	}
	s.mustRecord(t, records...)
	for _, from := range records {
		for _, to := range records {
			if from.Time.Before(to.Time) {
				s.wantSumsOf(t, llmhttp.UsageQuery{From: from.Time, To: to.Time}, records)
				s.wantSumsOf(t, llmhttp.UsageQuery{From: from.Time, To: to.Time, Step: day}, records)
			}
			if t.Failed() {
				return
			}
		}
	}
}

func checkUsagePeriods(t testing.TB, s usageTest) {
	const us = time.Microsecond
	var records []llmhttp.UsageRecord
	for _, at := range []time.Duration{0, 1, us, 249 * time.Millisecond, 250*time.Millisecond - us, 250 * time.Millisecond, time.Second,
		time.Hour - us, time.Hour, 7 * time.Hour, 12*time.Hour - us, 12 * time.Hour, day - us, day, day + us, 3*day + 17*time.Hour, 30 * day} {
		records = append(records, s.newRecord(noon.Add(at.Truncate(us)), "m", int(at/time.Second), 1))
	}
	s.mustRecord(t, records...)
	for _, from := range []time.Duration{0, -us, us, -time.Hour, -12 * time.Hour, -7*time.Hour - 13*us, 100 * time.Millisecond} {
		for _, length := range []time.Duration{us, time.Second, 10 * time.Second, day, day + us, 5*day - time.Hour, 40 * day} {
			for _, step := range []time.Duration{250 * time.Millisecond, time.Second, 7 * time.Hour, 7*time.Hour + us, day, 7 * day, length} {
				if length/step < 10_000 {
					s.wantSumsOf(t, llmhttp.UsageQuery{From: noon.Add(from), To: noon.Add(from + length), Step: step}, records)
				}
				if t.Failed() {
					return
				}
			}
		}
	}
	s.wantSumsOf(t, llmhttp.UsageQuery{From: noon, To: noon.Add(30 * us), Step: us}, records)
	for _, from := range earlyTimes {
		for _, step := range []time.Duration{7*time.Hour + us, day, 1000 * day, math.MaxInt64 / 1000 * 1000} {
			s.wantSumsOf(t, llmhttp.UsageQuery{From: from, To: noon.Add(40 * day), Step: step}, records)
		}
	}
}

// earlyTimes are times before Unix time 1. The time since the first one is more
// than a Duration can hold.
var earlyTimes = []time.Time{{}, time.Unix(0, 0), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)}

func checkUsageOnePeriod(t testing.TB, s usageTest) {
	s.mustRecord(t, s.newRecord(noon, "m", 1, 2), s.newRecord(noon.Add(day), "m", 3, 4), s.newRecord(noon.Add(40*day), "m", 5, 6))
	from, to := noon.Add(-90*time.Minute), noon.Add(41*day)
	for _, step := range []time.Duration{0, -1, -day, math.MinInt64, to.Sub(from), to.Sub(from) + 1, 1000 * day, math.MaxInt64} {
		s.wantSums(t, llmhttp.UsageQuery{From: from, To: to, Step: step},
			llmhttp.UsageSum{Start: from, Model: "m", Requests: 3, Units: llmhttp.Units{PromptTokens: 9, CompletionTokens: 12}})
	}
	for _, from := range earlyTimes {
		s.wantSums(t, llmhttp.UsageQuery{From: from, To: noon.Add(day)},
			llmhttp.UsageSum{Start: from, Model: "m", Requests: 1, Units: llmhttp.Units{PromptTokens: 1, CompletionTokens: 2}})
	}
	s.wantSums(t, llmhttp.UsageQuery{From: noon.Add(time.Microsecond), To: time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)},
		llmhttp.UsageSum{Start: noon.Add(time.Microsecond), Model: "m", Requests: 2, Units: llmhttp.Units{PromptTokens: 8, CompletionTokens: 10}})
}

// checkUsageTimeZones uses times in several time zones. In Berlin and New York,
// one of the days around noon has 23 hours.
func checkUsageTimeZones(t testing.TB, s usageTest) {
	zones := []*time.Location{time.UTC, time.Local, time.FixedZone("east", 5*3600+1800), time.FixedZone("west", -9*3600)}
	for _, name := range []string{"Europe/Berlin", "America/New_York"} {
		if zone, err := time.LoadLocation(name); err == nil { // the database of zones may be missing
			zones = append(zones, zone)
		}
	}
	var records []llmhttp.UsageRecord
	for i, zone := range zones {
		for n := range 30 * 24 / 5 {
			records = append(records, s.newRecord(noon.Add(time.Duration(n*5)*time.Hour-10*day).In(zone), "m", i, n))
		}
	}
	s.mustRecord(t, records...)
	for _, zone := range zones {
		midnight := time.Date(2025, 3, 5, 0, 0, 0, 0, zone)
		s.wantSumsOf(t, llmhttp.UsageQuery{From: midnight, To: midnight.AddDate(0, 0, 28), Step: day}, records)
		s.wantSumsOf(t, llmhttp.UsageQuery{From: midnight.Add(time.Hour), To: midnight.AddDate(0, 0, 28).UTC()}, records)
	}
}

func checkUsageEmptyRange(t testing.TB, s usageTest) {
	s.mustRecord(t, s.newRecord(noon.Add(-time.Hour), "m", 1, 1), s.newRecord(noon, "m", 1, 1), s.newRecord(noon.Add(time.Hour), "m", 1, 1))
	for _, step := range []time.Duration{0, time.Hour, day} {
		s.wantSums(t, llmhttp.UsageQuery{From: noon, To: noon, Step: step})
		s.wantSums(t, llmhttp.UsageQuery{From: noon.Add(2 * time.Hour), To: noon.Add(-2 * time.Hour), Step: step})
	}
}

func checkUsageDuplicates(t testing.TB, s usageTest) {
	first := s.newRecord(noon, "m", 10, 1)
	want := llmhttp.UsageSum{Start: s.queryAll().From, Model: "m", Requests: 1, Units: llmhttp.Units{PromptTokens: 10, CompletionTokens: 1}}
	s.mustRecord(t, first, first)
	s.wantSums(t, s.queryAll(), want)
	s.mustRecord(t, first)
	s.mustRecord(t, first, first, first)
	s.wantSums(t, s.queryAll(), want)

	// The ID alone makes a duplicate, whatever the other fields are.
	changed := s.newRecord(noon.Add(time.Hour), "other", 99, 99)
	changed.ID, changed.Units.Images, changed.KeyID, changed.Operation, changed.Protocol = first.ID, 9, "another key", llmhttp.OperationImages, "messages"
	s.mustRecord(t, changed)
	other := first
	other.Account = unique("account")
	s.mustRecord(t, other)
	s.wantSums(t, s.queryAll(), want)
	q := s.queryAll()
	q.Account = other.Account
	s.wantSums(t, q)

	// The rest of a batch is stored.
	next, last := s.newRecord(noon, "m", 100, 0), s.newRecord(noon, "m", 1000, 0)
	s.mustRecord(t, first, next, changed, next, last, first)
	want.Requests, want.Units.PromptTokens = 3, 1110
	s.wantSums(t, s.queryAll(), want)
}

func checkUsageSimilarIDs(t testing.TB, s usageTest) {
	id := unique("request")
	var records []llmhttp.UsageRecord
	for _, name := range trickyNames() {
		r := s.newRecord(noon, "m", 1, 2)
		r.ID = id + name
		records = append(records, r)
	}
	s.mustRecord(t, records...)
	s.mustRecord(t, records...)
	for _, r := range records {
		s.mustRecord(t, r)
	}
	s.wantSumsOf(t, s.queryAll(), records)
}

func checkUsageAccounts(t testing.TB, s usageTest) {
	var records []llmhttp.UsageRecord
	for i, name := range trickyNames() {
		r := s.newRecord(noon, "m", i, 1)
		r.Account += name
		records = append(records, r)
	}
	s.mustRecord(t, records...)
	accounts := []string{s.account, s.account + "pla", s.account + "plainnn", "%", unique("account")} // without usage
	for _, r := range records {
		accounts = append(accounts, r.Account)
	}
	for _, account := range accounts {
		q := s.queryAll()
		q.Account = account
		s.wantSumsOf(t, q, records)
	}
}

func checkUsageModels(t testing.TB, s usageTest) {
	var records []llmhttp.UsageRecord
	for i, name := range trickyNames() {
		for range 2 {
			r := s.newRecord(noon, name, i, 1)
			r.KeyID = name
			records = append(records, r)
		}
	}
	s.mustRecord(t, records...)
	s.wantSumsOf(t, s.queryAll(), records)
}

// checkUsageMemory overwrites what it passed to Record and what Query returned.
func checkUsageMemory(t testing.TB, s usageTest) {
	records := []llmhttp.UsageRecord{s.newRecord(noon, "m", 1, 2), s.newRecord(noon, "n", 3, 4), s.newRecord(noon, "m", 5, 6)}
	passed := slices.Clone(records)
	if err := s.Record(t.Context(), passed...); err != nil {
		t.Fatalf("Record returned the error %v, want nil", err)
	}
	for i := range passed {
		passed[i] = s.newRecord(noon, "overwritten", 99, 99)
	}
	s.wantSumsOf(t, s.queryAll(), records)

	q := s.queryAll()
	got, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatalf("Query returned the error %v, want nil", err)
	}
	for i := range got {
		got[i] = llmhttp.UsageSum{Model: "overwritten"}
	}
	s.wantSumsOf(t, q, records)
}

func checkUsageLargeBatch(t testing.TB, s usageTest) {
	records := s.randomRecords(fixedRand(0), 5000)
	s.mustRecord(t, records...)
	s.wantSumsOf(t, s.queryAll(), records)
	s.mustRecord(t, records...)
	q := s.queryAll()
	q.Step = day
	s.wantSumsOf(t, q, records)
}

func checkUsageLargeSums(t testing.TB, s usageTest) {
	var records []llmhttp.UsageRecord
	for range 5 {
		r := s.newRecord(noon, "m", math.MaxInt32, math.MaxInt32-1)
		r.Units.CachedTokens = math.MaxInt32 - 3
		r.Units.Images = math.MaxInt32 - 2
		r.Cost.Output = 123_456_789_012_345_679 // more than a float64 can tell
		records = append(records, r)
	}
	s.mustRecord(t, records...)
	s.wantSumsOf(t, s.queryAll(), records)
}

// checkUsageNumbers records each number alone and all of them together.
func checkUsageNumbers(t testing.TB, s usageTest) {
	var records []llmhttp.UsageRecord
	add := func(set func(r *llmhttp.UsageRecord)) {
		for range 2 {
			r := s.newRecord(noon, fmt.Sprint("m", len(records)/2), 0, 0)
			set(&r)
			records = append(records, r)
		}
	}
	add(func(r *llmhttp.UsageRecord) { r.Unpriced = true })
	all := func(r *llmhttp.UsageRecord) (numbers []func(n int64)) {
		for _, unit := range r.Units.All() {
			numbers = append(numbers, func(n int64) { *unit = n })
		}
		for _, part := range r.Cost.All() {
			numbers = append(numbers, func(n int64) { *part = llmhttp.Money(n) })
		}
		return numbers
	}
	for i := range all(new(llmhttp.UsageRecord)) {
		add(func(r *llmhttp.UsageRecord) { all(r)[i](int64(1000 + i)) })
	}
	add(func(r *llmhttp.UsageRecord) {
		for i, set := range all(r) {
			set(int64(1 + i*i))
		}
	})
	add(func(r *llmhttp.UsageRecord) { r.Cost = llmhttp.Cost{Other: -5} }) // a credit
	s.mustRecord(t, records...)
	q := s.queryAll()
	s.wantSumsOf(t, q, records)
	q.Step = time.Hour // other sums than those of days
	s.wantSumsOf(t, q, records)
}

func checkUsageParts(t testing.TB, s usageTest) {
	first := s.newRecord(noon, "m", 10, 1)
	second, third := first, first
	second.ID, second.Part, second.Target, second.Units.PromptTokens = unique("request"), 1, "another target", 20
	third.ID, third.Part, third.Model = unique("request"), 2, "n"
	s.mustRecord(t, second)
	s.mustRecord(t, first, third, second)
	s.wantSums(t, llmhttp.UsageQuery{From: noon, To: noon.Add(day)},
		llmhttp.UsageSum{Start: noon, Model: "m", Requests: 1, Units: llmhttp.Units{PromptTokens: 30, CompletionTokens: 2}},
		llmhttp.UsageSum{Start: noon, Model: "n", Units: llmhttp.Units{PromptTokens: 10, CompletionTokens: 1}})
}

// supportsSubjects reports whether the store can sum for subjects of a kind.
func (s *usageTest) supportsSubjects(t testing.TB, kind string) bool {
	t.Helper()
	q := s.queryAll()
	q.Subject = llmhttp.SubjectID{Kind: kind, ID: "unknown"}
	sums, err := s.Query(t.Context(), q)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("Query of %s returned the error %v, want nil or one that wraps errors.ErrUnsupported", describeQuery(q), err)
	}
	if len(sums) > 0 {
		t.Errorf("Query of %s returned %d sums, want none", describeQuery(q), len(sums))
	}
	return err == nil
}

// checkUsageOfKeys does nothing if the store cannot sum for keys.
func checkUsageOfKeys(t testing.TB, s usageTest) {
	keys := []string{unique("key"), unique("key") + " '%", ""}
	checkUsageOf(t, s, llmhttp.KindKey, keys, func(r *llmhttp.UsageRecord, key string) { r.KeyID = key })
}

// checkUsageOfUsers does nothing if the store cannot sum for end users. Records with an empty
// name have none.
func checkUsageOfUsers(t testing.TB, s usageTest) {
	names := append(trickyNames(), "ann", "ANN", "")
	checkUsageOf(t, s, llmhttp.KindUser, names, func(r *llmhttp.UsageRecord, name string) { r.User = name })
}

// checkUsageOf records random usage in two accounts of subjects of a kind, whose IDs set sets in
// records, and queries it.
func checkUsageOf(t testing.TB, s usageTest, kind string, ids []string, set func(r *llmhttp.UsageRecord, id string)) {
	if !s.supportsSubjects(t, kind) {
		return
	}
	rng := fixedRand(0)
	accounts := []string{s.account, unique("account")}
	records := s.randomRecords(rng, 100*len(ids))
	for i := range records {
		records[i].Account = pick(rng, accounts...)
		set(&records[i], pick(rng, ids...))
	}
	s.mustRecord(t, records...)
	s.mustRecord(t, records[:50]...)
	for range 30 {
		q := s.randomQuery(rng, records)
		q.Account = pick(rng, accounts...)
		for _, id := range append(ids, unique(kind)) {
			q.Subject = llmhttp.SubjectID{Kind: kind, ID: id}
			s.wantSumsOf(t, q, records)
			if t.Failed() {
				return
			}
		}
	}
}

// checkUsageOfSubjects uses the same text as the ID of subjects of all kinds.
func checkUsageOfSubjects(t testing.TB, s usageTest) {
	id := s.account
	own, ofKey, ofUser, ofTeam := s.newRecord(noon, "m", 1, 0), s.newRecord(noon, "m", 10, 0), s.newRecord(noon, "m", 100, 0), s.newRecord(noon, "m", 1000, 0)
	ofKey.KeyID, ofUser.User, ofTeam.Subjects = id, id, []llmhttp.SubjectID{{Kind: "team", ID: "another"}, {Kind: "team", ID: id}}
	another := s.newRecord(noon, "m", 10_000, 0)
	another.Account = unique("account")
	records := []llmhttp.UsageRecord{own, ofKey, ofUser, ofTeam, another}
	s.mustRecord(t, own, ofKey, ofUser, ofTeam)
	for _, kind := range []string{llmhttp.KindAccount, llmhttp.KindKey, llmhttp.KindUser, "team", "kind of " + id} {
		if !s.supportsSubjects(t, kind) {
			continue
		}
		q := s.queryAll()
		for _, q.Subject = range []llmhttp.SubjectID{{Kind: kind, ID: id}, {Kind: kind, ID: another.Account}, {Kind: kind}} {
			s.wantSumsOf(t, q, records)
		}
		q.Account = another.Account
		q.Subject.ID = id
		s.wantSumsOf(t, q, records[:4])
	}
	checkNamesOfSubjects(t, s)
}

// checkNamesOfSubjects records teams with unusual names, some of them twice in a record, on two
// days of which queries select parts.
func checkNamesOfSubjects(t testing.TB, s usageTest) {
	if !s.supportsSubjects(t, "team") {
		return
	}
	ids := append(trickyNames(), "a", "b", `a"},{"kind":"team","id":"b`)
	var records []llmhttp.UsageRecord
	for i, id := range ids {
		r := s.newRecord(noon.Add(time.Duration(i%30)*time.Hour), "m", i+1, 0)
		team := llmhttp.SubjectID{Kind: "team", ID: id}
		r.Subjects = []llmhttp.SubjectID{team, {Kind: "group", ID: id}, team, {Kind: "team", ID: "of all"}}
		records = append(records, r)
	}
	s.mustRecord(t, records...)
	s.mustRecord(t, records...)
	for _, id := range append(ids, "of all", "of", unique("team")) {
		q := llmhttp.UsageQuery{Subject: llmhttp.SubjectID{Kind: "team", ID: id}, From: noon.Add(-day), To: noon.Add(3 * day), Step: day}
		s.wantSumsOf(t, q, records)
		q.From, q.To, q.Step = noon, noon.Add(25*time.Hour), time.Hour
		s.wantSumsOf(t, q, records)
	}
}

func checkUsageCancelled(t testing.TB, s usageTest) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	records := []llmhttp.UsageRecord{s.newRecord(noon, "m", 1, 2), s.newRecord(noon, "m", 3, 4)}
	q := s.queryAll()
	if err := s.Record(ctx, slices.Clone(records)...); err == nil {
		s.wantSumsOf(t, q, records)
	}
	s.mustRecord(t, records...)
	s.wantSumsOf(t, q, records)
	if got, err := s.Query(ctx, q); err == nil {
		if diff := diffSums(got, sumRecords(q, records)); diff != "" {
			t.Errorf("Query with a cancelled context returned no error: %s", diff)
		}
	}
}
