package llmhttptest

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

var usageChecks = []check[usageTest]{
	{"Empty", checkUsageEmpty},
	{"Sums", checkUsageSums},
	{"Order", checkUsageOrder},
	{"Arrival", checkUsageArrival},
	{"Bounds", checkUsageBounds},
	{"Periods", checkUsagePeriods},
	{"OnePeriod", checkUsageOnePeriod},
	{"Locations", checkUsageLocations},
	{"NoRange", checkUsageNoRange},
	{"SameID", checkUsageSameID},
	{"SimilarIDs", checkUsageSimilarIDs},
	{"Accounts", checkUsageAccounts},
	{"Models", checkUsageModels},
	{"Owned", checkUsageOwned},
	{"LargeBatch", checkUsageLargeBatch},
	{"LargeSums", checkUsageLargeSums},
	{"Cancelled", checkUsageCancelled},
	{"RandomQueries", checkUsageRandomQueries},
	{"SplitAndRepeated", checkUsageSplit},
	{"Concurrent", checkUsageConcurrent},
}

// everything asks for one period that holds all records of the tests.
func everything() llmhttp.UsageQuery {
	return llmhttp.UsageQuery{From: noon.Add(-1000 * day), To: noon.Add(1000 * day)}
}

func checkUsageEmpty(t testing.TB, s usageTest) {
	q := everything()
	s.expect(t, q)
	q.Step = 30 * day
	s.expect(t, q)
	s.mustRecord(t)
	s.expect(t, q)
}

func checkUsageSums(t testing.TB, s usageTest) {
	chat := s.record(noon, "chat", 10, 5)
	again := s.record(noon.Add(time.Minute), "chat", 1, 2)
	again.Usage.TotalTokens = 0 // which nobody has to fill in
	again.Estimated = true
	free := s.record(noon.Add(2*time.Minute), "chat", 0, 0)
	images := s.record(noon.Add(3*time.Minute), "draw", 7, 0)
	images.Endpoint, images.Images = llmhttp.EndpointImages, 4
	more := images
	more.ID, more.Images, more.KeyID = unique("request"), 6, "another key"
	embedding := s.record(noon.Add(4*time.Minute), "embed", 100, 0)
	embedding.Endpoint = llmhttp.EndpointEmbeddings
	s.mustRecord(t, chat, again, free, images, more, embedding)

	q := llmhttp.UsageQuery{From: noon, To: noon.Add(time.Hour)}
	s.expect(t, q,
		llmhttp.UsageSum{Start: noon, Model: "chat", Requests: 3, PromptTokens: 11, CompletionTokens: 7},
		llmhttp.UsageSum{Start: noon, Model: "draw", Requests: 2, PromptTokens: 14, Images: 10},
		llmhttp.UsageSum{Start: noon, Model: "embed", Requests: 1, PromptTokens: 100},
	)
	s.mustRecord(t, s.record(noon.Add(5*time.Minute), "embed", 11, 0))
	s.expect(t, q,
		llmhttp.UsageSum{Start: noon, Model: "chat", Requests: 3, PromptTokens: 11, CompletionTokens: 7},
		llmhttp.UsageSum{Start: noon, Model: "draw", Requests: 2, PromptTokens: 14, Images: 10},
		llmhttp.UsageSum{Start: noon, Model: "embed", Requests: 2, PromptTokens: 111},
	)
}

func checkUsageOrder(t testing.TB, s usageTest) {
	models := []string{"m", "B", "a", "a b", "a-b", "a.b", "aa", "A", "\u00e9", "z", "10", "9"}
	var records []llmhttp.UsageRecord
	for i := range 5 {
		for _, model := range models {
			records = append(records, s.record(noon.Add(time.Duration((i*3)%5)*day), model, 1, 1))
		}
	}
	for _, r := range records {
		s.mustRecord(t, r)
	}
	s.expectOf(t, llmhttp.UsageQuery{From: noon, To: noon.Add(10 * day), Step: day}, records)
	s.expectOf(t, llmhttp.UsageQuery{From: noon, To: noon.Add(10 * day)}, records)
}

// checkUsageArrival records few records in each order they may come in, as
// requests that take long are recorded after others that came later.
func checkUsageArrival(t testing.TB, s usageTest) {
	for _, order := range [][]int{{1, 0}, {0, 1}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, together := range []bool{false, true} {
			s.account = unique("account")
			var records []llmhttp.UsageRecord
			for _, i := range order {
				records = append(records, s.record(noon.Add(time.Duration(i)*time.Hour), "m", i, 1))
			}
			if together {
				s.mustRecord(t, records...)
			} else {
				for _, r := range records {
					s.mustRecord(t, r)
				}
			}
			for i := range order {
				from := noon.Add(time.Duration(i) * time.Hour)
				s.expectOf(t, llmhttp.UsageQuery{From: from, To: from.Add(time.Hour)}, records)
			}
			s.expectOf(t, llmhttp.UsageQuery{From: noon, To: noon.Add(day), Step: time.Hour}, records)
		}
	}
}

