package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// What every UsageStore promises is tested by package llmhttptest.

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func newRecord(id, account, model string, at time.Time, prompt int) llmhttp.UsageRecord {
	return llmhttp.UsageRecord{
		ID: id, Account: account, Model: model, Time: at, KeyID: "key_1", Endpoint: llmhttp.EndpointChat,
		Usage: llmhttp.Usage{PromptTokens: prompt, CompletionTokens: 1}, Images: 2,
	}
}

func mustRecord(t testing.TB, s llmhttp.UsageStore, records ...llmhttp.UsageRecord) {
	t.Helper()
	require.NoError(t, s.Record(t.Context(), records...))
}

func mustQuery(t testing.TB, s llmhttp.UsageStore, q llmhttp.UsageQuery) []llmhttp.UsageSum {
	t.Helper()
	sums, err := s.Query(t.Context(), q)
	require.NoError(t, err)
	return sums
}

// always is all time.
func always(account string) llmhttp.UsageQuery {
	return llmhttp.UsageQuery{Account: account, From: noon.AddDate(-100, 0, 0), To: noon.AddDate(100, 0, 0)}
}

func requests(sums []llmhttp.UsageSum) (n int64) {
	for _, s := range sums {
		n += s.Requests
	}
	return n
}

// Record of any split and repetition of a set of records, in any order and at
// once, in two processes as it were, is Record of the set.
func TestRecordAnyhow(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		stores := []*Store{openStore(t, dsn, nil), openStore(t, dsn, nil)}
		for round := range 4 {
			account := func(i int) string { return fmt.Sprint("account", round, "-", i) }
			records := make([]llmhttp.UsageRecord, 1+rng.IntN(200))
			for i := range records {
				at := noon.Add(time.Duration(rng.Int64N(int64(4 * day)))).Truncate(time.Microsecond)
				if rng.IntN(3) == 0 {
					at = at.Truncate(day) // also the first moment of a day
				}
				records[i] = newRecord(fmt.Sprint(round, "-", i), account(rng.IntN(3)), fmt.Sprint("m", rng.IntN(3)), at, rng.IntN(1000))
			}
			var want memory.UsageStore
			mustRecord(t, &want, records...)
			var all sync.WaitGroup
			for w := range 4 {
				rng := rand.New(rand.NewPCG(seed, uint64(round*4+w+1)))
				all.Go(func() {
					mine := slices.Clone(records)
					rng.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
					for len(mine) > 0 {
						n := 1 + rng.IntN(len(mine))
						batch := slices.Clone(mine[:n])
						for range rng.IntN(10) {
							batch = append(batch, records[rng.IntN(len(records))])
						}
						rng.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
						assert.NoError(t, stores[w%2].Record(t.Context(), batch...))
						mine = mine[n:]
					}
				})
			}
			all.Wait()
			for i := range 3 {
				for _, q := range []llmhttp.UsageQuery{
					{From: noon.Truncate(day), To: noon.Truncate(day).Add(10 * day), Step: day},
					{From: noon, To: noon.Add(3 * day), Step: day},
					{From: noon, To: noon.Add(3 * day)},
					{From: noon, To: noon.Add(4 * day), Step: 36*time.Hour + time.Nanosecond},
				} {
					q.Account = account(i)
					assert.Equal(t, mustQuery(t, &want, q), mustQuery(t, stores[i%2], q))
				}
			}
		}
	})
}

// Queries by whole days read nothing else: they find all when the records are
// gone.
func TestQueryReadsDays(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		var want memory.UsageStore
		for i := range 500 {
			r := newRecord(fmt.Sprint(i), "acme", fmt.Sprint("m", i%3), noon.Add(time.Duration(i)*7*time.Hour), i)
			mustRecord(t, s, r)
			mustRecord(t, &want, r)
		}
		days := count(t, s, "SELECT count(*) FROM llmhttp_usage_days")
		assert.Less(t, days, int64(3*150))
		_, err := s.write.Exec("DELETE FROM llmhttp_usage_records")
		require.NoError(t, err)
		midnight := noon.Truncate(day)
		east := time.FixedZone("east", 3600)
		for _, q := range []llmhttp.UsageQuery{
			{From: midnight, To: midnight.Add(100 * day), Step: day},
			{From: midnight.In(east), To: midnight.Add(100 * day), Step: 7 * day},
			{From: midnight, To: midnight.Add(200 * day)},
			{From: time.Time{}, To: midnight.Add(10 * day), Step: -1},
		} {
			q.Account = "acme"
			assert.Equal(t, mustQuery(t, &want, q), mustQuery(t, s, q))
		}
		// The days within a period are read as days, even if the period is not of whole ones.
		sums := mustQuery(t, s, llmhttp.UsageQuery{Account: "acme", From: midnight.Add(time.Hour), To: midnight.Add(50*day + time.Hour)})
		inner := mustQuery(t, &want, llmhttp.UsageQuery{Account: "acme", From: midnight.Add(day), To: midnight.Add(50 * day)})
		assert.Equal(t, requests(inner), requests(sums))
	})
}

