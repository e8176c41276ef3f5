//go:build unix

package servertest

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// PgBouncer starts a PgBouncer that ends with tb, in front of a PostgreSQL server.
// It assigns one of two connections to each transaction, and does not support
// prepared statements.
func PgBouncer(tb testing.TB, postgres *Server) *Server {
	tb.Helper()
	return newServer(tb, &product{
		name:     "PgBouncer",
		programs: []string{"pgbouncer", "/usr/sbin/pgbouncer"}, // /usr/sbin is not on the PATH of all users
		stop:     syscall.SIGTERM,
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
