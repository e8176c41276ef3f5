package llmhttptest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// randomRecords returns n records of the three days after noon. Many of their
// times are equal and many are whole hours.
func (s *usageTest) randomRecords(rng *rand.Rand, n int) []llmhttp.UsageRecord {
	zones := []*time.Location{time.UTC, time.FixedZone("east", 5*3600+1800), time.FixedZone("west", -9*3600)}
	records := make([]llmhttp.UsageRecord, n)
	for i := range records {
		at := noon.Add(time.Duration(rng.Int64N(int64(3 * day)))).Truncate(randomUnit(rng))
		r := s.newRecord(at.In(pick(rng, zones...)), pick(rng, "a", "B", "a-b", "ab", "demo-chat", "\u00e9"), rng.IntN(1000), rng.IntN(1000))
		randomNumbers(rng, &r)
		r.Protocol = pick(rng, "chat", "messages", "responses")
		if rng.IntN(4) == 0 {
			r.Operation, r.Estimated = llmhttp.OperationImages, true
		}
		records[i] = r
	}
	return records
}

// randomNumbers sets the units and the cost of r to random numbers, and sometimes Part and
// Unpriced.
func randomNumbers(rng *rand.Rand, r *llmhttp.UsageRecord) {
	for _, n := range r.Units.All() {
		*n = rng.Int64N(1000)
	}
	for _, m := range r.Cost.All() {
		*m = llmhttp.Money(rng.Int64N(int64(llmhttp.MoneyUnit)))
	}
	if rng.IntN(10) == 0 {
		r.Part = 1 + rng.IntN(3)
	}
	r.Unpriced = rng.IntN(10) == 0
}

// randomQuery returns a query whose bounds are often times of records.
func (s *usageTest) randomQuery(rng *rand.Rand, records []llmhttp.UsageRecord) llmhttp.UsageQuery {
	bound := func() time.Time {
		if rng.IntN(2) == 0 {
			return pick(rng, records...).Time
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
		part := q.To.Sub(q.From) / time.Duration(1+rng.IntN(10))
		q.Step = max(time.Microsecond, part.Truncate(time.Microsecond))
	}
	return q
}

func randomUnit(rng *rand.Rand) time.Duration {
	return pick(rng, time.Microsecond, time.Millisecond, time.Hour, time.Hour)
}

func checkUsageRandomQueries(t testing.TB, s usageTest) {
	rng := newRand(t)
	var records []llmhttp.UsageRecord
	for range 4 {
		more := s.randomRecords(rng, 1+rng.IntN(40))
		s.mustRecord(t, more...)
		records = append(records, more...)
		for range 25 {
			s.wantSumsOf(t, s.randomQuery(rng, records), records)
			if t.Failed() {
				return
			}
		}
	}
}

// checkUsageRandomBatches splits records into batches, adds duplicates to them
// and repeats some. Each record must count once.
func checkUsageRandomBatches(t testing.TB, s usageTest) {
	rng := newRand(t)
	for range 5 {
		s.account = unique("account")
		records := s.randomRecords(rng, 1+rng.IntN(60))
		for rest := records; len(rest) > 0; {
			n := 1 + rng.IntN(len(rest))
			batch := slices.Clone(rest[:n])
			for range rng.IntN(10) { // of this batch, or of one before or after
				batch = append(batch, pick(rng, records...))
			}
			rng.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			for range 1 + rng.IntN(2) {
				s.mustRecord(t, batch...)
			}
			rest = rest[n:]
		}
		s.wantSumsOf(t, s.queryAll(), records)
		s.wantSumsOf(t, s.randomQuery(rng, records), records)
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
