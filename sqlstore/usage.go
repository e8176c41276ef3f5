// Records, and sums by day.

package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A record is a row of llmhttp_usage_records.
type record struct {
	texts               []string // in the order of recordTexts
	part, time          int64
	estimated, unpriced bool
	sum                 llmhttp.UsageSum    // its numbers only
	account, keyID      string              // in their stored forms
	user, model         string              // likewise
	subjects            []llmhttp.SubjectID // for which there are sums, in their stored forms
}

// recordTexts are the columns of a record that are texts. Those that are names are stored by
// storedName.
var recordTexts = []struct {
	column string
	isName bool
	value  func(r *llmhttp.UsageRecord) string
}{
	{"id", true, func(r *llmhttp.UsageRecord) string { return r.ID }},
	{"request_id", true, func(r *llmhttp.UsageRecord) string { return r.RequestID }},
	{"account", true, func(r *llmhttp.UsageRecord) string { return r.Account }},
	{"key_id", true, func(r *llmhttp.UsageRecord) string { return r.KeyID }},
	{"end_user", true, func(r *llmhttp.UsageRecord) string { return r.User }},
	{"subjects", false, func(r *llmhttp.UsageRecord) string { return encodeSubjects(r.Subjects) }},
	{"labels", false, func(r *llmhttp.UsageRecord) string { return encodeLabels(r.Labels) }},
	{"cache_writes", false, func(r *llmhttp.UsageRecord) string { return encodeCacheWrites(r.Units.CacheWrites) }},
	{"protocol", true, func(r *llmhttp.UsageRecord) string { return r.Protocol }},
	{"operation", true, func(r *llmhttp.UsageRecord) string { return string(r.Operation) }},
	{"model", true, func(r *llmhttp.UsageRecord) string { return r.Model }},
	{"served_model", true, func(r *llmhttp.UsageRecord) string { return r.ServedModel }},
	{"target", true, func(r *llmhttp.UsageRecord) string { return r.Target }},
	{"service_tier", true, func(r *llmhttp.UsageRecord) string { return r.ServiceTier }},
	{"image_size", true, func(r *llmhttp.UsageRecord) string { return r.ImageSize }},
	{"image_quality", true, func(r *llmhttp.UsageRecord) string { return r.ImageQuality }},
	{"error_class", true, func(r *llmhttp.UsageRecord) string { return string(r.ErrorClass) }},
}

// newRecord returns the stored form of r.
func newRecord(r *llmhttp.UsageRecord) record {
	row := record{
		texts: make(
			[]string,
			len(recordTexts),
		), part: int64(r.Part), time: micros(r.Time), estimated: r.Estimated, unpriced: r.Unpriced, sum: r.Sum(),
		account: storedName(r.Account), keyID: storedName(r.KeyID), user: storedName(r.User), model: storedName(r.Model),
		subjects: summedSubjects(r.Subjects),
	}
	for i, text := range recordTexts {
		if row.texts[i] = text.value(r); text.isName {
			row.texts[i] = storedName(row.texts[i])
		}
	}
	return row
}

// id returns the ID of the record in its stored form.
func (r *record) id() string { return r.texts[0] }

// ownKinds are the kinds of subjects for which records have columns of their own.
var ownKinds = []string{sumOfAccount, sumOfKey, sumOfUser}

// kindPattern is the form of the kinds of subjects for which there are sums.
const kindPattern = "^[a-z0-9_-]{1,32}$"

var kindRegexp = regexp.MustCompile(kindPattern)

// isFurtherKind reports whether there are sums for the subjects of a kind that records list.
func isFurtherKind(kind string) bool {
	return kindRegexp.MatchString(kind) && !slices.Contains(ownKinds, kind)
}

// storedSubject returns s in its stored form.
func storedSubject(s llmhttp.SubjectID) llmhttp.SubjectID {
	return llmhttp.SubjectID{Kind: storedName(s.Kind), ID: storedName(s.ID)}
}