func TestPrune(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		midnight := noon.Truncate(day)
		var records []llmhttp.UsageRecord
		for i := range 10 * 8 {
			records = append(records, newRecord(fmt.Sprint(i), "acme", "m", midnight.Add(time.Duration(i)*3*time.Hour), 1))
		}
		mustRecord(t, s, records...)
		query := func(from, to time.Duration, step time.Duration) (n []int64) {
			sums := mustQuery(t, s, llmhttp.UsageQuery{Account: "acme", From: midnight.Add(from), To: midnight.Add(to), Step: step})
			for _, sum := range sums {
				n = append(n, sum.Requests)
			}
			return n
		}
		halves := []int64{4, 4, 4, 4, 4, 4}
		require.Equal(t, halves, query(0, 3*day, 12*time.Hour))

		n, err := s.Prune(t.Context(), midnight.Add(2*day+13*time.Hour)) // two days
		require.NoError(t, err)
		assert.EqualValues(t, 16, n)
		assert.EqualValues(t, len(records)-16, count(t, s, "SELECT count(*) FROM llmhttp_usage_records"))
		assert.Equal(t, []int64{8, 8, 4, 4}, query(0, 3*day, 12*time.Hour), "of days that were pruned, all counts as used when they began")
		assert.Equal(t, []int64{8, 8, 8}, query(0, 3*day, day))
		assert.Equal(t, []int64{8 + 4}, query(12*time.Hour, 60*time.Hour, 0))
		assert.Empty(t, query(time.Hour, day, time.Hour))
		assert.Equal(t, []int64{80}, query(0, 10*day, 0))
		assert.Equal(t, []int64{80}, query(-day, 10*day+1, 0))

		// What comes late counts, and what is there is skipped.
		mustRecord(t, s, newRecord("late", "acme", "m", midnight.Add(time.Hour), 1), records[17])
		assert.Equal(t, []int64{9, 8, 8}, query(0, 3*day, day))
		assert.Equal(t, []int64{9, 8, 4, 4}, query(0, 3*day, 12*time.Hour))
		n, err = s.Prune(t.Context(), midnight.Add(day)) // what was pruned stays so
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		assert.Equal(t, []int64{9, 8, 4, 4}, query(0, 3*day, 12*time.Hour))

		for _, before := range []time.Time{time.Now(), time.Now().Add(-day + time.Minute), time.Now().Add(1000 * day)} {
			_, err = s.Prune(t.Context(), before)
			assert.ErrorContains(t, err, "at least a day ago")
		}
		n, err = s.Prune(t.Context(), time.Time{})
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}

// What is pruned counts all the while: as it was, or as of when its day began.
func TestQueryWhilePruning(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		const days, perDay = 10, 24
		midnight := noon.Truncate(day).Add(-days * day)
		var records []llmhttp.UsageRecord
		for i := range days * perDay {
			records = append(records, newRecord(fmt.Sprint(i), "acme", "m", midnight.Add(time.Duration(i)*time.Hour), 1))
		}
		mustRecord(t, s, records...)
		done := make(chan struct{})
		var all sync.WaitGroup
		var late atomic.Int64
		all.Go(func() {
			defer close(done)
			for i := range days {
				n, err := s.Prune(t.Context(), midnight.Add(time.Duration(i+1)*day))
				assert.NoError(t, err)
				assert.EqualValues(t, perDay, n-late.Swap(0))
				// One that comes late is pruned the next time.
				assert.NoError(t, s.Record(t.Context(), newRecord(fmt.Sprint("late", i), "late", "m", midnight, 1)))
				late.Add(1)
			}
		})
		pruning := func() bool {
			select {
			case <-done:
				return false
			default:
				return true
			}
		}
		for ok := true; ok; {
			ok = pruning()
			sums := mustQuery(t, s, llmhttp.UsageQuery{Account: "acme", From: midnight, To: midnight.Add(days * day), Step: 12 * time.Hour})
			require.EqualValues(t, days*perDay, requests(sums))
			for _, sum := range sums {
				require.Contains(t, []int64{perDay / 2, perDay}, sum.Requests)
			}
		}
		all.Wait()
		assert.EqualValues(t, days, requests(mustQuery(t, s, always("late"))))
	})
}

