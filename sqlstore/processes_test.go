package sqlstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// The test binary is also the processes that tests start, in one of these roles.
const (
	childRole = "SQLSTORE_TEST_CHILD"
	childDSN  = "SQLSTORE_TEST_DSN"

	roleMigrate = "migrate" // opens the database when it is told to
	roleDirect  = "direct"  // records until it is killed, and tells of what is recorded
	roleBuffer  = "buffer"  // likewise with a buffer, and tells of what the buffer has and of what is stored
)

func runChild(role string) int {
	dsn := os.Getenv(childDSN)
	if role == roleMigrate {
		fmt.Println("ready")
		if _, err := fmt.Scanln(); err != nil && err.Error() != "unexpected newline" {
			return 3
		}
	}
	s, err := Open(context.Background(), dsn, &Options{KeepRecords: -1})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	switch role {
	case roleMigrate:
		if err := s.Close(); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("open")
	case roleDirect:
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() { recordForever(s, w, 0) })
		}
		all.Wait()
	case roleBuffer:
		recordForever(llmhttp.NewUsageBuffer(tellingStore{s}, 50, bufferDelay), 0, time.Millisecond)
	}
	return 0
}

const bufferDelay = 100 * time.Millisecond

// recordForever records and tells of each record when that is done.
func recordForever(s llmhttp.UsageStore, worker int, pause time.Duration) {
	for i := 0; ; i++ {
		id := fmt.Sprint(worker, "-", i)
		if err := s.Record(context.Background(), newRecord(id, "acme", fmt.Sprint("m", i%3), noon.Add(time.Duration(i)*time.Minute), 1)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Printf("recorded %s\n", id)
		time.Sleep(pause)
	}
}

// A tellingStore tells of what is stored.
type tellingStore struct{ llmhttp.UsageStore }

func (s tellingStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	if err := s.UsageStore.Record(ctx, records...); err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range records {
		fmt.Fprintf(&b, "stored %s\n", r.ID)
	}
	os.Stdout.WriteString(b.String())
	return nil
}

// A child is a process of the test's own.
type child struct {
	*exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func startChild(t *testing.T, role, dsn string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childDSN+"="+dsn, "GORACE=atexit_sleep_ms=0") // which is a second otherwise
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &child{cmd, stdin, bufio.NewScanner(stdout)}
}

// next returns the child's next line, or "" if there is none.
func (c *child) next() string {
	if !c.lines.Scan() {
		return ""
	}
	return c.lines.Text()
}

func TestProcessesMigrate(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		var children []*child
		for range 4 {
			c := startChild(t, roleMigrate, dsn)
			require.Equal(t, "ready", c.next())
			children = append(children, c)
		}
		for _, c := range children {
			_, err := io.WriteString(c.stdin, "\n")
			require.NoError(t, err)
		}
		for _, c := range children {
			assert.Equal(t, "open", c.next())
		}
		s := openStore(t, dsn, nil)
		assert.EqualValues(t, 1, count(t, s, "SELECT count(*) FROM llmhttp_schema"))
	})
}

// stored returns the IDs of what is stored, and sees that sums and records tell
// the same. What a process that was killed had asked for may still be on its
// way.
func stored(t *testing.T, s *Store) map[string]bool {
	t.Helper()
	for before, began := int64(-1), time.Now(); ; time.Sleep(200 * time.Millisecond) {
		n := count(t, s, "SELECT count(*) FROM llmhttp_usage_records")
		if n == before {
			break
		}
		before = n
		require.Less(t, time.Since(began), 20*time.Second, "records are still being stored")
	}
	rows, err := s.read.Query("SELECT id FROM llmhttp_usage_records")
	require.NoError(t, err)
	defer rows.Close()
	ids := make(map[string]bool)
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids[id] = true
	}
	require.NoError(t, rows.Err())
	assert.EqualValues(t, len(ids), requests(mustQuery(t, s, always("acme"))), "requests by the sums of days")
	q := always("acme")
	q.Step = time.Hour
	q.From = noon.Add(-time.Hour)
	assert.EqualValues(t, len(ids), requests(mustQuery(t, s, q)), "requests by the records")
	return ids
}

// without returns how many of ids are not in set.
func without(ids []string, set map[string]bool) (n int) {
	for _, id := range ids {
		if !set[id] {
			n++
		}
	}
	return n
}

// Used directly, a Store that is killed has lost nothing that was recorded.
func TestKillDirect(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		c := startChild(t, roleDirect, dsn)
		var recorded []string
		for line := c.next(); line != ""; line = c.next() {
			id, ok := strings.CutPrefix(line, "recorded ")
			require.True(t, ok, line)
			if recorded = append(recorded, id); len(recorded) == 300 {
				require.NoError(t, c.Process.Signal(syscall.SIGKILL))
			}
		}
		ids := stored(t, openStore(t, dsn, nil))
		lost := without(recorded, ids)
		t.Logf("recorded before kill -9: %d; lost: %d; stored and not told of: %d", len(recorded), lost, len(ids)+lost-len(recorded))
		assert.GreaterOrEqual(t, len(recorded), 300)
		assert.Zero(t, lost)
		assert.LessOrEqual(t, len(ids)-len(recorded), 4, "one for each goroutine may be on its way")
	})
}

// Behind a buffer, what is lost is what the buffer had not stored: that which
// it gathered in its delay, or while it stored what came before.
func TestKillBuffer(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		c := startChild(t, roleBuffer, dsn)
		var recorded, told []string
		killed := false
		for line := c.next(); line != ""; line = c.next() {
			what, id, _ := strings.Cut(line, " ")
			switch what {
			case "recorded":
				recorded = append(recorded, id)
				if !killed && len(recorded) >= 1000 && len(told) >= 800 {
					require.NoError(t, c.Process.Signal(syscall.SIGKILL))
					killed = true
				}
				require.Less(t, len(recorded), 10_000, "of which the buffer stored %d", len(told))
			case "stored":
				told = append(told, id)
			default:
				t.Fatal(line)
			}
		}
		ids := stored(t, openStore(t, dsn, nil))
		lost := without(recorded, ids)
		t.Logf("recorded before kill -9: %d; lost: %d; delay of the buffer: %v", len(recorded), lost, bufferDelay)
		assert.Zero(t, without(told, ids), "what was stored is there")
		assert.LessOrEqual(t, lost, len(recorded)-len(told))
		// It stores in order, so that what is lost are the last.
		for i, id := range recorded {
			number, err := strconv.Atoi(strings.TrimPrefix(id, "0-"))
			require.NoError(t, err)
			require.Equal(t, i, number)
			assert.Equal(t, i < len(recorded)-lost, ids[id], id)
		}
	})
}
