package console_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/route"
)

var screenshots = flag.String("screenshots", "", "the `directory` to which TestScreenshots writes")

// newDemo returns a host with keys and usage that look like those of a small
// company.
func newDemo(t testing.TB) (h *host, key manage.KeyInfo) {
	now := time.Now()
	h = newHost(t, func(_ *host, o *console.Options) {
		o.Targets = func() []route.TargetStatus {
			return []route.TargetStatus{
				{Route: "chat", Target: "rack-1", State: route.StateClosed, InFlight: 3, Tries: 18_204, Failures: 12},
				{Route: "chat", Target: "rack-2", State: route.StateOpen, Tries: 17_322, Failures: 97, LastError: "502 connection refused", Breakers: []route.BreakerStatus{
					{Model: "large-chat", State: route.StateOpen, Since: now.Add(-40 * time.Second), RetryAt: now.Add(20 * time.Second)},
				}},
				{Route: "embed-*", Target: "vendor", State: route.StateHalfOpen, InFlight: 1, Tries: 5_120, Failures: 31, LastError: "429 rate_limit_exceeded", Breakers: []route.BreakerStatus{
					{Model: "embed-2", Account: "search", State: route.StateHalfOpen, Since: now.Add(-2 * time.Second)},
				}},
			}
		}
	})
	for i, p := range []manage.KeyParams{
		{Name: "Nightly evaluation", Account: "research", Models: []string{"small-*"}, Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(50_000)}},
		{Name: "Support bot", Account: "support", Scopes: []llmhttp.Scope{"chat", "models"}, Expires: now.Add(80 * 24 * time.Hour)},
		{Name: "Contractor", Account: "design", Suspended: true},
		{Name: "Search index", Account: "search", Scopes: []llmhttp.Scope{"embeddings"}},
		{Name: "Production web app", Account: "web", Limits: llmhttp.Limits{
			Requests: llmhttp.PerMinute(60), Tokens: llmhttp.PerMinute(20_000), Quota: llmhttp.Quota{Tokens: 12_000_000}, Concurrent: 8,
		}},
	} {
		info, secret := h.mustCreate(t, p)
		if i == 1 || i == 4 {
			require.Equal(t, 200, h.chat(t, secret))
		}
		for d := range 30 {
			for m, model := range []string{"large-chat", "small-chat", "embed-2"} {
				tokens := (40_000 + 9_000*((d*7+i*5+m*3)%11)) / (m + 1) * (1 + i%3)
				if now.Add(-time.Duration(d)*24*time.Hour).Weekday()%6 == 0 {
					tokens /= 4
				}
				h.mustRecord(t, demoRecord(fmt.Sprint(i, d, m), today().Add(-time.Duration(d)*24*time.Hour), &info, model, tokens))
			}
		}
		key = info
	}
	for _, a := range []struct {
		id     string
		params manage.AccountParams
		credit llm.Money
	}{
		{"research", manage.AccountParams{Name: "Research", Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: llm.USD(50)}, Concurrent: 20}}, 0},
		{"design", manage.AccountParams{Name: "Design studio", Suspended: true, Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(100_000)}}, 0},
		{"web", manage.AccountParams{
			Name: "Example web shop", Prepaid: true, Labels: []llmhttp.Label{{Name: "plan", Value: "business"}},
			Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(600)}, PerUser: llmhttp.Limits{Requests: llmhttp.PerMinute(10), Concurrent: 2},
		}, llm.USD(100)},
	} {
		h.mustCreateAccount(t, a.id, a.params, a.credit)
	}
	_, err := h.accounts().AddCredit(t.Context(), manage.CreditEntry{ID: "correction", Account: "web", Amount: -llm.USD(5) / 2, Note: "paid twice"})
	require.NoError(t, err)
	old, _ := h.mustCreate(t, manage.KeyParams{Name: "Old laptop", Account: "web"})
	require.NoError(t, h.keys.RevokeKey(t.Context(), old.ID))
	fillMonitor(h.monitor)
	return h, key
}

