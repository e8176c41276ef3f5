//go:build unix

package servertest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/internal/tier"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv(startServersVariable) != "" {
		startServersAndWait()
	}
	status := m.Run()
	Close()
	os.Exit(status)
}

func requireReady(t *testing.T, s *Server) {
	t.Helper()
	require.NoError(t, s.checkReady(5*time.Second))
}

func requireNotReady(t *testing.T, s *Server) {
	t.Helper()
	require.Error(t, s.checkReady(5*time.Second))
}

func eventually(t *testing.T, condition func() bool, message string) {
	t.Helper()
	require.Eventually(t, condition, timeout, 5*time.Millisecond, message)
}

func TestServer_Lifecycle(t *testing.T) {
	for name, newServer := range map[string]func(testing.TB, ...Option) *Server{"Postgres": Postgres, "Redis": Redis} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			requireReady(t, s)
			addr, dsn := s.Addr(), s.DSN()
			assert.Contains(t, dsn, addr)

			pids := append(childrenOf(s.process.Pid), s.process.Pid)
			s.Kill(t)
			requireNotReady(t, s)
			for _, pid := range pids {
				assert.False(t, isRunning(pid))
			}
			s.Start(t)
			requireReady(t, s)

			s.Stop(t)
			requireNotReady(t, s)
			s.Start(t)
			requireReady(t, s)

			s.Pause(t)
			conn, err := net.Dial("tcp", s.Addr())
			require.NoError(t, err, "the operating system accepts connections")
			conn.Close()
			assert.ErrorIs(t, s.checkReady(100*time.Millisecond), os.ErrDeadlineExceeded)
			s.Resume(t)
			eventually(t, func() bool { return s.checkReady(5*time.Second) == nil }, "the server does not answer after Resume")

			s.Pause(t)
			s.Kill(t)
			s.Start(t)
			requireReady(t, s)
			assert.Equal(t, addr, s.Addr())
			assert.Equal(t, dsn, s.DSN())
		})
	}
}

func TestRedis_Cluster(t *testing.T) {
	s := Redis(t, Cluster())
	_, err := s.redisDo("MSET a 1 b 2")
	require.ErrorContains(t, err, "CROSSSLOT")
	s.Kill(t)
	s.Start(t)
	_, err = s.redisDo("MSET a 1 b 2")
	require.ErrorContains(t, err, "CROSSSLOT")
}

func TestRedisCluster(t *testing.T) {
	nodes := RedisCluster(t, 3)
	for i, key := range []string{"a", "b", "c"} { // of the third, the first and the second node
		_, err := nodes[i].redisDo("SET " + key + " x")
		require.ErrorContains(t, err, "MOVED")
		_, err = nodes[(i+2)%3].redisDo("SET " + key + " x")
		require.NoError(t, err)
	}
	nodes[1].Kill(t)
	nodes[1].Start(t)
	eventually(t, func() bool { _, err := nodes[1].redisDo("SET c x"); return err == nil }, "the node does not join again")
}

func TestRedis_AppendOnlyFileSurvivesKill(t *testing.T) {
	s := Redis(t, Args("--appendonly", "yes", "--appendfsync", "always"))
	_, err := s.redisDo("SET k kept")
	require.NoError(t, err)
	s.Kill(t)
	s.Start(t)
	reply, err := s.redisDo("GET k")
	require.NoError(t, err)
	assert.Equal(t, "kept", reply)
}

func TestStart_ErrorContainsLog(t *testing.T) {
	tier.Needs(t, redis.name)
	_, err := createServer(redis, []Option{Args("--nonsense", "1")})
	require.ErrorIs(t, err, errExited)
	assert.ErrorContains(t, err, "nonsense")
}

func TestStart_MissingServer(t *testing.T) {
	missing := &product{name: "Missing", programs: []string{"no-such-server", "/no/such/*/server"}}
	_, err := createServer(missing, nil)
	assert.ErrorContains(t, err, "Missing is not installed")
	assert.ErrorContains(t, err, "run make setup")
}

func TestShared(t *testing.T) {
	for name, shared := range map[string]func(testing.TB) *Server{"PostgreSQL": SharedPostgres, "Redis": SharedRedis} {
		t.Run(name, func(t *testing.T) {
			tier.Needs(t, name)
			var s *Server
			t.Run("first use", func(t *testing.T) { s = shared(t) })
			requireReady(t, s)
			assert.Same(t, s, shared(t))
		})
	}
}

// If this environment variable is set, the test binary starts servers.
const startServersVariable = "SERVERTEST_START_SERVERS"

// startServersAndWait starts servers, prints their directories and process IDs,
// and waits to be killed.
func startServersAndWait() {
	for _, p := range []*product{postgres, redis} {
		s, err := createServer(p, nil)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("directory", s.dir)
		for _, pid := range append(childrenOf(s.process.Pid), s.process.Pid) {
			fmt.Println("process", pid)
		}
	}
	fmt.Println("started")
	select {}
}

func TestReaper(t *testing.T) {
	tier.Needs(t, postgres.name)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), startServersVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var pids []int
	var dirs []string
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "started" {
		if dir, ok := strings.CutPrefix(lines.Text(), "directory "); ok {
			dirs = append(dirs, dir)
			continue
		}
		pid, err := strconv.Atoi(strings.TrimPrefix(lines.Text(), "process "))
		require.NoError(t, err, lines.Text())
		pids = append(pids, pid)
	}
	require.Len(t, dirs, 2)
	require.NoError(t, cmd.Process.Kill())
	for _, pid := range pids {
		eventually(t, func() bool { return !isRunning(pid) }, "a server is still running")
	}
	for _, dir := range dirs {
		eventually(t, func() bool {
			_, err := os.Stat(dir)
			return os.IsNotExist(err)
		}, "a directory still exists")
	}
}
