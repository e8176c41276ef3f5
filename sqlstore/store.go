// Store: opens the database and does the background work. It embeds a part for each of its topics.

package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/quotawatch"
	"github.com/llmhttp/llmhttp/responsestore"
)

// Options configure a [Store]. The zero value is ready to use.
type Options struct {
	// KeyTTL is how long Lookup caches a key with its account, or the fact that a
	// secret is unknown, as package keycache does. Changes by other processes, also of the credit of an
	// account, take effect within KeyTTL. Zero means 10 seconds; negative means
	// no time.
	KeyTTL time.Duration

	// KeyGrace is how long after KeyTTL Lookup still serves a cached key while the database does
	// not answer. During that time keys that another process has revoked still work. Zero and
	// negative mean no grace.
	KeyGrace time.Duration

	// KeyCache is the maximum number of cached secrets of keys, and of cached
	// unknown secrets. Zero means 10,000; negative means no cache, and so no
	// KeyGrace.
	KeyCache int

	// ReportConns is the maximum number of further connections, for what people look at: Report,
	// Query with a Step, and lists of keys, accounts and credit entries. So these wait for each other
	// and not Lookup, Record and the queries of quotas for them. Zero means 2; negative means that they
	// share the connections of all others. A SQLite database in memory has a single connection.
	ReportConns int

	// KeepRecords is how long the records of single requests are kept, at least a day; see
	// [Store.Prune]. Sums by day are kept forever. Zero means 400 days; negative means no limit.
	KeepRecords time.Duration

	// MaxResponseBytes limits what the stored responses of an account may need, in
	// bytes of their JSON. A response beyond it takes the place of the oldest ones of
	// the account, which are deleted before they expire. Zero means 1 GiB;
	// negative means no limit.
	MaxResponseBytes int64

	// SecretPrefix begins each new secret. It has up to 32 printable ASCII
	// characters. Empty means "sk-".
	SecretPrefix string

	// NoMigrate makes Open fail with [ErrSchemaTooOld] instead of creating or
	// migrating tables. A SQLite file that does not exist is an error, too.
	NoMigrate bool

	// Logger receives the errors of background work. Nil means slog.Default().
	Logger *slog.Logger
}

const (
	day = 24 * time.Hour

	defaultKeyCache    = 10_000
	defaultReportConns = 2

	maxSecretPrefix = 32
)

// A Store keeps API keys, accounts, usage and responses in a database. Its methods are safe for
// concurrent use. They fail after Close.
//
// A transaction that conflicts with another one is retried for ten seconds. If
// the database does not answer, calls that are safe to repeat, such as Record,
// are retried for as long. Errors contain neither the password of a DSN nor a
// secret.
type Store struct {
	// Most methods of a Store are methods of these parts.
	keyStore
	accountStore
	usageStore
	responseStore

	db         *database
	opts       Options
	background sync.WaitGroup // counts goroutines that use db
}

var (
	_ manage.KeyManager     = (*Store)(nil)
	_ manage.AccountManager = (*Store)(nil)
	_ responsestore.Store   = (*Store)(nil)
	_ manage.UsageReporter  = (*Store)(nil)
	_ quotawatch.EventStore = (*Store)(nil)
)

// Open opens the database that dsn names. It creates or migrates the tables,
// whose names begin with llmhttp_, unless Options.NoMigrate is set. Any number of
// processes may do so concurrently. Programs with an older version of this
// package continue to work, and can be started again, unless the new tables need
// a newer one. Then Open returns an error there that wraps [ErrSchemaTooNew]. It changes nothing
// in a database whose tables are not those of a release: see [ErrSchemaUnknown].
//
// The DSN has one of these forms:
//
//   - postgres://user:password@host:port/database?sslmode=verify-full, also with
//     the scheme postgresql, or host=... user=... password=...: PostgreSQL 14 or
//     later with the encoding UTF8. Environment variables such as PGPASSWORD
//     supply missing values. pool_max_conns limits the number of connections, without
//     those of Options.ReportConns. Its default is the number of CPUs, and at least 4. It works behind PgBouncer,
//     also if that assigns connections to transactions; without it,
//     default_query_exec_mode=cache_statement saves the database some planning.
//   - a path, sqlite:path or file:path?parameters: a SQLite file. If it does not
//     exist, it is created, and only its owner can read and write it. Each
//     commit waits for the disk, so that it survives a loss of power.
//     file:path?_pragma=synchronous(1) trades that guarantee for speed.
//   - :memory: or sqlite::memory:, a SQLite database in memory, which Close
//     discards.
//
// Nil opts mean the defaults. The caller must call Close.
func Open(ctx context.Context, dsn string, opts *Options) (*Store, error) {
	return open(ctx, dsn, opts, nil)
}

