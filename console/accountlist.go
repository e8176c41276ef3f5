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
}

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
	return q.render("accounts.html", "Accounts", data)
}
