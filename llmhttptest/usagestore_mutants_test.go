package llmhttptest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // for calendar days

	"github.com/llmhttp/llmhttp"
)

func TestUsageStoreMutants(t *testing.T) {
	errNone := errors.New("no rows in result set")
	testMutants(t, usageChecks, usageFixture(func(*usageList) {}), []mutant[usageTest]{
		{"no usage is an error", "Empty", usageFixture(func(l *usageList) {
			l.query = func(l *usageList, _ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
				sums, _ := l.find(q)
				if len(sums) == 0 {
					return nil, errNone
				}
				return sums, nil
			}
		})},
		{"no usage is a sum of zero", "Empty", answers(func(q llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			if len(sums) == 0 {
				return []llmhttp.UsageSum{{Start: q.From}}
			}
			return sums
		})},
		{"recording nothing is an error", "Empty", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			if len(rs) == 0 {
				return errors.New("syntax error")
			}
			return l.store(rs)
		})},

		{"no images", "Sums", stores(func(r *llmhttp.UsageRecord) { r.Images = 0 })},
		{"prompt tokens are all tokens", "Sums", stores(func(r *llmhttp.UsageRecord) { r.Usage.PromptTokens += r.Usage.CompletionTokens })},
		{"completion tokens are the rest of the total", "Sums", stores(func(r *llmhttp.UsageRecord) {
			r.Usage.CompletionTokens = r.Usage.TotalTokens - r.Usage.PromptTokens
		})},
		{"what was free is not counted", "Sums", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			return l.store(slices.DeleteFunc(slices.Clone(rs), func(r llmhttp.UsageRecord) bool { return r.Usage.TotalTokens == 0 }))
		})},
		{"estimates are not counted", "Sums", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			return l.store(slices.DeleteFunc(slices.Clone(rs), func(r llmhttp.UsageRecord) bool { return r.Estimated }))
		})},
		{"a sum for each key", "Sums", stores(func(r *llmhttp.UsageRecord) {
			if strings.HasPrefix(r.KeyID, "another") {
				r.Model += " "
			}
		})},
		{"answers come from a cache", "Sums", usageFixture(func(l *usageList) {
			cache := map[llmhttp.UsageQuery][]llmhttp.UsageSum{}
			l.query = func(l *usageList, _ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
				if cache[q] == nil {
					cache[q], _ = l.find(q)
				}
				return cache[q], nil
			}
		})},
		{"records are changed", "Sums", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			err := l.store(rs)
			slices.Reverse(rs)
			return err
		})},
		{"recording fails", "Sums", records(func(*usageList, context.Context, []llmhttp.UsageRecord) error { return errNone })},

		{"newest first", "Order", answers(func(_ llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			slices.Reverse(sums)
			return sums
		})},
		{"by model, then time", "Order", answers(func(_ llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			slices.SortStableFunc(sums, func(a, b llmhttp.UsageSum) int { return strings.Compare(a.Model, b.Model) })
			return sums
		})},
		{"as it comes", "Order", usageFixture(func(l *usageList) {
			l.answer = func(q llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
				slices.SortStableFunc(sums, func(a, b llmhttp.UsageSum) int {
					return slices.IndexFunc(l.records, func(r llmhttp.UsageRecord) bool { return r.Model == a.Model }) -
						slices.IndexFunc(l.records, func(r llmhttp.UsageRecord) bool { return r.Model == b.Model })
				})
				slices.SortStableFunc(sums, func(a, b llmhttp.UsageSum) int { return a.Start.Compare(b.Start) })
				return sums
			}
		})},
		{"as people sort", "Order", answers(func(_ llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			slices.SortStableFunc(sums, func(a, b llmhttp.UsageSum) int {
				if c := a.Start.Compare(b.Start); c != 0 {
					return c
				}
				return strings.Compare(strings.ToLower(a.Model), strings.ToLower(b.Model))
			})
			return sums
		})},

		{"what comes late is lost", "Arrival", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			for _, r := range rs {
				if n := len(l.records); n == 0 || l.records[n-1].Account != r.Account || !r.Time.Before(l.records[n-1].Time) {
					_ = l.store([]llmhttp.UsageRecord{r})
				}
			}
			return nil
		})},
		{"a search in what is not sorted", "Arrival", usageFixture(func(l *usageList) {
			l.query = func(l *usageList, _ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
				own := slices.DeleteFunc(slices.Clone(l.records), func(r llmhttp.UsageRecord) bool { return r.Account != q.Account })
				if len(own) > 2 {
					slices.SortStableFunc(own, func(a, b llmhttp.UsageRecord) int { return a.Time.Compare(b.Time) })
				}
				find := func(t time.Time) int {
					i, _ := slices.BinarySearchFunc(own, t, func(r llmhttp.UsageRecord, t time.Time) int { return r.Time.Compare(t) })
					return i
				}
				from := find(q.From)
				return addUp(q, own[from:max(from, find(q.To))]), nil
			}
		})},

		{"To is inclusive", "Bounds", asks(func(q *llmhttp.UsageQuery) { q.To = q.To.Add(1) })},
		{"From is exclusive", "Bounds", usageFixture(func(l *usageList) {
			l.query = func(l *usageList, _ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				return addUp(q, slices.DeleteFunc(slices.Clone(l.records), func(r llmhttp.UsageRecord) bool { return r.Time.Equal(q.From) })), nil
			}
		})},
		{"records in seconds", "Bounds", stores(func(r *llmhttp.UsageRecord) { r.Time = r.Time.Truncate(time.Second) })},
		{"records in milliseconds", "Bounds", stores(func(r *llmhttp.UsageRecord) { r.Time = r.Time.Round(time.Millisecond) })},
		{"queries in seconds", "Bounds", asks(func(q *llmhttp.UsageQuery) { q.To = q.To.Truncate(time.Second) })},
		{"queries in days", "Bounds", asks(func(q *llmhttp.UsageQuery) { q.From, q.To = q.From.Truncate(day), q.To.Truncate(day).Add(day) })},

		{"no periods", "Periods", asks(func(q *llmhttp.UsageQuery) { q.Step = 0 })},
		{"periods begin at midnight", "Periods", answers(func(q llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			for i := range sums {
				if q.Step == day {
					sums[i].Start = sums[i].Start.Truncate(day)
				}
			}
			return sums
		})},
		{"periods of whole seconds", "Periods", asks(func(q *llmhttp.UsageQuery) { q.Step = q.Step.Truncate(time.Second) })},
		{"the last period is whole", "Periods", asks(func(q *llmhttp.UsageQuery) {
			if q.Step > 0 {
				q.To = q.From.Add((q.To.Sub(q.From) + q.Step - 1) / q.Step * q.Step)
			}
		})},
		{"no last period unless it is whole", "Periods", asks(func(q *llmhttp.UsageQuery) {
			if q.Step > 0 && q.To.After(q.From.Add(q.Step)) {
				q.To = q.From.Add(q.To.Sub(q.From) / q.Step * q.Step)
			}
		})},
		{"empty periods", "Periods", answers(func(q llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			if q.Step != day {
				return sums
			}
			var all []llmhttp.UsageSum
			for at := q.From; at.Before(q.To); at = at.Add(day) {
				i := slices.IndexFunc(sums, func(s llmhttp.UsageSum) bool { return s.Start.Equal(at) })
				if i < 0 {
					all = append(all, llmhttp.UsageSum{Start: at})
				} else {
					all = append(all, sums[i])
				}
			}
			return all
		})},

		{"Step 0 is a day", "OnePeriod", asks(func(q *llmhttp.UsageQuery) {
			if q.Step == 0 {
				q.Step = day
			}
		})},
		{"a negative Step is taken for its size", "OnePeriod", asks(func(q *llmhttp.UsageQuery) { q.Step = max(q.Step, -q.Step) })},
		{"Step overflows", "OnePeriod", answers(func(q llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			return slices.DeleteFunc(sums, func(s llmhttp.UsageSum) bool { return q.From.UnixNano()+int64(max(0, q.Step)) < q.From.UnixNano() })
		})},
		{"Step divides", "OnePeriod", asks(func(q *llmhttp.UsageQuery) { _ = 1 / q.Step })},
		{"nanoseconds overflow", "OnePeriod", asks(func(q *llmhttp.UsageQuery) { q.From = time.Unix(0, q.From.UnixNano()) })},
		{"nothing was before 1970", "OnePeriod", answers(func(q llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			if q.From.Unix() < 0 {
				return nil
			}
			return sums
		})},

		{"clocks on walls count", "Locations", usageFixture(func(l *usageList) {
			wall := func(t time.Time) time.Time {
				return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
			}
			l.keep = func(r *llmhttp.UsageRecord) { r.Time = wall(r.Time) }
			l.ask = func(q *llmhttp.UsageQuery) { q.From, q.To = wall(q.From), wall(q.To) }
		})},
		{"periods begin at midnight in UTC", "Locations", answers(func(_ llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			for i := range sums {
				sums[i].Start = sums[i].Start.UTC().Truncate(day)
			}
			return sums
		})},
		{"calendar days", "Locations", answers(func(q llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			for i := range sums {
				sums[i].Start = q.From.AddDate(0, 0, int(sums[i].Start.Sub(q.From)/day))
			}
			return sums
		})},

		{"no range is an error", "NoRange", usageFixture(func(l *usageList) {
			l.query = func(l *usageList, _ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
				if !q.From.Before(q.To) {
					return nil, errors.New("bad range")
				}
				return l.find(q)
			}
		})},
		{"bounds are put in order", "NoRange", asks(func(q *llmhttp.UsageQuery) {
			if q.To.Before(q.From) {
				q.From, q.To = q.To, q.From
			}
		})},

		{"duplicates count", "SameID", same(func(*llmhttp.UsageRecord) string { return unique("x") })},
		{"duplicates count within a call", "SameID", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.records = append(l.records, slices.DeleteFunc(slices.Clone(rs), l.holds)...)
			return nil
		})},
		{"duplicates count in other calls", "SameID", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			once := usageList{key: l.key, keep: l.keep}
			_ = once.store(rs)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.records = append(l.records, once.records...)
			return nil
		})},
		{"duplicates are an error", "SameID", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			for _, r := range rs {
				if l.has(&r) {
					return errors.New("unique constraint violated")
				}
			}
			return l.store(rs)
		})},
		{"a duplicate drops its batch", "SameID", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			if slices.ContainsFunc(rs, l.holds) {
				return nil
			}
			return l.store(rs)
		})},
		{"a duplicate ends its batch", "SameID", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			for _, r := range rs {
				if l.has(&r) {
					return nil
				}
				_ = l.store([]llmhttp.UsageRecord{r})
			}
			return nil
		})},
		{"the last one counts", "SameID", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			for _, r := range rs {
				l.records = slices.DeleteFunc(l.records, func(s llmhttp.UsageRecord) bool { return s.ID == r.ID })
				l.records = append(l.records, r)
			}
			return nil
		})},
		{"IDs are an account's", "SameID", same(func(r *llmhttp.UsageRecord) string { return r.Account + " " + r.ID })},
		{"IDs are a model's", "SameID", same(func(r *llmhttp.UsageRecord) string { return r.Model + " " + r.ID })},
		{"IDs are a time's", "SameID", same(func(r *llmhttp.UsageRecord) string { return r.Time.String() + " " + r.ID })},

		{"case of IDs is ignored", "SimilarIDs", same(func(r *llmhttp.UsageRecord) string { return strings.ToLower(r.ID) })},
		{"IDs are padded with spaces", "SimilarIDs", same(func(r *llmhttp.UsageRecord) string { return strings.TrimRight(r.ID, " ") })},
		{"IDs are cut off", "SimilarIDs", same(func(r *llmhttp.UsageRecord) string { return r.ID[:min(len(r.ID), 255)] })},
		{"accents of IDs are ignored", "SimilarIDs", same(func(r *llmhttp.UsageRecord) string { return strings.ReplaceAll(r.ID, "\u00e9", "e\u0301") })},

		{"case of accounts is ignored", "Accounts", usageFixture(func(l *usageList) {
			l.keep = func(r *llmhttp.UsageRecord) { r.Account = strings.ToLower(r.Account) }
			l.ask = func(q *llmhttp.UsageQuery) { q.Account = strings.ToLower(q.Account) }
		})},
		{"accounts are trimmed", "Accounts", usageFixture(func(l *usageList) {
			l.keep = func(r *llmhttp.UsageRecord) { r.Account = strings.TrimSpace(r.Account) }
			l.ask = func(q *llmhttp.UsageQuery) { q.Account = strings.TrimSpace(q.Account) }
		})},
		{"accounts are one", "Accounts", usageFixture(func(l *usageList) {
			l.keep = func(r *llmhttp.UsageRecord) { r.Account = "" }
			l.ask = func(q *llmhttp.UsageQuery) { q.Account = "" }
		})},
		{"quotes break queries", "Accounts", usageFixture(func(l *usageList) {
			l.query = func(l *usageList, _ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
				if strings.Contains(q.Account, "'") {
					return nil, errors.New("syntax error")
				}
				return l.find(q)
			}
		})},

		{"case of models is ignored", "Models", stores(func(r *llmhttp.UsageRecord) { r.Model = strings.ToLower(r.Model) })},
		{"models are trimmed", "Models", stores(func(r *llmhttp.UsageRecord) { r.Model = strings.TrimSpace(r.Model) })},
		{"models are cut off", "Models", stores(func(r *llmhttp.UsageRecord) { r.Model = r.Model[:min(len(r.Model), 255)] })},
		{"models are ASCII", "Models", stores(func(r *llmhttp.UsageRecord) {
			r.Model = strings.Map(func(c rune) rune { return min(c, '?') }, r.Model)
		})},

		{"the records are kept", "Owned", func(testing.TB) usageTest { return usageTest{new(usageKeeper), unique("account")} }},
		{"the answer is kept", "Owned", usageFixture(func(l *usageList) {
			var last []llmhttp.UsageSum
			l.query = func(l *usageList, _ context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
				if last == nil {
					last, _ = l.find(q)
				}
				return last, nil
			}
		})},

		{"large batches are an error", "LargeBatch", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			if len(rs)*9 > 32766 {
				return errors.New("too many SQL variables")
			}
			return l.store(rs)
		})},
		{"large batches are cut off", "LargeBatch", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			return l.store(rs[:min(len(rs), 1000)])
		})},

		{"sums of 32 bits", "LargeSums", answers(func(_ llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			for i := range sums {
				sums[i].PromptTokens = int64(int32(sums[i].PromptTokens))
			}
			return sums
		})},
		{"sums of float32", "LargeSums", answers(func(_ llmhttp.UsageQuery, sums []llmhttp.UsageSum) []llmhttp.UsageSum {
			for i := range sums {
				sums[i].Images = int64(float32(sums[i].Images))
			}
			return sums
		})},

		{"cancelled is success", "Cancelled", records(func(l *usageList, ctx context.Context, rs []llmhttp.UsageRecord) error {
			if ctx.Err() != nil {
				return nil
			}
			return l.store(rs)
		})},
		{"cancelled is half a batch, remembered as a whole", "Cancelled", usageFixture(func(l *usageList) {
			begun := map[string]bool{}
			l.record = func(l *usageList, ctx context.Context, rs []llmhttp.UsageRecord) error {
				rs = slices.DeleteFunc(slices.Clone(rs), func(r llmhttp.UsageRecord) bool { return begun[r.ID] })
				for _, r := range rs {
					begun[r.ID] = true
				}
				if ctx.Err() != nil {
					return errors.Join(l.store(rs[:1]), ctx.Err())
				}
				return l.store(rs)
			}
		})},
		{"cancelled is no usage", "Cancelled", usageFixture(func(l *usageList) {
			l.query = func(l *usageList, ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
				if ctx.Err() != nil {
					return nil, nil
				}
				return l.find(q)
			}
		})},

		{"To is inclusive", "RandomQueries", asks(func(q *llmhttp.UsageQuery) { q.To = q.To.Add(1) })},
		{"only what is in time is found", "RandomQueries", usageFixture(func(l *usageList) {
			l.record = func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
				for _, r := range rs {
					if n := len(l.records); n == 0 || r.Time.After(l.records[n-1].Time) {
						_ = l.store([]llmhttp.UsageRecord{r})
					}
				}
				return nil
			}
		})},

		{"duplicates count within a call", "SplitAndRepeated", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.records = append(l.records, slices.DeleteFunc(slices.Clone(rs), l.holds)...)
			return nil
		})},
		{"only the latest IDs are remembered", "SplitAndRepeated", usageFixture(func(l *usageList) {
			var latest []string
			l.record = func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
				l.key = func(r *llmhttp.UsageRecord) string { return unique("x") }
				for _, r := range rs {
					if !slices.Contains(latest, r.ID) {
						latest = append(latest, r.ID)
						_ = l.store([]llmhttp.UsageRecord{r})
					}
				}
				latest = latest[max(0, len(latest)-5):]
				return nil
			}
		})},

		{"looks, then stores", "Concurrent", records(func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
			l.mu.Lock()
			fresh := slices.DeleteFunc(slices.Clone(rs), l.holds)
			l.mu.Unlock()
			time.Sleep(time.Microsecond)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.records = append(l.records, fresh...)
			return nil
		})},
		{"locked is an error", "Concurrent", usageFixture(func(l *usageList) {
			var busy sync.Mutex
			l.record = func(l *usageList, _ context.Context, rs []llmhttp.UsageRecord) error {
				if !busy.TryLock() {
					return errors.New("database is locked")
				}
				defer busy.Unlock()
				time.Sleep(time.Microsecond)
				return l.store(rs)
			}
		})},
		{"records later", "Concurrent", records(func(l *usageList, ctx context.Context, rs []llmhttp.UsageRecord) error {
			rs = slices.Clone(rs)
			go func() {
				time.Sleep(time.Microsecond)
				_ = l.store(rs)
			}()
			return nil
		})},
	})
}
