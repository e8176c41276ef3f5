// A row of a key.

package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
)

// A keyRow is a row of llmhttp_keys.
type keyRow struct {
	id, account, name, prefix  string
	scopes, models             sql.NullString // JSON arrays
	limits                     string         // a limitsJSON
	suspended                  bool
	created                    int64
	expires, lastUsed, revoked sql.NullInt64
}

// keyColumns are the columns of a keyRow in the order of keyRow.pointers.
const keyColumns = "id, account, name, prefix, scopes, models, limits, suspended, expires, created, last_used, revoked"

const selectKey = "SELECT " + keyColumns + " FROM llmhttp_keys"

// pointers returns pointers to the values of keyColumns.
func (k *keyRow) pointers() []any {
	return []any{
		&k.id, &k.account, &k.name, &k.prefix, &k.scopes, &k.models,
		&k.limits, &k.suspended, &k.expires, &k.created, &k.lastUsed, &k.revoked,
	}
}

// readKey reads the key with the given ID. The suffix ends the query. If there is no such key, the
// error is ErrKeyNotFound.
func readKey(ctx context.Context, q querier, id, suffix string) (manage.KeyInfo, error) {
	if checkName("ID", id) != nil {
		return manage.KeyInfo{}, llmhttp.ErrKeyNotFound
	}
	info, err := scanKey(q.QueryRowContext(ctx, selectKey+" WHERE id = $1"+suffix, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = llmhttp.ErrKeyNotFound
	}
	return info, err
}

// scanKey reads a row of a query that begins with selectKey.
func scanKey(row interface{ Scan(...any) error }) (manage.KeyInfo, error) {
	var k keyRow
	if err := row.Scan(k.pointers()...); err != nil {
		return manage.KeyInfo{}, err
	}
	return k.info()
}

// readKeyBySecret reads the key whose secret has the given hash, and when the secret
// expires. If there is no such secret, the error is ErrKeyNotFound.
func readKeyBySecret(ctx context.Context, q querier, hash string) (info manage.KeyInfo, expires time.Time, err error) {
	if checkName("hash", hash) != nil {
		return info, expires, llmhttp.ErrKeyNotFound
	}
	var k keyRow
	var secretExpires sql.NullInt64
	err = q.QueryRowContext(ctx, "SELECT "+keyColumns+", secret_expires FROM llmhttp_keys"+
		" JOIN (SELECT key_id, expires AS secret_expires FROM llmhttp_secrets WHERE hash = $1) AS secret ON key_id = id", hash).
		Scan(append(k.pointers(), &secretExpires)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = llmhttp.ErrKeyNotFound
	}
	if err != nil {
		return info, expires, err
	}
	info, err = k.info()
	return info, decodeTime(secretExpires), err
}

// selectKeyByHash selects a key by the hash of its secret, and its account, if there is one.
const selectKeyByHash = `
	SELECT k.id, k.account, k.scopes, k.models, k.limits, k.expires, s.expires, ` + accountSettings + `
	FROM llmhttp_secrets s JOIN llmhttp_keys k ON k.id = s.key_id LEFT JOIN llmhttp_accounts a ON a.id = k.account
	WHERE s.hash = $1 AND k.revoked IS NULL AND NOT k.suspended AND a.suspended IS NOT TRUE`

// readKeyByHash reads the key whose secret has the given hash, as Lookup returns it. If
// there is none, the error is ErrKeyNotFound.
func readKeyByHash(ctx context.Context, db *database, hash string) (*llmhttp.Key, error) {
	var secretExpires sql.NullInt64
	var account accountRow
	k, err := retryRead(ctx, db, func() (k keyRow, err error) {
		err = db.read.QueryRowContext(ctx, selectKeyByHash, hash).
			Scan(append([]any{&k.id, &k.account, &k.scopes, &k.models, &k.limits, &k.expires, &secretExpires}, account.settings()...)...)
		return k, err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, llmhttp.ErrKeyNotFound
	}
	if err != nil {
		return nil, err
	}
	info, err := k.info()
	if err != nil {
		return nil, err
	}
	if end := decodeTime(secretExpires); !end.IsZero() && (info.Expires.IsZero() || end.Before(info.Expires)) {
		info.Expires = end
	}
	if account.exists() {
		account.id = k.account
		a, err := account.info()
		if err != nil {
			return nil, err
		}
		a.ApplyTo(&info.Key)
	}
	return &info.Key, nil
}

// newKeyRow returns the row of the key k with other params, whose Scopes are valid or those of k. It
// returns an error if a name in params cannot be stored.
func newKeyRow(k *manage.KeyInfo, params manage.KeyParams) (keyRow, error) {
	params.Account = cmp.Or(params.Account, k.ID)
	err := cmp.Or(checkName("Account", params.Account), checkName("Name", params.Name))
	for i, model := range params.Models {
		err = cmp.Or(err, checkName(fmt.Sprintf("Models[%d]", i), model))
	}
	if err != nil {
		return keyRow{}, err
	}
	return keyRow{
		id:        k.ID,
		account:   params.Account,
		name:      params.Name,
		prefix:    k.Prefix,
		scopes:    encodeList(params.Scopes),
		models:    encodeList(params.Models),
		limits:    encodeLimits(params.Limits),
		suspended: params.Suspended,
		created:   micros(k.Created),
		expires:   encodeTime(params.Expires),
		lastUsed:  encodeTime(k.LastUsed),
		revoked:   encodeTime(k.Revoked),
	}, nil
}

func (k *keyRow) info() (manage.KeyInfo, error) {
	info := manage.KeyInfo{
		Key:       llmhttp.Key{ID: k.id, Account: k.account, Expires: decodeTime(k.expires)},
		Name:      k.name,
		Prefix:    k.prefix,
		Suspended: k.suspended,
		Created:   fromMicros(k.created),
		LastUsed:  decodeTime(k.lastUsed),
		Revoked:   decodeTime(k.revoked),
	}
	var limits limitsJSON
	err := cmp.Or(decodeList(k.scopes, &info.Scopes), decodeList(k.models, &info.Models), json.Unmarshal([]byte(k.limits), &limits))
	if err != nil {
		return manage.KeyInfo{}, fmt.Errorf("key %s: %w", k.id, err)
	}
	info.Limits = limits.decode()
	return info, nil
}

// encodeTime encodes the zero time as null.
func encodeTime(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: micros(t), Valid: !t.IsZero()}
}

func decodeTime(m sql.NullInt64) time.Time {
	if !m.Valid {
		return time.Time{}
	}
	return fromMicros(m.Int64)
}

// encodeList encodes list as a JSON array, and nil as null.
func encodeList[T ~string](list []T) sql.NullString {
	if list == nil {
		return sql.NullString{}
	}
	return sql.NullString{String: encodeJSON(list), Valid: true}
}

func decodeList[T ~string](text sql.NullString, list *[]T) error {
	if !text.Valid {
		return nil
	}
	return json.Unmarshal([]byte(text.String), list)
}

// limitsJSON is the stored form of llmhttp.Limits. Zero fields are omitted.
type limitsJSON struct {
	Requests   rateJSON  `json:"requests,omitzero"`
	Tokens     rateJSON  `json:"tokens,omitzero"`
	Quota      quotaJSON `json:"quota,omitzero"`
	Completion int       `json:"max_completion_tokens,omitzero"`
	Concurrent int       `json:"concurrent,omitzero"`
}

type rateJSON struct {
	N     int           `json:"n,omitzero"`
	Per   time.Duration `json:"per,omitzero"` // in nanoseconds
	Burst int           `json:"burst,omitzero"`
}

// quotaJSON is the stored form of llmhttp.Quota.
type quotaJSON struct {
	Tokens int           `json:"tokens,omitzero"`
	Cost   llm.Money     `json:"cost,omitzero"`  // a decimal number in a string
	Per    time.Duration `json:"per,omitzero"`   // in nanoseconds
	Since  int64         `json:"since,omitzero"` // in microseconds; zero means no time
}

func encodeQuota(q llmhttp.Quota) quotaJSON {
	stored := quotaJSON{Tokens: q.Tokens, Cost: q.Cost, Per: q.Per}
	if !q.Since.IsZero() {
		stored.Since = micros(q.Since)
	}
	return stored
}

func (q quotaJSON) decode() llmhttp.Quota {
	decoded := llmhttp.Quota{Tokens: q.Tokens, Cost: q.Cost, Per: q.Per}
	if q.Since != 0 {
		decoded.Since = fromMicros(q.Since)
	}
	return decoded
}

func encodeLimits(l llmhttp.Limits) string {
	return encodeJSON(limitsJSON{
		Requests:   rateJSON(l.Requests),
		Tokens:     rateJSON(l.Tokens),
		Quota:      encodeQuota(l.Quota),
		Completion: l.MaxCompletionTokens,
		Concurrent: l.Concurrent,
	})
}

func (l limitsJSON) decode() llmhttp.Limits {
	return llmhttp.Limits{
		Requests:            llmhttp.Rate(l.Requests),
		Tokens:              llmhttp.Rate(l.Tokens),
		Quota:               l.Quota.decode(),
		MaxCompletionTokens: l.Completion,
		Concurrent:          l.Concurrent,
	}
}

// encodeJSON encodes strings and numbers, for which json.Marshal does not fail.
func encodeJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}
