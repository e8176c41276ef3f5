package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// Options configure a [Store]. The zero value is ready to use.
type Options struct {
	// KeyTTL is for how long Lookup may tell what it has read of a key, or
	// that there is none: within that time a change that another process
	// made takes effect. Zero means 10 seconds; if negative, Lookup asks the
	// database each time.
	KeyTTL time.Duration

	// KeyGrace is for how much longer Lookup serves a key it has read before
	// when the database does not answer. Meanwhile keys that are revoked
	// elsewhere go on working. If zero or negative, it serves none.
	KeyGrace time.Duration

	// KeyCache is how many secrets of keys Lookup remembers, and how many
	// that are those of none. Zero or negative means 10,000 each.
	KeyCache int

	// KeepRecords is how long the records of single requests are kept; see
	// [Store.Prune]. Sums by day are kept for ever. Zero means 400 days, a
	// negative value for ever. At least a day is kept.
	KeepRecords time.Duration

	// SecretPrefix is what new secrets begin with: up to 32 printable
	// characters of ASCII. If empty, they begin with "sk-".
	SecretPrefix string

	// Logger is told of what goes wrong in the background; if nil,
	// slog.Default() is.
	Logger *slog.Logger
}

const (
	defaultKeyTTL      = 10 * time.Second
	defaultKeyCache    = 10_000
	defaultKeepRecords = 400 * day
	maxSecretPrefix    = 32

	day = 24 * time.Hour
)

// A Store keeps keys and usage in a database. Its methods are safe for
// concurrent use, and after Close they fail.
//
// A change that was in the way of another transaction is repeated. What may be
// done twice, such as Record, is repeated for ten seconds also when the database
// does not answer. Errors never hold the password of a DSN, nor a secret.
type Store struct {
	dialect
	write, read *sql.DB // the same one for PostgreSQL, and in memory

	opts Options
	keys *keyCache
	now  func() time.Time // but for what is cached

	ctx     context.Context // of what goes on in the background
	cancel  context.CancelFunc
	running sync.WaitGroup
	reset   func() // has no idle connection used again
	close   func() error
}

var (
	_ llmhttp.KeyStore   = (*Store)(nil)
	_ llmhttp.UsageStore = (*Store)(nil)
)

// A dialect is what differs between databases. The rest of the SQL is what all
// of them understand.
type dialect interface {
	// hasSchema is a query for whether there is a table llmhttp_schema.
	hasSchema() string
	// lockSchema makes others that migrate wait for the end of tx.
	lockSchema(ctx context.Context, tx *sql.Tx) error
	// forUpdate is what locks the rows of a SELECT that follows it.
	forUpdate() string

	// skipLocked is what locks the rows of a SELECT that follows it, and leaves
	// out those that others have locked.
	skipLocked() string

	// addUsage stores records, whose IDs are sorted and differ, and adds those
	// that are new to the sums of their days.
	addUsage(ctx context.Context, db *sql.DB, records []record) error
	// touchKeys sets when keys were used last, unless that is known to within
	// touchInterval.
	touchKeys(ctx context.Context, db *sql.DB, uses []keyUse) error

	// isConflict reports whether a transaction failed because of others, and
	// without effect.
	isConflict(err error) bool
	// isAway reports whether the database did not answer, or not any more.
	isAway(err error) bool
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Open opens the database that dsn names, and creates or migrates its tables,
// whose names begin with llmhttp_. Any number of processes may do so at once.
// An error wraps [ErrSchemaTooNew] if a newer version of this package has
// migrated them. A DSN is one of these:
//
//   - postgres://user:password@host:port/database?sslmode=verify-full, also with
//     the scheme postgresql, or host=... user=... password=...: PostgreSQL 14 or
//     later, whose encoding is UTF8. Environment variables such as PGPASSWORD
//     fill in what is missing. pool_max_conns bounds the connections; by default
//     that is the number of CPUs, and at least 4.
//   - a path, sqlite:path or file:path?parameters: SQLite, in a file that is
//     created if it is not there. What is committed survives a loss of power,
//     for which each commit waits for the disk; file:path?_pragma=synchronous(1)
//     gives that up.
//   - :memory:, also after sqlite:, which is SQLite in memory and ends with Close.
//
// Options may be nil. The caller must call Close.
func Open(ctx context.Context, dsn string, opts *Options) (*Store, error) {
	return open(ctx, dsn, opts, nil)
}

// open is Open with other migrations, if list is not nil.
func open(ctx context.Context, dsn string, opts *Options, list []migration) (_ *Store, err error) {
	s := &Store{now: time.Now}
	if opts != nil {
		s.opts = *opts
	}
	if err := s.opts.complete(); err != nil {
		return nil, err
	}
	name, err := s.connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.cancel()
			_ = s.close()
		}
	}()
	if list == nil {
		if list, err = readMigrations(migrations, name); err != nil {
			return nil, err
		}
	}
	if err := s.retry(ctx, s.isConflict, func() error { return s.migrate(ctx, list) }); err != nil {
		if errors.Is(err, ErrSchemaTooNew) {
			return nil, err
		}
		return nil, fmt.Errorf("sqlstore: opening the database: %w", err)
	}
	s.keys = newKeyCache(s)
	s.running.Go(s.runBackground)
	return s, nil
}

