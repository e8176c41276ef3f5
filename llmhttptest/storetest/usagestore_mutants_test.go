package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // for time zones with daylight saving time

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

func TestUsageStoreMutants(t *testing.T) {
	testMutants(t, usageSequences.Run, usageChecks, usageFixture(func(*usageList) {}), slices.Concat(recordMutants, queryMutants, droppingMutants()))
}

// droppingMutants returns a store for each number of a record that drops it.
func droppingMutants() (mutants []mutant[usageTest]) {
	add := func(name string, clear func(r *usageRecord, name string)) {
		mutants = append(mutants, mutant[usageTest]{name + " are dropped", randomCalls, storing(func(r *usageRecord) { clear(r, name) })})
	}
	for name := range new(llmhttp.Units).All() {
		add(name, func(r *usageRecord, name string) {
			for other, n := range r.Units.All() {
				if other == name {
					*n = 0
				}
			}
		})
	}
	for name := range new(llmhttp.Cost).All() {
		add(name, func(r *usageRecord, name string) {
			for other, m := range r.Cost.All() {
				if other == name {
					*m = 0
				}
			}
		})
	}
	return mutants
}

func lowerIfUser(s llmhttp.SubjectID) string {
	if s.Kind == llmhttp.KindUser {
		return strings.ToLower(s.ID)
	}
	return s.ID
}

var errNoRows = errors.New("no rows in result set")

