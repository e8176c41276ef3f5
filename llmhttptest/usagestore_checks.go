package llmhttptest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

var usageChecks = []check[usageTest]{
	{"SimilarIDs", "IDs are normalised or cut, for example by the collation of a column.", checkUsageSimilarIDs},
	{"SimilarAccounts", "accounts are normalised or cut, or become part of the text of a query.", checkUsageAccounts},
	{"SimilarModels", "models are normalised or cut, for example by the collation of a column.", checkUsageModels},
	{
		"SimilarSubjects",
		"names of subjects are normalised or cut, have a meaning in the form in which they are stored, or count twice in a record.",
		checkUsageOfSubjects,
	},
	{"LargeBatch", "a batch exceeds the number of parameters that a query may have.", checkUsageLargeBatch},
	{
		"CancelledContext",
		"a cancelled call returns no error although it was not completed, or a repeated call is skipped.",
		checkUsageCancelled,
	},
	{
		"ConcurrentCalls",
		"looking for an ID and storing it is not one atomic step, or Query does not see what Record accepted.",
		checkUsageConcurrent,
	},
}

// queryAll returns allUsage of the test's account.
func (s *usageTest) queryAll() llmhttp.UsageQuery {
	q := allUsage
	q.Account = s.account
	return q
}

func checkUsageSimilarIDs(t testing.TB, s usageTest) {
	id := unique("request")
	var records []llmhttp.UsageRecord
	for _, name := range trickyNames() {
		r := s.newRecord(noon, "m", 1, 2)
		r.ID = id + name
		records = append(records, r)
	}
	s.mustRecord(unexplained(t), records...)
	s.mustRecord(unexplained(t), records...)
	for _, r := range records {
		s.mustRecord(unexplained(t), r)
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
	s.mustRecord(unexplained(t), records...)
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
	s.mustRecord(unexplained(t), records...)
	s.wantSumsOf(t, s.queryAll(), records)
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

// checkUsageOfSubjects records users and teams with unusual names, some of them twice in a
// record, on two days of which queries select parts.
func checkUsageOfSubjects(t testing.TB, s usageTest) {
	ids := append(trickyNames(), "a", "b", `a"},{"kind":"team","id":"b`)
	var records []llmhttp.UsageRecord
	for i, id := range ids {
		r := s.newRecord(noon.Add(time.Duration(i%30)*time.Hour), "m", i+1, 0)
		team := llmhttp.SubjectID{Kind: "team", ID: id}
		r.User, r.Subjects = id, []llmhttp.SubjectID{team, {Kind: "group", ID: id}, team, {Kind: "team", ID: "of all"}}
		records = append(records, r)
	}
	kinds := slices.DeleteFunc([]string{llmhttp.KindUser, "team"}, func(kind string) bool { return !s.supportsSubjects(t, kind) })
	if len(kinds) == 0 {
		t.Skip("the store sums neither for end users nor for other subjects")
	}
	s.mustRecord(unexplained(t), records...)
	s.mustRecord(unexplained(t), records...)
	for _, kind := range kinds {
		for _, id := range append(ids, "of all", "of", unique("team")) {
			q := llmhttp.UsageQuery{Subject: llmhttp.SubjectID{Kind: kind, ID: id}, From: noon.Add(-day), To: noon.Add(3 * day), Step: day}
			s.wantSumsOf(t, q, records)
			q.From, q.To, q.Step = noon, noon.Add(25*time.Hour), time.Hour
			s.wantSumsOf(t, q, records)
		}
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

// checkUsageConcurrent lets each worker record all records in an order of its
// own.
func checkUsageConcurrent(t testing.TB, s usageTest) {
	const workers, size = 8, 60
	records := s.randomRecords(fixedRand(0), size)
	for i := range records {
		records[i].Part = 0 // so that the number of requests is that of records
	}
	q := s.queryAll()
	runConcurrently(t, workers, func(worker int) {
		rng := fixedRand(uint64(worker))
		rest := slices.Clone(records)
		rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		for len(rest) > 0 {
			n := min(1+rng.IntN(15), len(rest))
			if err := s.Record(t.Context(), rest[:n]...); err != nil {
				t.Errorf("Record returned the error %v, want nil", err)
				return
			}
			rest = rest[n:]
			sums, err := s.Query(t.Context(), q)
			if err != nil {
				t.Errorf("Query returned the error %v, want nil", err)
				return
			}
			var requests int64
			for _, sum := range sums {
				requests += sum.Requests
			}
			if recorded := size - len(rest); requests < int64(recorded) || requests > size {
				t.Errorf("Query returned %d requests, want %d to %d", requests, recorded, size)
			}
		}
	})
	s.wantSumsOf(t, q, records)
}
