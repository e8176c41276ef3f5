//go:build unix

package servertest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		startOrphans()
		return
	}
	status := m.Run()
	Close()
	os.Exit(status)
}

var kinds = map[string]func(testing.TB, ...Option) *Server{"Postgres": Postgres, "Redis": Redis}

func answers(s *Server) error { return s.ask(5 * time.Second) }

func dial(s *Server) (net.Conn, error) { return net.Dial("tcp", s.Addr()) }

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// A server keeps its address through whatever befalls it.
func TestServer(t *testing.T) {
	for name, begin := range kinds {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			require.NoError(t, answers(s))
			addr, dsn := s.Addr(), s.DSN()
			assert.Contains(t, dsn, addr)

			pids := append(childrenOf(s.process.Pid), s.process.Pid)
			s.Kill(t)
			require.Error(t, answers(s))
			for _, pid := range pids {
				assert.False(t, lives(pid))
			}
			s.Start(t)
			require.NoError(t, answers(s))

			s.Stop(t)
			require.Error(t, answers(s))
			s.Start(t)
			require.NoError(t, answers(s))

			s.Pause(t)
			c, err := dial(s)
			require.NoError(t, err, "the system accepts connections")
			c.Close()
			var timeout interface{ Timeout() bool }
			require.ErrorAs(t, s.ask(100*time.Millisecond), &timeout)
			s.Resume(t)
			eventually(t, "an answer", func() bool { return answers(s) == nil })

			s.Pause(t)
			s.Kill(t) // one that hangs can be killed
			s.Start(t)
			require.NoError(t, answers(s))
			assert.Equal(t, []string{addr, dsn}, []string{s.Addr(), s.DSN()})
		})
	}
}

func TestCluster(t *testing.T) {
	s := Redis(t, Cluster())
	ask := func() string {
		c, err := dial(s)
		require.NoError(t, err)
		defer c.Close()
		_, err = redisDo(c, bufio.NewReader(c), "MSET", "a", "1", "b", "2")
		require.Error(t, err)
		return err.Error()
	}
	assert.Contains(t, ask(), "CROSSSLOT")
	s.Kill(t)
	s.Start(t)
	assert.Contains(t, ask(), "CROSSSLOT")
}

// What a Redis with a log was given is there after it was killed.
func TestArgs(t *testing.T) {
	s := Redis(t, Args("--appendonly", "yes", "--appendfsync", "always"))
	do := func(command ...string) string {
		c, err := dial(s)
		require.NoError(t, err)
		defer c.Close()
		reply, err := redisDo(c, bufio.NewReader(c), command...)
		require.NoError(t, err)
		return reply
	}
	do("SET", "k", "kept")
	s.Kill(t)
	s.Start(t)
	assert.Equal(t, "kept", do("GET", "k"))
}

func TestDoesNotStart(t *testing.T) {
	_, err := start(redis, []Option{Args("--nonsense", "1")})
	require.ErrorContains(t, err, "it ended")
	assert.ErrorContains(t, err, "nonsense", "the log says why")
}

func TestShared(t *testing.T) {
	for name, get := range map[string]func(testing.TB) *Server{"Postgres": SharedPostgres, "Redis": SharedRedis} {
		t.Run(name, func(t *testing.T) {
			var s *Server
			t.Run("first", func(t *testing.T) { s = get(t) })
			require.NoError(t, answers(s))
			assert.Same(t, s, get(t))
		})
	}
}

const orphanVariable = "SERVERTEST_ORPHANS"

// startOrphans starts a server of each kind, tells of them, and waits to be
// killed.
func startOrphans() {
	for _, k := range []*kind{postgres, redis} {
		s, err := start(k, nil)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.dir)
		for _, pid := range append(childrenOf(s.process.Pid), s.process.Pid) {
			fmt.Println(pid)
		}
	}
	fmt.Println("started")
	select {}
}

// A process that is killed leaves no server and no files behind.
func TestOrphans(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var pids []int
	var dirs []string
	started := false
	for lines := bufio.NewScanner(out); !started && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		switch {
		case lines.Text() == "started":
			started = true
		case err == nil:
			pids = append(pids, pid)
		default:
			dirs = append(dirs, lines.Text())
		}
	}
	require.True(t, started, strings.Join(dirs, "\n"))
	require.Len(t, dirs, 2)
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	for _, pid := range pids {
		eventually(t, "the end of "+strconv.Itoa(pid), func() bool { return !lives(pid) })
	}
	for _, dir := range dirs {
		eventually(t, "the end of "+dir, func() bool {
			_, err := os.Stat(dir)
			return errors.Is(err, fs.ErrNotExist)
		})
	}
}