// demoRecord returns a record of an end user and a team, whose cost has several parts.
func demoRecord(id string, at time.Time, info *manage.KeyInfo, model string, tokens int) llmhttp.UsageRecord {
	r := record(id, at, info.Account, info.ID, model, tokens)
	r.User = []string{"ann", "bob", "carol"}[len(id)%3]
	r.Labels = []llmhttp.Label{{Name: "team", Value: []string{"red", "blue"}[tokens%2]}}
	price := func(tokens int64, cents llm.Money) llm.Money {
		return (cents * llm.USD(0.01)).Scale(tokens, 1_000_000)
	}
	u := &r.Units
	u.CacheWriteTokens = u.PromptTokens / 10
	r.Cost = llmhttp.Cost{
		Input: price(u.PromptTokens-u.CachedTokens-u.CacheWriteTokens, 300), CacheRead: price(u.CachedTokens, 30),
		CacheWrite: price(u.CacheWriteTokens, 375), Output: price(u.CompletionTokens, 1500),
	}
	return r
}

// fillMonitor reports requests of the last hour to m.
func fillMonitor(m *console.Monitor) {
	now := time.Now()
	for i := range 60 {
		console.SetTime(m, now.Add(-time.Duration(59-i)*time.Minute))
		for n := range 20 + (i*7)%13 + i/4 {
			_, o := m.Observe(context.Background(), nil)
			s := &llmhttp.RequestSummary{Status: 200, Streamed: n%3 > 0, Timing: llmhttp.Timing{
				FirstToken: time.Duration(120+(n*i)%200) * time.Millisecond, Duration: time.Duration(900+(n*i*31)%4000) * time.Millisecond,
			}}
			if n%17 == i%5 {
				s.Status, s.Err, s.ErrorClass = 429, &llm.Error{Status: 429}, llmhttp.ClassRateLimit
				s.Refused = llmhttp.LimitRefusal{Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: s.Record.KeyID}, Limit: llmhttp.BucketRequests}
				if i%4 == 0 {
					s.Status, s.Err, s.ErrorClass, s.Refused = 502, &llm.Error{Status: 502}, llmhttp.ClassBackend, llmhttp.LimitRefusal{}
				}
			}
			o.Ended(s)
		}
	}
	console.SetTime(m, now)
	for range 4 {
		m.Observe(context.Background(), nil)
	}
}

// demoPages are the pages that are shown in the documentation and checked for
// accessibility.
func demoPages(key manage.KeyInfo) map[string]string {
	return map[string]string{
		"overview": "overview", "keys": "keys", "key": "key?id=" + key.ID, "new-key": "keys/new", "rotate": "key/rotate?id=" + key.ID,
		"revoke": "key/revoke?id=" + key.ID, "usage": "usage", "usage-by-key": "usage?by=key", "usage-cost": "usage?by=account&measure=parts",
		"playground":        "playground?key=" + key.ID,
		"playground-images": "playground?mode=images", "playground-embeddings": "playground?mode=embeddings", "audit": "audit",
		"accounts": "accounts", "account": "account?id=web", "new-account": "accounts/new",
	}
}

// TestScreenshots writes a picture of the upper part of each page if -screenshots
// is set.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("-screenshots is not set")
	}
	h, key := newDemo(t)
	b := newTab(t, h)
	write := func(name string) {
		b.waitForImages()
		png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644))
	}
	b.run(chromedp.EmulateViewport(1000, 700))
	b.open("sign-in")
	write("sign-in")
	b.signIn()
	b.open("keys/new")
	b.fill("#name", "Mobile app")
	b.click("Create")
	b.waitFor("h1", "API key created")
	write("secret")
	for name, path := range demoPages(key) {
		b.open(path)
		if name == "playground" {
			b.waitFor("#code", "demo-chat")
			b.click("Send")
			b.waitFor("#state", "Complete")
		}
		if strings.HasPrefix(name, "usage") {
			b.showChart()
		}
		write(name)
	}
	b.setDark()
	b.open("usage")
	b.showChart()
	write("usage-dark")
	b.run(chromedp.EmulateViewport(390, 700, chromedp.EmulateMobile))
	b.open("overview")
	write("overview-narrow")
}

// showChart scrolls to the chart and shows the values of a bar.
func (b *tab) showChart() {
	b.t.Helper()
	evaluate[bool](b, "(document.querySelector('.bar-column:nth-of-type(8)').focus(), document.getElementById('by-day').closest('section').scrollIntoView(), true)")
}
