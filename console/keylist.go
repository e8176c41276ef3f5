// The list of keys.

package console

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
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

	left map[string]*limitUse // by ID
}

// Left returns what is left of a quota that bounds the key with an ID, or nil: its own, or that of its
// account if the smaller share of this is left.
func (d *keyListData) Left(id string) *limitUse { return d.left[id] }

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
	if data.left, err = k.readLeft(q.r.Context(), data.Items); err != nil {
		return err
	}
	return q.render("keys.html", "API keys", data)
}

// readLeft returns what is left of the quotas that bound keys, by the IDs of the keys.
func (k *keyPages) readLeft(ctx context.Context, keys []manage.KeyInfo) (map[string]*limitUse, error) {
	left, ofAccounts := make(map[string]*limitUse), make(map[string]*limitUse)
	for i := range keys {
		info := &keys[i]
		ofAccount, known := ofAccounts[info.Account]
		if !known {
			account, err := findAccount(ctx, k.accounts, info.Account)
			if err != nil {
				return nil, err
			}
			if account != nil {
				ofAccount = k.limits.readAccountLeft(ctx, account)
			}
			ofAccounts[info.Account] = ofAccount
		}
		left[info.ID] = k.limits.readLeft(ctx, keySubject(info)).less(ofAccount)
		for _, s := range info.Subjects {
			if s.ID.Kind != llmhttp.KindAccount {
				left[info.ID] = left[info.ID].less(k.limits.readLeft(ctx, limitedSubject{s, info.Account}))
			}
		}
	}
	return left, nil
}
