package llmhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUsageSum_Add counts in every field, so that a new field is not forgotten.
func TestUsageSum_Add(t *testing.T) {
	sum := llmhttp.UsageSum{Start: day(2026, 3, 1), Model: "m"}
	other := llmhttp.UsageSum{Start: day(2026, 4, 1), Model: "other"}
	fields := reflect.ValueOf(&other).Elem()
	for i := range fields.NumField() {
		if f := fields.Field(i); f.CanInt() {
			f.SetInt(int64(i))
		}
	}
	sum.Add(other)
	sum.Add(other)
	want := llmhttp.UsageSum{Start: sum.Start, Model: "m"}
	for i := range fields.NumField() {
		if f := fields.Field(i); f.CanInt() {
			reflect.ValueOf(&want).Elem().Field(i).SetInt(2 * int64(i))
		}
	}
	assert.Equal(t, want, sum)
}

func day(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// TestUsage_Range checks which days the usage endpoint reports. end_date is exclusive.
func TestUsage_Range(t *testing.T) {
	now := time.Date(2026, 3, 10, 23, 30, 0, 0, time.FixedZone("behind", -5*3600)) // the 11th in UTC
	today, tomorrow := day(2026, 3, 11), day(2026, 3, 12)
	s := startServer(t, config{opts: llmhttp.Options{Now: func() time.Time { return now }}})
	for query, want := range map[string][2]time.Time{
		"": {tomorrow.AddDate(0, 0, -100), tomorrow},
		"?start_date=2026-03-01&end_date=2026-03-08":     {day(2026, 3, 1), day(2026, 3, 8)},
		"?start_date=2026-03-11":                         {today, tomorrow},
		"?start_date=2026-03-11&x=%zz":                   {today, tomorrow},
		"?end_date=2026-01-01":                           {day(2026, 1, 1).AddDate(0, 0, -100), day(2026, 1, 1)},
		"?start_date=2026-03-11&end_date=2026-03-12&x=y": {today, tomorrow},
		"?start_date=2024-02-29&end_date=2024-03-01":     {day(2024, 2, 29), day(2024, 3, 1)},
		"?start_date=2026-03-12&end_date=2026-03-12":     {tomorrow, day(2026, 3, 13)},
		"?start_date=2025-11-1&end_date=2025-11-1":       {day(2025, 11, 1), day(2025, 11, 2)},
		"?start_date=2026-3-1&end_date=2026-3-08":        {day(2026, 3, 1), day(2026, 3, 8)},
	} {
		for _, path := range []string{usagePath, "/dashboard/billing/usage"} {
			t.Run(path+query, func(t *testing.T) {
				r := s.get(path + query)
				require.Equal(t, 200, r.StatusCode, "%s", r.body)
				assert.Equal(t, `{"object":"list","daily_costs":[],"total_usage":0,"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,"requests":0,"images":0}`, r.body)
				q := s.usage.queries[len(s.usage.queries)-1]
				assert.Equal(t, llmhttp.UsageQuery{Account: "acme", From: want[0], To: want[1], Step: 24 * time.Hour}, q)
			})
		}
	}
	for query, param := range map[string]string{
		"?start_date=2026-03-12&end_date=2026-03-01": "end_date",
		"?start_date=2027-01-01":                     "start_date",
		"?start_date=0001-01-01":                     "start_date",
		"?start_date=2026-03-01&end_date=9999-12-31": "start_date",
		"?start_date=":                               "start_date",
		"?start_date=yesterday":                      "start_date",
		"?start_date=2026-02-30":                     "start_date",
		"?start_date=2026-03-01T00:00:00Z":           "start_date",
		"?start_date=1772323200":                     "start_date",
		"?end_date=%00":                              "end_date",
		"?start_date=%zz":                            "start_date",
		"?end_date=2026-03-12&start_date=2026-03-%z": "start_date",
		"?x=%zz&end_date=%":                          "end_date",
		"?start_date=2026-03-01;end_date=2026-03-08": "start_date",
		"?end_date=-2026-01-01":                      "end_date",
		"?start_date=" + strings.Repeat("9", 5000):   "start_date",
	} {
		for _, path := range []string{usagePath, "/dashboard/billing/usage"} {
			t.Run(fmt.Sprintf("%.90s", path+query), func(t *testing.T) {
				e := s.get(path+query).checkError(t, 400)
				assert.Equal(t, param, e.Param)
				assert.Equal(t, invalidValue, e.Code)
				checkWords(t, e)
			})
		}
	}
}

func TestUsage_Report(t *testing.T) {
	usage := &usageLog{sums: []llmhttp.UsageSum{
		{Start: day(2026, 3, 11), Model: "a", Requests: 2, Units: llmhttp.Units{PromptTokens: 10, CompletionTokens: 5}, Cost: llmhttp.Cost{Input: llm.USD(0.5), Output: llm.USD(0.5)}},
		{Start: day(2026, 3, 11), Model: "b\"", Requests: 1, Units: llmhttp.Units{Images: 3}, Cost: llmhttp.Cost{Other: llm.USD(6) / 100}},
		{Start: day(2026, 3, 12), Model: "a", Requests: 1, Units: llmhttp.Units{PromptTokens: 1, CompletionTokens: 1}, Cost: llmhttp.Cost{Input: llm.USD(0.1)}},
	}}
	s := startServer(t, config{usage: usage})
	assert.Equal(t, `{"object":"list","daily_costs":[`+
		`{"timestamp":1773187200.0,"line_items":[{"name":"a","cost":100,"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"requests":2,"images":0},`+
		`{"name":"b\"","cost":6,"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,"requests":1,"images":3}]},`+
		`{"timestamp":1773273600.0,"line_items":[{"name":"a","cost":10,"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"requests":1,"images":0}]}],`+
		`"total_usage":116,"prompt_tokens":11,"completion_tokens":6,"total_tokens":17,"requests":4,"images":3}`,
		s.get(usagePath).body)
}

func TestUsage_WithoutAStoreIsNotFound(t *testing.T) {
	h := llmhttp.NewHandler(new(stubBackend), keysFor(testKey()), nil)
	s := startServer(t, config{wrap: func(http.Handler) http.Handler { return h }})
	s.get(usagePath).checkError(t, 404)
}

// The usage endpoint fails after ten seconds if the UsageStore hangs.
func TestUsage_StoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		startPipeServer(t, config{opts: llmhttp.Options{Usage: hangingQuery{}}}).get(usagePath).checkError(t, 503)
		assert.Equal(t, 10*time.Second, time.Since(begin))
	})
}

