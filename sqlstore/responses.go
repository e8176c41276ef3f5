package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// A responseStore implements [llmhttp.ResponseStore].
type responseStore struct{ db *database }

// SaveResponse implements [llmhttp.ResponseStore]. When it returns nil, the
// response is committed.
func (s *responseStore) SaveResponse(ctx context.Context, r *llmhttp.StoredResponse) error {
	row := newResponseRow(r)
	err := s.db.retry(ctx, s.db.isTransient, func() error {
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
		old, err := s.lockResponse(ctx, tx, row.account, row.id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := deleteItems(ctx, tx, old); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE llmhttp_responses SET created = $3, expires = $4, data = $5 WHERE account = $1 AND id = $2",
			row.account, row.id, row.created, row.expires, row.data)
		if err != nil {
			return err
		}
		return insertItems(ctx, tx, row)
	})
}

// lockResponse reads a response, which is locked until the end of tx.
func (s *responseStore) lockResponse(ctx context.Context, tx *sql.Tx, account, id string) (*responseRow, error) {
	row := &responseRow{account: account, id: id}
	err := tx.QueryRowContext(ctx, "SELECT expires, data FROM llmhttp_responses WHERE account = $1 AND id = $2"+s.db.forUpdate(), account, id).
		Scan(&row.expires, &row.data)
	return row, err
}

// maxParams is the maximum number of values in the lists of one statement.
const maxParams = 900

