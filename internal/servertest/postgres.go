//go:build unix

package servertest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Postgres starts a PostgreSQL that ends with tb. Its database and its only
// user are named postgres; there is no password. It keeps what was committed
// when it is killed; where that does not matter, Args("-c", "fsync=off") saves
// time.
func Postgres(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return begin(tb, postgres, opts)
}

// SharedPostgres returns the PostgreSQL that all tests of the process share,
// which it starts the first time. They must not end it. See [Close].
func SharedPostgres(tb testing.TB) *Server {
	tb.Helper()
	return sharedPostgres.get(tb, postgres)
}

var sharedPostgres shared

var postgres = &kind{
	name:    "PostgreSQL",
	find:    func() (string, error) { return findPostgres("postgres") },
	prepare: initPostgres,
	ready:   postgresReady,
	stop:    syscall.SIGINT, // which ends sessions
	args: func(s *Server) []string {
		return []string{
			"-D", filepath.Join(s.dir, "data"), "-p", strconv.Itoa(s.port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		}
	},
	dsn: func(s *Server) string { return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable" },
}

// findPostgres finds a program of PostgreSQL, which Debian does not put on the
// PATH.
func findPostgres(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		// Its other programs and its files are where it really is.
		return filepath.EvalSymlinks(path)
	}
	best, newest := "", -1.0
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/usr/local/bin", "/opt/homebrew/opt/postgresql@*/bin"} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			path, err := exec.LookPath(filepath.Join(dir, program))
			if err != nil {
				continue
			}
			var version float64
			_, _ = fmt.Sscanf(filepath.Base(filepath.Dir(dir)), "%g", &version)
			if version > newest {
				best, newest = path, version
			}
		}
	}
	if best == "" {
		return "", fmt.Errorf("there is no PostgreSQL: no program %s on the PATH or where systems put it", program)
	}
	return best, nil
}

// initPostgres makes a database cluster.
func initPostgres(s *Server, program string) error {
	if os.Geteuid() == 0 { // which PostgreSQL refuses to be
		if err := s.becomeOrdinary(); err != nil {
			return err
		}
	}
	cmd := s.command(filepath.Join(filepath.Dir(program), "initdb"),
		"-D", filepath.Join(s.dir, "data"), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// becomeOrdinary has the server run as a user that is not root.
func (s *Server) becomeOrdinary() error {
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	for dir := filepath.Dir(s.dir); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil {
			return err
		} else if info.Mode()&0o001 == 0 {
			return fmt.Errorf("the user %s cannot get into %s: have TMPDIR name a folder that is open to all", u.Username, dir)
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	s.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(s.dir, int(uid), int(gid))
}

// postgresReady begins a session, as clients do.
func postgresReady(s *Server, c net.Conn) error {
	const protocol = 3 << 16
	m := binary.BigEndian.AppendUint32(make([]byte, 4), protocol)
	m = append(m, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	binary.BigEndian.PutUint32(m, uint32(len(m)))
	if _, err := c.Write(m); err != nil {
		return err
	}
	var reply [1]byte
	if _, err := io.ReadFull(c, reply[:]); err != nil {
		return err
	}
	if reply[0] != 'R' {
		return fmt.Errorf("it accepts no session yet")
	}
	_, err := c.Write([]byte{'X', 0, 0, 0, 4}) // ends it
	return err
}