func (o *Options) complete() error {
	if o.KeyTTL == 0 {
		o.KeyTTL = defaultKeyTTL
	}
	if o.KeyCache <= 0 {
		o.KeyCache = defaultKeyCache
	}
	if o.KeepRecords == 0 {
		o.KeepRecords = defaultKeepRecords
	}
	if o.SecretPrefix == "" {
		o.SecretPrefix = "sk-"
	}
	if len(o.SecretPrefix) > maxSecretPrefix || !isToken(o.SecretPrefix) {
		return fmt.Errorf("sqlstore: SecretPrefix must be of at most %d printable characters of ASCII", maxSecretPrefix)
	}
	return nil
}

// connect sets what is of the database that dsn names, and returns the name of
// its dialect.
func (s *Store) connect(ctx context.Context, dsn string) (string, error) {
	d, err := parseDSN(dsn)
	if err != nil {
		return "", err
	}
	if d.postgres {
		return "postgres", s.connectPostgres(ctx, d.name)
	}
	return "sqlite", s.connectSQLite(d)
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	return s.fail("pinging the database", s.read.PingContext(ctx))
}

// Close ends what goes on in the background, stores when keys were used last,
// and closes the database. Close an [llmhttp.UsageBuffer] in front of the Store
// before.
func (s *Store) Close() error {
	if !s.keys.close() {
		return nil
	}
	s.cancel()
	s.running.Wait()
	return s.close()
}

var errClosed = errors.New("the store is closed")

// fail returns err, if not nil, with what failed.
func (s *Store) fail(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case s.ctx.Err() != nil:
		err = errClosed
	}
	return fmt.Errorf("sqlstore: %s: %w", what, err)
}

func (s *Store) log() *slog.Logger {
	if s.opts.Logger != nil {
		return s.opts.Logger
	}
	return slog.Default()
}

const (
	touchInterval = time.Minute // between writes of when a key was used
	pruneInterval = time.Hour
)

// runBackground does what is to be done now and then, until the Store is closed.
func (s *Store) runBackground() {
	touch, prune := time.NewTicker(touchInterval), time.NewTicker(pruneInterval)
	defer touch.Stop()
	defer prune.Stop()
	for {
		select {
		case <-touch.C:
			s.touch(s.ctx)
		case <-prune.C:
			s.pruneOld()
		case <-s.ctx.Done():
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			s.touch(ctx)
			return
		}
	}
}

// retryFor is how long a call that fails for no fault of its own is repeated.
const retryFor = 10 * time.Second

// retry calls f until it succeeds, fails with an error that is not for again,
// or there is no more time.
func (s *Store) retry(ctx context.Context, again func(error) bool, f func() error) error {
	end := time.Now().Add(retryFor)
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, 500*time.Millisecond) {
		err := f()
		if err == nil || !again(err) || time.Until(end) < delay {
			return cause(ctx, err)
		}
		wait := time.NewTimer(delay/2 + rand.N(delay))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return cause(ctx, err)
		case <-s.ctx.Done():
			wait.Stop()
			return err
		}
	}
}

// retryRead calls f, and once more if its connection was lost, or others were
// in the way. Where one connection was lost, those that are idle may be, too.
func (s *Store) retryRead(ctx context.Context, f func() error) error {
	err := f()
	if err != nil && ctx.Err() == nil && s.isTransient(err) {
		if s.isAway(err) {
			s.reset()
		}
		err = f()
	}
	return cause(ctx, err)
}

// cause returns err and, if a call failed and its ctx is done, the error of ctx
// before it: drivers may have another for that.
func cause(ctx context.Context, err error) error {
	if end := ctx.Err(); err != nil && end != nil && !errors.Is(err, end) {
		return fmt.Errorf("%w: %w", end, err)
	}
	return err
}

// isTransient is for retry, of what may be done twice.
func (s *Store) isTransient(err error) bool { return s.isConflict(err) || s.isAway(err) }

// inTx calls f in a transaction, which is committed if f returns nil.
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
