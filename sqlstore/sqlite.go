// The SQL that only SQLite has.

package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// sqliteDialect is the dialect of SQLite.
type sqliteDialect struct{}

// sqliteReaders is the number of connections for reading a file.
const sqliteReaders = 4

// openSQLite opens a SQLite database. One connection writes, so that the writers
// of this process queue in order. The others read at the same time.
//
// database.retry does most of the waiting for writers in other processes, because
// it ends with its context, unlike the busy timeout of SQLite. Readers wait only
// while another process recovers the file after a crash.
func openSQLite(source dataSource, create bool, reportConns int) (*database, error) {
	if err := source.prepareFile(create); err != nil {
		return nil, err
	}
	write, err := newSQLitePool(source, 1, "busy_timeout(500)", "foreign_keys(1)", "journal_mode(wal)", "synchronous(full)")
	if err != nil {
		return nil, err
	}
	db := &database{dialect: sqliteDialect{}, write: write, read: write, report: write, discardIdle: func() {}, close: write.Close}
	if source.memory {
		return db, nil
	}
	read, err := newSQLitePool(source, sqliteReaders, "busy_timeout(5000)")
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	db.read, db.report = read, read
	db.close = func() error { return errors.Join(read.Close(), write.Close()) }
	if reportConns <= 0 {
		return db, nil
	}
	report, err := newSQLitePool(source, reportConns, "busy_timeout(5000)")
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	db.report = report
	db.close = func() error { return errors.Join(report.Close(), read.Close(), write.Close()) }
	return db, nil
}

// prepareFile creates the file if it does not exist, so that only its owner can
// read and write it; the files that SQLite puts beside it have the same mode. If
// create is not set, or if the DSN has a mode that does not create files, a
// missing file is an error, and SQLite does not create it either. Errors do not
// contain the path, which may be a password in the wrong place.
func (d *dataSource) prepareFile(create bool) error {
	values, _ := url.ParseQuery(d.params) // parseDSN has checked them
	if d.memory || values.Has("vfs") {
		return nil
	}
	path, err := d.path()
	if err != nil {
		return err
	}
	mode := cmp.Or(values.Get("mode"), "rwc")
	if mode == "rwc" && !create {
		mode = "rw"
		d.params = strings.TrimPrefix(d.params+"&mode=rw", "&")
	}
	flags := os.O_RDWR
	switch mode {
	case "rwc":
		flags |= os.O_CREATE
	case "ro":
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flags, 0o600)
	switch {
	case !create && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: the SQLite file does not exist", ErrSchemaTooOld)
	case err != nil:
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err
		}
		return fmt.Errorf("opening the SQLite file: %w", err)
	}
	return f.Close()
}

// path returns the path of the file, which need not be absolute.
func (d *dataSource) path() (string, error) {
	u, err := url.Parse(d.address)
	if err == nil && u.Opaque == "" {
		return u.Path, nil
	}
	path := ""
	if err == nil {
		path, err = url.PathUnescape(u.Opaque) // a relative path
	}
	if err != nil {
		return "", errors.New("DSN: the path after file: is malformed")
	}
	return path, nil
}

