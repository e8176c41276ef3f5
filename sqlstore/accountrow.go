// A row of an account.

package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// An accountRow is a row of llmhttp_accounts, with the sum of its credit.
type accountRow struct {
	id, name  string
	suspended bool
	created   int64

	// What Lookup reads. It is null for a key whose account does not exist.
	limits, perUser sql.NullString // a limitsJSON
	labels          sql.NullString // by encodeLabels
	prepaid         sql.NullBool
	credit          sql.NullInt64 // null without entries
}

// accountSettings are the columns of the table llmhttp_accounts AS a, and the sum of the
// credit, in the order of accountRow.settings.
const accountSettings = "a.limits, a.per_user, a.labels, a.prepaid, (SELECT total FROM llmhttp_credit WHERE account = a.id ORDER BY number DESC LIMIT 1)"

const selectAccount = "SELECT a.id, a.name, a.suspended, a.created, " + accountSettings + " FROM llmhttp_accounts a"

// settings returns pointers to the values of accountSettings.
func (a *accountRow) settings() []any {
	return []any{&a.limits, &a.perUser, &a.labels, &a.prepaid, &a.credit}
}

// exists reports whether there is a row.
func (a *accountRow) exists() bool { return a.limits.Valid }

// readAccount reads the account with the given ID. If there is no such account, the error is
// ErrAccountNotFound.
func readAccount(ctx context.Context, q querier, id string) (manage.AccountInfo, error) {
	if checkName("ID", id) != nil {
		return manage.AccountInfo{}, manage.ErrAccountNotFound
	}
	info, err := scanAccount(q.QueryRowContext(ctx, selectAccount+" WHERE a.id = $1", id))
	if errors.Is(err, sql.ErrNoRows) {
		err = manage.ErrAccountNotFound
	}
	return info, err
}

// scanAccount reads a row of a query that begins with selectAccount.
func scanAccount(row interface{ Scan(...any) error }) (manage.AccountInfo, error) {
	var a accountRow
	if err := row.Scan(append([]any{&a.id, &a.name, &a.suspended, &a.created}, a.settings()...)...); err != nil {
		return manage.AccountInfo{}, err
	}
	return a.info()
}

// info returns what the row stores.
func (a *accountRow) info() (manage.AccountInfo, error) {
	var limits, perUser limitsJSON
	labels, err := decodeLabels(a.labels.String)
	err = cmp.Or(err, json.Unmarshal([]byte(a.limits.String), &limits), json.Unmarshal([]byte(a.perUser.String), &perUser))
	if err != nil {
		return manage.AccountInfo{}, fmt.Errorf("account %s: %w", a.id, err)
	}
	info := manage.AccountInfo{
		ID: a.id,
		AccountParams: manage.AccountParams{
			Name:      a.name,
			Limits:    limits.decode(),
			PerUser:   perUser.decode(),
			Prepaid:   a.prepaid.Bool,
			Suspended: a.suspended,
		},
		Credit:  llm.Money(a.credit.Int64),
		Created: fromMicros(a.created),
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		info.Labels = append(info.Labels, llmhttp.Label{Name: name, Value: labels[name]})
	}
	return info, nil
}

// writtenSettings returns the values of the columns name, limits, per_user, labels, prepaid and
// suspended.
func writtenSettings(p *manage.AccountParams) []any {
	return []any{p.Name, encodeLimits(p.Limits), encodeLimits(p.PerUser), encodeLabels(p.Labels), p.Prepaid, p.Suspended}
}

const selectCredit = "SELECT id, account, amount, note, time, total FROM llmhttp_credit"

// scanCredit reads a row of a query that begins with selectCredit.
func scanCredit(row interface{ Scan(...any) error }) (e manage.CreditEntry, err error) {
	var time int64
	err = row.Scan(&e.ID, &e.Account, &e.Amount, &e.Note, &time, &e.Total)
	e.Time = fromMicros(time)
	return e, err
}
