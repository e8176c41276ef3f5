package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// Each unit has a column, a tile, and unless it is of tokens a chart, if it is not zero. So have
// costs and records without a price.
func TestUsage_Units(t *testing.T) {
	h := newHost(t, nil)
	v := h.newAdmin(t)
	r := record("none", time.Now(), "acme", "key_1", "m", 0)
	r.Units, r.Cost = llmhttp.Units{}, llmhttp.Cost{}
	h.mustRecord(t, r)
	body := v.get("usage").body
	assert.Contains(t, body, `<thead><tr><th scope="col">Day</th><th scope="col">Requests</th></tr></thead>`)
	assert.NotContains(t, body, "measure=cost")
	n := int64(1000)
	for name, number := range r.Units.All() {
		n++
		*number = n
		r.ID = name
		h.mustRecord(t, r)
		*number = 0
	}
	body = v.get("usage").body
	n = 1000
	for name := range r.Units.All() {
		n++
		title := map[string]string{"audio_millis": "Audio ms"}[name]
		if title == "" {
			title = strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "_", " ")
		}
		text := fmt.Sprint("1\u202f", fmt.Sprint(n)[1:])
		assert.Contains(t, body, `<th scope="col">`+title+`</th>`)
		assert.Contains(t, body, "<dt>"+title+"</dt><dd>"+text+"</dd>")
		assert.Contains(t, body, "<td>"+text+"</td>")
		assert.NotEqual(t, strings.HasSuffix(name, "_tokens"), strings.Contains(body, "measure="+name), name)
		chart := v.get("usage?measure=" + name).body
		assert.Contains(t, chart, `<h2 id="by-day">`+title+" of each day by model</h2>")
		assert.Contains(t, findPart(t, chart, `id="bar-29"`, "</div>"), "<b>"+text+"</b>")
	}
	r.ID, r.Unpriced = "unpriced", true
	h.mustRecord(t, r)
	body = v.get("usage").body
	assert.Contains(t, body, "measure=cost")
	assert.Contains(t, body, "<dt>Without a price</dt><dd>1</dd>")
	assert.Contains(t, body, `<th scope="col">Without a price</th>`)
}

// barOfToday returns the parts of the last bar of a chart, as "NAME VALUE".
func barOfToday(t *testing.T, body string) (total string, parts []string) {
	t.Helper()
	values := strings.Split(findPart(t, body, `id="bar-29"`, "</div>"), "<p>")
	total = findPart(t, values[1], "<b>", "</b>")
	for _, p := range values[2:] {
		parts = append(parts, findPart(t, p, "</i>", "</span>")+" "+findPart(t, p, "<b>", "</b>"))
	}
	return total, parts
}

// The chart shows the groups of the table, of which the smallest share a series.
func TestUsage_ChartOfGroups(t *testing.T) {
	h := newHost(t, nil)
	names := make(map[string]string) // of keys, by their accounts
	for i := range 9 {
		account := fmt.Sprint("account-", i)
		info, _ := h.mustCreate(t, manage.KeyParams{Account: account, Name: "app " + account})
		names[account] = info.ID
		r := record(fmt.Sprint(i), time.Now(), account, info.ID, "m", 10*i)
		r.Units, r.User = llmhttp.Units{PromptTokens: int64(10 * i)}, "user of "+account
		r.Labels = []llmhttp.Label{{Name: "team", Value: "team of " + account}}
		r.Cost = llmhttp.Cost{Input: llm.Money(i) * llm.MoneyUnit, Output: llm.USD(0.5)}
		h.mustRecord(t, r)
	}
	r := record("last", time.Now(), "account-8", names["account-8"], "m", 0) // without a user and a label
	r.Units = llmhttp.Units{PromptTokens: 40}
	h.mustRecord(t, r)
	v := h.newAdmin(t)
	for query, prefix := range map[string]string{"by=account": "", "by=key": "app ", "by=user": "user of ", "by=label&label=team": "team of "} {
		body := v.get("usage?" + query).body
		total, parts := barOfToday(t, body)
		assert.Equal(t, "400", total, query)
		var want []string
		for i := 8; i > 2; i-- {
			n := 10 * i
			if i == 8 && (prefix == "" || prefix == "app ") {
				n += 40
			}
			want = append(want, fmt.Sprint(prefix, "account-", i, " ", n))
		}
		others := map[string]string{"": "others 30", "app ": "others 30", "user of ": "others 60", "team of ": "others 60"}[prefix]
		if none := map[string]string{"user of ": "no user 40", "team of ": "no value 40"}[prefix]; none != "" {
			want[5] = none
		}
		assert.Equal(t, append(want, others), parts, query)
	}
	assert.Contains(t, v.get("usage?by=label&label=team").body, "Tokens of each day by team")
	h.mustCreateAccount(t, "account-7", manage.AccountParams{Name: "Acme Inc."}, 0)
	named := v.get("usage?by=account").body
	_, named7 := barOfToday(t, named)
	assert.Equal(t, "Acme Inc. 70", named7[1], "an account with a name")
	assert.Contains(t, named, `<a href="/console/account?id=account-7">Acme Inc.</a><span class="sub">account-7</span>`)
	assert.Contains(t, named, `<th scope="row">account-8</th>`, "an account that is not in the store")

	// The parts of the cost, over time and of each group.
	body := v.get("usage?by=account&measure=parts").body
	total, parts := barOfToday(t, body)
	assert.Equal(t, "$40.50", total)
	assert.Equal(t, []string{"Input $36.00", "Output $4.50"}, parts)
	assert.Contains(t, body, "Cost of each day by part")
	row := findPart(t, body, `<th scope="row">account-8</th>`, "</tr>")
	assert.Contains(t, row, "<td>$8.00</td><td>$0.5000</td><td>$8.50</td>")
	assert.Contains(t, row, `class="series-1" x="0%" width="94.12%"`)
	assert.Contains(t, row, `class="series-4" x="94.12%" width="5.88%"`)
	assert.Contains(t, findPart(t, body, `<th scope="row">account-0</th>`, "</tr>"), `class="series-4" x="0%" width="5.88%"`)

	// People see the own account only.
	_, secret := h.mustCreate(t, manage.KeyParams{Account: "account-3"})
	owner := h.newOwner(t, secret)
	for _, by := range []string{"day", "model", "key", "account", "user", "label&label=team"} {
		body := owner.get("usage?by=" + by + "&account=account-4").body
		total, _ := barOfToday(t, body)
		assert.Equal(t, "30", total, by)
		assert.NotContains(t, body, "account-4", by)
	}
}