func checkUsageBounds(t testing.TB, s usageTest) {
	const us = time.Microsecond
	var records []llmhttp.UsageRecord
	for _, at := range []time.Time{noon, noon.Add(day), noon.Add(day + 500*time.Millisecond), noon.Add(day + 250*us), noon.Add(-day)} {
		for _, offset := range []time.Duration{-us, 0, us} {
			records = append(records, s.record(at.Add(offset), "m", 1, 1))
		}
	}
	s.mustRecord(t, records...)
	for _, from := range records {
		for _, to := range records {
			if from.Time.Before(to.Time) {
				s.expectOf(t, llmhttp.UsageQuery{From: from.Time, To: to.Time}, records)
				s.expectOf(t, llmhttp.UsageQuery{From: from.Time, To: to.Time, Step: day}, records)
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
		records = append(records, s.record(noon.Add(at.Truncate(us)), "m", int(at/time.Second), 1))
	}
	s.mustRecord(t, records...)
	for _, from := range []time.Duration{0, -us, us, -time.Hour, -12 * time.Hour, -7*time.Hour - 13*us, 100 * time.Millisecond} {
		for _, length := range []time.Duration{us, time.Second, 10 * time.Second, day, day + us, 5*day - time.Hour, 40 * day} {
			for _, step := range []time.Duration{250 * time.Millisecond, time.Second, 7 * time.Hour, 7*time.Hour + us, day, 7 * day, length} {
				q := llmhttp.UsageQuery{From: noon.Add(from), To: noon.Add(from + length), Step: step}
				if length/step < 10_000 {
					s.expectOf(t, q, records)
				}
				if t.Failed() {
					return
				}
			}
		}
	}
	s.expectOf(t, llmhttp.UsageQuery{From: noon, To: noon.Add(30 * us), Step: us}, records)
}

func checkUsageOnePeriod(t testing.TB, s usageTest) {
	records := []llmhttp.UsageRecord{s.record(noon, "m", 1, 2), s.record(noon.Add(day), "m", 3, 4), s.record(noon.Add(40*day), "m", 5, 6)}
	s.mustRecord(t, records...)
	from, to := noon.Add(-90*time.Minute), noon.Add(41*day)
	for _, step := range []time.Duration{0, -1, -day, math.MinInt64, to.Sub(from), to.Sub(from) + 1, 1000 * day, math.MaxInt64} {
		s.expect(t, llmhttp.UsageQuery{From: from, To: to, Step: step},
			llmhttp.UsageSum{Start: from, Model: "m", Requests: 3, PromptTokens: 9, CompletionTokens: 12})
	}
	for _, from := range []time.Time{{}, time.Unix(0, 0), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)} {
		s.expect(t, llmhttp.UsageQuery{From: from, To: noon.Add(day)},
			llmhttp.UsageSum{Start: from, Model: "m", Requests: 1, PromptTokens: 1, CompletionTokens: 2})
	}
	s.expect(t, llmhttp.UsageQuery{From: noon.Add(time.Microsecond), To: time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)},
		llmhttp.UsageSum{Start: noon.Add(time.Microsecond), Model: "m", Requests: 2, PromptTokens: 8, CompletionTokens: 10})
}

// checkUsageLocations checks that only instants matter. In Berlin and New
// York, the days around noon are not all of 24 hours.
func checkUsageLocations(t testing.TB, s usageTest) {
	zones := []*time.Location{time.UTC, time.Local, time.FixedZone("east", 5*3600+1800), time.FixedZone("west", -9*3600)}
	for _, name := range []string{"Europe/Berlin", "America/New_York"} {
		if zone, err := time.LoadLocation(name); err == nil { // not every machine knows it
			zones = append(zones, zone)
		}
	}
	var records []llmhttp.UsageRecord
	for i, zone := range zones {
		for hour := range 30 * 24 / 5 {
			records = append(records, s.record(noon.Add(time.Duration(hour*5)*time.Hour-10*day).In(zone), "m", i, hour))
		}
	}
	s.mustRecord(t, records...)
	for _, zone := range zones {
		midnight := time.Date(2025, 3, 5, 0, 0, 0, 0, zone)
		s.expectOf(t, llmhttp.UsageQuery{From: midnight, To: midnight.AddDate(0, 0, 28), Step: day}, records)
		s.expectOf(t, llmhttp.UsageQuery{From: midnight.Add(time.Hour), To: midnight.AddDate(0, 0, 28).UTC()}, records)
	}
}

func checkUsageNoRange(t testing.TB, s usageTest) {
	s.mustRecord(t, s.record(noon.Add(-time.Hour), "m", 1, 1), s.record(noon, "m", 1, 1), s.record(noon.Add(time.Hour), "m", 1, 1))
	for _, step := range []time.Duration{0, time.Hour, day} {
		s.expect(t, llmhttp.UsageQuery{From: noon, To: noon, Step: step})
		s.expect(t, llmhttp.UsageQuery{From: noon.Add(2 * time.Hour), To: noon.Add(-2 * time.Hour), Step: step})
	}
}

