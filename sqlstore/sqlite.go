package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteDialect is that of SQLite. One connection writes, so that those who
// want to queue in this process and in order; the others read meanwhile.
type sqliteDialect struct{}

// connectSQLite sets up connections, which are made when they are used first.
// Who writes waits for other processes mostly in Store.retry, which ends with
// its context; SQLite's own wait does not. Who reads waits for nobody, but for
// one that recovers the file.
func (s *Store) connectSQLite(d source) error {
	db, err := openSQLite(d, 1, "busy_timeout(500)", "foreign_keys(1)", "journal_mode(wal)", "synchronous(full)")
	if err != nil {
		return err
	}
	s.dialect, s.write, s.read, s.reset, s.close = sqliteDialect{}, db, db, func() {}, db.Close
	if d.memory {
		return nil
	}
	s.read, err = openSQLite(d, sqliteReaders, "busy_timeout(5000)")
	s.close = func() error { return errors.Join(s.read.Close(), s.write.Close()) }
	return err
}

// sqliteReaders is how many connections there are for reading.
const sqliteReaders = 4

// openSQLite returns a pool of connections with the given pragmas, unless d has
// others of the same name.
func openSQLite(d source, conns int, pragmas ...string) (*sql.DB, error) {
	params := []string{"_txlock=immediate"} // of several, the first counts
	for _, pragma := range pragmas {
		name, _, _ := strings.Cut(pragma, "(")
		if !strings.Contains(strings.ToLower(d.params), name) {
			params = append(params, "_pragma="+pragma)
		}
	}
	if d.params != "" {
		params = append(params, d.params)
	}
	db, err := sql.Open("sqlite", d.name+"?"+strings.Join(params, "&"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func (sqliteDialect) hasSchema() string {
	return "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'llmhttp_schema')"
}

// Transactions that write are immediate: there is one at a time.
func (sqliteDialect) lockSchema(context.Context, *sql.Tx) error { return nil }
func (sqliteDialect) forUpdate() string                         { return "" }
func (sqliteDialect) skipLocked() string                        { return "" }

func (sqliteDialect) addUsage(ctx context.Context, db *sql.DB, records []record) error {
	return inTx(ctx, db, nil, func(tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, `
			INSERT INTO llmhttp_usage_records (id, time, account, key_id, model, endpoint, prompt_tokens, completion_tokens, images, estimated)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`)
		if err != nil {
			return err
		}
		defer insert.Close()
		days := make(map[dayKey]tally)
		for _, r := range records {
			result, err := insert.ExecContext(ctx, r.id, r.time, r.account, r.keyID, r.model, r.endpoint, r.prompt, r.completion, r.images, r.estimated)
			if err != nil {
				return err
			}
			added, err := result.RowsAffected()
			if err != nil {
				return err
			}
			if added > 0 {
				key := dayKey{r.account, dayOf(r.time), r.model}
				sum := days[key]
				sum.add(tally{1, r.prompt, r.completion, r.images})
				days[key] = sum
			}
		}
		if len(days) == 0 {
			return nil
		}
		// A sum that is no INTEGER any more is a REAL, and cast to the INTEGER
		// that is nearest.
		upsert, err := tx.PrepareContext(ctx, `
			INSERT INTO llmhttp_usage_days (account, day, model, requests, prompt_tokens, completion_tokens, images)
			VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT DO UPDATE SET
				requests          = CAST(requests          + excluded.requests          AS INTEGER),
				prompt_tokens     = CAST(prompt_tokens     + excluded.prompt_tokens     AS INTEGER),
				completion_tokens = CAST(completion_tokens + excluded.completion_tokens AS INTEGER),
				images            = CAST(images            + excluded.images            AS INTEGER)`)
		if err != nil {
			return err
		}
		defer upsert.Close()
		for _, key := range slices.SortedFunc(maps.Keys(days), dayKey.compare) {
			sum := days[key]
			if _, err := upsert.ExecContext(ctx, key.account, key.day, key.model, sum.requests, sum.prompt, sum.completion, sum.images); err != nil {
				return err
			}
		}
		return nil
	})
}

func (sqliteDialect) touchKeys(ctx context.Context, db *sql.DB, uses []keyUse) error {
	return inTx(ctx, db, nil, func(tx *sql.Tx) error {
		update, err := tx.PrepareContext(ctx, "UPDATE llmhttp_keys SET last_used = $2 WHERE id = $1 AND (last_used IS NULL OR last_used <= $2 - $3)")
		if err != nil {
			return err
		}
		defer update.Close()
		for _, use := range uses {
			if _, err := update.ExecContext(ctx, use.id, use.at, touchInterval.Microseconds()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (sqliteDialect) isConflict(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	primary := e.Code() & 0xff
	return primary == sqlite3.SQLITE_BUSY || primary == sqlite3.SQLITE_LOCKED
}

// A file is never away for a while.
func (sqliteDialect) isAway(error) bool { return false }