func TestPruneOld(t *testing.T) {
	for keep, want := range map[time.Duration]int64{-1: 6, 0: 5, 48 * time.Hour: 2, time.Hour: 1} {
		s := openStore(t, ":memory:", &Options{KeepRecords: keep, Logger: quiet})
		s.now = func() time.Time { return noon }
		for i, age := range []time.Duration{0, 2, 3, 100, 399, 402} {
			mustRecord(t, s, newRecord(fmt.Sprint(i), "acme", "m", noon.Add(-age*day), 1))
		}
		s.pruneOld()
		assert.Equal(t, want, count(t, s, "SELECT count(*) FROM llmhttp_usage_records"), keep)
	}
}

// Large numbers of records are pruned bit by bit.
func TestPruneMany(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		const n = pruneBatch + 1
		records := make([]llmhttp.UsageRecord, n)
		for i := range records {
			records[i] = newRecord(fmt.Sprint(i), "acme", "m", noon.Add(-100*day), 1)
		}
		mustRecord(t, s, records...)
		pruned, err := s.Prune(t.Context(), noon)
		require.NoError(t, err)
		assert.EqualValues(t, n, pruned)
		assert.EqualValues(t, n, requests(mustQuery(t, s, always("acme"))))
	})
}

// Sums stay at the bounds of their type, whoever adds them up.
func TestLargeSums(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		for name, test := range map[string]struct {
			numbers []int
			want    int64
		}{
			"most":     {[]int{math.MaxInt}, math.MaxInt64},
			"more":     {[]int{math.MaxInt, math.MaxInt, 1}, math.MaxInt64},
			"least":    {[]int{math.MinInt}, math.MinInt64},
			"less":     {[]int{math.MinInt, -1, math.MinInt}, math.MinInt64},
			"both":     {[]int{math.MaxInt - 5, math.MinInt + 5}, -1},
			"negative": {[]int{-1, -1 << 40, 1}, -1 << 40},
			"middle":   {[]int{math.MaxInt32, math.MaxInt32, 1 << 33}, 2*math.MaxInt32 + 1<<33},
			"exact":    {[]int{1<<53 + 1, 1<<53 + 1, 1}, 1<<54 + 3},
		} {
			for _, together := range []bool{true, false} {
				account := fmt.Sprint(name, together)
				var records []llmhttp.UsageRecord
				for i, n := range test.numbers {
					r := newRecord(fmt.Sprint(account, i), account, "m", noon, n)
					r.Usage.CompletionTokens, r.Images = n, n
					records = append(records, r)
				}
				if together {
					mustRecord(t, s, records...)
				} else {
					for _, r := range records {
						mustRecord(t, s, r)
					}
				}
				for _, q := range []llmhttp.UsageQuery{always(account), {Account: account, From: noon, To: noon.Add(1)}} {
					sums := mustQuery(t, s, q)
					require.Len(t, sums, 1)
					assert.Equal(t, []int64{test.want, test.want, test.want}, []int64{sums[0].PromptTokens, sums[0].CompletionTokens, sums[0].Images}, account)
				}
			}
		}
	})
}

