//go:build unix

package servertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a server may take to start or to stop.
const patience = time.Minute

// A Server is one that was started. It keeps its address and its data when it
// is killed or stopped and started again.
//
// Methods that start or end it are for one goroutine at a time, that of the
// test they are given, and wait until it is so. Those that fail end the test.
type Server struct {
	kind  *kind
	opts  options
	dir   string
	user  *syscall.Credential // of the server's process; nil means this one's
	port  int
	watch *watchdog

	process *os.Process // nil unless it runs
	exited  chan struct{}
}

// A kind is what servers of one sort have in common.
type kind struct {
	name string
	find func() (program string, err error)
	// prepare makes the data of a server that is new.
	prepare func(s *Server, program string) error
	args    func(s *Server) []string
	// ready reports, without an error, that the server answers on c.
	ready func(s *Server, c net.Conn) error
	dsn   func(s *Server) string
	stop  syscall.Signal // ends it in order
}

type options struct {
	args    []string
	cluster bool
}

// An Option is for a server that is started.
type Option func(*options)

// Args passes arguments to the server's program, after those of this package.
func Args(args ...string) Option {
	return func(o *options) { o.args = append(o.args, args...) }
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// DSN returns the server's address as a URL, with all that it takes to connect.
func (s *Server) DSN() string { return s.kind.dsn(s) }

// begin starts the server for tb. It ends with tb.
func begin(tb testing.TB, k *kind, opts []Option) *Server {
	tb.Helper()
	s, err := start(k, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the log of %s ends with:\n%s", k.name, s.logTail())
		}
		s.close()
	})
	return s
}

// A shared is a server for all tests of the process.
type shared struct {
	once   sync.Once
	server *Server
	err    error
}

var (
	closing sync.Mutex
	closers []func()
)

