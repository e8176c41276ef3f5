package sqlstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// ErrKeyRevoked is wrapped by the errors of changes to a key that is revoked.
var ErrKeyRevoked = errors.New("sqlstore: the key is revoked")

// KeyParams are what is decided about a key. Times are kept to the microsecond.
type KeyParams struct {
	Account string             // who pays; if empty, the key's ID
	Name    string             // for people; may be empty, and need not be unique
	Scopes  []llmhttp.Endpoint // nil means everything, empty nothing
	Models  []string           // likewise; a * stands for any text
	Expires time.Time          // zero means never
	Limits  llmhttp.Limits
}

// A KeyInfo is what is known of a key.
type KeyInfo struct {
	llmhttp.Key
	Name     string
	Prefix   string // what its newest secret begins with, for people to tell keys apart
	Created  time.Time
	LastUsed time.Time // to about two minutes; zero if it was not
	Revoked  time.Time // zero if it is not
}

// Params returns what is decided about the key.
func (k *KeyInfo) Params() KeyParams {
	return KeyParams{Account: k.Account, Name: k.Name, Scopes: k.Scopes, Models: k.Models, Expires: k.Expires, Limits: k.Limits}
}

// A KeyQuery asks for a page of keys, oldest first.
type KeyQuery struct {
	Account string // whose; if empty, everybody's
	After   string // the ID of the last key of the page before; if empty, the first page
	Limit   int    // of keys; zero or negative means 100, and more than 1000 means that
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// Lookup implements [llmhttp.KeyStore]. What it tells may be as old as
// Options.KeyTTL, but is never older than a change made with this Store.
func (s *Store) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	var buf [128]byte // so that secrets of the usual length take no memory
	key, err := s.keys.lookup(ctx, sha256.Sum256(append(buf[:0], secret...)))
	if err != nil && !errors.Is(err, llmhttp.ErrKeyNotFound) {
		return nil, s.fail("looking up a key", err)
	}
	return key, err
}

