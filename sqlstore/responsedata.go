// Rows of responses and of their items.

package sqlstore

import (
	"database/sql"
	"errors"

	"github.com/llmhttp/llmhttp/responsestore"
)

// A responseRow is a row of llmhttp_responses, and those of its items. Names are in
// their stored forms.
type responseRow struct {
	account, id string
	created     int64
	expires     sql.NullInt64
	previous    []byte
	itemBytes   int64
	data        []byte
	items       []itemRow
}

// An itemRow is a row of llmhttp_response_items.
type itemRow struct {
	id       string
	name     []byte // nil if originalName(id) is the ID
	output   bool
	repeated bool
	data     []byte
}

func newResponseRow(r *responsestore.Response) *responseRow {
	row := &responseRow{
		account:  storedName(r.Account),
		id:       storedName(r.ID),
		created:  micros(r.Created),
		expires:  encodeTime(r.Expires),
		previous: []byte(r.Previous),
		data:     append([]byte{responseFormat}, r.Body...),
	}
	seen := make(map[string]bool)
	row.addItems(r.Input, false, seen)
	row.addItems(r.Output, true, seen)
	return row
}

// addItems adds items whose IDs are then in the set seen.
func (r *responseRow) addItems(items []responsestore.Item, output bool, seen map[string]bool) {
	for i := range items {
		row := itemRow{id: storedName(items[i].ID), output: output, data: items[i].Body}
		if row.data == nil {
			row.data = []byte{} // nil would be stored as null
		}
		if originalName(row.id) != items[i].ID {
			row.name = []byte(items[i].ID)
		}
		row.repeated, seen[row.id] = seen[row.id], true
		r.itemBytes += int64(len(row.data))
		r.items = append(r.items, row)
	}
}

// size returns what the response counts toward Options.MaxResponseBytes.
func (r *responseRow) size() int64 { return int64(len(r.data)) + r.itemBytes }

// itemID returns the ID of an item from its columns id and name.
func itemID(id string, name []byte) string {
	if name != nil {
		return string(name)
	}
	return originalName(id)
}

// responseFormat is the first byte of the column data. The Body follows.
const responseFormat = 1

var errResponseFormat = errors.New("a stored response is damaged or of a newer version of this package")

// decodeBody returns the Body in the column data.
func decodeBody(data []byte) ([]byte, error) {
	if len(data) == 0 || data[0] != responseFormat {
		return nil, errResponseFormat
	}
	return data[1:], nil
}
