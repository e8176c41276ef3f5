package sqlstore

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"slices"
	"time"

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
	return &responseRow{
		account: storedName(r.Account),
		id:      storedName(r.ID),
		created: micros(r.Created),
		expires: encodeTime(r.Expires),
		data:    encodeResponse(r),
		items:   itemNames(r),
	}
}

func (r *responseRow) hasExpired(now time.Time) bool {
	return r.expires.Valid && r.expires.Int64 <= micros(now)
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