// A hangingQuery is a UsageStore whose Query does not return before its context ends.
type hangingQuery struct{ llmhttp.UsageStore }

func (hangingQuery) Query(ctx context.Context, _ llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestUsage_Subscription(t *testing.T) {
	expires := time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC)
	reply := func(dollars string, until int64, more string) string {
		return fmt.Sprintf(`{"object":"billing_subscription","has_payment_method":true,"soft_limit_usd":%[1]s,"hard_limit_usd":%[1]s,"system_hard_limit_usd":%[1]s,"access_until":%[2]d%[3]s}`, dollars, until, more)
	}
	for name, tt := range map[string]struct {
		key  llmhttp.Key
		want string
	}{
		"no limit":      {llmhttp.Key{}, reply("100000000", 0, "")},
		"expiry":        {llmhttp.Key{Expires: expires}, reply("100000000", expires.Unix(), "")},
		"cost":          {llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: llm.USD(25) / 2}}}, reply("12.5", 0, "")},
		"nothing":       {llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: -1, Tokens: -1}}}, reply("0", 0, `,"hard_limit_tokens":0`)},
		"tokens":        {llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 5000}}}, reply("100000000", 0, `,"hard_limit_tokens":5000`)},
		"another scope": {llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeChat}}, ""},
	} {
		for _, path := range []string{"/v1/dashboard/billing/subscription", "/dashboard/billing/subscription"} {
			t.Run(name+path, func(t *testing.T) {
				s := startServer(t, config{keys: keysFor(tt.key)})
				r := s.get(path)
				if tt.want == "" {
					r.checkError(t, 403)
					return
				}
				assert.Equal(t, tt.want, r.body)
				assert.Empty(t, s.usage.records())
				s.do("POST", path, "").checkError(t, 405)
			})
		}
	}
	t.Run("counts as a request", func(t *testing.T) {
		s := startServer(t, config{keys: limitedKeys(llmhttp.Limits{Requests: noRefill(1)})})
		assert.Equal(t, 0, remaining(t, s.get("/v1/dashboard/billing/subscription"), "Requests"))
		s.get("/v1/dashboard/billing/subscription").checkError(t, 429)
	})
}

