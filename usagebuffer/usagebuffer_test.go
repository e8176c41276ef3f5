package usagebuffer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/proctest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

var errDown = errors.New("down")

// A batchStore is a UsageStore that keeps the time and the size of each batch.
type batchStore struct {
	usageLog
	fail func(call int) error // the result of each call of Record, counted from 1; may panic

	mu      sync.Mutex
	start   time.Time
	batches []batch
}

type batch struct {
	at      time.Duration // since the store was made
	records int
	err     error
}

func newBatchStore() *batchStore { return &batchStore{start: time.Now()} }

func (s *batchStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, batch{at: time.Since(s.start), records: len(records)})
	last := &s.batches[len(s.batches)-1]
	if s.fail != nil {
		if last.err = s.fail(len(s.batches)); last.err != nil {
			return last.err
		}
	}
	return s.usageLog.Record(ctx, records...)
}

// Query counts all records.
func (s *batchStore) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return []llmhttp.UsageSum{{Requests: int64(len(s.records()))}}, nil
}

// log describes the batches: "3s:2" is a batch of 2 records after 3 seconds. One that
// failed ends in "!".
func (s *batchStore) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, b := range s.batches {
		mark := ""
		if b.err != nil {
			mark = "!"
		}
		list = append(list, fmt.Sprintf("%v:%d%s", b.at, b.records, mark))
	}
	return strings.Join(list, " ")
}

func newBuffer(s llmhttp.UsageStore, size int, delay time.Duration) *usagebuffer.Buffer {
	return usagebuffer.New(s, &usagebuffer.Options{BatchSize: size, Delay: delay, Logger: noLog})
}

// usageRecords returns n records, whose IDs begin at first.
func usageRecords(first, n int) []llmhttp.UsageRecord {
	var records []llmhttp.UsageRecord
	for i := range n {
		records = append(records, llmhttp.UsageRecord{ID: fmt.Sprint("r", first+i), RequestID: fmt.Sprint("r", first+i), Account: "acme", Model: "m", Time: time.Now()})
	}
	return records
}

// recordEach records n records, one by one.
func recordEach(t *testing.T, b llmhttp.UsageStore, first, n int) {
	t.Helper()
	for _, r := range usageRecords(first, n) {
		require.NoError(t, b.Record(t.Context(), r))
	}
}

// testBuffer runs a test in a synctest bubble, with a store and a buffer for it.
func testBuffer(t *testing.T, size int, delay time.Duration, test func(*testing.T, *batchStore, *usagebuffer.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		test(t, s, newBuffer(s, size, delay))
	})
}

func TestBuffer_StoresAFullBatchAtOnce(t *testing.T) {
	testBuffer(t, 10, time.Minute, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		recordEach(t, b, 0, 9)
		synctest.Wait()
		assert.Empty(t, s.log())
		recordEach(t, b, 9, 1)
		synctest.Wait()
		assert.Equal(t, "0s:10", s.log())
		require.NoError(t, b.Record(t.Context(), usageRecords(10, 25)...))
		synctest.Wait()
		assert.Contains(t, []string{"0s:10 0s:10 0s:10", "0s:10 0s:10 0s:10 0s:5"}, s.log())
		require.NoError(t, b.Close(t.Context()))
		assert.Len(t, s.records(), 35)
	})
}

