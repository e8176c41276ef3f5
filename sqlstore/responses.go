// Responses and their items. Triggers count the bytes of an account and delete items.

package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"

	"github.com/llmhttp/llmhttp/responsestore"
)

// A responseStore implements [responsestore.Store].
type responseStore struct {
	db       *database
	maxBytes int64 // Options.MaxResponseBytes
}

// SaveResponse implements [responsestore.Store]. When it returns nil, the
// response is committed. It fails if r alone exceeds Options.MaxResponseBytes.
func (s *responseStore) SaveResponse(ctx context.Context, r *responsestore.Response) error {
	row := newResponseRow(r)
	err := s.db.retry(ctx, s.db.isTransient, func() error {
		if err := s.makeRoom(ctx, row.account, row.size()); err != nil {
			return err
		}
		saved, err := s.db.insertResponse(ctx, s.db.write, row)
		if err != nil || saved {
			return err
		}
		return s.replaceResponse(ctx, row)
	})
	return s.db.wrapError("saving a response", err)
}

// replaceResponse replaces a response of the same ID. If that has been deleted in
// the meantime, the new one is not saved, as if it had been deleted afterwards.
func (s *responseStore) replaceResponse(ctx context.Context, row *responseRow) error {
	return inTx(ctx, s.db.write, nil, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, "DELETE FROM llmhttp_responses WHERE account = $1 AND id = $2", row.account, row.id)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = s.db.insertResponseTx(ctx, tx, row)
		return err
	})
}

// makeRoom deletes the oldest responses of an account until it may save one of the given
// size. Responses that are saved at the same time may together exceed the limit.
func (s *responseStore) makeRoom(ctx context.Context, account string, size int64) error {
	if s.maxBytes < 0 {
		return nil
	}
	if size > s.maxBytes {
		return fmt.Errorf("the response has %d bytes; the maximum is %d", size, s.maxBytes)
	}
	for {
		var used int64
		err := s.db.read.QueryRowContext(ctx, "SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM llmhttp_response_bytes WHERE account = $1", account).
			Scan(&used)
		if err != nil || used <= s.maxBytes-size {
			return err
		}
		deleted, err := s.deleteOldest(ctx, account, used-(s.maxBytes-size))
		if err != nil || !deleted {
			return err
		}
	}
}

// pruneResponsesBatch is the maximum number of responses that one statement deletes.
const pruneResponsesBatch = 200

// deleteOldest deletes up to pruneResponsesBatch responses of an account, the oldest
// first, until they have at least the given size. It reports false if there are none.
func (s *responseStore) deleteOldest(ctx context.Context, account string, size int64) (bool, error) {
	var oldest []string
	err := forEachRow(ctx, s.db.write, func(rows *sql.Rows) error {
		var id string
		var n int64
		if err := rows.Scan(&id, &n); err != nil {
			return err
		}
		if size > 0 {
			oldest = append(oldest, id)
		}
		size -= n
		return nil
	}, "SELECT id, length(data) + item_bytes FROM llmhttp_responses WHERE account = $1 ORDER BY created, id LIMIT $2", account, pruneResponsesBatch)
	if err != nil || len(oldest) == 0 {
		return false, err
	}
	args := sqlArgs{account}
	_, err = s.deleteResponses(ctx, "account = $1 AND id IN "+addList(&args, oldest), args...)
	return true, err
}

// LoadResponse implements [responsestore.Store].
func (s *responseStore) LoadResponse(ctx context.Context, account, id string) (*responsestore.Response, error) {
	return s.load(ctx, account, id, true, math.MaxInt64)
}

// LoadTurn implements [responsestore.Store].
func (s *responseStore) LoadTurn(ctx context.Context, account, id string, maxBytes int) (*responsestore.Response, error) {
	return s.load(ctx, account, id, false, int64(maxBytes))
}

func (s *responseStore) load(ctx context.Context, account, id string, withBody bool, maxBytes int64) (*responsestore.Response, error) {
	r, err := retryRead(ctx, s.db, func() (*responsestore.Response, error) {
		l := responseLoader{withBody: withBody, maxBytes: maxBytes, r: &responsestore.Response{ID: id, Account: account}}
		return l.load(ctx, s.db, storedName(account), storedName(id))
	})
	if err != nil {
		return nil, s.db.wrapError("loading a response", err)
	}
	return r, nil
}

// A responseLoader loads one response.
type responseLoader struct {
	withBody bool
	maxBytes int64
	found    bool
	r        *responsestore.Response
}

// load reads a response and its items in one query, so that they belong together. The
// rows have an item each, and the first one has the data of the response. Items that are
// too large are not read.
func (l *responseLoader) load(ctx context.Context, db *database, account, id string) (*responsestore.Response, error) {
	err := forEachRow(ctx, db.read, l.scan, `
		SELECT r.created, r.expires, r.previous, r.item_bytes, CASE WHEN coalesce(i.position, 0) = 0 AND $4 THEN r.data END,
			i.id, i.name, i.output, i.data
		FROM llmhttp_responses r LEFT JOIN llmhttp_response_items i ON i.account = r.account AND i.response = r.id AND r.item_bytes <= $3
		WHERE r.account = $1 AND r.id = $2 AND `+notExpired("$5")+` ORDER BY i.position`,
		account, id, l.maxBytes, l.withBody, micros(db.now()))
	if err == nil && !l.found {
		err = responsestore.ErrNotFound
	}
	return l.r, err
}

