package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/manage"
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

	scopes := v.post("key?id="+info.ID, url.Values{"scopes": {"chat", "own, No Scope"}, "was.scopes": {"all"}}).body
	assert.Contains(t, scopes, ` id="scopes-error"`)
	assert.Equal(t, 1, strings.Count(scopes, " autofocus"))
	assert.Contains(t, scopes, `value="all" aria-describedby="scopes-help scopes-error" aria-invalid="true" autofocus`)
	assert.Contains(t, scopes, `value="own" checked`, "a box for what was entered")
	assert.Contains(t, scopes, `value="No Scope" aria-label="Other scopes"`, "to be corrected")

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