func TestBuffer_StoresAfterTheDelay(t *testing.T) {
	testBuffer(t, 10, 3*time.Second, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		recordEach(t, b, 0, 1)
		time.Sleep(2 * time.Second)
		recordEach(t, b, 1, 2) // does not put it off
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, "3s:3", s.log())
		time.Sleep(time.Hour) // nothing is stored without records
		recordEach(t, b, 3, 1)
		time.Sleep(4 * time.Second)
		assert.Equal(t, "3s:3 1h0m6s:1", s.log())
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestBuffer_DefaultSizeAndDelay(t *testing.T) {
	testBuffer(t, 0, 0, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		recordEach(t, b, 0, 1)
		time.Sleep(time.Second)
		synctest.Wait()
		recordEach(t, b, 1, 100)
		synctest.Wait()
		assert.Equal(t, "1s:1 1s:100", s.log())
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestNew_PanicsWithoutAStore(t *testing.T) {
	for _, s := range []llmhttp.UsageStore{nil, (*usageLog)(nil)} {
		assert.PanicsWithValue(t, "usagebuffer: nil UsageStore", func() { usagebuffer.New(s, nil) })
	}
}

// Batches that the store did not accept are sent again with growing pauses, after the first time
// in a single call. No record is lost or stored twice.
func TestBuffer_BacksOffWhenTheStoreFails(t *testing.T) {
	testBuffer(t, 2, time.Second, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		s.fail = func(int) error {
			if time.Since(s.start) < 5*time.Minute {
				return errDown
			}
			return nil
		}
		require.NoError(t, b.Record(t.Context(), usageRecords(0, 5)...))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Equal(t, "0s:2! 0s:1! 0s:1! 0s:2! 0s:1! 0s:1! 0s:1! 1s:1! 3s:1! 7s:1! 15s:1! 31s:1! 1m3s:1! 2m3s:1! 3m3s:1! 4m3s:1! 5m3s:1 5m3s:2 5m3s:2", s.log())
		assert.Len(t, s.records(), 5)

		// When the store works again, batches are stored at once again.
		now := time.Since(s.start)
		recordEach(t, b, 5, 2)
		synctest.Wait()
		assert.Equal(t, batch{at: now, records: 2}, s.batches[len(s.batches)-1])
		require.NoError(t, b.Close(t.Context()))
	})
}

// Check tries a store that has failed, whatever the time of the next try is, and no other.
func TestBuffer_Check(t *testing.T) {
	testBuffer(t, 2, time.Second, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		down := true
		s.fail = func(int) error {
			if down {
				return errDown
			}
			return nil
		}
		require.NoError(t, b.Check(t.Context()))
		recordEach(t, b, 0, 1)
		require.NoError(t, b.Check(t.Context()), "nothing has failed yet")
		assert.Empty(t, s.log())
		time.Sleep(10 * time.Minute)
		recordEach(t, b, 1, 4)
		calls := len(s.batches)
		require.ErrorIs(t, b.Check(t.Context()), errDown)
		assert.Len(t, s.batches, calls+1, "a single call")
		s.mu.Lock()
		down = false
		s.mu.Unlock()
		require.NoError(t, b.Check(t.Context()))
		assert.Len(t, s.records(), 5)
		calls = len(s.batches)
		require.NoError(t, b.Check(t.Context()))
		assert.Len(t, s.batches, calls)
		recordEach(t, b, 5, 1)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, s.records(), 6, "the next write does not wait for the backoff")
		require.NoError(t, b.Close(t.Context()))
	})
}

// A Check whose time ends while it writes a backlog has found out that the store works. The rest
// is written without the backoff.
func TestBuffer_CheckOfABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s := &usageLog{before: func(ctx context.Context) error {
			if down.Load() {
				return errDown
			}
			select {
			case <-time.After(400 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		b := newBuffer(s, 10, time.Second)
		require.NoError(t, b.Record(t.Context(), usageRecords(0, 100)...))
		time.Sleep(10 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		down.Store(false)
		assert.ErrorIs(t, b.Check(ctx), errDown, "the store takes longer than the check")
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.NoError(t, b.Check(ctx))
		assert.Len(t, s.records(), 11)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Len(t, s.records(), 100)
		require.NoError(t, b.Close(t.Context()))
	})
}

// A pickyStore rejects records of some models.
type pickyStore struct {
	*batchStore
	bad func(model string) bool
}

func (s pickyStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	var refused error
	if slices.ContainsFunc(records, func(r llmhttp.UsageRecord) bool { return s.bad(r.Model) }) {
		refused = errors.New("invalid byte sequence")
	}
	s.fail = func(int) error { return refused }
	return s.batchStore.Record(ctx, records...)
}

// A record that the store rejects is found, logged and dropped. The others are stored
// with a bounded number of calls.
func TestBuffer_DropsOnlyRejectedRecords(t *testing.T) {
	for name, bad := range map[string][]int{"first": {0}, "last": {99}, "one": {41}, "neighbours": {7, 8, 9}, "several": {0, 30, 31, 64, 99}} {
		for _, size := range []int{1, 2, 100} {
			t.Run(fmt.Sprintf("%s, batches of %d", name, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newBatchStore()
					log := new(proctest.Buffer)
					picky := pickyStore{s, func(model string) bool { return strings.Contains(model, "\x00") }}
					b := usagebuffer.New(picky, &usagebuffer.Options{
						BatchSize: size, Delay: time.Second, Logger: slog.New(slog.NewTextHandler(log, nil)),
					})
					records := usageRecords(0, 200)
					for _, i := range bad {
						records[i].Model = "a\x00b"
					}
					require.NoError(t, b.Record(t.Context(), records[:100]...))
					for i := 100; i < 200; i += 4 {
						time.Sleep(time.Minute)
						require.NoError(t, b.Record(t.Context(), records[i:i+4]...))
					}
					require.NoError(t, b.Close(t.Context()))
					assert.Len(t, s.records(), 200-len(bad))
					assert.EqualValues(t, len(bad), b.Dropped())
					for _, i := range bad {
						assert.Contains(t, log.String(), "request_id="+records[i].ID+" ")
					}
					assert.LessOrEqual(t, len(s.batches), 100/size+100+100+10*len(bad), "%s", s.log())
				})
			})
		}
	}
}

