package ownstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/llmhttp/llmhttp"
)

// KeySchema creates the tables of [Keys]. A limit that is NULL is none. What the API key is, is known
// to its customer alone: the table has the [llmhttp.HashSecret] of it.
const KeySchema = `
	CREATE TABLE customers (
		id TEXT PRIMARY KEY,
		requests_per_minute INTEGER,
		tokens_per_month INTEGER
	);
	CREATE TABLE api_keys (
		hash TEXT PRIMARY KEY,
		id TEXT NOT NULL UNIQUE,
		customer TEXT NOT NULL REFERENCES customers,
		requests_per_minute INTEGER,
		active BOOLEAN NOT NULL DEFAULT true
	)`

// Keys is a [llmhttp.KeyStore] that reads the tables of [KeySchema]. A key has limits of its own, and
// those of its customer, which hold for all keys of the customer together. Changes in the tables hold
// from the next request on. Package keycache spares requests the query.
type Keys struct{ DB *sql.DB }

var _ llmhttp.KeyStore = (*Keys)(nil)

// Lookup implements [llmhttp.KeyStore].
func (k *Keys) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	var key llmhttp.Key
	var ofKey, ofCustomer, tokens sql.Null[int]
	err := k.DB.QueryRowContext(ctx, `
		SELECT k.id, k.customer, k.requests_per_minute, c.requests_per_minute, c.tokens_per_month
		FROM api_keys k JOIN customers c ON c.id = k.customer
		WHERE k.hash = ? AND k.active`, llmhttp.HashSecret(secret),
	).Scan(&key.ID, &key.Account, &ofKey, &ofCustomer, &tokens)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, llmhttp.ErrKeyNotFound // a 401; other errors are a 503
	}
	if err != nil {
		return nil, err
	}
	key.Limits = limits(ofKey, sql.Null[int]{})
	key.Subjects = []llmhttp.Subject{{
		ID:     llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: key.Account},
		Limits: limits(ofCustomer, tokens),
	}}
	return &key, nil
}

// limits returns the limits of two columns. A 0 in a column permits nothing, and in Limits it is no
// limit.
func limits(requestsPerMinute, tokensPerMonth sql.Null[int]) (l llmhttp.Limits) {
	if requestsPerMinute.Valid {
		l.Requests = llmhttp.PerMinute(requestsPerMinute.V)
	}
	if tokensPerMonth.Valid {
		l.Quota.Tokens = cmp.Or(tokensPerMonth.V, -1)
	}
	return l
}
