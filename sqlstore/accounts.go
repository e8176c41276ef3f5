// Accounts and their credit, which the query of a key reads too.

package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// An accountStore keeps accounts and their credit. It implements [manage.AccountManager].
type accountStore struct {
	db   *database
	keys *keyCache
}

// Account implements [manage.AccountManager].
func (s *accountStore) Account(ctx context.Context, id string) (manage.AccountInfo, error) {
	info, err := retryRead(ctx, s.db, func() (manage.AccountInfo, error) { return readAccount(ctx, s.db.read, id) })
	return info, s.db.wrapError("reading an account", err)
}

// ListAccounts implements [manage.AccountManager].
func (s *accountStore) ListAccounts(ctx context.Context, q manage.AccountQuery) ([]manage.AccountInfo, error) {
	page, err := retryRead(ctx, s.db, func() ([]manage.AccountInfo, error) { return s.listAccounts(ctx, &q) })
	return page, s.db.wrapError("listing accounts", err)
}

func (s *accountStore) listAccounts(ctx context.Context, q *manage.AccountQuery) (page []manage.AccountInfo, err error) {
	if checkName("Search", q.Search) != nil {
		return nil, nil // no account can have such a name
	}
	var after manage.AccountInfo
	if q.After != "" {
		if after, err = readAccount(ctx, s.db.report, q.After); err != nil {
			return nil, err
		}
	}
	statement, args := s.pageOfAccounts(q, &after)
	err = forEachRow(ctx, s.db.report, func(rows *sql.Rows) error {
		info, err := scanAccount(rows)
		page = append(page, info)
		return err
	}, statement, args...)
	return page, err
}

// pageOfAccounts returns the query for a page of accounts. after is the last of the page before,
// if there is one.
func (s *accountStore) pageOfAccounts(q *manage.AccountQuery, after *manage.AccountInfo) (string, sqlArgs) {
	var args sqlArgs
	where := []string{"true"}
	comparison, order := ">", " ORDER BY created, id"
	if q.Newest {
		comparison, order = "<", " ORDER BY created DESC, id DESC"
	}
	if q.After != "" {
		where = append(where, "(created, id) "+comparison+" ("+args.add(micros(after.Created))+", "+args.add(after.ID)+")")
	}
	if q.Search != "" {
		where = append(where, s.db.contains(args.add(q.Search), "id", "name"))
	}
	if q.Status != "" {
		where = append(where, "CASE WHEN suspended THEN 'suspended' ELSE 'active' END = "+args.add(string(q.Status)))
	}
	// SQLite reads only an index in the subquery.
	subquery := "SELECT id FROM llmhttp_accounts WHERE " + strings.Join(where, " AND ") + order + " LIMIT " + args.add(pageLimit(q.Limit))
	return selectAccount + " WHERE id IN (" + subquery + ")" + order, args
}

// CreateAccount implements [manage.AccountManager].
func (s *accountStore) CreateAccount(ctx context.Context, id string, params manage.AccountParams) (manage.AccountInfo, error) {
	info, err := s.insertAccount(ctx, id, &params)
	return info, s.db.wrapError("creating an account", err)
}

func (s *accountStore) insertAccount(ctx context.Context, id string, params *manage.AccountParams) (info manage.AccountInfo, err error) {
	if err := (llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: id}).Validate(); err != nil {
		return manage.AccountInfo{}, err
	}
	if err := params.Validate(); err != nil {
		return manage.AccountInfo{}, err
	}
	args := append([]any{id, micros(s.db.now())}, writtenSettings(params)...)
	err = s.changeAccount(ctx, id, s.db.isConflict, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `
			INSERT INTO llmhttp_accounts (id, created, name, limits, per_user, labels, prepaid, suspended)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`, args...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, manage.ErrAccountExists)
		}
		info, err = readAccount(ctx, tx, id)
		return err
	})
	return info, err
}

// UpdateAccount implements [manage.AccountManager]. It calls change again if the transaction
// is retried.
func (s *accountStore) UpdateAccount(
	ctx context.Context,
	id string,
	change func(*manage.AccountParams) error,
) (info manage.AccountInfo, err error) {
	err = s.changeAccount(ctx, id, s.db.isConflict, func(tx *sql.Tx) error {
		if err := s.lockAccount(ctx, tx, id); err != nil {
			return err
		}
		before, err := readAccount(ctx, tx, id)
		if err != nil {
			return err
		}
		params := before.AccountParams
		if err := change(&params); err != nil {
			return err
		}
		if err := params.Validate(); err != nil {
			return err
		}
		_, err = tx.ExecContext(
			ctx,
			"UPDATE llmhttp_accounts SET name = $2, limits = $3, per_user = $4, labels = $5, prepaid = $6, suspended = $7 WHERE id = $1",
			append([]any{id}, writtenSettings(&params)...)...)
		if err != nil {
			return err
		}
		info, err = readAccount(ctx, tx, id)
		return err
	})
	if err != nil {
		return manage.AccountInfo{}, s.db.wrapError("updating an account", err)
	}
	return info, nil
}

