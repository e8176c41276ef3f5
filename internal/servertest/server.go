//go:build unix

package servertest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/internal/tier"
)

// A Server is a PostgreSQL or Redis server. It keeps its address and its data
// when it is killed or stopped and started again.
//
// Methods that take a [testing.TB] must be called on the goroutine of that test. They return when
// the server has reached its new state. If they fail, they end the test.
type Server struct {
	home
	product            *product
	program            string
	args               []string // added by Args
	firstSlot, endSlot int      // the range of hash slots of a node of a Redis Cluster; zero for other servers
	slotsAssigned      bool     // whether the node knows its range
	port               int
	reaper             *reaper
	process            *process // nil if the server is not running
}

// A product describes how to run a kind of server.
type product struct {
	name     string
	programs []string              // names on the PATH or patterns of absolute paths; the first that exists is run
	prepare  func(s *Server) error // creates the data of a new server; may be nil
	args     func(s *Server) []string

	// configure writes the configuration file, which has the port, before each
	// start. It may be nil.
	configure func(s *Server) error

	dsn  func(s *Server) string
	stop syscall.Signal // makes the server shut down

	// checkReady returns an error if the server behind conn does not answer.
	checkReady func(s *Server, conn net.Conn) error
}

// timeout limits how long a server may take to start or to stop.
const timeout = time.Minute

// An Option configures a server.
type Option func(*Server)

// Args adds command line arguments to those of this package.
func Args(args ...string) Option {
	return func(s *Server) { s.args = append(s.args, args...) }
}

func (s *Server) isCluster() bool { return s.endSlot > 0 }

// Addr returns the host and port of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// DSN returns a URL with everything that a client needs to connect.
func (s *Server) DSN() string { return s.product.dsn(s) }

// newServer starts a server that ends with tb. If the test fails, it logs the end of the server's
// log.
func newServer(tb testing.TB, p *product, opts []Option) *Server {
	tb.Helper()
	tier.Needs(tb, p.name)
	s, err := createServer(p, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the log of %s ends with:\n%s", p.name, s.logTail())
		}
		s.close()
	})
	return s
}

// A sharedServer is a server that is started at the first use.
type sharedServer struct {
	once   sync.Once
	server *Server
	err    error
}

func (s *sharedServer) get(tb testing.TB, p *product) *Server {
	tb.Helper()
	tier.Needs(tb, p.name)
	s.once.Do(func() { s.server, s.err = createServer(p, nil) })
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

// Close ends the servers that tests share. Call it in TestMain after m.Run. If it is not called,
// the servers end shortly after the process.
func Close() {
	for _, s := range []*sharedServer{&sharedPostgres, &sharedRedis} {
		if s.server != nil {
			s.server.close()
		}
	}
}

// createServer creates the directory of a server and starts the server.
func createServer(p *product, opts []Option) (_ *Server, err error) {
	s := &Server{product: p}
	for _, o := range opts {
		o(s)
	}
	if s.program = findProgram(p.programs); s.program == "" {
		return nil, fmt.Errorf("servertest: %s is not installed; to install what the tests need, run make setup", p.name)
	}
	if s.dir, err = os.MkdirTemp("", "servertest-"+filepath.Base(s.program)+"-"); err != nil {
		return nil, fmt.Errorf("servertest: %w", err)
	}
	if s.reaper, err = startReaper(s.dir); err != nil {
		os.RemoveAll(s.dir)
		return nil, fmt.Errorf("servertest: %w", err)
	}
	if err := s.prepareAndRun(); err != nil {
		s.close()
		return nil, fmt.Errorf("servertest: %s: %w", p.name, err)
	}
	return s, nil
}

// findProgram returns the first program that exists, or "". Of several paths that match
// a pattern it returns the last, which has the newest version.
func findProgram(programs []string) string {
	for _, program := range programs {
		if paths, _ := filepath.Glob(program); len(paths) > 0 && filepath.IsAbs(program) {
			program = paths[len(paths)-1]
		}
		if path, err := exec.LookPath(program); err == nil {
			return path
		}
	}
	return ""
}

// prepareAndRun creates the data of a new server, finds a port and runs the server.
func (s *Server) prepareAndRun() (err error) {
	if s.product.prepare != nil {
		if err := s.product.prepare(s); err != nil {
			return err
		}
	}
	// Another process may take the port before the server listens on it.
	for range 5 {
		if s.port, err = freePort(s.isCluster()); err != nil {
			return err
		}
		if err = s.run(); !errors.Is(err, errExited) {
			break
		}
	}
	return err
}

// run runs the server's program and waits until it answers.
func (s *Server) run() error {
	log, err := os.OpenFile(s.logName(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if s.product.configure != nil {
		if err := s.product.configure(s); err != nil {
			return err
		}
	}
	cmd := s.command(s.program, append(s.product.args(s), s.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.process, err = startProcess(cmd); err != nil {
		return err
	}
	s.reaper.setProcess(s.process.Pid)
	if err := s.awaitReady(); err != nil {
		tail := s.logTail()
		s.kill()
		return fmt.Errorf("the server does not start: %w; its log ends with:\n%s", err, tail)
	}
	return nil
}

var errExited = errors.New("it exited")

// awaitReady waits until the server answers.
func (s *Server) awaitReady() error {
	deadline := time.Now().Add(timeout)
	for {
		err := s.checkReady(5 * time.Second)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-s.process.exited:
			return errExited
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// checkReady connects to the server and returns an error if it does not answer
// within d.
func (s *Server) checkReady(d time.Duration) error {
	conn, err := net.DialTimeout("tcp", s.Addr(), d)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	return s.product.checkReady(s, conn)
}

// Start starts a server that was killed or stopped.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if err := s.run(); err != nil {
		tb.Fatalf("%s: %v", s.product.name, err)
	}
}

// Kill ends all processes of a running server with SIGKILL.
func (s *Server) Kill(testing.TB) {
	s.kill()
}

// Stop shuts a running server down. Open connections do not delay that.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	if err := s.process.Signal(s.product.stop); err != nil {
		tb.Fatal(err)
	}
	select {
	case <-s.process.exited:
		s.setExited()
	case <-time.After(timeout):
		tail := s.logTail()
		s.kill()
		tb.Fatalf("%s does not stop; its log ends with:\n%s", s.product.name, tail)
	}
}

// Pause suspends all processes of a running server with SIGSTOP. The operating
// system still accepts connections to it.
func (s *Server) Pause(testing.TB) {
	s.process.signalAll(syscall.SIGSTOP)
}

// Resume ends a Pause.
func (s *Server) Resume(testing.TB) {
	s.process.signalAll(syscall.SIGCONT)
}

func (s *Server) kill() {
	s.process.killAll()
	s.setExited()
}

func (s *Server) setExited() {
	s.process = nil
	s.reaper.setProcess(0)
}

// close ends the server and removes its directory.
func (s *Server) close() {
	if s.process != nil {
		s.kill()
	}
	s.reaper.close()
}
