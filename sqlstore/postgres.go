// The SQL that only PostgreSQL has.

package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/llmhttp/llmhttp"
)

// postgresDialect is the dialect of PostgreSQL.
type postgresDialect struct{}

// connectTimeout limits an attempt to connect if the DSN sets no limit.
const connectTimeout = 5 * time.Second

func openPostgres(ctx context.Context, dsn string, reportConns int) (*database, error) {
	config, err := parsePostgres(dsn)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	pools := []*pgxpool.Pool{pool}
	if reportConns > 0 {
		reports, err := pgxpool.NewWithConfig(ctx, reportConfig(config, reportConns))
		if err != nil {
			pool.Close()
			return nil, err
		}
		pools = append(pools, reports)
	}
	db := &database{dialect: postgresDialect{}, write: stdlib.OpenDBFromPool(pool)}
	db.read, db.report = db.write, db.write
	if reportConns > 0 {
		db.report = stdlib.OpenDBFromPool(pools[1])
	}
	db.discardIdle = func() {
		for _, p := range pools {
			p.Reset()
		}
	}
	db.close = func() error {
		err := errors.Join(db.report.Close(), db.write.Close()) // Close may be called twice
		for _, p := range pools {
			p.Close()
		}
		return err
	}
	if err := checkEncoding(ctx, db.write); err != nil {
		_ = db.close()
		return nil, err
	}
	return db, nil
}

// reportCancelTimeout is how long a query may go on after the server was asked to cancel it, until
// its connection is closed.
const reportCancelTimeout = 5 * time.Second

// reportConfig returns the configuration of a pool of at most conns connections, which are opened
// when they are needed. When the context of a query ends, the server is told to cancel it. pgx would
// otherwise close the connection, which the server notices only when it sends the result, so that
// abandoned reports would go on and their number have no bound.
func reportConfig(config *pgxpool.Config, conns int) *pgxpool.Config {
	config = config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = int32(min(conns, math.MaxInt32)), 0, 0
	config.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: reportCancelTimeout}
	}
	return config
}

// parsePostgres parses the DSN of a PostgreSQL database. Its errors contain no
// password.
func parsePostgres(dsn string) (*pgxpool.Config, error) {
	if !isUnambiguous(dsn) {
		return nil, errMalformedDSN
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, redactDSNError(dsn, err)
	}
	if !strings.Contains(dsn, "default_query_exec_mode") {
		// PgBouncer, when it assigns a connection to each transaction, loses named
		// prepared statements, which are the default of pgx.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, connectTimeout)
	params := config.ConnConfig.RuntimeParams
	params["application_name"] = cmp.Or(params["application_name"], "llmhttp")
	return config, nil
}

func checkEncoding(ctx context.Context, db *sql.DB) error {
	var encoding string
	err := db.QueryRowContext(ctx, "SHOW server_encoding").Scan(&encoding)
	if err == nil && encoding != "UTF8" {
		err = fmt.Errorf("the encoding of the database is %s; it must be UTF8", encoding)
	}
	return err
}

func (postgresDialect) name() string { return "postgres" }

// hasSchema reads the catalog. Unlike to_regclass, that sees a table that another transaction
// created while this one waited for the lock.
func (postgresDialect) hasSchema() string {
	return "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relname = 'llmhttp_schema' AND pg_catalog.pg_table_is_visible(oid))"
}

func (postgresDialect) lockSchema(ctx context.Context, tx *sql.Tx) error {
	const lock = 0x6c6c6d68747470 // "llmhttp"; any number that other programs do not use
	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(lock))
	return err
}

func (postgresDialect) forUpdate() string  { return " FOR UPDATE" }
func (postgresDialect) skipLocked() string { return " FOR UPDATE SKIP LOCKED" }

// contains uses the collation C, in which lower changes only ASCII letters.
func (postgresDialect) contains(text string, columns ...string) string {
	return "strpos(lower((" + strings.Join(columns, " || chr(10) || ") + `) COLLATE "C"), lower(CAST(` + text + ` AS text) COLLATE "C")) > 0`
}

func (postgresDialect) has(text, column string) string {
	return "strpos(" + column + ", " + text + ") > 0"
}

