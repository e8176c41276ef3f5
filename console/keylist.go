package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/manage"
)

// itemsPerPage is the number of keys, accounts or credit entries on a page of their list.
const itemsPerPage = 50

// keyListData is the data of keys.html.
type keyListData struct {
	listPage[manage.KeyInfo]
	Search, Account string
	Status          manage.KeyStatus
	Statuses        []manage.KeyStatus
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

// serveList shows a page of the list of keys.
func (k *keyPages) serveList(q *request) (err error) {
	data := newKeyListData(&q.user, q.r.URL.Query())
	list := func(after string, newest bool, limit int) ([]manage.KeyInfo, error) {
		if after != "" {
			if _, err := q.findKey(k.keys, after); err != nil {
				return nil, err
			}
		}
		return k.keys.ListKeys(q.r.Context(), manage.KeyQuery{
			Account: data.Account, Status: data.Status, Search: data.Search, After: after, Newest: newest, Limit: limit,
		})
	}
	data.listPage, err = readListPage(q.r.URL.Query(), itemsPerPage, list, func(k *manage.KeyInfo) string { return k.ID })
	if err != nil {
		return err
	}
	return q.render("keys.html", "API keys", data)
}