func (s *shared) get(tb testing.TB, k *kind) *Server {
	tb.Helper()
	s.once.Do(func() {
		if s.server, s.err = start(k, nil); s.err == nil {
			closing.Lock()
			closers = append(closers, s.server.close)
			closing.Unlock()
		}
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

// Close ends the servers that tests share. It is for TestMain, after m.Run.
// Without it they end with the process, a little later.
func Close() {
	closing.Lock()
	defer closing.Unlock()
	for _, f := range closers {
		f()
	}
	closers = nil
}

// start starts a server that is new.
func start(k *kind, opts []Option) (_ *Server, err error) {
	s := &Server{kind: k}
	for _, o := range opts {
		o(&s.opts)
	}
	program, err := k.find()
	if err != nil {
		return nil, fmt.Errorf("servertest: %w; scripts/setup.sh installs what the tests need", err)
	}
	if s.dir, err = os.MkdirTemp("", "servertest-"+filepath.Base(program)+"-"); err != nil {
		return nil, fmt.Errorf("servertest: %w", err)
	}
	if s.watch, err = newWatchdog(s.dir); err != nil {
		os.RemoveAll(s.dir)
		return nil, fmt.Errorf("servertest: %w", err)
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := k.prepare(s, program); err != nil {
		return nil, fmt.Errorf("servertest: %s: %w", k.name, err)
	}
	// Somebody else may take a port between a look at it and its use.
	for range 5 {
		if s.port, err = freePort(s.opts.cluster); err != nil {
			return nil, fmt.Errorf("servertest: %w", err)
		}
		if err = s.run(); !errors.Is(err, errEnded) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// The ports of servers are below those that systems give to connections, so
// that a server that was killed finds its own free, and a connection to it
// that is attempted in the meantime is not connected to itself.
const firstPort, lastPort = 10_000, 22_000

// busOffset is by how much the port on which nodes of a Redis cluster talk is
// above that for clients.
const busOffset = 10_000

func freePort(cluster bool) (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if err = tryPort(port); err == nil && cluster {
			err = tryPort(port + busOffset)
		}
		if err == nil {
			return port, nil
		}
	}
	return 0, err
}

func tryPort(port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return l.Close()
}

func (s *Server) logName() string { return filepath.Join(s.dir, "log") }

// logTail returns the end of what the server logged.
func (s *Server) logTail() []byte {
	b, _ := os.ReadFile(s.logName())
	return bytes.TrimSpace(b[max(0, len(b)-4096):])
}

// run runs the server's program until it answers.
func (s *Server) run() error {
	program, err := s.kind.find()
	if err != nil {
		return fmt.Errorf("servertest: %w", err)
	}
	log, err := os.OpenFile(s.logName(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("servertest: %w", err)
	}
	defer log.Close()
	cmd := s.command(program, append(s.kind.args(s), s.opts.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("servertest: %w", err)
	}
	s.process, s.exited = cmd.Process, make(chan struct{})
	s.watch.tell(s.process.Pid)
	go func(exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(s.exited)
	if err := s.await(); err != nil {
		tail := s.logTail()
		s.kill()
		return fmt.Errorf("servertest: %s does not start: %w; its log ends with:\n%s", s.kind.name, err, tail)
	}
	return nil
}

// command is a command of the server's, run by its user in its folder.
func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	// Nothing of the environment is to change what a server does.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + s.dir}
	// In a group of its own, so that ^C ends the test, and only then the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.user}
	return cmd
}

var errEnded = errors.New("it ended")

// await waits until the server answers.
func (s *Server) await() error {
	for end := time.Now().Add(patience); ; {
		err := s.ask(5 * time.Second)
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return errEnded
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// ask connects and sees whether the server answers within d.
func (s *Server) ask(d time.Duration) error {
	c, err := net.DialTimeout("tcp", s.Addr(), d)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	return s.kind.ready(s, c)
}

// Start starts a server again that was killed or stopped.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if s.process != nil {
		tb.Fatalf("%s runs already", s.kind.name)
	}
	if err := s.run(); err != nil {
		tb.Fatal(err)
	}
}

// Kill ends all processes of the server with SIGKILL.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.mustRun(tb)
	s.kill()
}

// Stop ends the server in order. Connections do not keep it from ending.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.mustRun(tb)
	if err := s.process.Signal(s.kind.stop); err != nil {
		tb.Fatal(err)
	}
	select {
	case <-s.exited:
		s.ended()
	case <-time.After(patience):
		tail := s.logTail()
		s.kill()
		tb.Fatalf("%s does not stop; its log ends with:\n%s", s.kind.name, tail)
	}
}

// Pause makes all processes of the server hang, as SIGSTOP does: connections
// are accepted by the system, and nothing answers.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.mustRun(tb)
	s.signal(syscall.SIGSTOP)
}

// Resume ends a Pause.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	s.mustRun(tb)
	s.signal(syscall.SIGCONT)
}

func (s *Server) mustRun(tb testing.TB) {
	tb.Helper()
	if s.process == nil {
		tb.Fatalf("%s does not run", s.kind.name)
	}
}

// signal sends sig to the server and then to its children.
func (s *Server) signal(sig syscall.Signal) {
	_ = s.process.Signal(sig)
	for _, child := range childrenOf(s.process.Pid) {
		_ = syscall.Kill(child, sig)
	}
}

func (s *Server) kill() {
	// The children of one that is stopped stay what they are.
	_ = s.process.Signal(syscall.SIGSTOP)
	children := childrenOf(s.process.Pid)
	_ = s.process.Kill()
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	<-s.exited
	// One that still is on its way out keeps a PostgreSQL from starting again.
	for _, child := range children {
		for lives(child) {
			time.Sleep(time.Millisecond)
		}
	}
	s.ended()
}

func (s *Server) ended() {
	s.process = nil
	s.watch.tell(0)
}

// close ends the server and removes its data.
func (s *Server) close() {
	if s.process != nil {
		s.kill()
	}
	s.watch.close()
}

// childrenOf returns the process IDs of the children of pid, where the system
// tells them as Linux does. Elsewhere they see for themselves that their
// parent is gone.
func childrenOf(pid int) []int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	var list []int
	for _, f := range bytes.Fields(b) {
		if child, err := strconv.Atoi(string(f)); err == nil {
			list = append(list, child)
		}
	}
	return list
}

// lives reports whether a process runs; what nobody has waited for does not.
func lives(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := bytes.Cut(b, []byte(") ")) // behind the name
	return err == nil && !bytes.HasPrefix(state, []byte("Z")) && !bytes.HasPrefix(state, []byte("X"))
}

// A watchdog is a process that outlives this one: it ends the server and
// removes its folder, whatever this one dies of.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// watchdogScript reads what tell writes, until its end.
const watchdogScript = `
while read -r line; do pid=$line; done
if [ "${pid:-0}" -gt 0 ]; then
	kill -STOP "$pid"
	kill -KILL "$pid" $(cat "/proc/$pid/task/$pid/children")
fi 2>/dev/null
for i in 1 2 3 4 5; do
	rm -rf "$1" 2>/dev/null && break
	sleep 0.2
done
`

func newWatchdog(dir string) (*watchdog, error) {
	w := &watchdog{cmd: exec.Command("/bin/sh", "-c", watchdogScript, "watchdog", dir)}
	w.cmd.Dir = "/"
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if w.pipe, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return w, w.cmd.Start()
}

// tell names the process that must not outlive this one; 0 is none.
func (w *watchdog) tell(pid int) { fmt.Fprintln(w.pipe, pid) }

func (w *watchdog) close() {
	w.pipe.Close()
	_ = w.cmd.Wait()
}
