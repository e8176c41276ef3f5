// Creating, showing and changing an account, and adding to its credit. Only if the store keeps
// accounts.

package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console/internal/session"
	"github.com/llmhttp/llmhttp/manage"
)

// accountData is the data of the pages of one account.
type accountData struct {
	Account manage.AccountInfo
	Exists  bool // whether the account has settings
	Form    *accountForm

	Limits  []limitUse
	PerUser []limitUse

	Credit     listPage[manage.CreditEntry]
	CreditForm *creditForm

	Totals *usageTotals // as in keyData
	Used   []usageColumn
	Days   int

	Admin bool
}

// accountPages serve the list of accounts, and the pages that create, show and change an
// account and add to its credit.
type accountPages struct {
	accounts manage.AccountManager
	limits   *limitReader
	reports  *usageReports
	audit    *auditLog
	added    session.Nonces // of forms that have added credit
}

// accountsOf returns the AccountManager of a store, or nil if it is none.
func accountsOf(keys manage.KeyManager) manage.AccountManager {
	accounts, _ := keys.(manage.AccountManager)
	return accounts
}

// findAccount returns an account, or nil if it does not exist. accounts may be nil.
func findAccount(ctx context.Context, accounts manage.AccountManager, id string) (*manage.AccountInfo, error) {
	if accounts == nil {
		return nil, nil
	}
	info, err := accounts.Account(ctx, id)
	if errors.Is(err, manage.ErrAccountNotFound) {
		return nil, nil
	}
	return &info, err
}

func (a *accountPages) serveCreate(q *request) error {
	form := newAccountForm(new(manage.AccountParams))
	form.Values["id"] = q.r.URL.Query().Get("id")
	return a.showCreate(q, form)
}

func (a *accountPages) showCreate(q *request, form *accountForm) error {
	return q.renderStatus(form.status(), "newaccount.html", "New account", &accountData{Form: form, Admin: true})
}

func (a *accountPages) create(q *request) error {
	form := readAccountForm(q.r.PostForm)
	var params manage.AccountParams
	id, err := form.Values["id"], form.apply(&params)
	form.fail("id", withoutField(llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: id}.Validate()))
	if err = cmp.Or(err, form.err()); err == nil {
		_, err = a.accounts.CreateAccount(q.r.Context(), id, params)
	}
	if errors.Is(err, manage.ErrAccountExists) {
		form.fail("id", errors.New("there is an account with this ID"))
	}
	switch {
	case form.err() != nil:
		return a.showCreate(q, form)
	case err != nil:
		return err
	}
	a.audit.add(
		q.r,
		&q.user,
		AuditEntry{Action: ActionCreateAccount, Account: id, Detail: describeAccountChange(new(manage.AccountParams), &params)},
	)
	return q.redirectToAccount(id, "account-created")
}

// serve shows the account that the query names, or that of the person.
func (a *accountPages) serve(q *request) error {
	id := cmp.Or(q.r.URL.Query().Get("id"), q.user.Account)
	info, err := q.findAccount(a.accounts, id)
	switch {
	case err == nil:
		return a.show(q, &info, newAccountForm(&info.AccountParams), newCreditForm())
	case errors.Is(err, manage.ErrAccountNotFound) && !q.user.Admin && id == q.user.Account: // of which the person knows
		return q.render("account.html", "Account "+id, &accountData{Account: manage.AccountInfo{ID: id}})
	}
	return err
}

// show shows an account with forms for its settings and its credit.
func (a *accountPages) show(q *request, info *manage.AccountInfo, form *accountForm, credit *creditForm) (err error) {
	ctx := q.r.Context()
	data := &accountData{Account: *info, Exists: true, Form: form, CreditForm: credit, Days: defaultDays, Admin: q.user.Admin}
	data.Limits, data.PerUser = a.limits.readAccount(ctx, info), limitNames(&info.PerUser)
	if data.Totals, err = a.reports.totals(ctx, &usageFilter{Account: info.ID}); err != nil {
		return err
	}
	if data.Totals != nil {
		data.Used = data.Totals.columns(false)
	}
	list := func(after string, newest bool, limit int) ([]manage.CreditEntry, error) {
		return a.accounts.ListCredit(ctx, manage.CreditQuery{Account: info.ID, After: after, Newest: newest, Limit: limit})
	}
	if data.Credit, err = readListPage(q.r.URL.Query(), itemsPerPage, list, func(e *manage.CreditEntry) string { return e.ID }); err != nil {
		return err
	}
	return q.renderStatus(max(form.status(), credit.status()), "account.html", "Account "+cmp.Or(info.Name, info.ID), data)
}

// update changes the settings of an account that differ from those that the form showed.
func (a *accountPages) update(q *request) error {
	info, err := a.accounts.Account(q.r.Context(), q.r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	form := readAccountForm(q.r.PostForm)
	var before, after manage.AccountParams
	_, err = a.accounts.UpdateAccount(q.r.Context(), info.ID, func(params *manage.AccountParams) error {
		before = *params
		err := form.apply(params)
		after = *params
		return err
	})
	switch {
	case form.err() != nil:
		return a.show(q, &info, form, newCreditForm())
	case err != nil:
		return err
	}
	detail := describeAccountChange(&before, &after)
	if detail != "" {
		a.audit.add(q.r, &q.user, AuditEntry{Action: ActionUpdateAccount, Account: info.ID, Detail: detail})
	}
	return q.redirectToAccount(info.ID, savedNotice(detail))
}

// addCredit adds to the credit of an account. It does nothing if the form was sent before.
func (a *accountPages) addCredit(q *request) error {
	info, err := a.accounts.Account(q.r.Context(), q.r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	form := readCreditForm(q.r.PostForm)
	if len(form.Entry) != len(session.NewNonce()) {
		return &pageError{http.StatusBadRequest, "The form is not complete. Please load the page of the account again."}
	}
	entry, err := form.entry(&info)
	if err != nil {
		return a.show(q, &info, newAccountForm(&info.AccountParams), form)
	}
	_, err = a.accounts.AddCredit(q.r.Context(), entry)
	switch {
	case errors.Is(err, manage.ErrCreditConflict):
		return &pageError{http.StatusConflict, "This form was sent before with other texts. Only what was sent first was added."}
	case err != nil:
		return err
	}
	if a.added.Take(form.Entry) {
		detail := "amount: " + entry.Amount.String() + "; note: " + quoteValue(entry.Note) + "; entry: " + entry.ID
		a.audit.add(q.r, &q.user, AuditEntry{Action: ActionAddCredit, Account: info.ID, Detail: detail})
	}
	return q.redirectToAccount(info.ID, "credit-added")
}