// open is Open with other migrations than the dialect's own, unless they are nil.
func open(ctx context.Context, dsn string, opts *Options, migrations []migration) (*Store, error) {
	s := new(Store)
	if opts != nil {
		s.opts = *opts
	}
	if err := s.opts.setDefaults(); err != nil {
		return nil, err
	}
	db, err := openDatabase(ctx, dsn, !s.opts.NoMigrate, s.opts.ReportConns)
	if errors.Is(err, ErrSchemaTooOld) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %w", err)
	}
	s.db = db
	if err := s.prepareSchema(ctx, migrations); err != nil {
		db.stop()
		_ = db.close()
		return nil, err
	}
	read := func(ctx context.Context, hash string) (*llmhttp.Key, error) { return readKeyByHash(ctx, db, hash) }
	s.keyStore = keyStore{s.db, &s.opts, newKeyCache(s.db, &s.opts, &s.background, read)}
	s.accountStore = accountStore{s.db, s.cache}
	s.usageStore = usageStore{s.db}
	s.responseStore = responseStore{s.db, s.opts.MaxResponseBytes}
	s.background.Go(s.runBackground)
	return s, nil
}

// prepareSchema migrates the database, or checks its schema with Options.NoMigrate. Nil
// migrations mean those of the dialect.
func (s *Store) prepareSchema(ctx context.Context, migrations []migration) (err error) {
	if migrations == nil {
		if migrations, err = readMigrations(migrationFiles, s.db.name()); err != nil {
			return err
		}
	}
	prepare := s.db.migrate
	if s.opts.NoMigrate {
		prepare = s.db.requireSchema
	}
	err = s.db.retry(ctx, s.db.isConflict, func() error { return prepare(ctx, migrations) })
	if err == nil || errors.Is(err, ErrSchemaTooNew) || errors.Is(err, ErrSchemaTooOld) || errors.Is(err, ErrSchemaUnknown) {
		return err
	}
	return fmt.Errorf("sqlstore: opening the database: %w", err)
}

func (o *Options) setDefaults() error {
	o.KeyTTL = cmp.Or(o.KeyTTL, 10*time.Second)
	o.KeyCache = cmp.Or(o.KeyCache, defaultKeyCache)
	o.ReportConns = cmp.Or(o.ReportConns, defaultReportConns)
	o.KeepRecords = cmp.Or(o.KeepRecords, 400*day)
	o.MaxResponseBytes = cmp.Or(o.MaxResponseBytes, 1<<30)
	o.SecretPrefix = cmp.Or(o.SecretPrefix, "sk-")
	if len(o.SecretPrefix) > maxSecretPrefix || !isPrintableASCII(o.SecretPrefix) {
		return fmt.Errorf("sqlstore: Options.SecretPrefix must have at most %d printable ASCII characters", maxSecretPrefix)
	}
	return nil
}

func (o *Options) logger() *slog.Logger {
	if o.Logger != nil {
		return o.Logger
	}
	return slog.Default()
}

// Ping returns an error if the database does not answer.
func (s *Store) Ping(ctx context.Context) error {
	return s.db.wrapError("pinging the database", s.db.read.PingContext(ctx))
}

// Close stops background work, stores when keys were last used and closes the
// database. If a Buffer of package usagebuffer writes to the Store, close that
// first. Calls after the first do nothing.
func (s *Store) Close() error {
	if !s.cache.close() {
		return nil
	}
	s.db.stop()
	s.background.Wait()
	return s.db.close()
}

const (
	lastUsedInterval = time.Minute // between writes of when a key was last used
	pruneInterval    = time.Hour
	closeTimeout     = 5 * time.Second // for the last write of Close
)

// runBackground stores when keys were last used, and deletes old records, quota events and
// expired responses, at regular intervals until the Store is closed.
func (s *Store) runBackground() {
	lastUsed, prune := time.NewTicker(lastUsedInterval), time.NewTicker(pruneInterval)
	defer lastUsed.Stop()
	defer prune.Stop()
	for {
		select {
		case <-lastUsed.C:
			s.storeLastUsed(s.db.ctx)
		case <-prune.C:
			s.pruneOldRecords()
			s.pruneExpiredResponses()
			s.pruneOldQuotaEvents()
		case <-s.db.ctx.Done():
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			s.storeLastUsed(ctx)
			return
		}
	}
}

// pruneOldRecords deletes the records that are older than Options.KeepRecords.
func (s *Store) pruneOldRecords() {
	if s.opts.KeepRecords >= 0 {
		n, err := s.Prune(s.db.ctx, s.db.now().Add(-max(s.opts.KeepRecords, day)))
		s.logPruned("usage records", n, err)
	}
}

func (s *Store) pruneExpiredResponses() {
	n, err := s.PruneResponses(s.db.ctx)
	s.logPruned("responses", n, err)
}

func (s *Store) pruneOldQuotaEvents() {
	n, err := s.pruneQuotaEvents(s.db.ctx)
	s.logPruned("quota events", n, err)
}

// logPruned logs the result of pruning, unless Close interrupted it.
func (s *Store) logPruned(what string, n int64, err error) {
	switch {
	case s.db.ctx.Err() != nil:
	case err != nil:
		s.opts.logger().Error(what+" not pruned", "error", err)
	case n > 0:
		s.opts.logger().Info(what+" pruned", "count", n)
	}
}
