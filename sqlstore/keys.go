// Keys and their secrets.

package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

const (
	defaultPage = 100
	maxPage     = 1000

	minImportedSecret, maxImportedSecret = 16, 4096

	// shownSecret is how many random characters of a secret are in its prefix: enough to tell keys
	// apart, too few to help guess the rest.
	shownSecret = 8
)

// pageLimit returns the number of rows of a page for the Limit of a query.
func pageLimit(limit int) int {
	switch {
	case limit == 0:
		return defaultPage
	case limit < 0 || limit > maxPage:
		return maxPage
	}
	return limit
}

// A keyStore keeps API keys. It implements [manage.KeyManager].
type keyStore struct {
	db    *database
	opts  *Options
	cache *keyCache
}

// Lookup implements [llmhttp.KeyStore]. The result can be as old as
// Options.KeyTTL, but it reflects every change that this Store has made.
func (s *keyStore) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	key, err := s.cache.lookup(ctx, secret)
	if err != nil && !errors.Is(err, llmhttp.ErrKeyNotFound) {
		return nil, s.db.wrapError("looking up a key", err)
	}
	return key, err
}

// CreateKey implements [manage.KeyManager].
func (s *keyStore) CreateKey(ctx context.Context, params manage.KeyParams) (info manage.KeyInfo, secret string, err error) {
	secret, prefix := s.newSecret()
	info, err = s.insertKey(ctx, secret, prefix, params)
	if err != nil {
		return manage.KeyInfo{}, "", s.db.wrapError("creating a key", err)
	}
	return info, secret, nil
}

// ImportKey creates a key with an existing secret of 16 to 4096 printable ASCII
// characters. The secret should be random, because a copy of the database allows offline
// guessing. ImportKey fails if another key has the secret.
func (s *keyStore) ImportKey(ctx context.Context, secret string, params manage.KeyParams) (manage.KeyInfo, error) {
	if len(secret) < minImportedSecret || len(secret) > maxImportedSecret || !isPrintableASCII(secret) {
		return manage.KeyInfo{}, fmt.Errorf(
			"sqlstore: importing a key: the secret must have %d to %d printable ASCII characters",
			minImportedSecret,
			maxImportedSecret,
		)
	}
	info, err := s.insertKey(ctx, secret, secret[:min(len(secret)/4, 12)], params)
	return info, s.db.wrapError("importing a key", err)
}

