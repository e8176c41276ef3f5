package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresDialect is the dialect of PostgreSQL.
type postgresDialect struct{}

// connectTimeout limits an attempt to connect if the DSN sets no limit.
const connectTimeout = 5 * time.Second

func openPostgres(ctx context.Context, dsn string) (*database, error) {
	config, err := parsePostgres(dsn)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	closeAll := func() error {
		err := db.Close()
		pool.Close()
		return err
	}
	if err := checkEncoding(ctx, db); err != nil {
		_ = closeAll()
		return nil, err
	}
	return &database{dialect: postgresDialect{}, write: db, read: db, discardIdle: pool.Reset, close: closeAll}, nil
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

// hasSchema reads the catalog. Unlike to_regclass, that sees a table that
// another transaction created while this one waited for the lock.
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
	return "strpos(lower((" + strings.Join(columns, " || chr(10) || ") + `) COLLATE "C"), ` + text + ") > 0"
}

// sum converts the result of the function sum, a numeric, which does not overflow.
func (postgresDialect) sum(column string) string { return "llmhttp_bigint(sum(" + column + "))" }

func (postgresDialect) unindexed(column string) string { return column }

// addUsage uses a single statement, which is a transaction of its own, to hold
// the locks on the sums as briefly as possible. All processes lock rows in the
// same order, records before sums, which prevents deadlocks.
func (postgresDialect) addUsage(ctx context.Context, db *sql.DB, records []record) error {
	_, err := db.ExecContext(ctx, `
		WITH added AS (
			INSERT INTO llmhttp_usage_records (id, time, account, key_id, model, endpoint, protocol, estimated, `+strings.Join(recordColumns, ", ")+`)
			SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::boolean[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
			ON CONFLICT DO NOTHING
			RETURNING account, time, model, `+strings.Join(recordColumns, ", ")+`
		)
		INSERT INTO llmhttp_usage_days AS d (account, day, model, `+strings.Join(sumColumns, ", ")+`)
		SELECT account, `+dayOfTime+` AS day, model, count(*), `+columnList(recordColumns, "llmhttp_bigint(sum(%s))")+`
		FROM added GROUP BY account, day, model ORDER BY account, day, model
		ON CONFLICT (account, day, model) DO UPDATE SET `+columnList(sumColumns, "%[1]s = llmhttp_bigint(d.%[1]s::numeric + excluded.%[1]s)"),
		column(records, func(r *record) string { return r.id }),
		column(records, func(r *record) int64 { return r.time }),
		column(records, func(r *record) string { return r.account }),
		column(records, func(r *record) string { return r.keyID }),
		column(records, func(r *record) string { return r.model }),
		column(records, func(r *record) string { return r.endpoint }),
		column(records, func(r *record) string { return r.protocol }),
		column(records, func(r *record) bool { return r.estimated }),
		column(records, func(r *record) int64 { return r.sum.PromptTokens }),
		column(records, func(r *record) int64 { return r.sum.CompletionTokens }),
		column(records, func(r *record) int64 { return r.sum.CachedTokens }),
		column(records, func(r *record) int64 { return r.sum.ReasoningTokens }),
		column(records, func(r *record) int64 { return r.sum.Images }))
	return err
}

// column returns one value of each row: an argument for unnest.
func column[R, V any](rows []R, value func(*R) V) []V {
	values := make([]V, len(rows))
	for i := range rows {
		values[i] = value(&rows[i])
	}
	return values
}

// dayOfTime is dayOf in SQL.
const dayOfTime = "time - ((time % 86400000000) + 86400000000) % 86400000000"

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
			INSERT INTO llmhttp_stored_items (account, response, position, id, name, output, repeated, data)
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
