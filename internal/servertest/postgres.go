//go:build unix

package servertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Postgres starts a PostgreSQL server that ends with tb. It has a database and a
// user named postgres and no password. Committed transactions survive Kill.
// Args("-c", "fsync=off") makes the server faster where that does not matter.
func Postgres(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return newServer(tb, postgres, opts)
}

// SharedPostgres returns the PostgreSQL server that all tests of the process
// share. The first call starts it. Tests must not kill, stop or pause it. See
// [Close].
func SharedPostgres(tb testing.TB) *Server {
	tb.Helper()
	return sharedPostgres.get(tb, postgres)
}

var sharedPostgres sharedServer

var postgres = &product{
	name: "PostgreSQL",
	programs: []string{ // some packages install it outside of the PATH
		"postgres", "/usr/lib/postgresql/*/bin/postgres", "/usr/pgsql-*/bin/postgres", "/opt/homebrew/opt/postgresql@*/bin/postgres",
	},
	prepare: initPostgres,
	stop:    syscall.SIGINT, // "fast shutdown", which terminates sessions
	args: func(s *Server) []string {
		return []string{
			"-D", filepath.Join(s.dir, "data"), "-p", strconv.Itoa(s.port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		}
	},
	dsn:        postgresDSN,
	checkReady: checkPostgres,
}

func postgresDSN(s *Server) string {
	return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable"
}

// initPostgres creates the data directory.
func initPostgres(s *Server) error {
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		if err := s.dropRoot(); err != nil {
			return err
		}
	}
	program, err := filepath.EvalSymlinks(s.program) // initdb is in the same directory
	if err != nil {
		return err
	}
	initdb := filepath.Join(filepath.Dir(program), "initdb")
	cmd := s.command(
		initdb,
		"-D",
		filepath.Join(s.dir, "data"),
		"-U",
		"postgres",
		"--auth=trust",
		"--encoding=UTF8",
		"--locale=C",
		"--no-sync",
	)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// checkPostgres begins a session. The format of the messages is described in
// https://www.postgresql.org/docs/current/protocol-message-formats.html.
func checkPostgres(_ *Server, conn net.Conn) error {
	const protocolVersion = 3 << 16
	m := binary.BigEndian.AppendUint32(make([]byte, 4), protocolVersion)
	m = append(m, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	binary.BigEndian.PutUint32(m, uint32(len(m)))
	if _, err := conn.Write(m); err != nil {
		return err
	}
	var reply [1]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return err
	}
	if reply[0] != 'R' { // not an AuthenticationOk
		return errors.New("the server does not accept sessions")
	}
	_, err := conn.Write([]byte{'X', 0, 0, 0, 4}) // Terminate
	return err
}