// insertKey stores a new key. The prefix is the displayed part of the secret.
func (s *keyStore) insertKey(ctx context.Context, secret, prefix string, params manage.KeyParams) (manage.KeyInfo, error) {
	info := manage.KeyInfo{
		Key:     llmhttp.Key{ID: "key_" + strings.ToLower(rand.Text()[:20])},
		Prefix:  prefix,
		Created: s.db.now(),
	}
	if err := params.Validate(); err != nil {
		return manage.KeyInfo{}, err
	}
	row, err := newKeyRow(&info, params)
	if err != nil {
		return manage.KeyInfo{}, err
	}
	err = s.db.retry(ctx, s.db.isConflict, func() error {
		return inTx(ctx, s.db.write, nil, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `
				INSERT INTO llmhttp_keys (id, account, name, prefix, scopes, models, limits, suspended, expires, created)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
				row.id, row.account, row.name, row.prefix, row.scopes, row.models, row.limits, row.suspended, row.expires, row.created)
			if err != nil {
				return err
			}
			return insertSecret(ctx, tx, secret, row.id)
		})
	})
	if err != nil {
		return manage.KeyInfo{}, err
	}
	s.cache.Forget(llmhttp.HashSecret(secret)) // an imported secret may be cached as unknown
	return row.info()
}

// newSecret returns a random secret and the prefix to display.
func (s *keyStore) newSecret() (secret, prefix string) {
	secret = llmhttp.NewSecret(s.opts.SecretPrefix)
	return secret, secret[:len(s.opts.SecretPrefix)+shownSecret]
}

var errSecretExists = errors.New("another key has this secret")

func insertSecret(ctx context.Context, tx *sql.Tx, secret, keyID string) error {
	result, err := tx.ExecContext(
		ctx,
		"INSERT INTO llmhttp_secrets (hash, key_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
		llmhttp.HashSecret(secret),
		keyID,
	)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = errSecretExists
	}
	return err
}

// Key implements [manage.KeyManager]. LastUsed includes the latest use in this process;
// uses in other processes are missing for up to two minutes.
func (s *keyStore) Key(ctx context.Context, id string) (manage.KeyInfo, error) {
	info, err := retryRead(ctx, s.db, func() (manage.KeyInfo, error) { return readKey(ctx, s.db.read, id, "") })
	if err != nil {
		return manage.KeyInfo{}, s.db.wrapError("reading a key", err)
	}
	return s.withUse(info), nil
}

// withUse returns info with the latest use in this process.
func (s *keyStore) withUse(info manage.KeyInfo) manage.KeyInfo {
	keys := []manage.KeyInfo{info}
	s.cache.addUses(keys)
	return keys[0]
}

// KeyBySecret implements [manage.KeyManager]. It does not use the cache of Lookup.
func (s *keyStore) KeyBySecret(ctx context.Context, hash string) (info manage.KeyInfo, ends time.Time, err error) {
	info, err = retryRead(ctx, s.db, func() (info manage.KeyInfo, err error) {
		info, ends, err = readKeyBySecret(ctx, s.db.read, hash)
		return info, err
	})
	if err == nil && !ends.IsZero() && !s.db.now().Before(ends) {
		err = llmhttp.ErrKeyNotFound
	}
	if err != nil {
		return manage.KeyInfo{}, time.Time{}, s.db.wrapError("reading a key", err)
	}
	return s.withUse(info), ends, nil
}

// ListKeys implements [manage.KeyManager]. LastUsed is as in Key.
func (s *keyStore) ListKeys(ctx context.Context, q manage.KeyQuery) ([]manage.KeyInfo, error) {
	page, err := retryRead(ctx, s.db, func() ([]manage.KeyInfo, error) { return s.listKeys(ctx, &q) })
	s.cache.addUses(page)
	return page, s.db.wrapError("listing keys", err)
}

func (s *keyStore) listKeys(ctx context.Context, q *manage.KeyQuery) ([]manage.KeyInfo, error) {
	if checkName("Account", q.Account) != nil || checkName("Search", q.Search) != nil {
		return nil, nil // no key can have such a name
	}
	var args sqlArgs
	where := s.keyConditions(q, &args)
	comparison, order := ">", " ORDER BY created, id"
	if q.Newest {
		comparison, order = "<", " ORDER BY created DESC, id DESC"
	}
	if q.After != "" {
		last, err := readKey(ctx, s.db.report, q.After, "")
		if err != nil {
			return nil, err
		}
		where = append(where, "(created, id) "+comparison+" ("+args.add(micros(last.Created))+", "+args.add(last.ID)+")")
	}
	limit := pageLimit(q.Limit)
	// SQLite reads only an index in the subquery.
	subquery := "SELECT id FROM llmhttp_keys WHERE " + strings.Join(where, " AND ") + order + " LIMIT " + args.add(limit)
	var page []manage.KeyInfo
	err := forEachRow(ctx, s.db.report, func(rows *sql.Rows) error {
		info, err := scanKey(rows)
		page = append(page, info)
		return err
	}, selectKey+" WHERE id IN ("+subquery+")"+order, args...)
	return page, err
}

// keyConditions returns the conditions of q on the properties of a key. It adds
// their parameters to args.
func (s *keyStore) keyConditions(q *manage.KeyQuery, args *sqlArgs) []string {
	where := []string{"true"}
	if q.Account != "" {
		where = append(where, "account = "+args.add(q.Account))
	}
	if q.Search != "" {
		where = append(where, s.db.contains(args.add(q.Search), "id", "account", "name", "prefix"))
	}
	if q.Status != "" {
		where = append(where, keyStatus(args.add(micros(s.db.now())))+" = "+args.add(string(q.Status)))
	}
	return where
}

// keyStatus returns an SQL expression for [manage.KeyInfo.Status]. now is the
// placeholder of the current time.
func keyStatus(now string) string {
	return "CASE WHEN revoked IS NOT NULL THEN 'revoked' WHEN suspended THEN 'suspended' WHEN expires <= " + now + " THEN 'expired' ELSE 'active' END"
}

// UpdateKey implements [manage.KeyManager]. It calls change again if the transaction
// is retried.
func (s *keyStore) UpdateKey(ctx context.Context, id string, change func(*manage.KeyParams) error) (manage.KeyInfo, error) {
	var updated manage.KeyInfo
	err := s.changeKey(ctx, id, func(tx *sql.Tx, info manage.KeyInfo) error {
		if !info.Revoked.IsZero() {
			return manage.ErrKeyRevoked
		}
		params := info.Params()
		if err := change(&params); err != nil {
			return err
		}
		var changed manage.KeyParams // a key whose stored settings are not valid can be suspended
		if params.Limits != info.Limits {
			changed.Limits = params.Limits
		}
		if !slices.Equal(params.Scopes, info.Scopes) {
			changed.Scopes = params.Scopes
		}
		if err := changed.Validate(); err != nil {
			return err
		}
		row, err := newKeyRow(&info, params)
		if err != nil {
			return err
		}
		if updated, err = row.info(); err != nil {
			return err
		}
		_, err = tx.ExecContext(
			ctx,
			"UPDATE llmhttp_keys SET account = $2, name = $3, scopes = $4, models = $5, limits = $6, suspended = $7, expires = $8 WHERE id = $1",
			row.id,
			row.account,
			row.name,
			row.scopes,
			row.models,
			row.limits,
			row.suspended,
			row.expires,
		)
		return err
	})
	if err != nil {
		return manage.KeyInfo{}, s.db.wrapError("updating a key", err)
	}
	return updated, nil
}

// RevokeKey implements [manage.KeyManager]. When it returns, the key no longer works
// with this Store. Other Stores refuse it within their Options.KeyTTL.
func (s *keyStore) RevokeKey(ctx context.Context, id string) error {
	err := s.changeKey(ctx, id, func(tx *sql.Tx, info manage.KeyInfo) error {
		_, err := tx.ExecContext(ctx, "UPDATE llmhttp_keys SET revoked = $2 WHERE id = $1 AND revoked IS NULL", id, micros(s.db.now()))
		return err
	})
	return s.db.wrapError("revoking a key", err)
}

// RotateKey implements [manage.KeyManager].
func (s *keyStore) RotateKey(ctx context.Context, id string, overlap time.Duration) (info manage.KeyInfo, secret string, err error) {
	if overlap < 0 {
		return manage.KeyInfo{}, "", errors.New("sqlstore: rotating a key: the overlap is negative")
	}
	secret, prefix := s.newSecret()
	err = s.changeKey(ctx, id, func(tx *sql.Tx, before manage.KeyInfo) error {
		if !before.Revoked.IsZero() {
			return manage.ErrKeyRevoked
		}
		info = before
		info.Prefix = prefix
		if err := expireSecrets(ctx, tx, id, s.db.now(), overlap); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE llmhttp_keys SET prefix = $2 WHERE id = $1", id, prefix); err != nil {
			return err
		}
		return insertSecret(ctx, tx, secret, id)
	})
	if err != nil {
		return manage.KeyInfo{}, "", s.db.wrapError("rotating a key", err)
	}
	return info, secret, nil
}

// expireSecrets lets the secrets of a key expire at now plus overlap at the
// latest, and deletes those that have expired.
func expireSecrets(ctx context.Context, tx *sql.Tx, keyID string, now time.Time, overlap time.Duration) error {
	_, err := tx.ExecContext(
		ctx,
		"UPDATE llmhttp_secrets SET expires = $2 WHERE key_id = $1 AND (expires IS NULL OR expires > $2)",
		keyID,
		micros(now.Add(overlap)),
	)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM llmhttp_secrets WHERE key_id = $1 AND expires <= $2", keyID, micros(now))
	return err
}

// changeKey calls change with the key in a transaction that holds a lock on it, and
// then removes the key's secrets from the cache.
func (s *keyStore) changeKey(ctx context.Context, id string, change func(tx *sql.Tx, info manage.KeyInfo) error) error {
	var hashes []string
	err := s.db.retry(ctx, s.db.isConflict, func() error {
		hashes = nil
		return inTx(ctx, s.db.write, nil, func(tx *sql.Tx) error {
			info, err := readKey(ctx, tx, id, s.db.forUpdate())
			if err != nil {
				return err
			}
			err = forEachRow(ctx, tx, func(rows *sql.Rows) error {
				hashes = append(hashes, "")
				return rows.Scan(&hashes[len(hashes)-1])
			}, "SELECT hash FROM llmhttp_secrets WHERE key_id = $1", id)
			if err != nil {
				return err
			}
			return change(tx, s.withUse(info))
		})
	})
	s.cache.Forget(hashes...) // also after an error: the commit may have succeeded
	return err
}