// The pages of usage select by model, end user and label, and group by the last two.
func TestUsage_Detail(t *testing.T) {
	h := newHost(t, nil)
	today := time.Now()
	for i := range 12 {
		r := record(fmt.Sprint(i), today, []string{"acme", "other"}[i%2], "key_1", []string{"large", "small"}[i%2], 10)
		r.User, r.Labels = []string{"ann", "ann", "<bob>", ""}[i%4], []llmhttp.Label{{Name: "team", Value: []string{"red", "blue", "=1"}[i%3]}}
		h.mustRecord(t, r)
	}
	v := h.newAdmin(t)
	for query, want := range map[string][]string{
		"by=user":                        {"ann,acme,3,", "ann,other,3,", "<bob>,acme,3,", ",other,3,"},
		"by=user&account=acme":           {"ann,acme,3,", "<bob>,acme,3,"},
		"by=label&label=team":            {"red,4,", "blue,4,", "'=1,4,"},
		"by=label&label=team%3Dred":      {"red,4,"},
		"by=label&label=team&user=ann":   {"red,2,", "blue,2,", "'=1,2,"},
		"by=account&label=team%3Dred":    {"acme,2,", "other,2,"},
		"by=model&model=large":           {"large,6,"},
		"by=model&user=%3Cbob%3E":        {"large,3,"},
		"by=account&label=team%3Dpurple": nil,
	} {
		lines := strings.Split(strings.TrimSpace(v.get("usage/table.csv?"+query).body), "\n")
		assert.Len(t, lines, 1+len(want), "%s: %q", query, lines)
		for _, line := range want {
			assert.True(t, slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, line) }), "%s: %q is not in %q", query, line, lines)
		}
	}

	body := v.get("usage?by=user&label=team&model=large").body
	assert.Contains(t, body, `&lt;bob&gt;<span class="sub">acme</span>`)
	assert.Contains(t, body, `value="large"`)
	assert.Contains(t, body, "By label")
	assert.NotContains(t, body, "Older usage is missing")
	assert.NotContains(t, v.get("usage?by=label").body, "By label", "a label is to be named first")

	_, secret := h.mustCreate(t, manage.KeyParams{Account: "acme"})
	owner := h.newOwner(t, secret).get("usage/table.csv?by=user&account=other").body
	assert.Contains(t, owner, "ann,acme,3,")
	assert.NotContains(t, owner, ",other,", "the person sees the own account only")
	total, parts := barOfToday(t, h.newOwner(t, secret).get("usage?by=label&label=team&account=other&measure=requests").body)
	assert.Equal(t, "6", total)
	assert.ElementsMatch(t, []string{"red 2", "blue 2", "=1 2"}, parts, "and so in the chart")
}

// The chart has the usage of a key for all accounts that it had, as the table does.
func TestUsage_ChartOfMovedKey(t *testing.T) {
	h := newHost(t, nil)
	h.mustRecord(t, record("1", time.Now(), "before", "key_1", "m", 40), record("2", time.Now(), "after", "key_1", "m", 4), record("3", time.Now(), "after", "key_2", "m", 8))
	total, parts := barOfToday(t, h.newAdmin(t).get("usage?by=key&measure=requests").body)
	assert.Equal(t, "3", total)
	assert.Equal(t, []string{"key_1 2", "key_2 1"}, parts)
}

