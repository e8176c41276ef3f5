package sqlstore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// A responseRow is a row of llmhttp_responses, and the IDs of its items. Names
// are in their stored forms.
type responseRow struct {
	account, id string
	created     int64
	expires     sql.NullInt64
	data        []byte
	items       []string // sorted, without duplicates
}

func newResponseRow(r *llmhttp.StoredResponse) *responseRow {
	row := &responseRow{account: storedName(r.Account), id: storedName(r.ID), created: micros(r.Created), data: encodeResponse(r), items: itemNames(r)}
	if !r.Expires.IsZero() {
		row.expires = sql.NullInt64{Int64: micros(r.Expires), Valid: true}
	}
	return row
}

// itemNames returns the stored forms of the IDs of the items of r, without duplicates.
func itemNames(r *llmhttp.StoredResponse) []string {
	names := make([]string, 0, len(r.Input)+len(r.Output))
	for _, item := range slices.Concat(r.Input, r.Output) {
		names = append(names, storedName(item.ID))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// responseFormat is the first byte of the column data.
const responseFormat = 1

// encodeResponse returns the column data of r: strings, each after its length.
func encodeResponse(r *llmhttp.StoredResponse) []byte {
	b := []byte{responseFormat}
	b = appendBytes(b, []byte(r.Previous))
	b = appendBytes(b, r.Body)
	for _, items := range [][]llmhttp.StoredItem{r.Input, r.Output} {
		b = binary.AppendUvarint(b, uint64(len(items)))
		for i := range items {
			b = appendBytes(b, []byte(items[i].ID))
			b = appendBytes(b, items[i].Body)
		}
	}
	return b
}

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// A responseReader reads what encodeResponse has written.
type responseReader struct {
	data []byte // what was not read yet
	bad  bool   // the data is damaged
}

func (r *responseReader) number() int {
	n, size := binary.Uvarint(r.data)
	if size <= 0 || n > uint64(len(r.data)) {
		r.bad, r.data = true, nil
		return 0
	}
	r.data = r.data[size:]
	return int(n)
}

func (r *responseReader) bytes() []byte {
	n := r.number()
	if n > len(r.data) {
		r.bad, r.data = true, nil
		return nil
	}
	s := r.data[:n:n]
	r.data = r.data[n:]
	return s
}

func (r *responseReader) items() []llmhttp.StoredItem {
	var items []llmhttp.StoredItem
	for range r.number() {
		items = append(items, llmhttp.StoredItem{ID: string(r.bytes()), Body: r.bytes()})
	}
	return items
}

var errResponseFormat = errors.New("a stored response is damaged or of a newer version of this package")

// decodeResponse sets the fields of r that are encoded in the column data.
func decodeResponse(data []byte, r *llmhttp.StoredResponse) error {
	if len(data) == 0 || data[0] != responseFormat {
		return errResponseFormat
	}
	reader := responseReader{data: data[1:]}
	r.Previous, r.Body = string(reader.bytes()), reader.bytes()
	r.Input, r.Output = reader.items(), reader.items()
	if reader.bad || len(reader.data) > 0 {
		return errResponseFormat
	}
	return nil
}

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
		if err := deleteItems(ctx, tx, row.account, row.id, old); err != nil {
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

// lockResponse returns the column data of a response, which is locked until the
// end of tx.
func (s *responseStore) lockResponse(ctx context.Context, tx *sql.Tx, account, id string) (data []byte, err error) {
	err = tx.QueryRowContext(ctx, "SELECT data FROM llmhttp_responses WHERE account = $1 AND id = $2"+s.db.forUpdate(), account, id).Scan(&data)
	return data, err
}

// maxParams is the maximum number of values in the lists of one statement.
const maxParams = 900

// insertItems inserts the IDs of the items of a response.
func insertItems(ctx context.Context, tx *sql.Tx, row *responseRow) error {
	for names := range slices.Chunk(row.items, maxParams) {
		args := []any{row.account, row.id}
		var values []string
		for _, name := range names {
			args = append(args, name)
			values = append(values, fmt.Sprintf("($1, $%d, $2)", len(args)))
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO llmhttp_response_items (account, id, response) VALUES "+strings.Join(values, ", "), args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteItems deletes the IDs of the items of a response, which are in its data.
func deleteItems(ctx context.Context, tx *sql.Tx, account, id string, data []byte) error {
	var r llmhttp.StoredResponse
	if err := decodeResponse(data, &r); err != nil {
		return err
	}
	for names := range slices.Chunk(itemNames(&r), maxParams) {
		list, args := inList(names, account, id)
		if _, err := tx.ExecContext(ctx, "DELETE FROM llmhttp_response_items WHERE account = $1 AND response = $2 AND id IN "+list, args...); err != nil {
			return err
		}
	}
	return nil
}

// inList returns an SQL list of placeholders for values, numbered after those of args,
// and args with the values appended.
func inList(values []string, args ...any) (string, []any) {
	params := make([]string, len(values))
	for i, v := range values {
		args = append(args, v)
		params[i] = fmt.Sprint("$", len(args))
	}
	return "(" + strings.Join(params, ", ") + ")", args
}

// LoadResponse implements [llmhttp.ResponseStore].
func (s *responseStore) LoadResponse(ctx context.Context, account, id string) (*llmhttp.StoredResponse, error) {
	r := &llmhttp.StoredResponse{ID: id, Account: account}
	var created int64
	var expires sql.NullInt64
	var data []byte
	err := s.db.retryRead(ctx, func() error {
		return s.db.read.QueryRowContext(ctx, "SELECT created, expires, data FROM llmhttp_responses WHERE account = $1 AND id = $2 AND "+notExpired+"$3)",
			storedName(account), storedName(id), micros(s.db.now())).Scan(&created, &expires, &data)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = llmhttp.ErrResponseNotFound
	}
	if err == nil {
		err = decodeResponse(data, r)
	}
	if err != nil {
		return nil, s.db.wrapError("loading a response", err)
	}
	if r.Created = fromMicros(created); expires.Valid {
		r.Expires = fromMicros(expires.Int64)
	}
	return r, nil
}

// notExpired is the start of an SQL condition that a response has not expired. The
// placeholder of the current time and a parenthesis must follow.
const notExpired = "(expires IS NULL OR expires > "

// LoadItems implements [llmhttp.ResponseStore].
func (s *responseStore) LoadItems(ctx context.Context, account string, ids []string) ([]llmhttp.StoredItem, error) {
	var found []llmhttp.StoredItem
	for chunk := range slices.Chunk(ids, maxParams) {
		err := s.db.retryRead(ctx, func() error {
			items, err := s.loadItems(ctx, storedName(account), chunk)
			if err == nil {
				found = append(found, items...)
			}
			return err
		})
		if err != nil {
			return nil, s.db.wrapError("loading items", err)
		}
	}
	return found, nil
}

// loadItems finds a response for each item, and then reads each response once.
func (s *responseStore) loadItems(ctx context.Context, account string, ids []string) ([]llmhttp.StoredItem, error) {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = storedName(id)
	}
	responses := make(map[string]string) // by the stored ID of the item
	list, args := inList(names, account, micros(s.db.now()))
	err := forEachRow(ctx, s.db.read, func(rows *sql.Rows) error {
		var item, response string
		err := rows.Scan(&item, &response)
		responses[item] = response
		return err
	}, `SELECT i.id, max(i.response) FROM llmhttp_response_items i JOIN llmhttp_responses r ON r.account = i.account AND r.id = i.response
		WHERE i.account = $1 AND `+notExpired+"$2) AND i.id IN "+list+" GROUP BY i.id", args...)
	if err != nil || len(responses) == 0 {
		return nil, err
	}
	wanted := make(map[string][]string) // the IDs of the items that are read from a response
	var keys []string
	for i, id := range ids {
		if response, ok := responses[names[i]]; ok {
			if wanted[response] == nil {
				keys = append(keys, response)
			}
			wanted[response] = append(wanted[response], id)
		}
	}
	var found []llmhttp.StoredItem
	list, args = inList(keys, account)
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
	}, "SELECT id, data FROM llmhttp_responses WHERE account = $1 AND id IN "+list, args...)
	return found, err
}

// selectItems returns the items of r with the given IDs, one for each.
func selectItems(r *llmhttp.StoredResponse, ids []string) []llmhttp.StoredItem {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	var selected []llmhttp.StoredItem
	for _, item := range slices.Concat(r.Input, r.Output) {
		if wanted[item.ID] {
			delete(wanted, item.ID)
			selected = append(selected, item)
		}
	}
	return selected
}

// DeleteResponse implements [llmhttp.ResponseStore].
func (s *responseStore) DeleteResponse(ctx context.Context, account, id string) error {
	account, id = storedName(account), storedName(id)
	err := s.db.retry(ctx, s.db.isTransient, func() error {
		return inTx(ctx, s.db.write, nil, func(tx *sql.Tx) error {
			data, err := s.lockResponse(ctx, tx, account, id)
			if errors.Is(err, sql.ErrNoRows) {
				return llmhttp.ErrResponseNotFound
			}
			if err != nil {
				return err
			}
			if err := deleteItems(ctx, tx, account, id, data); err != nil {
				return err
			}
			result, err := tx.ExecContext(ctx, "DELETE FROM llmhttp_responses WHERE account = $1 AND id = $2 AND "+notExpired+"$3)", account, id, micros(s.db.now()))
			if err != nil {
				return err
			}
			if n, err := result.RowsAffected(); err != nil || n == 0 {
				return errors.Join(err, llmhttp.ErrResponseNotFound)
			}
			return nil
		})
	})
	return s.db.wrapError("deleting a response", err)
}

// pruneResponsesBatch is the maximum number of responses that one transaction
// deletes.
const pruneResponsesBatch = 200

// PruneResponses deletes the responses that have expired and returns how many it
// deleted. A Store does so once an hour.
func (s *responseStore) PruneResponses(ctx context.Context) (deleted int64, err error) {
	now := micros(s.db.now())
	for {
		var n int64
		err := s.db.retry(ctx, s.db.isTransient, func() (err error) {
			n, err = s.deleteExpired(ctx, now)
			return err
		})
		deleted += n
		if err != nil || n == 0 {
			return deleted, s.db.wrapError("pruning responses", err)
		}
	}
}

// deleteExpired deletes up to pruneResponsesBatch responses.
func (s *responseStore) deleteExpired(ctx context.Context, now int64) (n int64, err error) {
	err = inTx(ctx, s.db.write, nil, func(tx *sql.Tx) error {
		n = 0
		var expired []responseRow
		err := forEachRow(ctx, tx, func(rows *sql.Rows) error {
			var r responseRow
			err := rows.Scan(&r.account, &r.id, &r.data)
			expired = append(expired, r)
			return err
		}, "SELECT account, id, data FROM llmhttp_responses WHERE expires <= $1 ORDER BY expires LIMIT $2"+s.db.skipLocked(), now, pruneResponsesBatch)
		for i := range expired {
			r := &expired[i]
			if err == nil {
				err = deleteItems(ctx, tx, r.account, r.id, r.data)
			}
			if err == nil {
				_, err = tx.ExecContext(ctx, "DELETE FROM llmhttp_responses WHERE account = $1 AND id = $2", r.account, r.id)
			}
		}
		n = int64(len(expired))
		return err
	})
	if err != nil {
		n = 0
	}
	return n, err
}