// insertItems inserts the IDs of the items of a response.
func insertItems(ctx context.Context, tx *sql.Tx, row *responseRow) error {
	for names := range slices.Chunk(row.items, maxParams) {
		args := sqlArgs{row.account, row.id}
		var values []string
		for _, name := range names {
			values = append(values, "($1, "+args.add(name)+", $2)")
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO llmhttp_response_items (account, id, response) VALUES "+strings.Join(values, ", "), args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteItems deletes the IDs of the items in the data of row.
func deleteItems(ctx context.Context, tx *sql.Tx, row *responseRow) error {
	var r llmhttp.StoredResponse
	if err := decodeResponse(row.data, &r); err != nil {
		return err
	}
	for names := range slices.Chunk(itemNames(&r), maxParams) {
		args := sqlArgs{row.account, row.id}
		query := "DELETE FROM llmhttp_response_items WHERE account = $1 AND response = $2 AND id IN " + args.addList(names)
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return err
		}
	}
	return nil
}

// LoadResponse implements [llmhttp.ResponseStore].
func (s *responseStore) LoadResponse(ctx context.Context, account, id string) (*llmhttp.StoredResponse, error) {
	row, err := retryRead(ctx, s.db, func() (row responseRow, err error) {
		err = s.db.read.QueryRowContext(ctx, "SELECT created, expires, data FROM llmhttp_responses WHERE account = $1 AND id = $2 AND "+notExpired("$3"),
			storedName(account), storedName(id), micros(s.db.now())).Scan(&row.created, &row.expires, &row.data)
		return row, err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = llmhttp.ErrResponseNotFound
	}
	r := &llmhttp.StoredResponse{ID: id, Account: account, Created: fromMicros(row.created), Expires: decodeTime(row.expires)}
	if err == nil {
		err = decodeResponse(row.data, r)
	}
	if err != nil {
		return nil, s.db.wrapError("loading a response", err)
	}
	return r, nil
}

// notExpired returns an SQL condition that a response has not expired. now is the
// placeholder of the current time.
func notExpired(now string) string { return "(expires IS NULL OR expires > " + now + ")" }

// LoadItems implements [llmhttp.ResponseStore].
func (s *responseStore) LoadItems(ctx context.Context, account string, ids []string) ([]llmhttp.StoredItem, error) {
	var found []llmhttp.StoredItem
	for chunk := range slices.Chunk(ids, maxParams) {
		items, err := retryRead(ctx, s.db, func() ([]llmhttp.StoredItem, error) { return s.loadItems(ctx, storedName(account), chunk) })
		if err != nil {
			return nil, s.db.wrapError("loading items", err)
		}
		found = append(found, items...)
	}
	return found, nil
}

// loadItems finds a response for each item, and then reads each response once.
func (s *responseStore) loadItems(ctx context.Context, account string, ids []string) ([]llmhttp.StoredItem, error) {
	wanted, err := s.findItems(ctx, account, ids)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	var found []llmhttp.StoredItem
	args := sqlArgs{account}
	query := "SELECT id, data FROM llmhttp_responses WHERE account = $1 AND id IN " + args.addList(slices.Collect(maps.Keys(wanted)))
	err = forEachRow(ctx, s.db.read, func(rows *sql.Rows) error {
		var id string
		var data []byte
		var r llmhttp.StoredResponse
		if err := rows.Scan(&id, &data); err != nil {
			return err
		}
		if err := decodeResponse(data, &r); err != nil {
			return err
		}
		found = append(found, selectItems(&r, wanted[id])...)
		return nil
	}, query, args...)
	return found, err
}

// An itemSet is a set of the IDs of items, in their stored form.
type itemSet map[string]bool

// findItems returns the items that are stored, by the stored ID of a response that
// has them.
func (s *responseStore) findItems(ctx context.Context, account string, ids []string) (map[string]itemSet, error) {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = storedName(id)
	}
	args := sqlArgs{account, micros(s.db.now())}
	query := "SELECT i.id, max(i.response) FROM llmhttp_response_items i JOIN llmhttp_responses r ON r.account = i.account AND r.id = i.response" +
		" WHERE i.account = $1 AND " + notExpired("$2") + " AND i.id IN " + args.addList(names) + " GROUP BY i.id"
	found := make(map[string]itemSet)
	err := forEachRow(ctx, s.db.read, func(rows *sql.Rows) error {
		var item, response string
		if err := rows.Scan(&item, &response); err != nil {
			return err
		}
		if found[response] == nil {
			found[response] = make(itemSet)
		}
		found[response][item] = true
		return nil
	}, query, args...)
	return found, err
}

// selectItems returns the items of r that are in the set wanted, one for each ID.
func selectItems(r *llmhttp.StoredResponse, wanted itemSet) []llmhttp.StoredItem {
	var selected []llmhttp.StoredItem
	for _, item := range slices.Concat(r.Input, r.Output) {
		if name := storedName(item.ID); wanted[name] {
			delete(wanted, name)
			selected = append(selected, item)
		}
	}
	return selected
}

// DeleteResponse implements [llmhttp.ResponseStore].
func (s *responseStore) DeleteResponse(ctx context.Context, account, id string) error {
	err := s.db.retry(ctx, s.db.isTransient, func() error {
		return inTx(ctx, s.db.write, nil, func(tx *sql.Tx) error {
			row, err := s.lockResponse(ctx, tx, storedName(account), storedName(id))
			if errors.Is(err, sql.ErrNoRows) || err == nil && row.hasExpired(s.db.now()) {
				return llmhttp.ErrResponseNotFound
			}
			if err != nil {
				return err
			}
			return deleteResponse(ctx, tx, row)
		})
	})
	return s.db.wrapError("deleting a response", err)
}

// deleteResponse deletes a response and the IDs of its items.
func deleteResponse(ctx context.Context, tx *sql.Tx, row *responseRow) error {
	if err := deleteItems(ctx, tx, row); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "DELETE FROM llmhttp_responses WHERE account = $1 AND id = $2", row.account, row.id)
	return err
}

// pruneResponsesBatch is the maximum number of responses that one transaction
// deletes.
const pruneResponsesBatch = 200

// PruneResponses deletes the responses that have expired and returns how many it
// deleted. A Store does so once an hour.
func (s *responseStore) PruneResponses(ctx context.Context) (deleted int64, err error) {
	now := micros(s.db.now())
	for {
		var n int
		err := s.db.retry(ctx, s.db.isTransient, func() (err error) {
			n, err = s.deleteExpired(ctx, now)
			return err
		})
		if err != nil || n == 0 {
			return deleted, s.db.wrapError("pruning responses", err)
		}
		deleted += int64(n)
	}
}

// deleteExpired deletes up to pruneResponsesBatch responses and returns how many
// it deleted.
func (s *responseStore) deleteExpired(ctx context.Context, now int64) (n int, err error) {
	err = inTx(ctx, s.db.write, nil, func(tx *sql.Tx) error {
		var expired []responseRow
		err := forEachRow(ctx, tx, func(rows *sql.Rows) error {
			var r responseRow
			err := rows.Scan(&r.account, &r.id, &r.data)
			expired = append(expired, r)
			return err
		}, "SELECT account, id, data FROM llmhttp_responses WHERE expires <= $1 ORDER BY expires LIMIT $2"+s.db.skipLocked(), now, pruneResponsesBatch)
		if err != nil {
			return err
		}
		for i := range expired {
			if err := deleteResponse(ctx, tx, &expired[i]); err != nil {
				return err
			}
		}
		n = len(expired)
		return nil
	})
	return n, err
}