// queryMutants have faults in Query, or ones that depend on times.
var queryMutants = []mutant[usageTest]{
	{"no usage is an error", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		sums, _ := l.find(ctx, q)
		if len(sums) == 0 {
			return nil, errNoRows
		}
		return sums, nil
	})},
	{"no usage is a sum of zeros", randomCalls, answering(func(q usageQuery, sums []usageSum) []usageSum {
		if len(sums) == 0 {
			return []usageSum{{Start: q.From}}
		}
		return sums
	})},

	{"results are cached", randomCalls, usageFixture(func(l *usageList) {
		cache := map[usageQuery][]usageSum{}
		l.query = func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
			if cache[q] == nil {
				cache[q], _ = l.find(ctx, q)
			}
			return cache[q], nil
		}
	})},

	{"the key is ignored", randomCalls, asking(func(q *usageQuery) {
		if q.Subject.Kind == llmhttp.KindKey && q.Subject.ID != "unknown" {
			q.Subject = llmhttp.SubjectID{}
		}
	})},
	{"the account of a key is ignored", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		records := slices.Clone(l.records)
		if q.Subject.Kind == llmhttp.KindKey {
			for i := range records {
				records[i].Account = q.Account
			}
		}
		return sumRecords(q, records), nil
	})},
	{"an unknown key is an error", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		sums, _ := l.find(ctx, q)
		if q.Subject.Kind == llmhttp.KindKey && len(sums) == 0 {
			return nil, errNoRows
		}
		return sums, nil
	})},
	{"the account of an end user is ignored", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		records := slices.Clone(l.records)
		if q.Subject.Kind == llmhttp.KindUser {
			for i := range records {
				records[i].Account = q.Account
			}
		}
		return sumRecords(q, records), nil
	})},
	{"names of end users have no case", randomCalls, usageFixture(func(l *usageList) {
		l.save = func(r *usageRecord) { r.User = strings.ToLower(r.User) }
		l.ask = func(q *usageQuery) { q.Subject.ID = lowerIfUser(q.Subject) }
	})},
	{"the Subject is ignored", randomCalls, asking(func(q *usageQuery) { q.Subject = llmhttp.SubjectID{} })},
	{"the kind of the Subject is ignored", randomCalls, asking(func(q *usageQuery) {
		if q.Subject.Kind != "" {
			q.Subject.Kind = llmhttp.KindKey
		}
	})},
	{"subjects of unknown kinds have used what the account has", randomCalls, asking(func(q *usageQuery) {
		if q.Subject.Kind != llmhttp.KindKey && q.Subject.Kind != llmhttp.KindAccount {
			q.Subject = llmhttp.SubjectID{}
		}
	})},
	{"the account as Subject takes the place of Account", randomCalls, asking(func(q *usageQuery) {
		if q.Subject.Kind == llmhttp.KindAccount {
			q.Account, q.Subject = q.Subject.ID, llmhttp.SubjectID{}
		}
	})},

	{"sums are in reverse order", randomCalls, answering(func(_ usageQuery, sums []usageSum) []usageSum {
		slices.Reverse(sums)
		return sums
	})},
	{"sums are sorted by model before start", randomCalls, answering(func(_ usageQuery, sums []usageSum) []usageSum {
		slices.SortStableFunc(sums, func(a, b usageSum) int { return strings.Compare(a.Model, b.Model) })
		return sums
	})},
	{"models are sorted by their first use", randomCalls, usageFixture(func(l *usageList) {
		firstUse := func(s usageSum) int {
			return slices.IndexFunc(l.records, func(r usageRecord) bool { return r.Model == s.Model })
		}
		l.answer = func(q usageQuery, sums []usageSum) []usageSum {
			slices.SortStableFunc(sums, func(a, b usageSum) int { return cmp.Or(a.Start.Compare(b.Start), firstUse(a)-firstUse(b)) })
			return sums
		}
	})},
	{"models are sorted without regard to case", randomCalls, answering(func(_ usageQuery, sums []usageSum) []usageSum {
		slices.SortStableFunc(sums, func(a, b usageSum) int {
			return cmp.Or(a.Start.Compare(b.Start), strings.Compare(strings.ToLower(a.Model), strings.ToLower(b.Model)))
		})
		return sums
	})},

	{"records are searched without sorting", randomCalls, querying(func(l *usageList, _ context.Context, q usageQuery) ([]usageSum, error) {
		own := slices.DeleteFunc(slices.Clone(l.records), func(r usageRecord) bool { return r.Account != q.Account })
		if len(own) > 2 {
			slices.SortStableFunc(own, func(a, b usageRecord) int { return a.Time.Compare(b.Time) })
		}
		find := func(t time.Time) int {
			i, _ := slices.BinarySearchFunc(own, t, func(r usageRecord, t time.Time) int { return r.Time.Compare(t) })
			return i
		}
		from := find(q.From)
		return sumRecords(q, own[from:max(from, find(q.To))]), nil
	})},

	{"To is inclusive", randomCalls, asking(func(q *usageQuery) { q.To = q.To.Add(1) })},
	{"From is exclusive", randomCalls, querying(func(l *usageList, _ context.Context, q usageQuery) ([]usageSum, error) {
		return sumRecords(q, slices.DeleteFunc(slices.Clone(l.records), func(r usageRecord) bool { return r.Time.Equal(q.From) })), nil
	})},
	{"times are rounded to seconds", randomCalls, storing(func(r *usageRecord) { r.Time = r.Time.Truncate(time.Second) })},
	{"times are rounded to milliseconds", randomCalls, storing(func(r *usageRecord) { r.Time = r.Time.Round(time.Millisecond) })},
	{"To is rounded to seconds", randomCalls, asking(func(q *usageQuery) { q.To = q.To.Truncate(time.Second) })},
	{"the range is extended to whole days", randomCalls, asking(func(q *usageQuery) { q.From, q.To = q.From.Truncate(day), q.To.Truncate(day).Add(day) })},

	{"Step is ignored", randomCalls, asking(func(q *usageQuery) { q.Step = 0 })},
	{"periods of a day begin at midnight", randomCalls, startingAt(func(q usageQuery, start time.Time) time.Time {
		if q.Step == day {
			return start.Truncate(day)
		}
		return start
	})},
	{"Step is rounded to seconds", randomCalls, asking(func(q *usageQuery) { q.Step = q.Step.Truncate(time.Second) })},
	{"the last period is extended", randomCalls, asking(func(q *usageQuery) {
		if q.Step > 0 {
			q.To = q.From.Add((q.To.Sub(q.From) + q.Step - 1) / q.Step * q.Step)
		}
	})},
	{"a shorter last period is dropped", randomCalls, asking(func(q *usageQuery) {
		if q.Step > 0 && q.To.After(q.From.Add(q.Step)) {
			q.To = q.From.Add(q.To.Sub(q.From) / q.Step * q.Step)
		}
	})},
	{"periods without usage have a sum", randomCalls, answering(func(q usageQuery, sums []usageSum) []usageSum {
		if q.Step == day && len(sums) > 1 && sums[1].Start.Sub(sums[0].Start) > day {
			return slices.Insert(sums, 1, usageSum{Start: sums[0].Start.Add(day)})
		}
		return sums
	})},
	{"the time since From is a Duration", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		sums, _ := l.find(ctx, q)
		for i := range sums {
			if q.Step > 0 {
				sums[i].Start = q.From.Add(sums[i].Start.Sub(q.From) / q.Step * q.Step)
			}
		}
		return sums, nil
	})},
	{"a zero From with a Step is the time of the first record", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		if q.From.IsZero() && q.Step > 0 {
			q.From = noon
		}
		return l.find(ctx, q)
	})},
	{"a zero From with a Step is refused", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		if q.From.IsZero() && q.Step > 0 {
			return nil, errors.New("too many periods")
		}
		return l.find(ctx, q)
	})},
	{"a zero From is Unix time 0", randomCalls, startingAt(func(q usageQuery, start time.Time) time.Time {
		if q.From.IsZero() && q.Step > 0 {
			return time.Unix(0, 0).Add(start.Sub(time.Unix(0, 0)) / q.Step * q.Step)
		}
		return start
	})},

	{"a Step of zero is a day", randomCalls, asking(func(q *usageQuery) {
		if q.Step == 0 {
			q.Step = day
		}
	})},
	{"the sign of Step is ignored", randomCalls, asking(func(q *usageQuery) { q.Step = max(q.Step, -q.Step) })},
	{"From plus Step overflows", randomCalls, answering(func(q usageQuery, sums []usageSum) []usageSum {
		return slices.DeleteFunc(sums, func(s usageSum) bool { return q.From.UnixNano()+int64(max(0, q.Step)) < q.From.UnixNano() })
	})},
	{"a Step of zero is divided by", randomCalls, asking(func(q *usageQuery) { _ = 1 / q.Step })},
	{"From in nanoseconds overflows", randomCalls, asking(func(q *usageQuery) { q.From = time.Unix(0, q.From.UnixNano()) })},
	{"a From before 1970 finds nothing", randomCalls, answering(func(q usageQuery, sums []usageSum) []usageSum {
		if q.From.Unix() < 0 {
			return nil
		}
		return sums
	})},

	{"time zones are dropped", randomCalls, usageFixture(func(l *usageList) {
		l.save = func(r *usageRecord) { r.Time = wallClock(r.Time) }
		l.ask = func(q *usageQuery) { q.From, q.To = wallClock(q.From), wallClock(q.To) }
	})},
	{"periods begin at midnight in UTC", randomCalls, startingAt(func(_ usageQuery, start time.Time) time.Time { return start.UTC().Truncate(day) })},
	{"periods are calendar days", randomCalls, startingAt(func(q usageQuery, start time.Time) time.Time {
		return q.From.AddDate(0, 0, int(start.Sub(q.From)/day))
	})},

	{"an empty range is an error", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		if !q.From.Before(q.To) {
			return nil, errors.New("bad range")
		}
		return l.find(ctx, q)
	})},
	{"reversed bounds are swapped", randomCalls, asking(func(q *usageQuery) {
		if q.To.Before(q.From) {
			q.From, q.To = q.To, q.From
		}
	})},

	{"a quote breaks the query", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		if strings.Contains(q.Account, "'") {
			return nil, errors.New("syntax error")
		}
		return l.find(ctx, q)
	})},

	{"Query keeps its result", randomCalls, usageFixture(func(l *usageList) {
		var last []usageSum
		l.query = func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
			if last == nil {
				last, _ = l.find(ctx, q)
			}
			return last, nil
		}
	})},

	{"sums have 32 bits", randomCalls, answering(func(_ usageQuery, sums []usageSum) []usageSum {
		for i := range sums {
			sums[i].Units.PromptTokens = int64(int32(sums[i].Units.PromptTokens))
		}
		return sums
	})},
	{"sums are float32", randomCalls, answering(func(_ usageQuery, sums []usageSum) []usageSum {
		for i := range sums {
			sums[i].Units.Images = int64(float32(sums[i].Units.Images))
		}
		return sums
	})},

	{"a cancelled Query finds nothing", randomCalls, querying(func(l *usageList, ctx context.Context, q usageQuery) ([]usageSum, error) {
		if ctx.Err() != nil {
			return nil, nil
		}
		return l.find(ctx, q)
	})},
}