// Close writes what the store takes of a batch that it refuses. A record that the store refuses
// alone makes no health check fail, and counts in sums.
func TestBuffer_RefusedRecord(t *testing.T) {
	for _, bad := range []int{0, 4, 8} {
		testBuffer(t, 10, time.Hour, func(t *testing.T, s *batchStore, _ *usagebuffer.Buffer) {
			b := newBuffer(pickyStore{s, func(model string) bool { return model == "bad" }}, 10, time.Hour)
			records := usageRecords(0, 9)
			records[bad].Model = "bad"
			require.NoError(t, b.Record(t.Context(), records...))
			sums, err := b.Query(t.Context(), llmhttp.UsageQuery{
				Account: "acme", Subject: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}, To: time.Now().Add(time.Hour),
			})
			require.NoError(t, err)
			assert.Equal(t, []llmhttp.UsageSum{{Requests: 8}, {Start: sums[1].Start, Model: "bad", Requests: 1}}, sums)
			assert.NoError(t, b.Check(t.Context()))
			assert.Equal(t, 1, b.Waiting())
			assert.ErrorContains(t, b.Close(t.Context()), "1 usage records not stored: invalid byte sequence")
			assert.Len(t, s.records(), 8)
		})
	}
}

// A store that sometimes fails causes no loss: a record is not dropped after a single
// failure.
func TestBuffer_FailuresOfTheStoreDropNothing(t *testing.T) {
	for every := 1; every < 8; every++ {
		testBuffer(t, 10, time.Second, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
			s.fail = func(call int) error {
				if call < 40 && call%every == 0 || call > 60 && call < 80 {
					return errDown
				}
				return nil
			}
			for i := range 20 {
				require.NoError(t, b.Record(t.Context(), usageRecords(10*i, 10)...))
				time.Sleep(5 * time.Second)
			}
			time.Sleep(time.Hour)
			require.NoError(t, b.Close(t.Context()))
			assert.Len(t, s.records(), 200)
			assert.Zero(t, b.Dropped())
		})
	}
}

func TestBuffer_SurvivesAPanicOfTheStore(t *testing.T) {
	testBuffer(t, 1, time.Second, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		s.fail = func(call int) error {
			if call == 1 {
				panic("boom")
			}
			return nil
		}
		recordEach(t, b, 0, 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, s.records(), 1)
	})
}

func TestBuffer_KeepsAtMost10000Records(t *testing.T) {
	testBuffer(t, 10, time.Second, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		s.fail = func(int) error { return errDown }
		dropped := 0
		for _, r := range usageRecords(0, 12_000) {
			if err := b.Record(t.Context(), r); err != nil {
				require.ErrorIs(t, err, usagebuffer.ErrDropped)
				dropped++
			}
		}
		assert.Equal(t, 2000, dropped)
		err := b.Record(t.Context(), usageRecords(12_000, 3)...)
		require.ErrorIs(t, err, usagebuffer.ErrDropped)
		assert.ErrorContains(t, err, "3")
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		require.NoError(t, b.Close(t.Context()))
		assert.Len(t, s.records(), 10_000)
	})
}

// Query stores what is buffered first, so that its sums are complete.
func TestBuffer_Query(t *testing.T) {
	testBuffer(t, 100, time.Hour, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		query := func() int64 {
			sums, err := b.Query(t.Context(), llmhttp.UsageQuery{Account: "acme"})
			require.NoError(t, err)
			require.Len(t, sums, 1)
			return sums[0].Requests
		}
		recordEach(t, b, 0, 7)
		assert.Equal(t, int64(7), query())
		s.fail = func(int) error { return errDown }
		recordEach(t, b, 7, 2)
		assert.Equal(t, int64(7), query(), "if the store fails, what is buffered is left out")
		s.fail = nil
		require.NoError(t, b.Close(t.Context()))
		assert.Len(t, s.records(), 9)
	})
}