// A known client computes the remaining credit from the limit: it subtracts the usage of
// this month or, without a payment method, that of the last 100 days.
func TestUsage_SubscriptionAndRemainingCredit(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	store := memory.NewUsageStore()
	for i, r := range []struct {
		key  string
		at   time.Time
		used int
	}{
		{"key_1", day(2025, 10, 1), 16}, {"key_1", day(2026, 2, 20), 1}, {"key_1", day(2026, 3, 5), 2}, {"key_1", day(2026, 3, 9).Add(13 * time.Hour), 4},
		{"key_2", day(2026, 3, 6), 8}, // of the same account
	} {
		require.NoError(t, store.Record(t.Context(), llmhttp.UsageRecord{
			ID: fmt.Sprint(i), Time: r.at, Account: "acme", KeyID: r.key, Model: "m", Units: llmhttp.Units{PromptTokens: int64(r.used)}, Cost: llmhttp.Cost{Input: llm.Money(r.used) * llm.MoneyUnit}}))
	}
	for name, tt := range map[string]struct {
		quota llmhttp.Quota
		left  float64
	}{
		"month":         {llmhttp.Quota{}, 94},
		"month, reset":  {llmhttp.Quota{Since: day(2026, 3, 7)}, 96},
		"sliding":       {llmhttp.Quota{Per: 24 * time.Hour}, 96},
		"long sliding":  {llmhttp.Quota{Per: 365 * 24 * time.Hour}, 77},
		"prepaid":       {llmhttp.Quota{Per: -1}, 77},
		"prepaid again": {llmhttp.Quota{Per: -1, Since: now}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			quota := tt.quota
			quota.Cost, quota.Tokens = 100*llm.MoneyUnit, 100
			s := startServer(t, config{
				keys: keysFor(llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Quota: quota}}),
				opts: llmhttp.Options{Usage: store, Now: func() time.Time { return now }},
			})
			var subscription struct {
				HasPaymentMethod bool    `json:"has_payment_method"`
				HardLimitUSD     float64 `json:"hard_limit_usd"`
				HardLimitTokens  float64 `json:"hard_limit_tokens"`
			}
			require.NoError(t, json.Unmarshal([]byte(s.get("/v1/dashboard/billing/subscription").body), &subscription))
			start := now.AddDate(0, 0, -100)
			if subscription.HasPaymentMethod {
				start = day(2026, 3, 1)
			}
			var usage struct {
				TotalUsage  float64 `json:"total_usage"`
				TotalTokens float64 `json:"total_tokens"`
			}
			r := s.get("/v1/dashboard/billing/usage?start_date=" + start.Format(time.DateOnly) + "&end_date=2026-03-11")
			require.NoError(t, json.Unmarshal([]byte(r.body), &usage))
			assert.Equal(t, tt.left, subscription.HardLimitUSD-usage.TotalUsage/100)
			assert.Equal(t, tt.left, subscription.HardLimitTokens-usage.TotalTokens)
		})
	}
}

func TestUsage_SubscriptionWithoutItsStore(t *testing.T) {
	const path = "/v1/dashboard/billing/subscription"
	keys := keysFor(llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 100}}})
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{UsageStore: memory.NewUsageStore()}
		store.hangs.Store(true)
		startPipeServer(t, config{keys: keys, opts: llmhttp.Options{Usage: store}}).get(path).checkError(t, 503)
	})
	synctest.Test(t, func(t *testing.T) {
		store := usagebuffer.New(new(accountLog), nil) // which knows no keys
		assert.Contains(t, startPipeServer(t, config{keys: keys, opts: llmhttp.Options{Usage: store}}).get(path).body, `"hard_limit_tokens":100`)
	})
}
