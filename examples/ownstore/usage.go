package ownstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A UsageStore keeps a row of the table usage for each record. It sums for accounts, keys and end
// users. The sum for a quota is one query that reads the index of the account, so its cost grows with
// the number of requests in the period; a store for many more keeps sums of days, too, as sqlstore does.
type UsageStore struct{ db *sql.DB }

var _ llmhttp.UsageStore = (*UsageStore)(nil)

// OpenUsage returns the UsageStore in db, and creates its table if that is missing. db must have one
// connection, because SQLite writes on one at a time. The caller closes db.
func OpenUsage(ctx context.Context, db *sql.DB) (*UsageStore, error) {
	columns, _ := numbers(new(llmhttp.UsageSum))
	_, err := db.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS usage (
			id TEXT PRIMARY KEY, account TEXT, key_id TEXT, end_user TEXT, model TEXT,
			time INTEGER, -- microseconds of Unix time
			cache_writes TEXT, -- JSON; NULL if there are none
			`+strings.Join(columns, " INTEGER, ")+` INTEGER
		);
		CREATE INDEX IF NOT EXISTS usage_of_account ON usage (account, time)`)
	return &UsageStore{db}, err
}

// numbers returns the numbers of s and the names of their columns.
func numbers(s *llmhttp.UsageSum) (columns []string, values []any) {
	columns, values = []string{"requests", "unpriced"}, []any{&s.Requests, &s.Unpriced}
	for name, n := range s.Units.All() {
		columns, values = append(columns, name), append(values, n)
	}
	for name, m := range s.Cost.All() {
		columns, values = append(columns, "cost_"+name), append(values, (*int64)(m))
	}
	return columns, values
}

// Record implements [llmhttp.UsageStore].
func (s *UsageStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for i := range records {
		r := &records[i]
		var cacheWrites any
		if len(r.Units.CacheWrites) > 0 {
			if cacheWrites, err = json.Marshal(r.Units.CacheWrites); err != nil {
				return err
			}
		}
		sum := r.Sum()
		_, values := numbers(&sum)
		values = append([]any{r.ID, r.Account, r.KeyID, r.User, r.Model, r.Time.UnixMicro(), cacheWrites}, values...)
		_, err = tx.ExecContext(ctx, "INSERT INTO usage VALUES (?"+strings.Repeat(", ?", len(values)-1)+") ON CONFLICT (id) DO NOTHING", values...)
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Query implements [llmhttp.UsageStore].
func (s *UsageStore) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	var subject string
	switch q.Subject.Kind {
	case "":
		subject = "? = ''"
	case llmhttp.KindAccount:
		subject = "account = ?"
	case llmhttp.KindKey:
		subject = "key_id = ?"
	case llmhttp.KindUser:
		subject = "end_user = ? AND end_user <> ''" // without a name it is nobody's
	default:
		return nil, fmt.Errorf("ownstore: cannot sum the usage of a %q: %w", q.Subject.Kind, errors.ErrUnsupported)
	}
	columns, _ := numbers(new(llmhttp.UsageSum))
	// Without a Step there is a row for each model. Otherwise there is one for each time, because
	// periods are more than SQL can tell.
	rows, err := s.db.QueryContext(ctx, `
		SELECT min(time), model, json_group_array(json(cache_writes)) FILTER (WHERE cache_writes IS NOT NULL), sum(`+strings.Join(columns, "), sum(")+`)
		FROM usage WHERE account = ? AND time >= ? AND time < ? AND `+subject+`
		GROUP BY model, iif(?, time, 0)`,
		q.Account, ceilMicros(q.From), ceilMicros(q.To), q.Subject.ID, q.Step > 0)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var sums []llmhttp.UsageSum
	for rows.Next() {
		var sum llmhttp.UsageSum
		var micros int64
		var cacheWrites []byte
		_, values := numbers(&sum)
		if err := rows.Scan(append([]any{&micros, &sum.Model, &cacheWrites}, values...)...); err != nil {
			return nil, err
		}
		var list []llm.CacheWrites
		if err := json.Unmarshal(cacheWrites, &list); err != nil {
			return nil, err
		}
		for _, w := range list {
			sum.Units.CacheWrites = sum.Units.CacheWrites.Plus(w)
		}
		sum.Start = q.PeriodStart(time.UnixMicro(micros))
		sums = append(sums, sum)
	}
	return merge(sums), rows.Err()
}

// merge sorts sums and adds up those of the same period and model.
func merge(sums []llmhttp.UsageSum) (merged []llmhttp.UsageSum) {
	slices.SortFunc(sums, func(a, b llmhttp.UsageSum) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Model, b.Model))
	})
	for _, sum := range sums {
		if n := len(merged) - 1; n >= 0 && merged[n].Start.Equal(sum.Start) && merged[n].Model == sum.Model {
			merged[n].Add(sum)
		} else {
			merged = append(merged, sum)
		}
	}
	return merged
}

// ceilMicros returns t in microseconds, rounded up, because those of records are rounded down.
func ceilMicros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }
