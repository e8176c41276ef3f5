package sqlstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// A record is a row of llmhttp_usage_records.
type record struct {
	id, account, keyID, model string
	endpoint, protocol        string
	time                      int64
	estimated                 bool
	sum                       llmhttp.UsageSum // its numbers only
}

// newRecord returns the stored form of r. It keeps only the numbers of r.Usage that
// a UsageSum has.
func newRecord(r *llmhttp.UsageRecord) record {
	return record{
		id:        storedName(r.ID),
		account:   storedName(r.Account),
		keyID:     storedName(r.KeyID),
		model:     storedName(r.Model),
		endpoint:  storedName(string(r.Endpoint)),
		protocol:  storedName(r.Protocol),
		time:      micros(r.Time),
		estimated: r.Estimated,
		sum:       r.Sum(),
	}
}

// recordColumns are the columns of the numbers of a record.
var recordColumns = []string{"prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "images"}

// recordNumbers returns pointers to the numbers of s in the order of recordColumns.
func recordNumbers(s *llmhttp.UsageSum) []any {
	return []any{&s.PromptTokens, &s.CompletionTokens, &s.CachedTokens, &s.ReasoningTokens, &s.Images}
}

// sumColumns are the columns of the numbers of a sum.
var sumColumns = append([]string{"requests"}, recordColumns...)

// sumNumbers returns pointers to the numbers of s in the order of sumColumns.
func sumNumbers(s *llmhttp.UsageSum) []any {
	return append([]any{&s.Requests}, recordNumbers(s)...)
}

// columnList formats each of columns and joins the results with commas.
func columnList(columns []string, format string) string {
	list := make([]string, len(columns))
	for i, column := range columns {
		list[i] = fmt.Sprintf(format, column)
	}
	return strings.Join(list, ", ")
}

// addSums adds the numbers of a and b. They saturate at the bounds of int64, so that an
// upstream that reports absurd numbers cannot make a record fail.
func addSums(a, b llmhttp.UsageSum) llmhttp.UsageSum {
	return llmhttp.UsageSum{
		Requests:         saturatingAdd(a.Requests, b.Requests),
		PromptTokens:     saturatingAdd(a.PromptTokens, b.PromptTokens),
		CompletionTokens: saturatingAdd(a.CompletionTokens, b.CompletionTokens),
		CachedTokens:     saturatingAdd(a.CachedTokens, b.CachedTokens),
		ReasoningTokens:  saturatingAdd(a.ReasoningTokens, b.ReasoningTokens),
		Images:           saturatingAdd(a.Images, b.Images),
	}
}

func saturatingAdd(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// A usageStore keeps usage. It implements [llmhttp.KeyUsageStore] and
// [manage.UsageReporter].
type usageStore struct{ db *database }

// maxBatch is the maximum number of records, or of uses of keys, that one
// transaction stores.
const maxBatch = 5000

// Record implements [llmhttp.UsageStore]. When it returns nil, the records are
// committed. When it returns an error, some of them may be committed, and the
// caller may repeat the call.
//
// IDs, accounts, key IDs, models, endpoints and protocols can be any strings.
// Record stores only the beginning and a hash of a string of more than 512 bytes.
// It stores only these numbers of the Usage: prompt, completion, cached and
// reasoning tokens.
//
// Record skips a record whose ID is already stored. IDs of deleted records are
// unknown; see [Store.Prune].
func (s *usageStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	rows := make([]record, len(records))
	for i := range records {
		rows[i] = newRecord(&records[i])
	}
	// The stable sort keeps the first record of each ID.
	slices.SortStableFunc(rows, func(a, b record) int { return strings.Compare(a.id, b.id) })
	rows = slices.CompactFunc(rows, func(a, b record) bool { return a.id == b.id })
	for batch := range slices.Chunk(rows, maxBatch) {
		err := s.db.retry(ctx, s.db.isTransient, func() error { return s.db.addUsage(ctx, s.db.write, batch) })
		if err != nil {
			return s.db.wrapError("recording usage", err)
		}
	}
	return nil
}