// newSQLitePool returns a pool of at most conns connections. A pragma in the DSN
// takes precedence over the same pragma in pragmas.
func newSQLitePool(source dataSource, conns int, pragmas ...string) (*sql.DB, error) {
	params := []string{"_txlock=immediate"} // the driver uses the first value of a parameter
	for _, pragma := range pragmas {
		name, _, _ := strings.Cut(pragma, "(")
		if !strings.Contains(strings.ToLower(source.params), name) {
			params = append(params, "_pragma="+pragma)
		}
	}
	if source.params != "" {
		params = append(params, source.params)
	}
	db, err := sql.Open("sqlite", source.address+"?"+strings.Join(params, "&"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func (sqliteDialect) name() string { return "sqlite" }

func (sqliteDialect) hasSchema() string {
	return "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'llmhttp_schema')"
}

// Write transactions are immediate, so there is only one at a time and none needs a lock.
func (sqliteDialect) lockSchema(context.Context, *sql.Tx) error { return nil }
func (sqliteDialect) forUpdate() string                         { return "" }
func (sqliteDialect) skipLocked() string                        { return "" }

// contains uses instr, which is several times as fast as LIKE. The function lower changes only ASCII letters.
func (sqliteDialect) contains(text string, columns ...string) string {
	return "instr(lower(" + strings.Join(columns, " || char(10) || ") + "), lower(" + text + ")) > 0"
}

func (sqliteDialect) has(text, column string) string {
	return "instr(" + column + ", " + text + ") > 0"
}

var plainName = regexp.MustCompile(`^[\w. -]+$`)

// member uses a path, which is several times as fast as json_each, for names that have no escape sequence
// in JSON or in the path.
func (sqliteDialect) member(args *sqlArgs, column, name string) string {
	if plainName.MatchString(name) {
		return "json_extract(nullif(" + column + ", ''), " + args.add(`$."`+name+`"`) + ")"
	}
	return "(SELECT e.value FROM json_each(nullif(" + column + ", '')) AS e WHERE e.key = " + args.add(name) + ")"
}

// sum uses the function total, which returns a REAL, because the function sum
// fails if the sum overflows.
func (sqliteDialect) sum(column string) string { return "CAST(total(" + column + ") AS INTEGER)" }

func (sqliteDialect) unindexed(column string) string { return "+" + column }

// addUsage adds to the sums what it has inserted, in one transaction. A trigger would do so for
// each record and not for each sum.
func (d sqliteDialect) addUsage(ctx context.Context, db *sql.DB, records []record) error {
	return inTx(ctx, db, nil, func(tx *sql.Tx) error {
		sums, err := d.insertRecords(ctx, tx, records)
		if err != nil || len(sums) == 0 {
			return err
		}
		return d.addToSums(ctx, tx, sums)
	})
}

var insertRecordInSQLite = `
	INSERT INTO llmhttp_usage_records (` + strings.Join(recordColumns, ", ") + `)
	VALUES (` + placeholders(len(recordColumns)) + `) ON CONFLICT DO NOTHING`

// insertRecords inserts the records whose IDs are new, and returns their sums.
func (sqliteDialect) insertRecords(ctx context.Context, tx *sql.Tx, records []record) (map[sumRow]*llmhttp.UsageSum, error) {
	insert, err := tx.PrepareContext(ctx, insertRecordInSQLite)
	if err != nil {
		return nil, err
	}
	defer insert.Close()
	sums := make(map[sumRow]*llmhttp.UsageSum)
	for i := range records {
		r := &records[i]
		result, err := insert.ExecContext(ctx, r.values()...)
		if err != nil {
			return nil, err
		}
		inserted, err := result.RowsAffected()
		if err != nil {
			return nil, err
		}
		if inserted == 0 {
			continue
		}
		day := dayOf(r.time)
		keys := []sumRow{
			{sumOfKey, r.account, r.keyID, day, r.model},
			{sumOfAccount, r.account, "", day, r.model},
			{sumOfUser, r.account, r.user, day, r.model},
			{sumOfAll, "", "", day, r.model},
		}
		for _, s := range r.subjects {
			keys = append(keys, sumRow{s.Kind, r.account, s.ID, day, r.model})
		}
		for _, key := range keys {
			if sums[key] == nil {
				sums[key] = new(llmhttp.UsageSum)
			}
			sums[key].Add(r.sum)
		}
	}
	return sums, nil
}

// A sum that overflows an INTEGER becomes a REAL, which the cast converts to the nearest INTEGER.
var addToSumsInSQLite = `
	INSERT INTO llmhttp_usage_sums (` + sumKeyColumns + `, ` + strings.Join(sumColumns, ", ") + `)
	VALUES (` + placeholders(5+len(sumColumns)) + `)
	ON CONFLICT DO UPDATE SET ` + columnList(sumNumberColumns, "%[1]s = CAST(%[1]s + excluded.%[1]s AS INTEGER)") +
	", " + fmt.Sprintf(addedCacheWrites, "llmhttp_usage_sums")

// addToSums adds to the sums by day.
func (sqliteDialect) addToSums(ctx context.Context, tx *sql.Tx, sums map[sumRow]*llmhttp.UsageSum) error {
	upsert, err := tx.PrepareContext(ctx, addToSumsInSQLite)
	if err != nil {
		return err
	}
	defer upsert.Close()
	for _, key := range slices.SortedFunc(maps.Keys(sums), sumRow.compare) {
		values := append([]any{key.kind, key.account, key.subject, key.day, key.model}, sumValues(sums[key])...)
		if _, err := upsert.ExecContext(ctx, values...); err != nil {
			return err
		}
	}
	return nil
}

func (d sqliteDialect) insertResponse(ctx context.Context, db *sql.DB, row *responseRow) (inserted bool, err error) {
	err = inTx(ctx, db, nil, func(tx *sql.Tx) error {
		inserted, err = d.insertResponseTx(ctx, tx, row)
		return err
	})
	return inserted, err
}

func (sqliteDialect) insertResponseTx(ctx context.Context, tx *sql.Tx, row *responseRow) (inserted bool, err error) {
	result, err := tx.ExecContext(ctx, `
		INSERT INTO llmhttp_responses (account, id, created, expires, previous, item_bytes, data) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT DO NOTHING`, row.account, row.id, row.created, row.expires, row.previous, row.itemBytes, row.data)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	if err != nil || n == 0 || len(row.items) == 0 {
		return n > 0, err
	}
	insert, err := tx.PrepareContext(ctx, `
		INSERT INTO llmhttp_response_items (account, response, position, id, name, output, repeated, data)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`)
	if err != nil {
		return false, err
	}
	defer insert.Close()
	for i, item := range row.items {
		if _, err := insert.ExecContext(ctx, row.account, row.id, i, item.id, item.name, item.output, item.repeated, item.data); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (sqliteDialect) setLastUsed(ctx context.Context, db *sql.DB, uses []keyUse) error {
	return inTx(ctx, db, nil, func(tx *sql.Tx) error {
		update, err := tx.PrepareContext(
			ctx,
			"UPDATE llmhttp_keys SET last_used = $2 WHERE id = $1 AND (last_used IS NULL OR last_used <= $2 - $3)",
		)
		if err != nil {
			return err
		}
		defer update.Close()
		for _, use := range uses {
			if _, err := update.ExecContext(ctx, use.id, use.at, lastUsedInterval.Microseconds()); err != nil {
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
	primary := e.Code() & 0xff // without the extended result code
	return primary == sqlite3.SQLITE_BUSY || primary == sqlite3.SQLITE_LOCKED
}

// isUnavailable returns false, because an error of a file does not pass by itself.
func (sqliteDialect) isUnavailable(error) bool { return false }

// The functions of addedCacheWrites and summedCacheWrites, for all connections of the driver.
func init() {
	sqlite.MustRegisterDeterministicScalarFunction("llmhttp_add_cache_writes", 2,
		func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			if args[0] == "" || args[1] == "" {
				return fmt.Sprint(args[0], args[1]), nil
			}
			var sum cacheWritesSum
			for _, arg := range args {
				if err := sum.Step(nil, []driver.Value{arg}); err != nil {
					return nil, err
				}
			}
			return sum.WindowValue(nil)
		})
	sqlite.MustRegisterFunction("llmhttp_sum_cache_writes", &sqlite.FunctionImpl{
		NArgs: 1, Deterministic: true,
		MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) { return new(cacheWritesSum), nil },
	})
}

// A cacheWritesSum adds up values of cache_writes.
type cacheWritesSum struct{ units llmhttp.Units }

// Step implements [sqlite.AggregateFunction], like the other methods.
func (s *cacheWritesSum) Step(_ *sqlite.FunctionContext, args []driver.Value) error {
	var w cacheWrites
	err := w.Scan(args[0])
	s.units.Add(llmhttp.Units{CacheWrites: llm.CacheWrites(w)})
	return err
}

// WindowInverse fails, as no statement has a window.
func (s *cacheWritesSum) WindowInverse(*sqlite.FunctionContext, []driver.Value) error {
	return errors.ErrUnsupported
}

// WindowValue returns the sum.
func (s *cacheWritesSum) WindowValue(*sqlite.FunctionContext) (driver.Value, error) {
	return encodeCacheWrites(s.units.CacheWrites), nil
}

// Final has nothing to release.
func (s *cacheWritesSum) Final(*sqlite.FunctionContext) {}
