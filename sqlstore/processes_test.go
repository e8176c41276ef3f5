package sqlstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// Tests start the test binary as a child process in one of these roles.
const (
	childRole = "SQLSTORE_TEST_CHILD"
	childDSN  = "SQLSTORE_TEST_DSN"

	roleMigrate = "migrate" // opens the database when it reads a line
	roleDirect  = "direct"  // records until it is killed, and prints what it has recorded
	roleServe   = "serve"   // serves the Responses API, and prints its address
	roleBuffer  = "buffer"  // the same through a Buffer, and prints what the buffer has stored
	roleClaim   = "claim"   // claims quota events when it reads a line, and prints their IDs
)

func runChild(role string) int {
	if role == roleMigrate {
		fmt.Println("ready")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return 1
		}
	}
	s, err := Open(context.Background(), os.Getenv(childDSN), &Options{KeepRecords: -1})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	switch role {
	case roleClaim:
		if err := claimEvents(s); err != nil {
			fmt.Println(err)
			return 1
		}
	case roleMigrate:
		if err := s.Close(); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("open")
	case roleDirect:
		var running sync.WaitGroup
		for w := range directWorkers {
			running.Go(func() { recordForever(s, w, 0) })
		}
		running.Wait()
	case roleServe:
		return serveResponses(s)
	case roleBuffer:
		recordForever(usagebuffer.New(printingStore{s}, &usagebuffer.Options{BatchSize: 50, Delay: 100 * time.Millisecond}), 0, time.Millisecond)
	}
	return 0
}

const directWorkers = 4

// recordForever records with a pause between records, and prints the ID of each
// when Record has returned.
func recordForever(s llmhttp.UsageStore, worker int, pause time.Duration) {
	for i := 0; ; i++ {
		id := fmt.Sprint(worker, "-", i)
		if err := s.Record(context.Background(), usageRecord(id, "acme", fmt.Sprint("m", i%3), noon.Add(time.Duration(i)*time.Minute), 1)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("recorded", id)
		time.Sleep(pause)
	}
}

// A printingStore prints the IDs of the records that it has stored.
type printingStore struct{ llmhttp.UsageStore }

func (s printingStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	if err := s.UsageStore.Record(ctx, records...); err != nil {
		return err
	}
	for _, r := range records {
		fmt.Println("stored", r.ID)
	}
	return nil
}

// A child is a running child process.
type child struct {
	*exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func startChild(t *testing.T, role, dsn string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	// The race detector would otherwise delay the end of the process by a second.
	cmd.Env = append(os.Environ(), childRole+"="+role, childDSN+"="+dsn, "GORACE=atexit_sleep_ms=0")
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

// next returns the next line of the child's output, or "" at its end.
func (c *child) next() string {
	if !c.lines.Scan() {
		return ""
	}
	return c.lines.Text()
}

func TestOpen_ConcurrentProcesses(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
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
		released, err := readMigrations(migrationFiles, s.db.name())
		require.NoError(t, err)
		assert.EqualValues(t, len(released), queryInt(t, s, "SELECT count(*) FROM llmhttp_schema"))
	})
}

func TestStore_KilledProcessLosesNoRecord(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		c := startChild(t, roleDirect, dsn)
		var recorded []string
		for line := c.next(); line != ""; line = c.next() {
			id, ok := strings.CutPrefix(line, "recorded ")
			require.True(t, ok, line)
			if recorded = append(recorded, id); len(recorded) == 300 {
				require.NoError(t, c.Process.Kill())
			}
		}
		ids := storedIDs(t, openStore(t, dsn, nil))
		lost := countMissing(recorded, ids)
		t.Logf("recorded: %d; lost: %d; stored: %d", len(recorded), lost, len(ids))
		assert.GreaterOrEqual(t, len(recorded), 300)
		assert.Zero(t, lost)
		assert.LessOrEqual(t, len(ids)-len(recorded), directWorkers, "each worker may have stored a record without printing it")
	})
}

// TestBuffer_KilledProcess checks that a killed process loses only the
// records that the buffer has not stored, which are the last ones.
func TestBuffer_KilledProcess(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		c := startChild(t, roleBuffer, dsn)
		var recorded, stored []string
		killed := false
		for line := c.next(); line != ""; line = c.next() {
			event, id, _ := strings.Cut(line, " ")
			switch event {
			case "recorded":
				recorded = append(recorded, id)
			case "stored":
				stored = append(stored, id)
			default:
				require.Fail(t, "unexpected output", line)
			}
			if !killed && len(recorded) >= 1000 && len(stored) >= 800 {
				require.NoError(t, c.Process.Kill())
				killed = true
			}
		}
		ids := storedIDs(t, openStore(t, dsn, nil))
		lost := countMissing(recorded, ids)
		t.Logf("recorded: %d; lost: %d", len(recorded), lost)
		assert.Zero(t, countMissing(stored, ids))
		assert.LessOrEqual(t, lost, len(recorded)-len(stored))
		assert.Zero(t, countMissing(recorded[:len(recorded)-lost], ids), "the buffer stores records in order")
	})
}
