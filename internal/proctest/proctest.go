// Package proctest runs programs for tests.
package proctest

import (
	"bytes"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Timeout is how long a test waits for a program before it fails.
const Timeout = time.Minute

// A Buffer is a bytes.Buffer that may be written and read concurrently. The zero value is empty.
type Buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A Process is a server in a process of its own.
type Process struct {
	Cmd    *exec.Cmd
	URL    string // its address, such as "http://127.0.0.1:45678"
	Output Buffer // stdout and stderr

	ended chan struct{} // closed when err is set
	err   error         // the result of Cmd.Wait
}

var listening = regexp.MustCompile(`listening on (http://\S+)\n`)

// AwaitURL waits until a server has written the line with its address, and returns that.
func AwaitURL(t testing.TB, output *Buffer) (url string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		m := listening.FindStringSubmatch(output.String())
		require.NotNil(c, m, "there is no address in the output:\n%s", output)
		url = m[1]
	}, Timeout, 5*time.Millisecond)
	return url
}

// Start starts a server and waits until it listens. The cleanup of the test kills it, and logs its
// output if the test has failed.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.Output, &p.Output
	require.NoError(t, cmd.Start())
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("output of %s:\n%s", cmd, &p.Output)
		}
	})
	p.URL = AwaitURL(t, &p.Output)
	return p
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Wait waits until the process has ended, and returns the result of Cmd.Wait.
func (p *Process) Wait(t testing.TB) error {
	t.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(Timeout):
		require.FailNow(t, "the process does not end")
		return nil
	}
}