// summedSubjects returns those of the subjects of a record, once each and in their stored forms,
// for which there are sums.
func summedSubjects(subjects []llmhttp.SubjectID) (stored []llmhttp.SubjectID) {
	for _, s := range subjects {
		if s = storedSubject(s); isFurtherKind(s.Kind) && !slices.Contains(stored, s) {
			stored = append(stored, s)
		}
	}
	return stored
}

// encodeSubjects encodes subjects, in their stored forms, as a JSON array, and none as "".
func encodeSubjects(subjects []llmhttp.SubjectID) string {
	if len(subjects) == 0 {
		return ""
	}
	type subject struct {
		Kind string `json:"kind"`
		ID   string `json:"id"`
	}
	list := make([]subject, len(subjects))
	for i, s := range subjects {
		list[i] = subject(storedSubject(s))
	}
	return encodeJSON(list)
}

// encodeLabels encodes labels, in their stored forms, as a JSON object, and none as "".
func encodeLabels(labels []llmhttp.Label) string {
	if len(labels) == 0 {
		return ""
	}
	values := make(map[string]string, len(labels))
	for _, l := range labels {
		values[storedName(l.Name)] = storedName(l.Value)
	}
	return encodeJSON(values)
}

// decodeLabels is the inverse of encodeLabels.
func decodeLabels(encoded string) (labels map[string]string, err error) {
	var stored map[string]string
	if encoded == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(encoded), &stored)
	labels = make(map[string]string, len(stored))
	for name, value := range stored {
		labels[originalName(name)] = originalName(value)
	}
	return labels, err
}

// costColumns are the columns of the parts of the cost.
var costColumns = func() (columns []string) {
	for name := range new(llmhttp.Cost).All() {
		columns = append(columns, "cost_"+name)
	}
	return columns
}()

// numberColumns are the columns of the units and costs of a record and of a sum.
var numberColumns = func() (columns []string) {
	for name := range new(llmhttp.Units).All() {
		columns = append(columns, name)
	}
	return append(columns, costColumns...)
}()

// numbers returns pointers to the numbers of s in the order of numberColumns.
func numbers(s *llmhttp.UsageSum) []*int64 {
	list := make([]*int64, 0, len(numberColumns))
	for _, n := range s.Units.All() {
		list = append(list, n)
	}
	for _, m := range s.Cost.All() {
		list = append(list, (*int64)(m))
	}
	return list
}

// recordColumns are the columns of a record in the order of record.values.
var recordColumns = func() (columns []string) {
	for _, text := range recordTexts {
		columns = append(columns, text.column)
	}
	return append(append(columns, "part", "time", "estimated", "unpriced"), numberColumns...)
}()

// values returns the values of recordColumns.
func (r *record) values() []any {
	list := make([]any, 0, len(recordColumns))
	for _, text := range r.texts {
		list = append(list, text)
	}
	list = append(list, r.part, r.time, r.estimated, r.unpriced)
	for _, n := range numbers(&r.sum) {
		list = append(list, *n)
	}
	return list
}

// sumNumberColumns are the columns of a sum that are numbers.
var sumNumberColumns = append([]string{"requests", "unpriced"}, numberColumns...)

// sumColumns are the columns of what a sum adds up.
var sumColumns = append(slices.Clone(sumNumberColumns), "cache_writes")

// sumNumbers returns pointers to what s adds up in the order of sumColumns.
func sumNumbers(s *llmhttp.UsageSum) []any {
	list := append(make([]any, 0, len(sumColumns)), &s.Requests, &s.Unpriced)
	for _, n := range numbers(s) {
		list = append(list, n)
	}
	return append(list, (*cacheWrites)(&s.Units.CacheWrites))
}

