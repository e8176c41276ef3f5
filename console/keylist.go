package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/manage"
)

// keysPerPage is the number of keys on a page of the list.
const keysPerPage = 50

// keyListData is the data of keys.html.
type keyListData struct {
	Keys            []manage.KeyInfo
	Search, Account string
	Status          manage.KeyStatus
	Statuses        []manage.KeyStatus
	Newer, Older    string // queries of the neighboring pages; empty on the first and the last page
	Admin           bool
	MayCreate       bool
}

// newKeyListData returns the data for a query without the keys.
func newKeyListData(user *User, query url.Values) *keyListData {
	d := &keyListData{
		Search: strings.TrimSpace(query.Get("search")), Account: query.Get("account"), Status: manage.KeyStatus(query.Get("status")),
		Statuses: []manage.KeyStatus{manage.KeyActive, manage.KeySuspended, manage.KeyExpired, manage.KeyRevoked},
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

// serveList shows a page of the list of keys: the first page, or the page after or
// before the key that the query names.
func (k *keyPages) serveList(q *request) error {
	query := q.r.URL.Query()
	data := newKeyListData(&q.user, query)
	page := manage.KeyQuery{
		Account: data.Account, Status: data.Status, Search: data.Search,
		After: query.Get("after"), Newest: true, Limit: keysPerPage + 1, // one more tells whether there is another page
	}
	backward := query.Get("before") != ""
	if backward {
		page.After, page.Newest = query.Get("before"), false
	}
	if page.After != "" {
		if _, err := q.findKey(k.keys, page.After); err != nil {
			return err
		}
	}
	keys, err := k.keys.ListKeys(q.r.Context(), page)
	if err != nil {
		return err
	}
	more := len(keys) > keysPerPage
	data.Keys = keys[:min(len(keys), keysPerPage)]
	hasOlder, hasNewer := more, query.Has("after")
	if backward {
		slices.Reverse(data.Keys)
		hasOlder, hasNewer = true, hasNewer || more
	}
	data.setLinks(hasOlder, hasNewer)
	return q.render("keys.html", "API keys", data)
}

// setLinks sets the queries of the neighboring pages.
func (d *keyListData) setLinks(hasOlder, hasNewer bool) {
	if len(d.Keys) == 0 {
		return
	}
	if hasOlder {
		d.Older = d.pageQuery("after", d.Keys[len(d.Keys)-1].ID)
	}
	if hasNewer {
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
