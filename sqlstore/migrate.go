package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// ErrSchemaTooNew is wrapped by the error of [Open] for a database that a newer
// version of this package has changed.
var ErrSchemaTooNew = errors.New("sqlstore: the database is of a newer version")

// migrations has a directory for each dialect, of files whose names begin with
// the version that they make. Files that were released never change.
//
//go:embed migrations
var migrations embed.FS

// A migration makes a schema of the given version from the one before.
type migration struct {
	version int
	sql     string
}

func readMigrations(files fs.FS, dialect string) ([]migration, error) {
	names, err := fs.Glob(files, path.Join("migrations", dialect, "*.sql"))
	if err != nil {
		return nil, err
	}
	list := make([]migration, len(names))
	for i, name := range names { // which are sorted
		number, _, _ := strings.Cut(path.Base(name), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("sqlstore: migration %s is not number %d", name, i+1)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		list[i] = migration{version, string(text)}
	}
	return list, nil
}

// migrate brings the schema to the version of the last of list. Processes that
// do so at once wait for each other; where nothing is to be done, none waits,
// and no right to change the schema is needed.
func (s *Store) migrate(ctx context.Context, list []migration) error {
	version, err := s.schemaVersion(ctx, s.write)
	if err != nil {
		return err
	}
	if done, err := isMigrated(version, len(list)); done {
		return err
	}
	return inTx(ctx, s.write, nil, func(tx *sql.Tx) error {
		if err := s.lockSchema(ctx, tx); err != nil {
			return err
		}
		version, err := s.schemaVersion(ctx, tx)
		if err != nil {
			return err
		}
		if done, err := isMigrated(version, len(list)); done {
			return err
		}
		if version == 0 {
			if _, err := tx.ExecContext(ctx, "CREATE TABLE llmhttp_schema (version integer PRIMARY KEY, applied bigint NOT NULL)"); err != nil {
				return err
			}
		}
		for _, m := range list[version:] {
			if _, err := tx.ExecContext(ctx, m.sql); err != nil {
				return fmt.Errorf("migration %d: %w", m.version, err)
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO llmhttp_schema (version, applied) VALUES ($1, $2)", m.version, micros(s.now())); err != nil {
				return err
			}
		}
		return nil
	})
}

func isMigrated(version, want int) (bool, error) {
	if version > want {
		return true, fmt.Errorf("%w: its schema is of version %d, and this program knows those up to %d", ErrSchemaTooNew, version, want)
	}
	return version == want, nil
}

// schemaVersion returns the version of the schema, which is 0 if there is none.
func (s *Store) schemaVersion(ctx context.Context, q querier) (version int, err error) {
	var exists bool
	if err := q.QueryRowContext(ctx, s.hasSchema()).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = q.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM llmhttp_schema").Scan(&version)
	return version, err
}
