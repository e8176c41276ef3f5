// Transactions with retries.

package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// forEachRow runs a query and calls f for each row. It returns the first error.
func forEachRow(ctx context.Context, q querier, f func(*sql.Rows) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// inTx calls f in a transaction. It commits the transaction if f returns nil.
func inTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

const (
	retryTime     = 10 * time.Second // after which retry gives up
	minRetryDelay = 5 * time.Millisecond
	maxRetryDelay = 500 * time.Millisecond
)

// retry calls f until it succeeds, shouldRetry rejects its error, retryTime has
// passed, ctx ends, or stop is called. It waits with exponential backoff between
// calls.
func (db *database) retry(ctx context.Context, shouldRetry func(error) bool, f func() error) error {
	end := time.Now().Add(retryTime)
	for delay := minRetryDelay; ; delay = min(2*delay, maxRetryDelay) {
		err := f()
		if err == nil || !shouldRetry(err) || time.Until(end) < delay {
			return withContextError(ctx, err)
		}
		select {
		case <-time.After(delay/2 + rand.N(delay)):
			continue
		case <-ctx.Done():
		case <-db.ctx.Done():
		}
		return withContextError(ctx, err)
	}
}

// retryRead calls f, and calls it again after a conflict or a lost connection. One lost
// connection suggests that the idle connections are lost as well, so the second call uses
// a new one.
func retryRead[T any](ctx context.Context, db *database, f func() (T, error)) (T, error) {
	result, err := f()
	if err != nil && ctx.Err() == nil && db.isTransient(err) {
		if db.isUnavailable(err) {
			db.discardIdle()
		}
		result, err = f()
	}
	return result, withContextError(ctx, err)
}

// withContextError adds the error of ctx to err if neither is nil. Drivers may
// return an error of their own when ctx ends.
func withContextError(ctx context.Context, err error) error {
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil && !errors.Is(err, ctxErr) {
		return fmt.Errorf("%w: %w", ctxErr, err)
	}
	return err
}

// isTransient reports whether a call that is safe to repeat may succeed later.
func (db *database) isTransient(err error) bool { return db.isConflict(err) || db.isUnavailable(err) }
