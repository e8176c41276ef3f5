package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// Package storetest tests what every AccountManager must do.

func createAccount(t testing.TB, s *Store, id string, params manage.AccountParams) manage.AccountInfo {
	t.Helper()
	info, err := s.CreateAccount(t.Context(), id, params)
	require.NoError(t, err)
	return info
}

func addCredit(t testing.TB, s *Store, account string, amount llm.Money) {
	t.Helper()
	_, err := s.AddCredit(t.Context(), manage.CreditEntry{ID: fmt.Sprint(account, "-", time.Now().UnixNano()), Account: account, Amount: amount})
	require.NoError(t, err)
}

// TestStore_ConcurrentAccountChanges changes two accounts and their credit through two Stores.
func TestStore_ConcurrentAccountChanges(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		stores := []*Store{openStore(t, dsn, nil), openStore(t, dsn, nil)}
		accounts := []string{"a", "b"}
		for _, id := range accounts {
			createAccount(t, stores[0], id, manage.AccountParams{Prepaid: true})
		}
		const workers, times = 4, 10
		var mu sync.Mutex
		added := make(map[string]llm.Money) // by account
		var running sync.WaitGroup
		for w := range workers {
			s, account := stores[w%2], accounts[w/2]
			running.Go(func() {
				for range times {
					_, err := s.UpdateAccount(t.Context(), account, func(p *manage.AccountParams) error { p.Limits.Concurrent++; return nil })
					assert.NoError(t, err)
				}
			})
			running.Go(func() {
				for i := range times {
					// Each entry is added by all workers at the same time, to one of the accounts.
					e, err := s.AddCredit(t.Context(), manage.CreditEntry{ID: fmt.Sprint(i), Account: account, Amount: 3})
					mu.Lock()
					switch {
					case err != nil:
						assert.ErrorIs(t, err, manage.ErrCreditConflict)
					default:
						added[account] = max(added[account], e.Total)
					}
					mu.Unlock()
				}
			})
		}
		running.Wait()
		assert.EqualValues(t, 3*times, added["a"]+added["b"], "each entry counts for one account")
		for _, id := range accounts {
			info, err := stores[1].Account(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, workers/2*times, info.Limits.Concurrent)
			assert.Equal(t, added[id], info.Credit)
			entries, err := stores[0].ListCredit(t.Context(), manage.CreditQuery{Account: id})
			require.NoError(t, err)
			for i, e := range entries {
				assert.EqualValues(t, 3*(i+1), e.Total)
			}
			assert.EqualValues(t, info.Credit/3, len(entries))
		}
	})
}

// Other Stores see changes of an account and its credit within their KeyTTL.
func TestStore_AccountOfOtherStore(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		other := openStore(t, dsn, &Options{KeyTTL: 50 * time.Millisecond})
		createAccount(t, s, "acme", manage.AccountParams{Prepaid: true})
		_, secret := createKey(t, s, manage.KeyParams{Account: "acme"})
		quota := func() llm.Money { return lookup(t, other, secret).Subjects[0].Limits.Quota.Cost }
		assert.Equal(t, llm.Money(-1), quota())
		addCredit(t, s, "acme", 5)
		eventually(t, func() bool { return quota() == 5 }, "the other Store sees the credit")
		_, err := s.UpdateAccount(t.Context(), "acme", func(p *manage.AccountParams) error { p.Suspended = true; return nil })
		require.NoError(t, err)
		eventually(t, func() bool {
			_, err := other.Lookup(t.Context(), secret)
			return errors.Is(err, llmhttp.ErrKeyNotFound)
		}, "the other Store sees that the account is suspended")
	})
}

// explain returns the plan of a query. The plan of SQLite is that of EXPLAIN QUERY PLAN.
func explain(t testing.TB, s *Store, query string, args ...any) string {
	t.Helper()
	statement := "EXPLAIN "
	if s.db.name() == "sqlite" {
		statement = "EXPLAIN QUERY PLAN "
	}
	var lines []string
	err := forEachRow(t.Context(), s.db.read, func(rows *sql.Rows) error {
		var id, parent, unused int64
		var line string
		columns := []any{&id, &parent, &unused, &line}
		if s.db.name() == "postgres" {
			columns = columns[3:]
		}
		err := rows.Scan(columns...)
		lines = append(lines, line)
		return err
	}, statement+query, args...)
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// fillAccounts inserts 20,000 accounts with a key each, of which five have 10,000 credit entries.
func fillAccounts(t testing.TB, s *Store) {
	t.Helper()
	const numbers = "WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 49999) "
	for _, statement := range []string{
		numbers + `INSERT INTO llmhttp_accounts (id, name, limits, per_user, labels, prepaid, suspended, created)
		SELECT 'account ' || n, 'name', '{}', '{}', '', true, n % 10 = 0, n FROM numbers WHERE n < 20000`,
		numbers + `INSERT INTO llmhttp_keys (id, account, name, prefix, limits, suspended, created)
		SELECT 'key ' || n, 'account ' || n, 'name', 'sk-', '{}', false, n FROM numbers WHERE n < 20000`,
		numbers + `INSERT INTO llmhttp_secrets (hash, key_id) SELECT 'hash ' || n, 'key ' || n FROM numbers WHERE n < 20000`,
		numbers + `INSERT INTO llmhttp_credit (id, account, number, time, amount, total, note)
		SELECT 'entry ' || n, 'account ' || (n % 5), 1 + n / 5, n, 1, 1 + n / 5, '' FROM numbers`,
		"ANALYZE",
	} {
		_, err := s.db.write.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

// Lookups, and pages of accounts and credit, read what they need by indexes.
func TestStore_AccountPlans(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		fillAccounts(t, s)
		plan := func(query string, args ...any) string {
			text := explain(t, s, query, args...)
			// A page may be read from the beginning of an index.
			assert.NotRegexp(t, `(?m)Seq Scan|^SCAN \S+$`, text, query)
			return text
		}
		info, err := readKeyByHash(t.Context(), s.db, "hash 1")
		require.NoError(t, err)
		assert.EqualValues(t, 10_000, info.Subjects[0].Limits.Quota.Cost)
		assert.NotContains(t, plan(selectKeyByHash, "hash 1"), "Sort")

		for _, after := range []string{"", "account 5"} {
			for _, newest := range []bool{false, true} {
				for _, q := range []manage.AccountQuery{{}, {Search: "5"}, {Status: manage.AccountSuspended}} {
					q.After, q.Newest, q.Limit = after, newest, 10
					statement, args := s.pageOfAccounts(&q, &manage.AccountInfo{ID: after, Created: fromMicros(5)})
					plan(statement, args...)
				}
				statement, args := pageOfCredit(&manage.CreditQuery{Account: "account 1", After: after, Newest: newest, Limit: 10}, 5_000)
				assert.NotRegexp(t, "Sort|TEMP B-TREE", plan(statement, args...), "%s", statement)
			}
		}
	})
}
