// The database that the parts of a Store share: connections and statements.

package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A database is an open database of one dialect. The parts of a Store share it.
type database struct {
	dialect
	write, read *sql.DB // one pool for PostgreSQL and for SQLite in memory
	report      *sql.DB // a pool for what people look at; that of read for SQLite in memory
	discardIdle func()  // closes the idle connections of all pools
	close       func() error
	now         func() time.Time // replaced in tests; retry and the key cache use time.Now

	ctx  context.Context // ends when stop is called; calls do not wait for a retry after that
	stop context.CancelFunc
}

// A dialect has the operations for which databases need different SQL. All other SQL works on every
// database.
type dialect interface {
	// name returns the name of the dialect's directory of migrations.
	name() string
	// hasSchema returns a query that reports whether the table llmhttp_schema exists.
	hasSchema() string
	// lockSchema blocks other migrations until the end of tx.
	lockSchema(ctx context.Context, tx *sql.Tx) error

	// forUpdate returns the suffix of a SELECT that locks the selected rows.
	forUpdate() string
	// skipLocked returns the suffix of a SELECT that locks the selected rows and skips rows that
	// others have locked.
	skipLocked() string

	// contains returns a condition that the columns, joined with line breaks,
	// contain text in any case of ASCII letters.
	contains(text string, columns ...string) string

	// has returns a condition that a column contains text.
	has(text, column string) string

	// member returns an expression for the text of a member of a column, which has JSON objects or
	// empty texts. It is null if there is no such member. What the expression needs is added to args.
	member(args *sqlArgs, column, name string) string

	// sum returns an expression for the sum of a column. A sum that overflows
	// becomes the nearest integer. Above 2^53 it need not be exact.
	sum(column string) string

	// unindexed returns an expression for a column that keeps the database from
	// using an index of it, where that makes a difference.
	unindexed(column string) string

	// addUsage stores records and adds the new ones to the sums of their days. The records must be
	// sorted by ID, and the IDs must be unique.
	addUsage(ctx context.Context, db *sql.DB, records []record) error
	// insertResponse inserts a response and its items. It reports false, and does
	// nothing, if there is a response of that ID.
	insertResponse(ctx context.Context, db *sql.DB, row *responseRow) (inserted bool, err error)
	// insertResponseTx is insertResponse as a part of a transaction.
	insertResponseTx(ctx context.Context, tx *sql.Tx, row *responseRow) (inserted bool, err error)
	// setLastUsed stores when keys were last used, except for keys whose stored time is less than
	// lastUsedInterval older. Unknown keys are ignored.
	setLastUsed(ctx context.Context, db *sql.DB, uses []keyUse) error

	// isConflict reports whether a transaction failed, without effect, because of other
	// transactions.
	isConflict(err error) bool
	// isUnavailable reports whether the database did not answer. The failed
	// transaction may have been committed.
	isUnavailable(err error) bool
}

// openDatabase opens the database that dsn names, with at most reportConns connections for
// reports. If that is not positive, reports use the pool for reading. Unless create is set, a SQLite
// file must exist.
func openDatabase(ctx context.Context, dsn string, create bool, reportConns int) (*database, error) {
	source, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	var db *database
	if source.postgres {
		db, err = openPostgres(ctx, source.address, reportConns)
	} else {
		db, err = openSQLite(source, create, reportConns)
	}
	if err != nil {
		return nil, err
	}
	db.now = time.Now
	db.ctx, db.stop = context.WithCancel(context.Background())
	return db, nil
}

var errClosed = errors.New("the store is closed")

// wrapError adds the operation to err. It returns nil if err is nil.
func (db *database) wrapError(operation string, err error) error {
	if err == nil {
		return nil
	}
	if db.ctx.Err() != nil {
		err = errClosed
	}
	return fmt.Errorf("sqlstore: %s: %w", operation, err)
}