// Names are only names, and none is refused: a record that is would keep a
// buffer from storing all others.
func TestHostileNames(t *testing.T) {
	names := []string{
		"", "'", `"`, `\`, `\x`, `\x00`, ";", "--", "$1", "%s", "\x00", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "\U0010ffff", "é", "e\u0301",
		"'); DROP TABLE llmhttp_usage_days; --", "x' OR '1'='1", "{1,2}", "NULL", strings.Repeat("\x00", 512), strings.Repeat("é", 256),
		strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "y", strings.Repeat("\xff", 1<<20), strings.Repeat("'", 1<<20),
	}
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		var records []llmhttp.UsageRecord
		for _, name := range names {
			r := newRecord("r"+name, name, name, noon, 1)
			r.KeyID, r.Endpoint = name, llmhttp.Endpoint(name)
			records = append(records, r)
		}
		mustRecord(t, s, records...)
		mustRecord(t, s, records...)
		for _, name := range names {
			for _, q := range []llmhttp.UsageQuery{always(name), {Account: name, From: noon, To: noon.Add(time.Second), Step: time.Hour}} {
				sums := mustQuery(t, s, q)
				require.Len(t, sums, 1, "%.20q", name)
				assert.EqualValues(t, 1, sums[0].Requests)
				if len(name) <= maxName {
					assert.Equal(t, name, sums[0].Model)
				} else {
					assert.Equal(t, storedName(name), storedName(sums[0].Model))
				}
			}
		}
	})
}

// Sums are in the order of the bytes of names, as they were, not as they are stored.
func TestOrderOfNames(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		names := []string{"\x00", "", "a", "\xff", "B", "\\", "é", "\x7f", "a\x00"}
		for i, name := range names {
			mustRecord(t, s, newRecord(fmt.Sprint(i), "acme", name, noon, 1))
		}
		slices.Sort(names)
		var got []string
		for _, sum := range mustQuery(t, s, always("acme")) {
			got = append(got, sum.Model)
		}
		assert.Equal(t, names, got)
	})
}

func TestExtremeTimes(t *testing.T) {
	times := []time.Time{
		{}, time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-30000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0), time.Unix(-1, 0),
		time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), time.Date(30000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(math.MaxInt64>>1, 0), time.Unix(math.MinInt64>>1, 0),
	}
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		for i, at := range times {
			account := fmt.Sprint("a", i)
			mustRecord(t, s, newRecord(account, account, "m", at, 1))
			for _, step := range []time.Duration{0, 1, time.Hour, day, 36 * time.Hour, math.MaxInt64} {
				// Each is found at its time, and else not.
				if at.Year() > -36000 && at.Year() < 36000 {
					at := at.Truncate(time.Microsecond)
					q := llmhttp.UsageQuery{Account: account, From: at, To: at.Add(time.Microsecond), Step: step}
					sums := mustQuery(t, s, q)
					require.Len(t, sums, 1, "%v by %v", at, step)
					assert.True(t, sums[0].Start.Equal(at))
					q.From, q.To = q.To, q.To.Add(100*day)
					assert.Empty(t, mustQuery(t, s, q))
					q.From, q.To = at.Add(-100*day), at
					assert.Empty(t, mustQuery(t, s, q))
				}
				sums := mustQuery(t, s, llmhttp.UsageQuery{Account: account, From: time.Unix(math.MinInt64>>1, 0), To: time.Unix(math.MaxInt64>>1, 1), Step: step})
				assert.EqualValues(t, 1, requests(sums), "%v by %v", at, step)
			}
		}
	})
}

// countedDialect counts what is not as it should be.
type countedDialect struct {
	dialect
	conflicts atomic.Int64
}

func (d *countedDialect) isConflict(err error) bool {
	conflict := d.dialect.isConflict(err)
	if conflict {
		d.conflicts.Add(1)
	}
	return conflict
}

func counted(s *Store) *countedDialect {
	d := &countedDialect{dialect: s.dialect}
	s.dialect = d
	return d
}

// With the strictest isolation, transactions that meet fail and are repeated.
func TestSerializationFailures(t *testing.T) {
	s := openStore(t, postgresDSN(t)+"&default_transaction_isolation=serializable", nil)
	d := counted(s)
	var n atomic.Int64
	eventually(t, "a conflict", func() bool {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 10 {
					mustRecord(t, s, newRecord(fmt.Sprint(n.Add(1)), "acme", "m", noon, 1))
				}
			})
		}
		all.Wait()
		return d.conflicts.Load() > 0
	})
	t.Logf("%d conflicts", d.conflicts.Load())
	assert.Equal(t, n.Load(), requests(mustQuery(t, s, always("acme"))))
}

func TestDeadlock(t *testing.T) {
	dsn := postgresDSN(t)
	s := openStore(t, dsn+"&deadlock_timeout=10ms", nil)
	d := counted(s)
	other := openStore(t, dsn, nil)
	mustRecord(t, s, newRecord("1", "acme", "m1", noon, 1), newRecord("2", "acme", "m2", noon, 1))
	lock := func(tx *sql.Tx, model string) error {
		_, err := tx.Exec("UPDATE llmhttp_usage_days SET images = images WHERE model = $1", model)
		return err
	}
	var n int64 = 2
	eventually(t, "a deadlock", func() bool {
		tx, err := other.write.Begin()
		require.NoError(t, err)
		defer tx.Rollback()
		require.NoError(t, lock(tx, "m2"))
		recorded := make(chan error)
		go func() {
			recorded <- s.Record(context.WithoutCancel(t.Context()), newRecord(fmt.Sprint(n+1), "acme", "m1", noon, 1), newRecord(fmt.Sprint(n+2), "acme", "m2", noon, 1))
		}()
		eventually(t, "a session that waits", func() bool {
			return count(t, other, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%llmhttp_usage_days%'") > 0
		})
		err = lock(tx, "m1") // now each waits for the other, and one is chosen to fail
		if err != nil {
			assert.True(t, s.dialect.(*countedDialect).dialect.isConflict(err), err)
		}
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-recorded)
		n += 2
		return d.conflicts.Load() > 0
	})
	assert.Equal(t, n, requests(mustQuery(t, s, always("acme"))))
}

// A disk that is full loses nothing that was recorded, and no more than what it
// has no room for.
func TestSQLiteFull(t *testing.T) {
	for _, journal := range []string{"wal", "delete"} {
		t.Run(journal, func(t *testing.T) {
			s := openStore(t, "file:"+sqliteDSN(t)+"?_pragma=max_page_count(40)&_pragma=synchronous(0)&_pragma=journal_mode("+journal+")", nil)
			var recorded int64
			fill := func() (err error) {
				for recorded < 100_000 {
					var batch []llmhttp.UsageRecord
					for range 20 {
						batch = append(batch, newRecord(fmt.Sprint(recorded+int64(len(batch))), "acme", "m", noon, 1))
					}
					if err = s.Record(t.Context(), batch...); err != nil {
						return err
					}
					recorded += int64(len(batch))
				}
				return nil
			}
			for range 2 {
				before := recorded
				for range 3 {
					require.ErrorContains(t, fill(), "full")
				}
				assert.Greater(t, recorded, before)
				assert.Equal(t, recorded, requests(mustQuery(t, s, always("acme"))))
				_, err := s.Prune(t.Context(), noon.Add(day))
				require.NoError(t, err)
			}
			assert.Equal(t, recorded, requests(mustQuery(t, s, always("acme"))))
		})
	}
}

// Calls that end in the middle say that they did, change all or nothing, and
// leave the connections fit for those that follow.
func TestCancelled(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{KeyTTL: -1, KeepRecords: -1})
		info, secret, err := s.CreateKey(t.Context(), KeyParams{Account: "acme"})
		require.NoError(t, err)
		calls := []func(ctx context.Context, id string) error{
			func(ctx context.Context, id string) error {
				var batch []llmhttp.UsageRecord
				for i := range 20 {
					batch = append(batch, newRecord(fmt.Sprint(id, "-", i), "acme", "m", noon, 1))
				}
				return s.Record(ctx, batch...)
			},
			func(ctx context.Context, _ string) error {
				_, err := s.Query(ctx, llmhttp.UsageQuery{Account: "acme", From: noon.Add(-time.Hour), To: noon.Add(time.Hour)})
				return err
			},
			func(ctx context.Context, _ string) error {
				_, err := s.UpdateKey(ctx, info.ID, func(p *KeyParams) error { p.Limits.Concurrent++; return nil })
				return err
			},
			func(ctx context.Context, _ string) error {
				_, _, err := s.RotateKey(ctx, info.ID, time.Hour)
				return err
			},
			func(ctx context.Context, _ string) error { _, err := s.Lookup(ctx, secret); return err },
			func(ctx context.Context, _ string) error { _, err := s.ListKeys(ctx, KeyQuery{}); return err },
			func(ctx context.Context, _ string) error {
				_, err := s.Prune(ctx, noon.Add(-100*day))
				return err
			},
		}
		var ended, succeeded atomic.Int64
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for i := range 20 * len(calls) {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(3*time.Millisecond))
					err := calls[i%len(calls)](ctx, fmt.Sprint(w, "-", i))
					cancel()
					if err == nil {
						succeeded.Add(1)
					} else if ended.Add(1); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v", err)
					}
				}
			})
		}
		all.Wait()
		t.Logf("%d calls succeeded, %d ended before", succeeded.Load(), ended.Load())
		assert.Positive(t, ended.Load())
		for i, call := range calls {
			assert.NoError(t, call(t.Context(), fmt.Sprint("after", i)))
		}
		stored(t, s)
		assert.Zero(t, count(t, s, "SELECT count(*) FROM llmhttp_usage_records")%20, "of each batch there is all or nothing")
	})
}

// Who writes waits for others who do, and no longer than its context lasts.
func TestSQLiteLocked(t *testing.T) {
	dsn := sqliteDSN(t)
	s, other := openStore(t, dsn, nil), openStore(t, dsn, nil)
	tx, err := other.write.Begin()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	require.Error(t, s.Record(ctx, newRecord("1", "acme", "m", noon, 1)))
	assert.Less(t, time.Since(start), 5*time.Second)
	assert.Empty(t, mustQuery(t, s, always("acme")), "who reads does not wait")

	recorded := make(chan error)
	go func() { recorded <- s.Record(t.Context(), newRecord("1", "acme", "m", noon, 1)) }()
	select {
	case err := <-recorded:
		t.Errorf("recorded beside another transaction: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-recorded)
	assert.EqualValues(t, 1, requests(mustQuery(t, s, always("acme"))))
}