// sumValues returns the values of sumColumns.
func sumValues(s *llmhttp.UsageSum) []any {
	list := append(make([]any, 0, len(sumColumns)), s.Requests, s.Unpriced)
	for _, n := range numbers(s) {
		list = append(list, *n)
	}
	return append(list, encodeCacheWrites(s.Units.CacheWrites))
}

// addedCacheWrites is an expression of an ON CONFLICT clause for cache_writes of a row of a table, and
// summedCacheWrites one for the sum of a column. Both databases have the functions.
const (
	addedCacheWrites  = "cache_writes = llmhttp_add_cache_writes(%s.cache_writes, excluded.cache_writes)"
	summedCacheWrites = "coalesce(llmhttp_sum_cache_writes(%[1]s) FILTER (WHERE %[1]s <> ''), '')"
)

// encodeCacheWrites encodes w as a JSON object, and none as "".
func encodeCacheWrites(w llm.CacheWrites) string {
	for range w.All() {
		return encodeJSON(w)
	}
	return ""
}

// cacheWrites reads what encodeCacheWrites has encoded.
type cacheWrites llm.CacheWrites

// Scan implements [sql.Scanner].
func (w *cacheWrites) Scan(value any) error {
	text, _ := value.(string)
	if b, ok := value.([]byte); ok {
		text = string(b)
	}
	if *w = nil; text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), (*llm.CacheWrites)(w))
}

// The kinds of the rows of llmhttp_usage_sums: what has used the sum. Those of further subjects
// of records have the kinds of these.
const (
	sumOfAll     = ""        // all accounts together
	sumOfAccount = "account" // llmhttp.KindAccount
	sumOfKey     = "key"     // llmhttp.KindKey
	sumOfUser    = "user"    // llmhttp.KindUser
)

// sumKeyColumns are the columns that identify a row of llmhttp_usage_sums.
const sumKeyColumns = "kind, account, subject, day, model"

// A sumRow identifies a row of llmhttp_usage_sums.
type sumRow struct {
	kind, account, subject string
	day                    int64
	model                  string
}

func (k sumRow) compare(o sumRow) int {
	return cmp.Or(strings.Compare(k.kind, o.kind), strings.Compare(k.account, o.account), strings.Compare(k.subject, o.subject),
		cmp.Compare(k.day, o.day), strings.Compare(k.model, o.model))
}

// columnList formats each of columns and joins the results with commas.
func columnList(columns []string, format string) string {
	list := make([]string, len(columns))
	for i, column := range columns {
		list[i] = fmt.Sprintf(format, column)
	}
	return strings.Join(list, ", ")
}

// placeholders returns the placeholders of n values, separated by commas.
func placeholders(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("$", i+1)
	}
	return strings.Join(list, ", ")
}

// A usageStore keeps usage. It implements [llmhttp.UsageStore] and [manage.UsageReporter].
type usageStore struct{ db *database }

// maxBatch is the maximum number of records, or of uses of keys, that one
// transaction stores.
const maxBatch = 5000

// Record implements [llmhttp.UsageStore]. When it returns nil, the records are
// committed. When it returns an error, some of them may be committed, and the
// caller may repeat the call.
//
// The texts of records can be any strings. Record stores only the beginning and a hash of one
// of more than 512 bytes.
//
// Record skips a record whose ID is already stored. IDs of deleted records are
// unknown; see [Store.Prune].
func (s *usageStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	rows := make([]record, len(records))
	for i := range records {
		rows[i] = newRecord(&records[i])
	}
	// The stable sort keeps the first record of each ID.
	slices.SortStableFunc(rows, func(a, b record) int { return strings.Compare(a.id(), b.id()) })
	rows = slices.CompactFunc(rows, func(a, b record) bool { return a.id() == b.id() })
	for batch := range slices.Chunk(rows, maxBatch) {
		err := s.db.retry(ctx, s.db.isTransient, func() error { return s.db.addUsage(ctx, s.db.write, batch) })
		if err != nil {
			return s.db.wrapError("recording usage", err)
		}
	}
	return nil
}