func checkUsageSameID(t testing.TB, s usageTest) {
	first := s.record(noon, "m", 10, 1)
	want := llmhttp.UsageSum{Start: everything().From, Model: "m", Requests: 1, PromptTokens: 10, CompletionTokens: 1}
	s.mustRecord(t, first, first)
	s.expect(t, everything(), want)
	s.mustRecord(t, first)
	s.mustRecord(t, first, first, first)
	s.expect(t, everything(), want)

	// What is stored stays, whatever else comes under its ID.
	changed := s.record(noon.Add(time.Hour), "other", 99, 99)
	changed.ID, changed.Images, changed.KeyID, changed.Endpoint = first.ID, 9, "another key", llmhttp.EndpointImages
	s.mustRecord(t, changed)
	stranger := first
	stranger.Account = unique("account")
	s.mustRecord(t, stranger)
	s.expect(t, everything(), want)
	q := everything()
	q.Account = stranger.Account
	s.expect(t, q)

	// The rest of a batch is stored nevertheless.
	next, last := s.record(noon, "m", 100, 0), s.record(noon, "m", 1000, 0)
	s.mustRecord(t, first, next, changed, next, last, first)
	want.Requests, want.PromptTokens = 3, 1110
	s.expect(t, everything(), want)
}

func checkUsageSimilarIDs(t testing.TB, s usageTest) {
	id := unique("request")
	var records []llmhttp.UsageRecord
	for _, name := range names() {
		r := s.record(noon, "m", 1, 2)
		r.ID = id + name
		records = append(records, r)
	}
	s.mustRecord(t, records...)
	s.mustRecord(t, records...)
	for _, r := range records {
		s.mustRecord(t, r)
	}
	s.expectOf(t, everything(), records)
}

func checkUsageAccounts(t testing.TB, s usageTest) {
	var records []llmhttp.UsageRecord
	for i, name := range names() {
		r := s.record(noon, "m", i, 1)
		r.Account += name
		records = append(records, r)
	}
	s.mustRecord(t, records...)
	for _, r := range records {
		q := everything()
		q.Account = r.Account
		s.expectOf(t, q, records)
	}
	for _, account := range []string{s.account, s.account + "pla", s.account + "plainnn", "%", unique("account")} {
		q := everything()
		q.Account = account
		s.expect(t, q)
	}
}

func checkUsageModels(t testing.TB, s usageTest) {
	var records []llmhttp.UsageRecord
	for i, name := range names() {
		for range 2 {
			r := s.record(noon, name, i, 1)
			r.KeyID = name
			records = append(records, r)
		}
	}
	s.mustRecord(t, records...)
	s.expectOf(t, everything(), records)
}

// checkUsageOwned checks that the caller may do what it likes with what it
// passed and what it got.
func checkUsageOwned(t testing.TB, s usageTest) {
	records := []llmhttp.UsageRecord{s.record(noon, "m", 1, 2), s.record(noon, "n", 3, 4), s.record(noon, "m", 5, 6)}
	passed := slices.Clone(records)
	if err := s.Record(t.Context(), passed...); err != nil {
		t.Fatalf("Record: error %v", err)
	}
	clear(passed)
	for i := range passed {
		passed[i] = s.record(noon, "spoiled", 99, 99)
	}
	s.expectOf(t, everything(), records)

	q := everything()
	q.Account = s.account
	got, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatalf("Query: error %v", err)
	}
	for i := range got {
		got[i] = llmhttp.UsageSum{Model: "spoiled"}
	}
	s.expectOf(t, everything(), records)
}

func checkUsageLargeBatch(t testing.TB, s usageTest) {
	records := s.randomRecords(rand.New(rand.NewPCG(1, 1)), 5000)
	s.mustRecord(t, records...)
	s.expectOf(t, everything(), records)
	s.mustRecord(t, records...)
	q := everything()
	q.Step = day
	s.expectOf(t, q, records)
}

func checkUsageLargeSums(t testing.TB, s usageTest) {
	var records []llmhttp.UsageRecord
	for range 5 {
		r := s.record(noon, "m", math.MaxInt32, math.MaxInt32-1)
		r.Images = math.MaxInt32 - 2
		records = append(records, r)
	}
	s.mustRecord(t, records...)
	s.expectOf(t, everything(), records)
}

func checkUsageCancelled(t testing.TB, s usageTest) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	records := []llmhttp.UsageRecord{s.record(noon, "m", 1, 2), s.record(noon, "m", 3, 4)}
	q := everything()
	q.Account = s.account
	if err := s.Record(ctx, slices.Clone(records)...); err == nil {
		s.expectOf(t, q, records)
	}
	s.mustRecord(t, records...)
	s.expectOf(t, q, records)
	if got, err := s.Query(ctx, q); err == nil && !slices.EqualFunc(got, addUp(q, records), sameSum) {
		t.Errorf("Query with a cancelled context:\n got %v\nwant %v or an error", describeSums(got), describeSums(addUp(q, records)))
	}
}
