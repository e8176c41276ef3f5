//go:build unix

package servertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Redis starts a Redis that ends with tb. It keeps nothing when it is killed
// or stopped, unless it has Args("--appendonly", "yes"); and then, if killed, it
// may lose what it was told in the last seconds, unless it has "--appendfsync",
// "always" as well.
func Redis(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return begin(tb, redis, opts)
}

// Cluster makes a Redis a cluster of one node, with all its slots: it refuses
// what a larger one would refuse.
func Cluster() Option { return func(o *options) { o.cluster = true } }

// SharedRedis returns the Redis that all tests of the process share, which it
// starts the first time. They must not end it. See [Close].
func SharedRedis(tb testing.TB) *Server {
	tb.Helper()
	return sharedRedis.get(tb, redis)
}

var sharedRedis shared

var redis = &kind{
	name:    "Redis",
	find:    findRedis,
	prepare: func(*Server, string) error { return nil },
	ready:   redisReady,
	stop:    syscall.SIGTERM,
	args: func(s *Server) []string {
		args := []string{
			"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
			"--save", "", "--appendonly", "no", "--daemonize", "no",
		}
		if s.opts.cluster {
			args = append(args, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
		}
		return args
	},
	dsn: func(s *Server) string { return "redis://" + s.Addr() },
}

func findRedis() (string, error) {
	for _, program := range []string{
		"redis-server", "valkey-server", "/usr/bin/redis-server", "/usr/local/bin/redis-server", "/opt/homebrew/bin/redis-server",
	} {
		if path, err := exec.LookPath(program); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Redis: no program redis-server on the PATH or where systems put it")
}

func redisReady(s *Server, c net.Conn) error {
	r := bufio.NewReader(c)
	if _, err := redisDo(c, r, "PING"); err != nil {
		return err
	}
	if !s.opts.cluster {
		return nil
	}
	info, err := redisDo(c, r, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if strings.Contains(info, "cluster_state:ok") {
		return nil
	}
	if strings.Contains(info, "cluster_slots_assigned:0\r") {
		const slots = 16384
		command := []string{"CLUSTER", "ADDSLOTS"}
		for i := range slots {
			command = append(command, strconv.Itoa(i))
		}
		if _, err := redisDo(c, r, command...); err != nil {
			return err
		}
	}
	return errors.New("the cluster is not complete yet")
}

// redisDo sends a command and returns the reply, which must be of text.
func redisDo(c net.Conn, r *bufio.Reader, command ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, arg := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+':
		return text, nil
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return "", fmt.Errorf("%s: reply %q", command[0], line)
		}
		bulk := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(r, bulk)
		return string(bulk[:n]), err
	}
	return "", fmt.Errorf("%s: %s", command[0], text)
}