// A page says from when users and labels are known, or that the store does not know them.
func TestUsage_MissingDetail(t *testing.T) {
	since := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	store := &partialReporter{UsageStore: memory.NewUsageStore(), since: since}
	h := newHostWithStores(t, memory.NewKeyStore(), store, nil)
	h.mustRecord(t, record("1", time.Now(), "acme", "key_1", "m", 10))
	v := h.newAdmin(t)
	assert.Contains(t, v.get("usage?by=user").body, "known from "+since.Format(time.DateOnly)+" on")
	assert.Contains(t, v.get("usage?by=user").body, "Older usage is missing in the table, and among the others in the chart.")
	assert.Contains(t, v.get("usage?user=ann").body, "Older usage is missing here.")
	assert.Contains(t, v.get("usage/table.csv?by=user").header.Get("Content-Disposition"), "by-user-"+since.Format(time.DateOnly))
	assert.NotContains(t, v.get("usage?by=model").body, "Older usage is missing")
	assert.Equal(t, http.StatusNotImplemented, v.get("usage?by=label&label=team").status)
}

// A partialReporter has lost the end users from before since and knows no labels.
type partialReporter struct {
	*memory.UsageStore
	since time.Time
}

func (p *partialReporter) Report(ctx context.Context, q manage.ReportQuery) (manage.Report, error) {
	if q.By == manage.ByLabel {
		return manage.Report{}, errors.ErrUnsupported
	}
	r, err := p.UsageStore.Report(ctx, q)
	if q.NeedsDetail() {
		r.Since = p.since
	}
	return r, err
}

// A page shows the groups that are the largest in what it measures, and the sum of the others, so that the
// rows are all that the page tells of.
func TestUsage_RowsAreTheLargestInWhatThePageShows(t *testing.T) {
	h := newHost(t, nil)
	for i := range 30 {
		r := record(fmt.Sprint(i), time.Now(), fmt.Sprintf("account-%02d", i), fmt.Sprint("key_", i), "m", 0)
		r.Units, r.Cost = llmhttp.Units{PromptTokens: int64(1000 + i)}, llmhttp.Cost{Input: llm.MoneyUnit}
		r.User, r.Labels = fmt.Sprint("user ", i), []llmhttp.Label{{Name: "team", Value: fmt.Sprint("team ", i)}}
		if i == 0 { // which has used images only
			r.Units, r.Cost = llmhttp.Units{Images: 7}, llmhttp.Cost{Output: 10_000 * llm.MoneyUnit}
		}
		h.mustRecord(t, r)
	}
	v := h.newAdmin(t)
	for query, name := range map[string]string{"by=account": "account-00", "by=key": "key_0", "by=user": "user 0", "by=label&label=team": "team 0"} {
		for measure, first := range map[string]bool{"cost": true, "parts": true, "images": true, "tokens": false} {
			body := v.get("usage?measure=" + measure + "&" + query).body
			rows := strings.Split(findPart(t, body, "<tbody>", "</tbody>"), `<th scope="row">`)[1:]
			assert.Len(t, rows, 26, query)
			assert.Equal(t, first, strings.Contains(rows[0], name+"<"), "%s by %s: %s", query, measure, rows[0])
			assert.Contains(t, body, "<dt>Cost</dt><dd>$10029.00</dd>")
			others := map[string]string{"cost": "$5.00", "parts": "$5.00", "images": "$5.00", "tokens": "$10004.00"}[measure]
			assert.True(t, strings.HasPrefix(rows[25], "others</th>"), rows[25])
			assert.Contains(t, rows[25], "<td>"+others+"</td>", "%s by %s", query, measure)
		}
	}
	assert.Contains(t, v.get("usage?by=account&measure=cost").body, "These are the 25 with the highest cost, and the sum of all others.")
	assert.Contains(t, v.get("usage?by=account&measure=images").body, "These are the 25 with the highest number of images, and the sum of all others.")
	assert.Contains(t, v.get("usage/table.csv?by=account").body, "\naccount-00,1,")
	_, parts := barOfToday(t, v.get("usage?by=account&measure=cost").body)
	assert.Equal(t, "account-00 $10000.00", parts[0])
}

// A page with a table and a chart is one report.
func TestUsage_OneReport(t *testing.T) {
	store := &countingReporter{UsageStore: memory.NewUsageStore()}
	h := newHostWithStores(t, memory.NewKeyStore(), store, nil)
	for i := range 9 {
		r := record(fmt.Sprint(i), time.Now(), fmt.Sprint("account-", i), "key_1", "m", 10)
		r.User, r.Labels = fmt.Sprint("user ", i), []llmhttp.Label{{Name: "team", Value: fmt.Sprint(i)}}
		h.mustRecord(t, r)
	}
	v := h.newAdmin(t)
	for _, by := range []string{"day", "model", "key", "account", "user", "label&label=team"} {
		store.reports.Store(0)
		v.get("usage?by=" + by)
		assert.EqualValues(t, 1, store.reports.Load(), by)
	}
}

// A countingReporter counts its reports.
type countingReporter struct {
	*memory.UsageStore
	reports atomic.Int64
}

func (c *countingReporter) Report(ctx context.Context, q manage.ReportQuery) (manage.Report, error) {
	c.reports.Add(1)
	return c.UsageStore.Report(ctx, q)
}