// readKey reads the key whose secret has the given hash; nil is none.
func (s *Store) readKey(ctx context.Context, hash secretHash) (*llmhttp.Key, error) {
	var k keyRow
	var secretExpires sql.NullInt64
	err := s.retryRead(ctx, func() error {
		return s.read.QueryRowContext(ctx, `
			SELECT k.id, k.account, k.scopes, k.models, k.limits, k.expires, s.expires
			FROM llmhttp_secrets s JOIN llmhttp_keys k ON k.id = s.key_id
			WHERE s.hash = $1 AND k.revoked IS NULL`, hex.EncodeToString(hash[:])).
			Scan(&k.id, &k.account, &k.scopes, &k.models, &k.limits, &k.expires, &secretExpires)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := k.info()
	if err != nil {
		return nil, err
	}
	if secretExpires.Valid {
		if end := fromMicros(secretExpires.Int64); info.Expires.IsZero() || end.Before(info.Expires) {
			info.Expires = end
		}
	}
	return &info.Key, nil
}

// CreateKey creates a key. It returns its secret, which is not kept and cannot
// be told again.
func (s *Store) CreateKey(ctx context.Context, params KeyParams) (info KeyInfo, secret string, err error) {
	secret, prefix := s.newSecret()
	info, err = s.addKey(ctx, "creating a key", secret, prefix, params)
	if err != nil {
		return KeyInfo{}, "", err
	}
	return info, secret, nil
}

// minImported is how many characters a secret has at least that others made.
const minImported = 16

// ImportKey creates a key whose secret exists already: 16 to 4096 printable
// characters of ASCII, which should be random, as who gets hold of the database
// can try out others. It fails if there is a key with that secret.
func (s *Store) ImportKey(ctx context.Context, secret string, params KeyParams) (KeyInfo, error) {
	if len(secret) < minImported || len(secret) > 4096 || !isToken(secret) {
		return KeyInfo{}, fmt.Errorf("sqlstore: a secret must have %d to 4096 printable characters of ASCII", minImported)
	}
	return s.addKey(ctx, "importing a key", secret, secret[:min(len(secret)/4, 12)], params)
}

// addKey adds a key of which prefix may be shown.
func (s *Store) addKey(ctx context.Context, what, secret, prefix string, params KeyParams) (KeyInfo, error) {
	info := KeyInfo{
		Key:    llmhttp.Key{ID: "key_" + strings.ToLower(rand.Text()[:20])},
		Prefix: prefix, Created: s.now(),
	}
	row, err := info.row(params)
	if err != nil {
		return KeyInfo{}, s.fail(what, err)
	}
	err = s.retry(ctx, s.isConflict, func() error {
		return inTx(ctx, s.write, nil, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `
				INSERT INTO llmhttp_keys (id, account, name, prefix, scopes, models, limits, expires, created)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
				row.id, row.account, row.name, row.prefix, row.scopes, row.models, row.limits, row.expires, row.created)
			if err != nil {
				return err
			}
			return addSecret(ctx, tx, secret, row.id)
		})
	})
	if err != nil {
		return KeyInfo{}, s.fail(what, err)
	}
	s.keys.forget(sha256.Sum256([]byte(secret)))
	return row.info()
}

// newSecret returns a secret, and what of it may be shown: enough to tell keys
// apart, and too little to guess the rest.
func (s *Store) newSecret() (secret, prefix string) {
	secret = llmhttp.NewSecret(s.opts.SecretPrefix)
	return secret, secret[:len(s.opts.SecretPrefix)+shownRandom]
}

// shownRandom is how many of the characters of a secret that are random are shown.
const shownRandom = 8

var errSecretExists = errors.New("there is a key with this secret")

func addSecret(ctx context.Context, tx *sql.Tx, secret, id string) error {
	result, err := tx.ExecContext(ctx, "INSERT INTO llmhttp_secrets (hash, key_id) VALUES ($1, $2) ON CONFLICT DO NOTHING", llmhttp.HashSecret(secret), id)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errSecretExists)
	}
	return nil
}

// Key returns what is known of the key with the given ID. If there is none, the
// error wraps [llmhttp.ErrKeyNotFound].
func (s *Store) Key(ctx context.Context, id string) (KeyInfo, error) {
	var info KeyInfo
	err := s.retryRead(ctx, func() (err error) {
		info, err = s.keyByID(ctx, s.read, id, "")
		return err
	})
	return info, s.fail("reading a key", err)
}

// ListKeys returns a page of keys, those that are revoked or expired included.
// The last page is the one that is not full. If there is no key q.After, the
// error wraps [llmhttp.ErrKeyNotFound].
func (s *Store) ListKeys(ctx context.Context, q KeyQuery) ([]KeyInfo, error) {
	var page []KeyInfo
	err := s.retryRead(ctx, func() (err error) {
		page, err = s.listKeys(ctx, q)
		return err
	})
	return page, s.fail("listing keys", err)
}

func (s *Store) listKeys(ctx context.Context, q KeyQuery) ([]KeyInfo, error) {
	limit := min(q.Limit, maxPage)
	if limit <= 0 {
		limit = defaultPage
	}
	args := []any{limit}
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	query := selectKey + " WHERE true"
	if q.Account != "" {
		if checkName("Account", q.Account) != nil {
			return nil, nil // nobody has such a name
		}
		query += " AND account = " + arg(q.Account)
	}
	if q.After != "" {
		last, err := s.keyByID(ctx, s.read, q.After, "")
		if err != nil {
			return nil, err
		}
		query += " AND (created, id) > (" + arg(micros(last.Created)) + ", " + arg(last.ID) + ")"
	}
	rows, err := s.read.QueryContext(ctx, query+" ORDER BY created, id LIMIT $1", args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var page []KeyInfo
	for rows.Next() {
		info, err := scanKey(rows)
		if err != nil {
			return nil, err
		}
		page = append(page, info)
	}
	return page, rows.Err()
}

// UpdateKey has change change what is decided about the key with the given ID,
// and stores that. Other changes of the key wait meanwhile, so that none is
// lost. If change returns an error, so does UpdateKey, and nothing is changed.
// It must not use the Store, and may be called more than once.
//
// If there is no such key the error wraps [llmhttp.ErrKeyNotFound], and if it
// is revoked [ErrKeyRevoked].
func (s *Store) UpdateKey(ctx context.Context, id string, change func(*KeyParams) error) (KeyInfo, error) {
	var updated KeyInfo
	err := s.changeKey(ctx, id, func(tx *sql.Tx, info KeyInfo) error {
		if !info.Revoked.IsZero() {
			return ErrKeyRevoked
		}
		params := info.Params()
		if err := change(&params); err != nil {
			return err
		}
		row, err := info.row(params)
		if err != nil {
			return err
		}
		if updated, err = row.info(); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE llmhttp_keys SET account = $2, name = $3, scopes = $4, models = $5, limits = $6, expires = $7 WHERE id = $1",
			row.id, row.account, row.name, row.scopes, row.models, row.limits, row.expires)
		return err
	})
	if err != nil {
		return KeyInfo{}, s.fail("updating a key", err)
	}
	return updated, nil
}

// RevokeKey has the key with the given ID work no more: with this Store when it
// returns, and with others within their Options.KeyTTL. A key that is revoked
// stays so. If there is none, the error wraps [llmhttp.ErrKeyNotFound].
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	err := s.changeKey(ctx, id, func(tx *sql.Tx, info KeyInfo) error {
		_, err := tx.ExecContext(ctx, "UPDATE llmhttp_keys SET revoked = $2 WHERE id = $1 AND revoked IS NULL", id, micros(s.now()))
		return err
	})
	return s.fail("revoking a key", err)
}

// RotateKey gives the key with the given ID a new secret, which it returns. The
// secrets that it had work for overlap longer, and no longer than they did before.
// The overlap may be zero, but not negative. The key is the same with all of
// them, and so are its limits and its usage.
//
// If there is no such key the error wraps [llmhttp.ErrKeyNotFound], and if it
// is revoked [ErrKeyRevoked].
func (s *Store) RotateKey(ctx context.Context, id string, overlap time.Duration) (info KeyInfo, secret string, err error) {
	if overlap < 0 {
		return KeyInfo{}, "", errors.New("sqlstore: the overlap is negative")
	}
	secret, prefix := s.newSecret()
	err = s.changeKey(ctx, id, func(tx *sql.Tx, before KeyInfo) error {
		if !before.Revoked.IsZero() {
			return ErrKeyRevoked
		}
		info = before
		info.Prefix = prefix
		now := s.now()
		for _, change := range []struct {
			query string
			args  []any
		}{
			{"UPDATE llmhttp_secrets SET expires = $2 WHERE key_id = $1 AND (expires IS NULL OR expires > $2)", []any{id, micros(now.Add(overlap))}},
			{"DELETE FROM llmhttp_secrets WHERE key_id = $1 AND expires <= $2", []any{id, micros(now)}},
			{"UPDATE llmhttp_keys SET prefix = $2 WHERE id = $1", []any{id, info.Prefix}},
		} {
			if _, err := tx.ExecContext(ctx, change.query, change.args...); err != nil {
				return err
			}
		}
		return addSecret(ctx, tx, secret, id)
	})
	if err != nil {
		return KeyInfo{}, "", s.fail("rotating a key", err)
	}
	return info, secret, nil
}

// changeKey calls change in a transaction that has the key to itself, and then
// forgets what was known of it.
func (s *Store) changeKey(ctx context.Context, id string, change func(tx *sql.Tx, info KeyInfo) error) error {
	var hashes []secretHash
	err := s.retry(ctx, s.isConflict, func() error {
		hashes = hashes[:0]
		return inTx(ctx, s.write, nil, func(tx *sql.Tx) error {
			info, err := s.keyByID(ctx, tx, id, s.forUpdate())
			if err != nil {
				return err
			}
			rows, err := tx.QueryContext(ctx, "SELECT hash FROM llmhttp_secrets WHERE key_id = $1", id)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var text string
				if err := rows.Scan(&text); err != nil {
					return err
				}
				if hash, err := hex.DecodeString(text); err == nil && len(hash) == sha256.Size {
					hashes = append(hashes, secretHash(hash))
				}
			}
			if err := rows.Err(); err != nil {
				return err
			}
			return change(tx, info)
		})
	})
	s.keys.forget(hashes...) // even if it failed: then perhaps it did not
	return err
}

// keyByID reads a key, with suffix as the end of the query.
func (s *Store) keyByID(ctx context.Context, q querier, id, suffix string) (KeyInfo, error) {
	if checkName("ID", id) != nil {
		return KeyInfo{}, llmhttp.ErrKeyNotFound
	}
	info, err := scanKey(q.QueryRowContext(ctx, selectKey+" WHERE id = $1"+suffix, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = llmhttp.ErrKeyNotFound
	}
	return info, err
}

// A keyRow is a key as it is stored.
type keyRow struct {
	id, account, name, prefix  string
	scopes, models             sql.NullString
	limits                     string
	created                    int64
	expires, lastUsed, revoked sql.NullInt64
}

const selectKey = "SELECT id, account, name, prefix, scopes, models, limits, expires, created, last_used, revoked FROM llmhttp_keys"

func scanKey(row interface{ Scan(...any) error }) (KeyInfo, error) {
	var k keyRow
	if err := row.Scan(&k.id, &k.account, &k.name, &k.prefix, &k.scopes, &k.models, &k.limits, &k.expires, &k.created, &k.lastUsed, &k.revoked); err != nil {
		return KeyInfo{}, err
	}
	return k.info()
}

// row returns k with the given params, as it is stored.
func (k *KeyInfo) row(params KeyParams) (keyRow, error) {
	if params.Account == "" {
		params.Account = k.ID
	}
	err := cmp.Or(checkName("Account", params.Account), checkName("Name", params.Name))
	for i, scope := range params.Scopes {
		err = cmp.Or(err, checkName(fmt.Sprintf("Scopes[%d]", i), string(scope)))
	}
	for i, model := range params.Models {
		err = cmp.Or(err, checkName(fmt.Sprintf("Models[%d]", i), model))
	}
	if err != nil {
		return keyRow{}, err
	}
	row := keyRow{
		id: k.ID, account: params.Account, name: params.Name, prefix: k.Prefix,
		scopes: listText(params.Scopes), models: listText(params.Models),
		limits:  limitsText(params.Limits),
		created: micros(k.Created), expires: timeOrNull(params.Expires), lastUsed: timeOrNull(k.LastUsed), revoked: timeOrNull(k.Revoked),
	}
	return row, nil
}

func (k *keyRow) info() (KeyInfo, error) {
	info := KeyInfo{
		Key:  llmhttp.Key{ID: k.id, Account: k.account, Expires: nullTime(k.expires)},
		Name: k.name, Prefix: k.prefix, Created: fromMicros(k.created), LastUsed: nullTime(k.lastUsed), Revoked: nullTime(k.revoked),
	}
	var limits limitsJSON
	err := cmp.Or(parseList(k.scopes, &info.Scopes), parseList(k.models, &info.Models), json.Unmarshal([]byte(k.limits), &limits))
	if err != nil {
		return KeyInfo{}, fmt.Errorf("key %s: %w", k.id, err)
	}
	info.Limits = limits.limits()
	return info, nil
}

func timeOrNull(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: micros(t), Valid: !t.IsZero()}
}

func nullTime(m sql.NullInt64) time.Time {
	if !m.Valid {
		return time.Time{}
	}
	return fromMicros(m.Int64)
}

func listText[T ~string](list []T) sql.NullString {
	if list == nil {
		return sql.NullString{}
	}
	return sql.NullString{String: mustJSON(list), Valid: true}
}

func parseList[T ~string](text sql.NullString, list *[]T) error {
	if !text.Valid {
		return nil
	}
	return json.Unmarshal([]byte(text.String), list)
}

// limitsJSON is how limits are stored: without what is zero.
type limitsJSON struct {
	Requests   rateJSON `json:"requests,omitzero"`
	Tokens     rateJSON `json:"tokens,omitzero"`
	Quota      rateJSON `json:"quota,omitzero"`
	Concurrent int      `json:"concurrent,omitzero"`
}

type rateJSON struct {
	N     int           `json:"n,omitzero"`
	Per   time.Duration `json:"per,omitzero"` // nanoseconds
	Burst int           `json:"burst,omitzero"`
}

func limitsText(l llmhttp.Limits) string {
	return mustJSON(limitsJSON{rateJSON(l.Requests), rateJSON(l.Tokens), rateJSON(l.Quota), l.Concurrent})
}

func (l limitsJSON) limits() llmhttp.Limits {
	return llmhttp.Limits{Requests: llmhttp.Rate(l.Requests), Tokens: llmhttp.Rate(l.Tokens), Quota: llmhttp.Rate(l.Quota), Concurrent: l.Concurrent}
}

func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of strings and numbers
	}
	return string(text)
}

// A keyUse is when a key was used last.
type keyUse struct {
	id string
	at int64
}

// touch stores when keys were used.
func (s *Store) touch(ctx context.Context) {
	used := s.keys.takeUsed()
	if len(used) == 0 {
		return
	}
	uses := make([]keyUse, 0, len(used))
	for _, id := range slices.Sorted(maps.Keys(used)) {
		uses = append(uses, keyUse{id, micros(used[id])})
	}
	for batch := range slices.Chunk(uses, maxBatch) {
		err := s.retry(ctx, s.isConflict, func() error { return s.touchKeys(ctx, s.write, batch) })
		if err != nil {
			s.keys.putUsed(used) // for the next time
			if s.ctx.Err() == nil || ctx.Err() == nil {
				s.log().Error("last use of keys not stored yet", "keys", len(uses), "error", err)
			}
			return
		}
	}
}
