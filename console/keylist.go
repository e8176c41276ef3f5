package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// keysPerPage is the number of keys on a page of the list.
const keysPerPage = 50

// keyListData is the data of keys.html.
type keyListData struct {
	Keys            []llmhttp.KeyInfo
	Search, Account string
	Status          llmhttp.KeyStatus
	Statuses        []llmhttp.KeyStatus
	Newer, Older    string // queries of the neighboring pages; empty on the first and the last page
	Admin           bool
	MayCreate       bool
}

// newKeyListData returns the data for a query without the keys.
func newKeyListData(user *User, query url.Values) *keyListData {
	d := &keyListData{
		Search: strings.TrimSpace(query.Get("search")), Account: query.Get("account"), Status: llmhttp.KeyStatus(query.Get("status")),
		Statuses: []llmhttp.KeyStatus{llmhttp.KeyActive, llmhttp.KeySuspended, llmhttp.KeyExpired, llmhttp.KeyRevoked},
		Admin:    user.Admin, MayCreate: user.mayCreate(),
	}
	if !user.Admin {
		d.Account = user.Account
	}
	if !slices.Contains(d.Statuses, d.Status) {
		d.Status = ""
	}
	return d
}

// serveList shows a page of the list of keys: the first, that after the key in
// the query, or that before it.
func (k *keyPages) serveList(q *request) error {
	query := q.r.URL.Query()
	data := newKeyListData(&q.user, query)
	before := query.Get("before")
	list := llmhttp.KeyQuery{
		Account: data.Account, Status: data.Status, Search: data.Search,
		After: query.Get("after"), Newest: true, Limit: keysPerPage + 1,
	}
	if before != "" { // the list in the other direction, from there
		list.After, list.Newest = before, false
	}
	if list.After != "" {
		if _, err := q.findKey(k.keys, list.After); err != nil {
			return err
		}
	}
	keys, err := k.keys.ListKeys(q.r.Context(), list)
	if err != nil {
		return err
	}
	more := len(keys) > keysPerPage
	data.Keys = keys[:min(len(keys), keysPerPage)]
	if before != "" {
		slices.Reverse(data.Keys)
	}
	data.link(before != "" || more, query.Has("after") || before != "" && more)
	return q.render("keys.html", "API keys", data)
}

// link sets the queries of the neighboring pages, of those that exist.
func (d *keyListData) link(older, newer bool) {
	if len(d.Keys) == 0 {
		return
	}
	if older {
		d.Older = d.pageQuery("after", d.Keys[len(d.Keys)-1].ID)
	}
	if newer {
		d.Newer = d.pageQuery("before", d.Keys[0].ID)
	}
}

// pageQuery returns the query of the page after or before a key.
func (d *keyListData) pageQuery(direction, id string) string {
	v := url.Values{direction: {id}}
	if d.Search != "" {
		v.Set("search", d.Search)
	}
	if d.Account != "" && d.Admin {
		v.Set("account", d.Account)
	}
	if d.Status != "" {
		v.Set("status", string(d.Status))
	}
	return "?" + v.Encode()
}
