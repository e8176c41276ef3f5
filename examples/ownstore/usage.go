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
	"github.com/llmhttp/llmhttp/manage"
)

// A UsageStore keeps a row of the table usage for each record. It sums for accounts, keys and end
// users. The sum for a quota is one query that reads the index of the account, so its cost grows with
// the number of requests in the period; a store for many more keeps sums of days, too, as sqlstore does.
type UsageStore struct{ db *sql.DB }

var _ manage.UsageReporter = (*UsageStore)(nil)

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
	var sums []llmhttp.UsageSum
	err := s.read(ctx, q.Step > 0, func(_ manage.ReportRowID, sum *llmhttp.UsageSum) {
		sum.Start = q.PeriodStart(sum.Start)
		sums = append(sums, *sum)
	}, "account = ? AND time >= ? AND time < ? AND "+subject, q.Account, ceilMicros(q.From), ceilMicros(q.To), q.Subject.ID)
	return merge(sums), err
}

// Report implements [manage.UsageReporter], for which console and llmhttpctl ask. It refuses what the
// table has no columns for, and what an end user has used.
func (s *UsageStore) Report(ctx context.Context, q manage.ReportQuery) (manage.Report, error) {
	err := q.CheckFields("Account", "KeyID", "Model", "From", "To", "By", "GroupLabel", "Interval", "Location", "PerModel", "Order", "Limit")
	if err != nil {
		return manage.Report{}, err
	}
	if q.By == manage.ByUser || q.By == manage.ByLabel {
		return manage.Report{}, fmt.Errorf("ownstore: cannot report usage by %q: %w", q.By, errors.ErrUnsupported)
	}
	report, err := manage.NewReportBuilder(q)
	if err != nil {
		return manage.Report{}, err
	}
	err = s.read(ctx, len(report.Starts()) > 1, report.Add,
		"? IN ('', account) AND ? IN ('', key_id) AND ? IN ('', model) AND time >= ? AND time < ?",
		q.Account, q.KeyID, q.Model, ceilMicros(q.From), ceilMicros(q.To))
	return report.Report(), err
}

// read passes the sums of the records for which a condition holds to add: one for each account, key
// and model, and if byTime is set also for each time, because intervals are more than SQL can tell.
// The Start of a sum is a time of its records.
func (s *UsageStore) read(ctx context.Context, byTime bool, add func(manage.ReportRowID, *llmhttp.UsageSum), condition string, args ...any) error {
	columns, _ := numbers(new(llmhttp.UsageSum))
	rows, err := s.db.QueryContext(ctx, `
		SELECT min(time), account, key_id, model,
			json_group_array(json(cache_writes)) FILTER (WHERE cache_writes IS NOT NULL), sum(`+strings.Join(columns, "), sum(")+`)
		FROM usage WHERE `+condition+` GROUP BY account, key_id, model, iif(?, time, 0)`, append(args, byTime)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id manage.ReportRowID
		var sum llmhttp.UsageSum
		var micros int64
		var cacheWrites []byte
		_, values := numbers(&sum)
		if err := rows.Scan(append([]any{&micros, &id.Account, &id.KeyID, &id.Model, &cacheWrites}, values...)...); err != nil {
			return err
		}
		var list []llm.CacheWrites
		if err := json.Unmarshal(cacheWrites, &list); err != nil {
			return err
		}
		for _, w := range list {
			sum.Units.CacheWrites = sum.Units.CacheWrites.Plus(w)
		}
		sum.Start, sum.Model = time.UnixMicro(micros), id.Model
		add(id, &sum)
	}
	return rows.Err()
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
