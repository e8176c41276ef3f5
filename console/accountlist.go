// The list of accounts.

package console

import (
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/manage"
)

// accountListData is the data of accounts.html.
type accountListData struct {
	listPage[manage.AccountInfo]
	Search   string
	Status   manage.AccountStatus
	Statuses []manage.AccountStatus

	left map[string]*limitUse // by ID
}

// Left returns what is left of the credit or the quota of the account with an ID, or nil.
func (d *accountListData) Left(id string) *limitUse { return d.left[id] }

// serveList shows a page of the list of accounts.
func (a *accountPages) serveList(q *request) (err error) {
	query := q.r.URL.Query()
	data := &accountListData{
		Search: strings.TrimSpace(query.Get("search")), Status: manage.AccountStatus(query.Get("status")),
		Statuses: []manage.AccountStatus{manage.AccountActive, manage.AccountSuspended},
	}
	if !slices.Contains(data.Statuses, data.Status) {
		data.Status = ""
	}
	list := func(after string, newest bool, limit int) ([]manage.AccountInfo, error) {
		return a.accounts.ListAccounts(
			q.r.Context(),
			manage.AccountQuery{Status: data.Status, Search: data.Search, After: after, Newest: newest, Limit: limit},
		)
	}
	data.listPage, err = readListPage(query, itemsPerPage, list, func(a *manage.AccountInfo) string { return a.ID })
	if err != nil {
		return err
	}
	data.left = make(map[string]*limitUse)
	for i := range data.Items {
		info := &data.Items[i]
		data.left[info.ID] = a.limits.readAccountLeft(q.r.Context(), info)
	}
	return q.render("accounts.html", "Accounts", data)
}