// addFresh stores those of rs that are not stored yet, even if they are
// duplicates of each other.
func addFresh(l *usageList, _ context.Context, rs []usageRecord) error { return l.add(l.fresh(rs)) }

// storeInOrder stores records in ascending order of their times, and drops
// others. Times of different accounts are not compared.
func storeInOrder(l *usageList, _ context.Context, rs []usageRecord) error {
	for _, r := range rs {
		if n := len(l.records); n == 0 || l.records[n-1].Account != r.Account || !r.Time.Before(l.records[n-1].Time) {
			l.storeOne(r)
		}
	}
	return nil
}

// recordMutants have faults in Record.
var recordMutants = []mutant[usageTest]{
	{"a batch without records is an error", randomCalls, recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		if len(rs) == 0 {
			return errors.New("syntax error")
		}
		return l.store(ctx, rs)
	})},

	{"parts are requests", randomCalls, storing(func(r *usageRecord) { r.Part = 0 })},
	{"parts are dropped", randomCalls, skipping(func(r usageRecord) bool { return r.Part > 0 })},
	{"records of the same request are duplicates", randomCalls, identifying(func(r *usageRecord) string { return r.RequestID })},

	{"unpriced records are not counted", randomCalls, storing(func(r *usageRecord) { r.Unpriced = false })},
	{"costs are positive", randomCalls, storing(func(r *usageRecord) { r.Cost.Other = max(r.Cost.Other, 0) })},
	{"costs are added up", randomCalls, storing(func(r *usageRecord) { r.Cost = llmhttp.Cost{Other: r.Cost.Total()} })},
	{"costs are float64", randomCalls, answering(func(_ usageQuery, sums []usageSum) []usageSum {
		for i := range sums {
			sums[i].Cost.Output = llm.Money(float64(sums[i].Cost.Output))
		}
		return sums
	})},

	{"cache writes are of one lifetime", randomCalls, storing(func(r *usageRecord) {
		var sum int64
		for _, n := range r.Units.CacheWrites.All() {
			sum += n
		}
		r.Units.CacheWrites = llm.CacheWrites{time.Hour: sum}
	})},
	{"images are dropped", randomCalls, storing(func(r *usageRecord) { r.Units.Images = 0 })},
	{"prompt tokens are all tokens", randomCalls, storing(func(r *usageRecord) { r.Units.PromptTokens += r.Units.CompletionTokens })},
	{"requests without tokens are dropped", randomCalls, skipping(func(r usageRecord) bool { return r.Units.IsZero() })},
	{"estimates are dropped", randomCalls, skipping(func(r usageRecord) bool { return r.Estimated })},
	{"each key has a sum", randomCalls, storing(func(r *usageRecord) {
		if strings.HasPrefix(r.KeyID, "another") {
			r.Model += " "
		}
	})},
	{"each protocol has a sum", randomCalls, storing(func(r *usageRecord) {
		if r.Protocol != "chat" {
			r.Model += " "
		}
	})},
	{"Record reverses the batch", randomCalls, recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		defer slices.Reverse(rs)
		return l.store(ctx, rs)
	})},
	{"Record fails", randomCalls, recording(func(*usageList, context.Context, []usageRecord) error { return errNoRows })},

	{"records out of order are dropped", randomCalls, recording(storeInOrder)},

	{"duplicates are stored", randomCalls, identifying(func(*usageRecord) string { return kit.Unique("x") })},
	{"duplicates within a batch are stored", randomCalls, recording(addFresh)},
	{"duplicates of earlier batches are stored", randomCalls, recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		batch := usageList{ids: map[string]bool{}, id: l.id, save: l.save}
		_ = batch.store(ctx, rs)
		return l.add(batch.records)
	})},
	{"a duplicate is an error", randomCalls, recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		if len(l.fresh(rs)) < len(rs) {
			return errors.New("unique constraint violated")
		}
		return l.store(ctx, rs)
	})},
	{"a duplicate drops its batch", randomCalls, recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		if len(l.fresh(rs)) < len(rs) {
			return nil
		}
		return l.store(ctx, rs)
	})},
	{"a duplicate drops the rest of its batch", randomCalls, recording(func(l *usageList, _ context.Context, rs []usageRecord) error {
		for _, r := range rs {
			if l.has(r) {
				return nil
			}
			l.storeOne(r)
		}
		return nil
	})},
	{"the last duplicate replaces the first", randomCalls, recording(func(l *usageList, _ context.Context, rs []usageRecord) error {
		for _, r := range rs {
			l.records = slices.DeleteFunc(l.records, func(s usageRecord) bool { return s.ID == r.ID })
			l.records = append(l.records, r)
		}
		return nil
	})},
	{"IDs are unique for each account", randomCalls, identifying(func(r *usageRecord) string { return r.Account + " " + r.ID })},
	{"IDs are unique for each model", randomCalls, identifying(func(r *usageRecord) string { return r.Model + " " + r.ID })},
	{"IDs are unique for each time", randomCalls, identifying(func(r *usageRecord) string { return r.Time.String() + " " + r.ID })},

	{"case of IDs is ignored", randomCalls, identifying(func(r *usageRecord) string { return strings.ToLower(r.ID) })},
	{"spaces at the end of IDs are ignored", randomCalls, identifying(func(r *usageRecord) string { return strings.TrimRight(r.ID, " ") })},
	{"IDs are cut", randomCalls, identifying(func(r *usageRecord) string { return r.ID[:min(len(r.ID), 255)] })},
	{"IDs are normalised", randomCalls, identifying(func(r *usageRecord) string { return strings.ReplaceAll(r.ID, "\u00e9", "e\u0301") })},

	{"case of accounts is ignored", randomCalls, accounts(strings.ToLower)},
	{"accounts are trimmed", randomCalls, accounts(strings.TrimSpace)},
	{"accounts are ignored", randomCalls, accounts(func(string) string { return "" })},

	{"case of models is ignored", randomCalls, storing(func(r *usageRecord) { r.Model = strings.ToLower(r.Model) })},
	{"models are trimmed", randomCalls, storing(func(r *usageRecord) { r.Model = strings.TrimSpace(r.Model) })},
	{"models are cut", randomCalls, storing(func(r *usageRecord) { r.Model = r.Model[:min(len(r.Model), 255)] })},
	{"models are ASCII", randomCalls, storing(func(r *usageRecord) {
		r.Model = strings.Map(func(c rune) rune { return min(c, '?') }, r.Model)
	})},

	{"Record keeps the batch", randomCalls, func(testing.TB) usageTest { return usageTest{new(usageKeeper), kit.Unique("account")} }},

	{"a large batch is an error", "LargeBatch", recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		if len(rs)*9 > 32766 {
			return errors.New("too many SQL variables")
		}
		return l.store(ctx, rs)
	})},
	{"a large batch is cut", "LargeBatch", recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		return l.store(ctx, rs[:min(len(rs), 1000)])
	})},

	{"a cancelled Record stores nothing and succeeds", randomCalls, recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		if ctx.Err() != nil {
			return nil
		}
		return l.store(ctx, rs)
	})},
	{"a cancelled Record stores one record and all IDs", randomCalls, usageFixture(func(l *usageList) {
		begun := map[string]bool{}
		l.record = func(l *usageList, ctx context.Context, rs []usageRecord) error {
			rs = slices.DeleteFunc(slices.Clone(rs), func(r usageRecord) bool { return begun[r.ID] })
			for _, r := range rs {
				begun[r.ID] = true
			}
			if ctx.Err() != nil {
				l.storeOne(rs[0])
				return ctx.Err()
			}
			return l.store(ctx, rs)
		}
	})},

	{"only the latest IDs are kept", randomCalls, usageFixture(func(l *usageList) {
		var latest []string
		l.record = func(l *usageList, _ context.Context, rs []usageRecord) error {
			for _, r := range rs {
				if !slices.Contains(latest, r.ID) {
					latest = append(latest, r.ID)
					_ = l.add([]usageRecord{r})
				}
			}
			latest = latest[max(0, len(latest)-5):]
			return nil
		}
	})},

	{"IDs are looked for and stored in two steps", "ConcurrentCalls", recording(func(l *usageList, _ context.Context, rs []usageRecord) error {
		rs = l.fresh(rs)
		time.Sleep(time.Microsecond)
		return l.add(rs)
	})},
	{"concurrent calls are an error", "ConcurrentCalls", usageFixture(func(l *usageList) {
		var busy sync.Mutex
		l.record = func(l *usageList, ctx context.Context, rs []usageRecord) error {
			if !busy.TryLock() {
				return errors.New("database is locked")
			}
			defer busy.Unlock()
			time.Sleep(time.Microsecond)
			return l.store(ctx, rs)
		}
	})},
	{"Record stores in the background", "ConcurrentCalls", recording(func(l *usageList, ctx context.Context, rs []usageRecord) error {
		rs = slices.Clone(rs)
		go func() {
			time.Sleep(time.Microsecond)
			_ = l.store(ctx, rs)
		}()
		return nil
	})},
}

// accounts returns a constructor of a store that changes accounts before it
// compares them.
func accounts(normalize func(string) string) func(testing.TB) usageTest {
	return usageFixture(func(l *usageList) {
		l.save = func(r *usageRecord) { r.Account = normalize(r.Account) }
		l.ask = func(q *usageQuery) { q.Account = normalize(q.Account) }
	})
}
