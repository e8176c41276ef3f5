//go:build unix

package servertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// PgBouncer starts a PgBouncer that ends with tb, in front of a PostgreSQL server.
// It assigns one of two connections to each transaction, and does not support
// prepared statements.
func PgBouncer(tb testing.TB, postgres *Server) *Server {
	tb.Helper()
	return newServer(tb, &product{
		name: "PgBouncer",
		find: findPgBouncer,
		stop: syscall.SIGTERM,
		prepare: func(s *Server) error {
			if os.Geteuid() == 0 { // PgBouncer refuses to run as root
				return s.dropRoot()
			}
			return nil
		},
		configure: func(s *Server) error {
			text := fmt.Sprintf(`[databases]
postgres = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, postgres.port, s.port)
			return os.WriteFile(s.configName(), []byte(text), 0o644)
		},
		args:       func(s *Server) []string { return []string{s.configName()} },
		dsn:        postgresDSN,
		checkReady: checkPostgres,
	}, nil)
}

func findPgBouncer() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	const path = "/usr/sbin/pgbouncer" // which is not on the PATH of all users
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return "", errors.New("no program pgbouncer")
}
