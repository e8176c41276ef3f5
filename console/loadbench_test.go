package console_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/sqlstore"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

var (
	loadTime    = flag.Duration("load-time", time.Second, "how `long` BenchmarkReports sends requests, with and without reports")
	loadRate    = flag.Int("load-rate", 50, "the `number` of requests each second of BenchmarkReports")
	loadPeople  = flag.Int("load-people", 24, "the `number` of people who load reports all the time in BenchmarkReports")
	reportConns = flag.Int("report-conns", 0, "the ReportConns of the store of BenchmarkReports")
)

// BenchmarkReports measures what people who load reports in a loop do to requests of the API and to a
// readiness check, on PostgreSQL with the default connections. Each request has another key, most of
// which are not cached. Half of the people are an administrator, the others tenants, half of them of one account with half of the records.
func BenchmarkReports(b *testing.B) {
	store, err := sqlstore.Open(b.Context(), servertest.Postgres(b).DSN(), &sqlstore.Options{KeepRecords: -1, ReportConns: *reportConns})
	require.NoError(b, err)
	defer store.Close()
	keys, secrets := insertLoadKeys(b, store)
	insertLoadRecords(b, store, keys)
	buffer := usagebuffer.New(store, nil)
	defer func() { require.NoError(b, buffer.Close(context.Background())) }()
	h := newHostWithStores(b, store, buffer, func(_ *host, o *console.Options) {
		o.SignIn = nil
		o.User = func(r *http.Request) (console.User, error) {
			account := r.Header.Get("Account") // empty for the administrator
			return console.User{Name: "name " + account, Account: account, Admin: account == ""}, nil
		}
	})
	quiet := h.load(b, store, buffer, secrets)
	b.Logf("without reports: %v", quiet)

	ctx, stop := context.WithCancel(b.Context())
	var people sync.WaitGroup
	var mu sync.Mutex // guards pages
	pages := make(map[int]int)
	for i := range *loadPeople {
		account := ""
		if i%2 == 1 {
			account = benchAccount(i / 2)
		}
		people.Go(func() {
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/console/usage?by=user", nil)
				if err != nil {
					return
				}
				r.Header.Set("Account", account)
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					continue
				}
				response.Body.Close()
				mu.Lock()
				pages[response.StatusCode]++
				mu.Unlock()
				if response.StatusCode != http.StatusOK {
					time.Sleep(100 * time.Millisecond)
				}
			}
		})
	}
	time.Sleep(*loadTime / 10)
	busy := h.load(b, store, buffer, secrets)
	stop()
	people.Wait()
	b.Logf("with %d people: %v; pages by status: %v", *loadPeople, busy, pages)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(quiet.percentile(99).Microseconds())/1000, "p99-ms-quiet")
	b.ReportMetric(float64(busy.percentile(99).Microseconds())/1000, "p99-ms-busy")
	b.ReportMetric(float64(busy.percentile(99))/float64(quiet.percentile(99)), "p99-ratio")
	b.ReportMetric(float64(busy.failed()), "failed")
	b.ReportMetric(float64(busy.notReady), "not-ready")
}

// insertLoadKeys stores keys, half of which are of one account.
func insertLoadKeys(b *testing.B, s *sqlstore.Store) (keys []manage.KeyInfo, secrets []string) {
	for i := range *benchKeys {
		info, secret, err := s.CreateKey(b.Context(), manage.KeyParams{Account: benchAccount(i), Name: fmt.Sprint("key number ", i)})
		require.NoError(b, err)
		keys, secrets = append(keys, info), append(secrets, secret)
	}
	return keys, secrets
}

// insertLoadRecords stores records of the last 30 days, of 10,000 end users.
func insertLoadRecords(b *testing.B, s *sqlstore.Store, keys []manage.KeyInfo) {
	start, rng := time.Now(), rand.New(rand.NewPCG(1, 2))
	begin := today().Add(-29 * 24 * time.Hour)
	const batch = 5000
	for i := 0; i < *benchRecords; i += batch {
		var records []llmhttp.UsageRecord
		for n := i; n < min(i+batch, *benchRecords); n++ {
			key := &keys[rng.IntN(len(keys))]
			at := begin.Add(time.Duration(n) * (29 * 24 * time.Hour / time.Duration(*benchRecords)))
			r := record(fmt.Sprint("req_", n), at, key.Account, key.ID, "demo-chat", 100+rng.IntN(2000))
			r.User = fmt.Sprint("user ", rng.IntN(10_000))
			records = append(records, r)
		}
		require.NoError(b, s.Record(b.Context(), records...))
	}
	b.Logf("%d records in %v", *benchRecords, time.Since(start))
}

// A loadResult is what a load of requests has measured.
type loadResult struct {
	times    []time.Duration // of requests, sorted
	statuses map[int]int
	checks   int // of readiness
	notReady int // checks that failed
}

func (r *loadResult) percentile(p int) time.Duration {
	return r.times[min(len(r.times)*p/100, len(r.times)-1)]
}

func (r *loadResult) failed() int { return len(r.times) - r.statuses[http.StatusOK] }

func (r *loadResult) String() string {
	return fmt.Sprintf("%d requests by status: %v; p50 %v, p99 %v, longest %v; %d of %d checks not ready", len(r.times), r.statuses,
		r.percentile(50), r.percentile(99), r.times[len(r.times)-1], r.notReady, r.checks)
}

// load sends requests at a fixed rate, each with another key, and checks four times a second whether
// the process is ready, as examples/production does.
func (h *host) load(b *testing.B, store *sqlstore.Store, buffer *usagebuffer.Buffer, secrets []string) *loadResult {
	result := &loadResult{statuses: make(map[int]int)}
	var mu sync.Mutex // guards result
	var requests sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()
	ticks := time.NewTicker(time.Second / time.Duration(*loadRate))
	defer ticks.Stop()
	end := time.Now().Add(*loadTime)
	for i := 0; time.Now().Before(end); i++ {
		<-ticks.C
		if i%max(*loadRate/4, 1) == 0 {
			requests.Go(func() {
				ctx, cancel := context.WithTimeout(b.Context(), time.Second)
				defer cancel()
				_, _, err := store.KeyBySecret(ctx, llmhttp.HashSecret(secrets[0]))
				if err == nil {
					err = buffer.Check(ctx)
				}
				mu.Lock()
				defer mu.Unlock()
				result.checks++
				if err != nil {
					result.notReady++
				}
			})
		}
		requests.Go(func() {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, h.URL+"/v1/chat/completions", strings.NewReader(chatBody))
			if err != nil {
				return
			}
			r.Header.Set("Authorization", "Bearer "+secrets[i%len(secrets)])
			r.Header.Set("Content-Type", "application/json")
			start, status := time.Now(), 0
			if response, err := client.Do(r); err == nil {
				status = response.StatusCode
				response.Body.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			result.times = append(result.times, time.Since(start))
			result.statuses[status]++
		})
	}
	requests.Wait()
	slices.Sort(result.times)
	return result
}
