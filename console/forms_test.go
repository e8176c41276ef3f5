package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// tagOf returns the tag of the element with an ID.
func tagOf(t *testing.T, body, id string) string {
	t.Helper()
	i := strings.Index(body, ` id="`+id+`"`)
	require.Positive(t, i, id)
	start := strings.LastIndex(body[:i], "<")
	return body[start : i+strings.Index(body[i:], ">")+1]
}

// A field with a mistake is marked, refers to its error, and the first one gets the focus.
func TestForms_Errors(t *testing.T) {
	h := newHost(t, nil)
	info, _ := h.mustCreate(t, manage.KeyParams{Name: "mine"})
	v := h.newAdmin(t)
	check := func(body string, invalid ...string) {
		t.Helper()
		assert.Equal(t, len(invalid), strings.Count(body, ` aria-invalid="true"`))
		assert.Equal(t, min(len(invalid), 1), strings.Count(body, " autofocus"))
		for i, id := range invalid {
			tag := tagOf(t, body, id)
			assert.Contains(t, tag, `aria-invalid="true"`)
			assert.Equal(t, i == 0, strings.Contains(tag, " autofocus"), tag)
			for ref := range strings.FieldsSeq(findPart(t, tag, `aria-describedby="`, `"`)) {
				assert.Equal(t, 1, strings.Count(body, ` id="`+ref+`"`), ref)
			}
		}
	}
	check(v.get("key?id=" + info.ID).body)
	mistakes := url.Values{"name": {"mine"}, "was.name": {"mine"}, "expires": {"yesterday"}, "requests": {"many"}, "concurrent": {"x"}}
	check(v.post("key?id="+info.ID, mistakes).body, "expires", "requests", "concurrent")
	check(v.post("keys/new", url.Values{"quota": {"x"}}).body, "quota")
	check(v.post("key/rotate?id="+info.ID, url.Values{"overlap": {"long"}}).body, "overlap")

	scopes := v.post("key?id="+info.ID, url.Values{"scopes": {"nonsense"}, "was.scopes": {"all"}}).body
	assert.Contains(t, scopes, ` id="scopes-error"`)
	assert.Equal(t, 1, strings.Count(scopes, " autofocus"))
	assert.Contains(t, scopes, `value="all" aria-describedby="scopes-help scopes-error" aria-invalid="true" autofocus`)

	stranger := h.newVisitor(t)
	check(stranger.get("sign-in").body)
	check(stranger.post("sign-in", url.Values{"name": {"x"}, "password": {"y"}}).body, "name", "password")
	check(stranger.post("sign-in", url.Values{"key": {"sk-wrong"}}).body, "key")
}

// Times have a zone, and a use that is not known yet is not denied.
func TestKeys_Times(t *testing.T) {
	h := newHost(t, nil)
	info, secret := h.mustCreate(t, manage.KeyParams{Expires: time.Date(2099, 1, 31, 12, 0, 0, 0, time.UTC)})
	v := h.newAdmin(t)
	for _, path := range []string{"keys", "key?id=" + info.ID} {
		assert.Contains(t, v.get(path).body, "2099-01-31 12:00:00 UTC", path)
		assert.Contains(t, v.get(path).body, "never or just now", path)
	}
	assert.Contains(t, v.get("key/revoke?id="+info.ID).body, "It was never used, or only in the last two minutes.")
	require.Equal(t, http.StatusOK, h.chat(t, secret))
	assert.NotContains(t, v.get("key?id="+info.ID).body, "never or just now")
	assert.Regexp(t, `<td>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</td>`, v.get("audit").body)
	assert.Contains(t, v.get("usage").body, "UTC")
	assert.Contains(t, v.get("overview").body, "Requests by minute, in UTC")
}

// Pages that show only what one process has seen say so.
func TestPages_OfOneProcess(t *testing.T) {
	v := newHost(t, nil).newAdmin(t)
	for _, path := range []string{"overview", "audit"} {
		assert.Contains(t, v.get(path).body, "of this process", path)
		assert.Contains(t, v.get(path).body, "Other processes have their own.", path)
	}
}

// The CSV file of the usage by key has the names of the keys that the person sees.
func TestUsage_NamesInCSV(t *testing.T) {
	for _, keys := range []int{2, 40} {
		h := newHost(t, nil)
		_, secret := h.mustCreate(t, manage.KeyParams{Account: "acme"})
		moved, _ := h.mustCreate(t, manage.KeyParams{Account: "other", Name: "not of acme"})
		h.mustRecord(t, record("moved", time.Now(), "acme", moved.ID, "m", 10))
		h.mustRecord(t, record("deleted", time.Now(), "acme", "key_deleted", "m", 10))
		lines := []string{moved.ID + ",,1,", "key_deleted,,1,"}
		for i := range keys {
			info, _ := h.mustCreate(t, manage.KeyParams{Account: "acme", Name: fmt.Sprintf("=app, %d", i)})
			h.mustRecord(t, record(info.ID, time.Now(), "acme", info.ID, "m", 10))
			lines = append(lines, fmt.Sprintf(`%s,"'=app, %d",1,`, info.ID, i))
		}
		body := h.newOwner(t, secret).get("usage/table.csv?by=key").body
		assert.True(t, strings.HasPrefix(body, "key,name,requests,prompt_tokens,"), body)
		for _, line := range lines {
			assert.Contains(t, body, "\n"+line)
		}
		assert.Contains(t, h.newAdmin(t).get("usage/table.csv?by=key").body, "\n"+moved.ID+",not of acme,1,")
		assert.True(t, strings.HasPrefix(h.newAdmin(t).get("usage/table.csv?by=model").body, "model,requests,"))
	}
}

// Units that most hosts do not use have a column if there are some, and costs as well.
func TestUsage_Columns(t *testing.T) {
	h := newHost(t, nil)
	r := record("one", time.Now(), "acme", "key_1", "m", 10)
	r.Cost = llmhttp.Cost{}
	h.mustRecord(t, r)
	v := h.newAdmin(t)
	const search, cost = `<th scope="col">Search units</th>`, `<th scope="col">Cost</th>`
	assert.NotContains(t, v.get("usage?by=model").body, search)
	assert.NotContains(t, v.get("usage?by=model").body, cost)
	r.ID, r.Units.SearchUnits, r.Unpriced = "two", 77, true
	h.mustRecord(t, r)
	body := v.get("usage?by=model").body
	assert.Contains(t, body, search)
	assert.Contains(t, body, "<td>77</td>")
	assert.Contains(t, body, cost)
	assert.Contains(t, body, "1 without a price")
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
}

// A page says from when users and labels are known, or that the store does not know them.
func TestUsage_MissingDetail(t *testing.T) {
	since := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	store := &partialReporter{UsageStore: memory.NewUsageStore(), since: since}
	h := newHostWithStores(t, memory.NewKeyStore(), store, nil)
	h.mustRecord(t, record("1", time.Now(), "acme", "key_1", "m", 10))
	v := h.newAdmin(t)
	assert.Contains(t, v.get("usage?by=user").body, "known from "+since.Format(time.DateOnly)+" on")
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