func (postgresDialect) member(args *sqlArgs, column, name string) string {
	return "(CAST(nullif(" + column + ", '') AS json) ->> CAST(" + args.add(name) + ` AS text)) COLLATE "C"`
}

// sum converts the result of the function sum, a numeric, which does not overflow.
func (postgresDialect) sum(column string) string { return "llmhttp_bigint(sum(" + column + "))" }

func (postgresDialect) unindexed(column string) string { return column }

// addUsage uses a single statement, which is a transaction of its own, to hold the locks on the
// sums as briefly as possible. All processes lock rows in the same order, which prevents
// deadlocks: records, and then sums, of which those of all accounts, which everybody needs, come
// last.
//
// The statement adds to the sums what it has inserted, so that a record whose ID is stored does
// not count again. A trigger would do the same in PL/pgSQL, with a second copy of the columns.
func (postgresDialect) addUsage(ctx context.Context, db *sql.DB, records []record) error {
	statement := addUsageInPostgres
	if slices.ContainsFunc(records, func(r record) bool { return len(r.subjects) > 0 }) {
		statement = addUsageOfSubjectsInPostgres
	}
	_, err := db.ExecContext(ctx, statement, recordArrays(records)...)
	return err
}

var (
	addUsageInPostgres = addUsageStatement("")

	// addUsageOfSubjectsInPostgres also adds to the sums of further subjects.
	addUsageOfSubjectsInPostgres = addUsageStatement(`
		UNION ALL
		SELECT DISTINCT x.kind COLLATE "C", added.account, x.id COLLATE "C"
		FROM jsonb_to_recordset((CASE subjects WHEN '' THEN '[]' ELSE subjects END)::jsonb) AS x (kind text, id text)
		WHERE x.kind ~ '` + kindPattern + `' AND x.kind NOT IN ('` + strings.Join(ownKinds, "', '") + `')`)
)

// addUsageStatement returns the statement of addUsage. further is a part that selects the kinds,
// accounts and IDs of subjects of a record for which there are sums besides those of its key, of
// its account, of its end user, who may have no name, and of all.
func addUsageStatement(further string) string {
	return `
	WITH added AS (
		INSERT INTO llmhttp_usage_records (` + strings.Join(recordColumns, ", ") + `)
		SELECT * FROM unnest(` + recordArrayTypes() + `)
		ON CONFLICT DO NOTHING
		RETURNING account, key_id, end_user, subjects, ` + dayOfTime + ` AS day, model, part, unpriced, cache_writes, ` + strings.Join(numberColumns, ", ") + `
	)
	INSERT INTO llmhttp_usage_sums AS s (` + sumKeyColumns + `, ` + strings.Join(sumColumns, ", ") + `)
	SELECT u.kind, u.account, u.subject, day, model, count(*) FILTER (WHERE part = 0), count(*) FILTER (WHERE unpriced), ` + columnList(numberColumns, "llmhttp_bigint(sum(%s))") + `, ` + fmt.Sprintf(summedCacheWrites, "cache_writes") + `
	FROM added, LATERAL (
		VALUES ('` + sumOfKey + `', added.account, key_id), ('` + sumOfUser + `', added.account, end_user),
			('` + sumOfAccount + `', added.account, ''), ('` + sumOfAll + `', '', '')` + further + `
	) AS u (kind, account, subject)
	GROUP BY u.kind, u.account, u.subject, day, model ORDER BY u.kind DESC, u.account, u.subject, day, model
	ON CONFLICT (` + sumKeyColumns + `) DO UPDATE SET ` + columnList(sumNumberColumns, "%[1]s = llmhttp_bigint(s.%[1]s::numeric + excluded.%[1]s)") + `, ` + fmt.Sprintf(addedCacheWrites, "s")
}

// recordArrayTypes returns the arguments of unnest: an array for each of recordColumns.
func recordArrayTypes() string {
	types := make([]string, len(recordColumns))
	sample := newRecord(new(llmhttp.UsageRecord))
	for i, value := range sample.values() {
		switch value.(type) {
		case string:
			types[i] = fmt.Sprintf("$%d::text[]", i+1)
		case bool:
			types[i] = fmt.Sprintf("$%d::boolean[]", i+1)
		default:
			types[i] = fmt.Sprintf("$%d::bigint[]", i+1)
		}
	}
	return strings.Join(types, ", ")
}

