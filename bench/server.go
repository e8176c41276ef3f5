package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// serveFlag is the first argument of the server processes that this command
// starts of itself: -serve contender mode upstream-address.
const serveFlag = "-serve"

// serve is the main function of a server process. For each line of input it writes
// its usage, with the contender's address; the line "true" makes it collect garbage
// first. It returns when the input ends, which it does when the parent process ends.
func serve(args []string, in io.Reader, out io.Writer) error {
	h, err := newHandler(args[0], mode(args[1]), args[2])
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(listener, h)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == "true" {
			runtime.GC() // a sync.Pool keeps its contents for one collection
			debug.FreeOSMemory()
		}
		u, err := readUsage()
		if err != nil {
			return err
		}
		u.Addr = listener.Addr().String()
		if err := json.NewEncoder(out).Encode(u); err != nil {
			return err
		}
	}
	return lines.Err()
}

// A usage is what a process has used according to the kernel.
type usage struct {
	Addr     string        // of the contender
	CPU      time.Duration // of all threads, in user and system mode
	Resident float64       // bytes of resident memory
	Peak     float64       // largest Resident so far
}

// readUsage returns the usage of this process.
func readUsage() (u usage, err error) {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return u, err
	}
	u.CPU = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	status, err := os.ReadFile("/proc/self/status")
	u.Resident, u.Peak = memorySize(status, "VmRSS:"), memorySize(status, "VmHWM:")
	return u, err
}

// memorySize returns the bytes in a line of /proc/PID/status, which has
// kilobytes, or 0 if there is no such line.
func memorySize(status []byte, label string) (size float64) {
	_, value, _ := strings.Cut(string(status), label)
	fmt.Sscan(value, &size)
	return size * 1024
}

// A server is a contender that serves in a process of its own.
type server struct {
	addr string
	cmd  *exec.Cmd
	in   io.Writer // nil if the process does not tell its usage
	out  *json.Decoder
}

// startServer starts a contender. If upstreamAddr is not empty, the contender is a gateway to that
// server.
func startServer(cpu int, contender string, m mode, upstreamAddr string) (*server, error) {
	return startCommand(cpu, os.Args[0], contender, m, upstreamAddr)
}

// startCommand starts a contender of a command, which is this one or that of another version.
func startCommand(cpu int, command, contender string, m mode, upstreamAddr string) (*server, error) {
	cmd := pinned(cpu, command, serveFlag, contender, string(m), upstreamAddr)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, in: in, out: json.NewDecoder(out)}
	first, err := s.usage(false)
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("start of %s: %w", contender, err)
	}
	s.addr = first.Addr
	return s, nil
}

// stop kills the process.
func (s *server) stop() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// serverMeasurement returns a measurement of a new server.
func serverMeasurement(contender string, m mode, measure func(*server) (values, error)) measurement {
	return measurement{contender, func() (values, error) {
		s, err := startServer(serverCPU, contender, m, "")
		if err != nil {
			return nil, err
		}
		defer s.stop()
		return measure(s)
	}}
}

// growth calls f and returns by how much the memory of the process grew to the end and
// to the peak. The process collects garbage before and after.
func (s *server) growth(f func() error) (grown usage, err error) {
	before, err := s.usage(true)
	if err != nil {
		return grown, err
	}
	if err := f(); err != nil {
		return grown, err
	}
	grown, err = s.usage(true)
	grown.Resident -= before.Resident
	grown.Peak -= before.Resident
	return grown, err
}

func (s *server) usage(collect bool) (u usage, err error) {
	if s.in == nil {
		return processUsage(s.cmd.Process.Pid)
	}
	if _, err := fmt.Fprintln(s.in, collect); err != nil {
		return u, err
	}
	return u, s.out.Decode(&u)
}

// The measured servers have serverCPU, which the load shares: a load that is often idle
// would be woken by interrupts, which take microseconds on a virtual machine and count
// as the server's. Gateways have serverCPU for themselves, because latency must not depend
// on what they do after the reply.
const (
	serverCPU = 1
	otherCPU  = 0
)

// pinned returns a command that runs on one CPU, if there are several. With --batch, a
// process that has work to do waits until the one that runs has none. Otherwise server
// and load would take turns after one request, or after many, as it happens.
func pinned(cpu int, name string, args ...string) *exec.Cmd {
	if runtime.NumCPU() == 1 {
		return exec.Command(name, args...)
	}
	return exec.Command("taskset", append([]string{"-c", fmt.Sprint(cpu), "chrt", "--batch", "0", name}, args...)...)
}
