//go:build unix

package servertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Redis starts a Redis server that ends with tb. It loses its data when it is
// killed or stopped. With Args("--appendonly", "yes") it may lose the writes of
// the last seconds when it is killed; Args("--appendonly", "yes", "--appendfsync",
// "always") keeps all of them.
func Redis(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return newServer(tb, redis, opts)
}

// SharedRedis returns the Redis server that all tests of the process share. The
// first call starts it. Tests must not kill, stop or pause it. See [Close].
func SharedRedis(tb testing.TB) *Server {
	tb.Helper()
	return sharedRedis.get(tb, redis)
}

var sharedRedis sharedServer

var redisPrograms = []string{"redis-server", "valkey-server"}

var redis = &product{
	name:     "Redis",
	programs: redisPrograms,
	stop:     syscall.SIGTERM,
	args: func(s *Server) []string {
		args := []string{
			"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
			"--save", "", "--appendonly", "no", "--daemonize", "no",
		}
		if s.isCluster() {
			args = append(args, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
		}
		return args
	},
	dsn:        func(s *Server) string { return "redis://" + s.Addr() },
	checkReady: checkRedis,
}

// checkRedis returns nil if the server answers. It assigns its slots to a new node
// of a cluster. Nodes that have a part of them are ready before they know the others.
func checkRedis(s *Server, conn net.Conn) error {
	r := bufio.NewReader(conn)
	_, err := redisDo(conn, r, "PING")
	if err != nil && strings.HasPrefix(err.Error(), "NOAUTH ") {
		return nil // it answers, but Args gave it a password
	}
	if err != nil || !s.isCluster() {
		return err
	}
	if !s.slotsAssigned {
		if err := assignSlots(conn, r, s.firstSlot, s.endSlot); err != nil {
			return err
		}
		s.slotsAssigned = true
	}
	info, err := redisDo(conn, r, "CLUSTER INFO")
	if err != nil {
		return err
	}
	if s.endSlot-s.firstSlot < slots || strings.Contains(info, "cluster_state:ok") {
		return nil
	}
	return errors.New("the cluster is not ready")
}

// redisDo connects to s and sends a command to it.
func (s *Server) redisDo(command string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return redisDo(conn, bufio.NewReader(conn), command)
}

// redisDo sends an inline command and returns the reply, which must be a simple
// string or a bulk string.
func redisDo(conn net.Conn, r *bufio.Reader, command string) (string, error) {
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(line[1:])
	switch line[0] {
	case '+':
		return text, nil
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return "", fmt.Errorf("unexpected reply %q", line)
		}
		bulk := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(r, bulk)
		return string(bulk[:n]), err
	}
	return "", errors.New(text)
}

// SentinelMaster is the name under which a [Sentinel] knows its master.
const SentinelMaster = "mymaster"

// Sentinel starts a Redis Sentinel, which ends with tb. It promotes a replica of
// master a second after master has ended. The password is for both of these.
func Sentinel(tb testing.TB, master *Server, password string) *Server {
	tb.Helper()
	return newServer(tb, &product{
		name:     "Redis Sentinel",
		programs: redisPrograms,
		stop:     syscall.SIGTERM,
		configure: func(s *Server) error {
			text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %[3]s 127.0.0.1 %[4]d 1\n"+
				"sentinel auth-pass %[3]s %[5]s\nsentinel down-after-milliseconds %[3]s 1000\nsentinel failover-timeout %[3]s 5000\n", s.port, s.dir, SentinelMaster, master.port, password)
			return os.WriteFile(s.configName(), []byte(text), 0o644) // Sentinel writes to it
		},
		args:       func(s *Server) []string { return []string{s.configName(), "--sentinel"} },
		dsn:        func(s *Server) string { return "redis+sentinel://" + s.Addr() + "?master_name=" + SentinelMaster },
		checkReady: checkRedis,
	}, nil)
}