// notExpired returns an SQL condition that a response has not expired. now is the
// placeholder of the current time.
func notExpired(now string) string { return "(expires IS NULL OR expires > " + now + ")" }

// scan reads a row.
func (l *responseLoader) scan(rows *sql.Rows) error {
	var (
		created, size        int64
		expires              sql.NullInt64
		previous, data, name []byte
		item                 sql.NullString
		output               sql.NullBool
		body                 []byte
	)
	if err := rows.Scan(&created, &expires, &previous, &size, &data, &item, &name, &output, &body); err != nil {
		return err
	}
	if size > l.maxBytes {
		return responsestore.ErrItemsTooLarge
	}
	if !l.found {
		l.found = true
		l.r.Created, l.r.Expires, l.r.Previous = fromMicros(created), decodeTime(expires), string(previous)
		if l.withBody {
			var err error
			if l.r.Body, err = decodeBody(data); err != nil {
				return err
			}
		}
	}
	switch stored := (responsestore.Item{ID: itemID(item.String, name), Body: body}); {
	case !item.Valid: // a response without items
	case output.Bool:
		l.r.Output = append(l.r.Output, stored)
	default:
		l.r.Input = append(l.r.Input, stored)
	}
	return nil
}

// maxParams is the maximum number of values in the lists of one statement.
const maxParams = 900

// LoadItems implements [responsestore.Store].
func (s *responseStore) LoadItems(ctx context.Context, account string, ids []string, maxBytes int) ([]responsestore.Item, error) {
	var found []responsestore.Item
	left := int64(maxBytes)
	for chunk := range slices.Chunk(ids, maxParams) {
		items, err := retryRead(
			ctx,
			s.db,
			func() ([]responsestore.Item, error) { return s.loadItems(ctx, storedName(account), chunk, left) },
		)
		if err != nil {
			return nil, s.db.wrapError("loading items", err)
		}
		for i := range items {
			left -= int64(len(items[i].Body))
		}
		found = append(found, items...)
	}
	return found, nil
}

// loadItems loads the items if they have at most maxBytes bytes.
func (s *responseStore) loadItems(ctx context.Context, account string, ids []string, maxBytes int64) ([]responsestore.Item, error) {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = storedName(id)
	}
	args := sqlArgs{account, micros(s.db.now())}
	// Of several responses that have an item, the one with the greatest ID provides it.
	from := " FROM (SELECT i.id, max(i.response) AS response FROM llmhttp_response_items i JOIN llmhttp_responses r ON r.account = i.account AND r.id = i.response" +
		" WHERE i.account = $1 AND " + notExpired(
		"$2",
	) + " AND NOT i.repeated AND i.id IN " + addList(
		&args,
		names,
	) + " GROUP BY i.id" +
		") newest JOIN llmhttp_response_items i ON i.account = $1 AND i.id = newest.id AND i.response = newest.response AND NOT i.repeated"
	var size int64
	if err := s.db.read.QueryRowContext(ctx, "SELECT CAST(coalesce(sum(length(i.data)), 0) AS bigint)"+from, args...).Scan(&size); err != nil {
		return nil, err
	}
	if size > maxBytes {
		return nil, responsestore.ErrItemsTooLarge
	}
	var found []responsestore.Item
	err := forEachRow(ctx, s.db.read, func(rows *sql.Rows) error {
		var id string
		var name, data []byte
		if err := rows.Scan(&id, &name, &data); err != nil {
			return err
		}
		if maxBytes -= int64(len(data)); maxBytes < 0 { // some were saved in the meantime
			return responsestore.ErrItemsTooLarge
		}
		found = append(found, responsestore.Item{ID: itemID(id, name), Body: data})
		return nil
	}, "SELECT i.id, i.name, i.data"+from, args...)
	return found, err
}

// DeleteResponse implements [responsestore.Store].
func (s *responseStore) DeleteResponse(ctx context.Context, account, id string) error {
	var deleted int64
	err := s.db.retry(ctx, s.db.isTransient, func() (err error) {
		deleted, err = s.deleteResponses(
			ctx,
			"account = $1 AND id = $2 AND "+notExpired("$3"),
			storedName(account),
			storedName(id),
			micros(s.db.now()),
		)
		return err
	})
	if err == nil && deleted == 0 {
		err = responsestore.ErrNotFound
	}
	return s.db.wrapError("deleting a response", err)
}

// deleteResponses deletes the responses that satisfy a condition, and returns how many. A
// trigger deletes their items.
func (s *responseStore) deleteResponses(ctx context.Context, condition string, args ...any) (int64, error) {
	result, err := s.db.write.ExecContext(ctx, "DELETE FROM llmhttp_responses WHERE "+condition, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// PruneResponses deletes the responses that have expired and returns how many it
// deleted. A Store does so once an hour.
func (s *responseStore) PruneResponses(ctx context.Context) (deleted int64, err error) {
	now := micros(s.db.now())
	condition := "(account, id) IN (SELECT account, id FROM llmhttp_responses WHERE expires <= $1 ORDER BY expires LIMIT $2" + s.db.skipLocked() + ")"
	for {
		var n int64
		err := s.db.retry(ctx, s.db.isTransient, func() (err error) {
			n, err = s.deleteResponses(ctx, condition, now, pruneResponsesBatch)
			return err
		})
		if err != nil || n == 0 {
			return deleted, s.db.wrapError("pruning responses", err)
		}
		deleted += n
	}
}
