package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A batchStore is a UsageStore that remembers when it got which batches, and
// fails as it is told.
type batchStore struct {
	keptUsage
	start time.Time

	mu      sync.Mutex
	batches []batch
	fail    func(call int) error
	calls   int
}

type batch struct {
	at  time.Duration
	n   int
	err error
}

func (s *batchStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.calls++; s.fail != nil {
		err = s.fail(s.calls)
	}
	s.batches = append(s.batches, batch{time.Since(s.start), len(records), err})
	if err != nil {
		return err
	}
	return s.keptUsage.Record(ctx, records...)
}

func (s *batchStore) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, x := range s.batches {
		fmt.Fprintf(&b, "%v:%d", x.at, x.n)
		if x.err != nil {
			b.WriteString("!")
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

func newBatchStore() *batchStore { return &batchStore{start: time.Now()} }

func newBuffer(s llmhttp.UsageStore, size int, delay time.Duration) *llmhttp.UsageBuffer {
	b := llmhttp.NewUsageBuffer(s, size, delay)
	b.Logger = old_noLog
	return b
}

// usageRecords returns records number from up to, not including, to.
func usageRecords(from, to int) []llmhttp.UsageRecord {
	var list []llmhttp.UsageRecord
	for i := from; i < to; i++ {
		list = append(list, llmhttp.UsageRecord{ID: fmt.Sprint("r", i), Account: "acme", Model: "m", Time: time.Now(), Usage: llmhttp.Usage{PromptTokens: 1, CompletionTokens: 2}})
	}
	return list
}

func mustRecord(t *testing.T, b llmhttp.UsageStore, records []llmhttp.UsageRecord) {
	t.Helper()
	for _, r := range records {
		if err := b.Record(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsageBufferBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		b := newBuffer(s, 10, time.Minute)
		mustRecord(t, b, usageRecords(0, 9))
		synctest.Wait()
		if got := s.got(); got != "" {
			t.Errorf("stored early: %s", got)
		}
		mustRecord(t, b, usageRecords(9, 10))
		synctest.Wait()
		if got := s.got(); got != "0s:10" {
			t.Errorf("stored %s", got)
		}
		if err := b.Record(t.Context(), usageRecords(10, 35)...); err != nil { // at once
			t.Fatal(err)
		}
		synctest.Wait()
		if got := s.got(); got != "0s:10 0s:10 0s:10 0s:5" && got != "0s:10 0s:10 0s:10" {
			t.Errorf("stored %s", got)
		}
		if err := b.Close(t.Context()); err != nil || len(s.all()) != 35 {
			t.Errorf("%d stored, %v", len(s.all()), err)
		}
	})
}

func TestUsageBufferByDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		b := newBuffer(s, 10, 3*time.Second)
		mustRecord(t, b, usageRecords(0, 1))
		time.Sleep(2 * time.Second)
		mustRecord(t, b, usageRecords(1, 3)) // do not put it off
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.got(); got != "3s:3" {
			t.Errorf("stored %s", got)
		}
		time.Sleep(time.Hour) // nothing to do, and nothing is done
		mustRecord(t, b, usageRecords(3, 4))
		time.Sleep(4 * time.Second)
		if got := s.got(); got != "3s:3 1h0m6s:1" {
			t.Errorf("stored %s", got)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A store that fails is tried again, later each time, and nothing is lost or
// stored twice.
func TestUsageBufferBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		s.fail = func(call int) error {
			if call <= 9 {
				return errors.New("down")
			}
			return nil
		}
		b := newBuffer(s, 2, time.Second)
		mustRecord(t, b, usageRecords(0, 5))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		var at, before, gap time.Duration
		n := 0
		for _, x := range s.batches {
			if x.err == nil {
				n += x.n
				continue
			}
			at = x.at
			switch d := at - before; {
			case at == 0:
			case d < gap || d > time.Minute || d < time.Second:
				t.Errorf("a pause of %v after one of %v", d, gap)
			default:
				gap = d
			}
			before = at
		}
		if gap < 30*time.Second {
			t.Errorf("the longest pause was %v", gap)
		}
		if n != 5 || len(s.all()) != 5 || s.calls > 9+4 {
			t.Errorf("%d stored in %d calls: %s", n, s.calls, s.got())
		}
		// And then it is as before.
		start := time.Since(s.start)
		mustRecord(t, b, usageRecords(5, 7))
		synctest.Wait()
		if last := s.batches[len(s.batches)-1]; last.at != start || last.n != 2 {
			t.Errorf("after it recovered: %s", s.got())
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestUsageBufferSurvivesPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		s.fail = func(call int) error {
			if call == 1 {
				panic("store")
			}
			return nil
		}
		b := newBuffer(s, 1, time.Second)
		mustRecord(t, b, usageRecords(0, 1))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.all()) != 1 {
			t.Error("lost")
		}
	})
}

func TestUsageBufferIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		down := true
		s.fail = func(int) error {
			if down {
				return errors.New("down")
			}
			return nil
		}
		b := newBuffer(s, 10, time.Second)
		var dropped int
		for _, r := range usageRecords(0, 12_000) {
			if err := b.Record(t.Context(), r); err != nil {
				if !errors.Is(err, llmhttp.ErrUsageDropped) {
					t.Fatal(err)
				}
				dropped++
			}
		}
		if dropped != 2000 {
			t.Errorf("%d dropped of 12000, want what is above 10000", dropped)
		}
		// Part of a call may fit.
		err := b.Record(t.Context(), usageRecords(12_000, 12_003)...)
		if !errors.Is(err, llmhttp.ErrUsageDropped) || !strings.Contains(err.Error(), "3") {
			t.Errorf("%v", err)
		}
		s.mu.Lock()
		down = false
		s.mu.Unlock()
		if err := b.Close(t.Context()); err != nil || len(s.all()) != 10_000 {
			t.Errorf("%d stored, %v", len(s.all()), err)
		}
	})
}

func TestUsageBufferQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		b := newBuffer(s, 100, time.Hour)
		q := llmhttp.UsageQuery{Account: "acme", From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)}
		mustRecord(t, b, usageRecords(0, 7))
		sums, err := b.Query(t.Context(), q)
		if err != nil || len(sums) != 1 || sums[0].Requests != 7 || sums[0].CompletionTokens != 14 {
			t.Errorf("%+v, %v", sums, err)
		}
		// Without the store's consent the sums are without it, and it is not lost.
		s.fail = func(int) error { return errors.New("down") }
		mustRecord(t, b, usageRecords(7, 9))
		sums, err = b.Query(t.Context(), q)
		if err != nil || len(sums) != 1 || sums[0].Requests != 7 {
			t.Errorf("%+v, %v", sums, err)
		}
		s.fail = nil
		if err := b.Close(t.Context()); err != nil || len(s.all()) != 9 {
			t.Errorf("%d stored, %v", len(s.all()), err)
		}
	})
}

func TestUsageBufferClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		down := errors.New("down")
		s.fail = func(call int) error {
			if call == 2 {
				return down
			}
			return nil
		}
		b := newBuffer(s, 10, time.Hour)
		if err := b.Record(t.Context(), usageRecords(0, 9)...); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(t.Context()); err != nil || s.got() != "0s:9" {
			t.Errorf("%s, %v", s.got(), err)
		}
		// Then records go straight on, and their errors come back.
		if err := b.Record(t.Context(), usageRecords(9, 10)...); err != down {
			t.Errorf("%v", err)
		}
		if err := b.Record(t.Context(), usageRecords(10, 11)...); err != nil || len(s.all()) != 10 {
			t.Errorf("%d stored, %v", len(s.all()), err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("a second time: %v", err)
		}
	})
}

// A Close that fails says how much is left, and may be repeated.
func TestUsageBufferCloseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		down := errors.New("down")
		s.fail = func(call int) error {
			if call == 2 {
				return down
			}
			return nil
		}
		b := newBuffer(s, 10, time.Hour)
		mustRecord(t, b, usageRecords(0, 9))
		s.calls = 0
		if err := b.Record(t.Context(), usageRecords(9, 9)...); err != nil { // nothing
			t.Fatal(err)
		}
		s.calls = 1 // the next fails
		if err := b.Close(t.Context()); !errors.Is(err, down) || !strings.Contains(err.Error(), "9 usage records") {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Hour) // nothing runs any more
		synctest.Wait()
		if s.calls != 2 {
			t.Errorf("%d calls", s.calls)
		}
		if err := b.Close(t.Context()); err != nil || len(s.all()) != 9 {
			t.Errorf("%d stored, %v", len(s.all()), err)
		}
	})
}

// A stuckStore does not return from Record before it is released.
type stuckStore struct {
	keptUsage
	entered, release chan struct{}
	once             sync.Once
}

func (s *stuckStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	s.once.Do(func() { close(s.entered) })
	select {
	case <-s.release:
		return s.keptUsage.Record(ctx, records...)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// While a batch is on its way to a store that hangs, Record, Query and Close
// keep to their own time.
func TestUsageBufferStuckStore(t *testing.T) {
	s := &stuckStore{entered: make(chan struct{}), release: make(chan struct{})}
	b := newBuffer(s, 1, time.Hour)
	mustRecord(t, b, usageRecords(0, 1))
	<-s.entered
	within(t, 5*time.Second, func() { mustRecord(t, b, usageRecords(1, 2)) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	defer func() {
		close(s.release)
		if err := b.Close(t.Context()); err != nil || len(s.all()) != 2 {
			t.Errorf("%d stored, %v", len(s.all()), err)
		}
	}()
	done := make(chan error, 2)
	go func() {
		_, err := b.Query(ctx, llmhttp.UsageQuery{Account: "acme"})
		done <- err
	}()
	go func() {
		err := b.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "2 usage records") {
			t.Errorf("Close returned %v", err)
		}
		done <- err
	}()
	for range 2 {
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Error("does not return when its context is done")
			return
		}
	}
}

func TestUsageBufferConcurrently(t *testing.T) {
	s := newBatchStore()
	s.fail = func(call int) error {
		if call%5 == 0 {
			return errors.New("down")
		}
		return nil
	}
	b := newBuffer(s, 7, time.Millisecond)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i, r := range usageRecords(g*1000, g*1000+300) {
				if err := b.Record(t.Context(), r); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					if _, err := b.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", To: time.Now().Add(time.Hour)}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for b.Close(t.Context()) != nil {
	}
	if got := len(s.all()); got != 8*300 {
		t.Errorf("%d stored, want %d", got, 8*300)
	}
}

func TestNewUsageBufferDefaults(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a nil store is accepted")
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		s := newBatchStore()
		b := newBuffer(s, 0, 0)
		mustRecord(t, b, usageRecords(0, 1))
		time.Sleep(time.Second)
		synctest.Wait()
		mustRecord(t, b, usageRecords(1, 101))
		synctest.Wait()
		if got := s.got(); got != "1s:1 1s:100" {
			t.Errorf("stored %s", got)
		}
	})
	llmhttp.NewUsageBuffer(nil, 1, 1)
}