// changeAccount calls change in a transaction, and then removes the keys of the account from
// the cache.
func (s *accountStore) changeAccount(ctx context.Context, id string, shouldRetry func(error) bool, change func(tx *sql.Tx) error) error {
	err := s.db.retry(ctx, shouldRetry, func() error { return inTx(ctx, s.db.write, nil, change) })
	s.keys.forgetAccount(id) // also after an error: the commit may have succeeded
	return err
}

// lockAccount locks the account with the given ID until the end of tx. A later statement sees
// what others have changed before; in PostgreSQL, a statement that waits for the lock does not
// see rows of other tables that were added meanwhile.
func (s *accountStore) lockAccount(ctx context.Context, tx *sql.Tx, id string) error {
	if checkName("ID", id) != nil {
		return manage.ErrAccountNotFound
	}
	err := tx.QueryRowContext(ctx, "SELECT id FROM llmhttp_accounts WHERE id = $1"+s.db.forUpdate(), id).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return manage.ErrAccountNotFound
	}
	return err
}

// AddCredit implements [manage.AccountManager].
func (s *accountStore) AddCredit(ctx context.Context, e manage.CreditEntry) (added manage.CreditEntry, err error) {
	if err := e.Validate(); err != nil {
		return manage.CreditEntry{}, s.db.wrapError("adding credit", err)
	}
	err = s.changeAccount(ctx, e.Account, s.db.isTransient, func(tx *sql.Tx) error {
		if err := s.lockAccount(ctx, tx, e.Account); err != nil {
			return err
		}
		added, err = insertCredit(ctx, tx, e, micros(s.db.now()))
		return err
	})
	if err != nil {
		return manage.CreditEntry{}, s.db.wrapError("adding credit", err)
	}
	return added, nil
}

// insertCredit adds e to the entries of its account, which is locked, unless it was added before.
func insertCredit(ctx context.Context, tx *sql.Tx, e manage.CreditEntry, now int64) (manage.CreditEntry, error) {
	added, err := scanCredit(tx.QueryRowContext(ctx, selectCredit+" WHERE id = $1", e.ID))
	switch {
	case err == nil && (added.Account != e.Account || added.Amount != e.Amount || added.Note != e.Note):
		return manage.CreditEntry{}, manage.ErrCreditConflict
	case !errors.Is(err, sql.ErrNoRows):
		return added, err
	}
	var number int64
	var sum llm.Money
	err = tx.QueryRowContext(ctx, "SELECT number, total FROM llmhttp_credit WHERE account = $1 ORDER BY number DESC LIMIT 1", e.Account).
		Scan(&number, &sum)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return manage.CreditEntry{}, err
	}
	e.Time, e.Total = fromMicros(now), sum.Add(e.Amount)
	if e.Total.Sub(e.Amount) != sum {
		return manage.CreditEntry{}, errors.New("CreditEntry.Amount: the sum of the entries would not fit into a Money")
	}
	result, err := tx.ExecContext(ctx, `
		INSERT INTO llmhttp_credit (id, account, number, time, amount, total, note)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING`, e.ID, e.Account, number+1, now, e.Amount, e.Total, e.Note)
	if err != nil {
		return manage.CreditEntry{}, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 { // an entry of another account, whose transaction ended after the first query
		return manage.CreditEntry{}, errors.Join(err, manage.ErrCreditConflict)
	}
	return e, nil
}

// ListCredit implements [manage.AccountManager].
func (s *accountStore) ListCredit(ctx context.Context, q manage.CreditQuery) ([]manage.CreditEntry, error) {
	page, err := retryRead(ctx, s.db, func() ([]manage.CreditEntry, error) { return s.listCredit(ctx, &q) })
	return page, s.db.wrapError("listing credit", err)
}

func (s *accountStore) listCredit(ctx context.Context, q *manage.CreditQuery) (page []manage.CreditEntry, err error) {
	if _, err := readAccount(ctx, s.db.report, q.Account); err != nil {
		return nil, err
	}
	var after int64
	if q.After != "" {
		if checkName("After", q.After) != nil {
			return nil, manage.ErrCreditNotFound
		}
		err := s.db.report.QueryRowContext(ctx, "SELECT number FROM llmhttp_credit WHERE id = $1 AND account = $2", q.After, q.Account).
			Scan(&after)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, manage.ErrCreditNotFound
		}
		if err != nil {
			return nil, err
		}
	}
	statement, args := pageOfCredit(q, after)
	err = forEachRow(ctx, s.db.report, func(rows *sql.Rows) error {
		e, err := scanCredit(rows)
		page = append(page, e)
		return err
	}, statement, args...)
	return page, err
}

// pageOfCredit returns the query for a page of credit entries. after is the number of the last
// of the page before, if there is one.
func pageOfCredit(q *manage.CreditQuery, after int64) (string, sqlArgs) {
	var args sqlArgs
	where, order := "account = "+args.add(q.Account), "number"
	comparison := " > "
	if q.Newest {
		comparison, order = " < ", "number DESC"
	}
	if q.After != "" {
		where += " AND number" + comparison + args.add(after)
	}
	return selectCredit + " WHERE " + where + " ORDER BY " + order + " LIMIT " + args.add(pageLimit(q.Limit)), args
}