// After Close, Record calls the store directly and returns its error.
func TestBuffer_Close(t *testing.T) {
	testBuffer(t, 10, time.Hour, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		s.fail = func(call int) error {
			if call == 2 {
				return errDown
			}
			return nil
		}
		require.NoError(t, b.Record(t.Context(), usageRecords(0, 9)...))
		require.NoError(t, b.Close(t.Context()))
		assert.Equal(t, "0s:9", s.log())
		assert.Equal(t, errDown, b.Record(t.Context(), usageRecords(9, 1)...))
		require.NoError(t, b.Record(t.Context(), usageRecords(10, 1)...))
		assert.Len(t, s.records(), 10)
		require.NoError(t, b.Close(t.Context()), "it may be called again")
	})
}

// When the store fails, the error of Close has the number of records left. Close may be
// called again.
func TestBuffer_CloseFails(t *testing.T) {
	testBuffer(t, 100, time.Hour, func(t *testing.T, s *batchStore, b *usagebuffer.Buffer) {
		down := true
		s.fail = func(int) error {
			if down {
				return errDown
			}
			return nil
		}
		recordEach(t, b, 0, 20)
		require.NoError(t, b.Record(t.Context())) // without records it does nothing
		err := b.Close(t.Context())
		require.ErrorIs(t, err, errDown)
		assert.ErrorContains(t, err, "20 usage records")
		calls := s.log()
		assert.Equal(t, "0s:20!"+strings.Repeat(" 0s:1!", 9), calls)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, calls, s.log(), "the store is not called after Close")
		down = false
		require.NoError(t, b.Close(t.Context()))
		assert.Len(t, s.records(), 20)
	})
}

// While the store hangs, Record returns at once, and Query and Close when their context
// is done.
func TestBuffer_StoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &usageLog{before: func(ctx context.Context) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		b := newBuffer(s, 1, time.Hour)
		start := time.Now()
		recordEach(t, b, 0, 1)
		synctest.Wait() // the store hangs
		recordEach(t, b, 1, 1)
		assert.Zero(t, time.Since(start), "Record waited for the store")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = b.Query(ctx, llmhttp.UsageQuery{Account: "acme"}) })
		wg.Go(func() {
			err := b.Close(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "2 usage records")
		})
		wg.Wait()
		assert.Equal(t, time.Second, time.Since(start))
		close(release)
		require.NoError(t, b.Close(t.Context()))
		assert.Len(t, s.records(), 2)
	})
}

func TestBuffer_ConcurrentCalls(t *testing.T) {
	s := newBatchStore()
	s.fail = func(call int) error {
		// Not a record alone: one that is refused again and again by chance would be dropped.
		if call%5 == 0 && s.batches[call-1].records > 1 {
			return errDown
		}
		return nil
	}
	b := newBuffer(s, 7, time.Millisecond)
	const goroutines, each = 8, 300
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i, r := range usageRecords(g*each, each) {
				assert.NoError(t, b.Record(t.Context(), r))
				if i%50 == 0 {
					_, err := b.Query(t.Context(), llmhttp.UsageQuery{Account: "acme"})
					assert.NoError(t, err)
				}
			}
		})
	}
	wg.Wait()
	for b.Close(t.Context()) != nil {
	}
	ids := map[string]bool{}
	for _, r := range s.records() {
		ids[r.ID] = true
	}
	assert.Equal(t, goroutines*each, len(ids))
	assert.Equal(t, goroutines*each, len(s.records()), "no record is stored twice")
	assert.Zero(t, b.Dropped())
}

// A wrappedStore is a wrapper that changes nothing.
type wrappedStore struct{ llmhttp.UsageStore }

func (w wrappedStore) Unwrap() llmhttp.UsageStore { return w.UsageStore }

// A Buffer finds the events behind a wrapper of its store.
func TestBuffer_WrappedStore(t *testing.T) {
	buffer := usagebuffer.New(wrappedStore{memory.NewUsageStore()}, nil)
	claimed, _, err := buffer.ClaimQuotaEvent(t.Context(), "event", time.Minute, time.Time{})
	require.NoError(t, err)
	assert.True(t, claimed)
}
