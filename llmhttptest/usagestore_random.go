package llmhttptest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// randomRecords returns n records within some days from noon on. Their times
// are often equal, and often whole hours.
func (s *usageTest) randomRecords(rng *rand.Rand, n int) []llmhttp.UsageRecord {
	models := []string{"a", "B", "a-b", "ab", "demo-chat", "\u00e9"}
	zones := []*time.Location{time.UTC, time.FixedZone("east", 5*3600+1800), time.FixedZone("west", -9*3600)}
	records := make([]llmhttp.UsageRecord, n)
	for i := range records {
		at := noon.Add(time.Duration(rng.Int64N(int64(3 * day)))).Truncate(randomUnit(rng))
		r := s.record(at.In(zones[rng.IntN(len(zones))]), models[rng.IntN(len(models))], rng.IntN(1000), rng.IntN(1000))
		if rng.IntN(4) == 0 {
			r.Endpoint, r.Images, r.Estimated = llmhttp.EndpointImages, rng.IntN(10), true
		}
		records[i] = r
	}
	return records
}

// randomQuery returns a query about records, whose bounds are often times of
// some of them.
func (s *usageTest) randomQuery(rng *rand.Rand, records []llmhttp.UsageRecord) llmhttp.UsageQuery {
	bound := func() time.Time {
		if rng.IntN(2) == 0 {
			return records[rng.IntN(len(records))].Time
		}
		return noon.Add(time.Duration(rng.Int64N(int64(5*day))) - day).Truncate(randomUnit(rng))
	}
	q := llmhttp.UsageQuery{Account: s.account, From: bound(), To: bound()}
	if q.To.Before(q.From) {
		q.From, q.To = q.To, q.From
	}
	switch rng.IntN(4) {
	case 0:
		q.Step = day
	case 1:
		q.Step = max(1, time.Duration(rng.IntN(1000))) * time.Minute
	case 2:
		q.Step = max(1, q.To.Sub(q.From).Truncate(time.Microsecond)/time.Duration(1+rng.IntN(10)))
		q.Step = max(time.Microsecond, q.Step.Truncate(time.Microsecond))
	}
	return q
}

func randomUnit(rng *rand.Rand) time.Duration {
	return []time.Duration{time.Microsecond, time.Millisecond, time.Hour, time.Hour}[rng.IntN(4)]
}

func checkUsageRandomQueries(t testing.TB, s usageTest) {
	rng := newRand(t)
	var records []llmhttp.UsageRecord
	for range 4 {
		more := s.randomRecords(rng, 1+rng.IntN(40))
		s.mustRecord(t, more...)
		records = append(records, more...)
		for range 25 {
			s.expectOf(t, s.randomQuery(rng, records), records)
			if t.Failed() {
				return
			}
		}
	}
}

// checkUsageSplit checks that however records are split into calls, and
// however often calls are repeated, each record counts once.
func checkUsageSplit(t testing.TB, s usageTest) {
	rng := newRand(t)
	for range 5 {
		s.account = unique("account")
		records := s.randomRecords(rng, 1+rng.IntN(60))
		for rest := records; len(rest) > 0; {
			n := 1 + rng.IntN(len(rest))
			batch := slices.Clone(rest[:n])
			for range rng.IntN(10) { // some that were stored, and some in advance
				batch = append(batch, records[rng.IntN(len(records))])
			}
			rng.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			for range 1 + rng.IntN(2) {
				s.mustRecord(t, batch...)
			}
			rest = rest[n:]
		}
		s.expectOf(t, everything(), records)
		s.expectOf(t, s.randomQuery(rng, records), records)
	}
}

func checkUsageConcurrent(t testing.TB, s usageTest) {
	const workers, size = 8, 60
	records := s.randomRecords(rand.New(rand.NewPCG(2, 2)), size)
	q := everything()
	q.Account = s.account
	together(t, workers, func(i int) {
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		rest := slices.Clone(records)
		rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		for len(rest) > 0 {
			n := min(1+rng.IntN(15), len(rest))
			if err := s.Record(t.Context(), rest[:n]...); err != nil {
				t.Errorf("Record: error %v", err)
				return
			}
			sums, err := s.Query(t.Context(), q)
			if err != nil {
				t.Errorf("Query: error %v", err)
				return
			}
			var requests int64
			for _, sum := range sums {
				requests += sum.Requests
			}
			if recorded := size - len(rest) + n; requests < int64(recorded) || requests > size {
				t.Errorf("Query tells of %d requests when %d to %d were recorded", requests, recorded, size)
			}
			rest = rest[n:]
		}
	})
	s.expectOf(t, q, records)
}