// recordArrays returns an array with the values of each of recordColumns.
func recordArrays(records []record) []any {
	rows := make([][]any, len(records))
	for i := range records {
		rows[i] = records[i].values()
	}
	arrays := make([]any, len(recordColumns))
	for i := range arrays {
		switch rows[0][i].(type) {
		case string:
			arrays[i] = column(rows, func(row *[]any) string { return (*row)[i].(string) })
		case bool:
			arrays[i] = column(rows, func(row *[]any) bool { return (*row)[i].(bool) })
		default:
			arrays[i] = column(rows, func(row *[]any) int64 { return (*row)[i].(int64) })
		}
	}
	return arrays
}

// column returns one value of each row: an argument for unnest.
func column[R, V any](rows []R, value func(*R) V) []V {
	values := make([]V, len(rows))
	for i := range rows {
		values[i] = value(&rows[i])
	}
	return values
}

// insertResponse uses a single statement, which takes one round trip.
func (d postgresDialect) insertResponse(ctx context.Context, db *sql.DB, row *responseRow) (inserted bool, err error) {
	return d.insertRows(ctx, db, row)
}

func (d postgresDialect) insertResponseTx(ctx context.Context, tx *sql.Tx, row *responseRow) (inserted bool, err error) {
	return d.insertRows(ctx, tx, row)
}

func (postgresDialect) insertRows(ctx context.Context, q querier, row *responseRow) (inserted bool, err error) {
	err = q.QueryRowContext(ctx, `
		WITH added AS (
			INSERT INTO llmhttp_responses (account, id, created, expires, previous, item_bytes, data) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT DO NOTHING RETURNING account, id
		), items AS (
			INSERT INTO llmhttp_response_items (account, response, position, id, name, output, repeated, data)
			SELECT added.account, added.id, i.number - 1, i.id, i.name, i.output, i.repeated, i.data
			FROM added, unnest($8::text[], $9::bytea[], $10::boolean[], $11::boolean[], $12::bytea[])
				WITH ORDINALITY AS i (id, name, output, repeated, data, number)
		)
		SELECT EXISTS (SELECT 1 FROM added)`,
		row.account, row.id, row.created, row.expires, row.previous, row.itemBytes, row.data,
		column(row.items, func(i *itemRow) string { return i.id }),
		column(row.items, func(i *itemRow) []byte { return i.name }),
		column(row.items, func(i *itemRow) bool { return i.output }),
		column(row.items, func(i *itemRow) bool { return i.repeated }),
		column(row.items, func(i *itemRow) []byte { return i.data })).Scan(&inserted)
	return inserted, err
}

func (postgresDialect) setLastUsed(ctx context.Context, db *sql.DB, uses []keyUse) error {
	ids, times := column(uses, func(u *keyUse) string { return u.id }), column(uses, func(u *keyUse) int64 { return u.at })
	_, err := db.ExecContext(ctx, `
		UPDATE llmhttp_keys k SET last_used = used.at
		FROM (
			SELECT id, at FROM llmhttp_keys JOIN unnest($1::text[], $2::bigint[]) AS u (id, at) USING (id)
			WHERE last_used IS NULL OR last_used <= at - $3
			ORDER BY id FOR UPDATE OF llmhttp_keys
		) used
		WHERE k.id = used.id`, ids, times, lastUsedInterval.Microseconds())
	return err
}

// Error codes of PostgreSQL, https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"

	connectionException    = "08" // a class of codes
	adminShutdown          = "57P01"
	crashShutdown          = "57P02"
	cannotConnectNow       = "57P03"
	tooManyConnections     = "53300"
	readOnlySQLTransaction = "25006" // the server is a replica until it is promoted
)

func (postgresDialect) isConflict(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == serializationFailure || e.Code == deadlockDetected)
}

func (postgresDialect) isUnavailable(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case adminShutdown, crashShutdown, cannotConnectNow, tooManyConnections, readOnlySQLTransaction:
			return true
		}
		return strings.HasPrefix(e.Code, connectionException)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return pgconn.SafeToRetry(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn)
}
