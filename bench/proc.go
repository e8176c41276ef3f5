package main

import (
	"bufio"
	"bytes"
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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// childFlag is the first argument of the processes that this program starts of
// itself. Should it die without stopping them, they end when their standard
// input does.
const childFlag = "-child"

// child is the main function of a child.
func child(args []string, out io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "serve":
		return serve(newPeer(args[1], mode(args[2])), out)
	case len(args) == 3 && args[0] == "gateway":
		return serve(newGateway(args[1], args[2]), out)
	case len(args) == 1 && args[0] == "awake":
		return stayAwake(out)
	case len(args) == 3 && args[0] == "limiter":
		return limiterChild(args[1:], out)
	}
	return fmt.Errorf("no such child: %q", args)
}

// A process is a child, seen from its parent.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// spawn starts a child that may use the given CPUs, or all if there are none.
func spawn(cpus []int, args ...string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, append([]string{childFlag}, args...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// A child inherits the CPUs of the thread that starts it, so that its Go
	// runtime counts those as the machine's.
	if err := onCPUs(cpus, cmd.Start); err != nil {
		return nil, err
	}
	return &process{cmd, stdin, bufio.NewReader(stdout)}, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the process, which has nothing to put in order.
func (p *process) stop() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// A server is a contender in a process of its own.
type server struct {
	*process
	addr    string
	control string
}

// startServer starts a contender whose model answers as m has it.
func (b *bench) startServer(peer string, m mode) (*server, error) {
	return startServer(b.cores.server, "serve", peer, string(m))
}

// startServer starts a child that serves, on the given CPUs.
func startServer(cpus []int, args ...string) (*server, error) {
	p, err := spawn(cpus, args...)
	if err != nil {
		return nil, err
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("%q does not say where it listens: %w", args, err)
	}
	s := &server{process: p}
	s.addr, s.control, _ = strings.Cut(strings.TrimSpace(line), " ")
	return s, nil
}

// serve is the main function of a server. It listens at two addresses, of which
// the second is for questions about the process itself.
func serve(handler http.Handler, out io.Writer) error {
	if handler == nil {
		return errors.New("no such peer")
	}
	raiseFileLimit(1 << 16)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(control, http.HandlerFunc(answerControl))
	go http.Serve(listener, handler)
	fmt.Fprintln(out, listener.Addr(), control.Addr())
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// stats are what a server's runtime knows of it.
type stats struct {
	Goroutines int
}

func answerControl(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/collect" {
		collect()
	}
	json.NewEncoder(w).Encode(stats{runtime.NumGoroutine()})
}

// collect empties pools and gives back what is free.
func collect() {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
}

// stats asks the server about itself.
func (s *server) stats() (stats, error) { return s.ask("/") }

// collect makes the server give back what it can.
func (s *server) collect() error {
	_, err := s.ask("/collect")
	return err
}

func (s *server) ask(path string) (stats, error) {
	var st stats
	resp, err := http.Get("http://" + s.control + path)
	if err != nil {
		return st, err
	}
	defer resp.Body.Close()
	return st, json.NewDecoder(resp.Body).Decode(&st)
}

// An account is what a process has used, as the kernel has it.
type account struct {
	cpu    time.Duration
	writes int64 // system calls; -1 if they are not counted
}

func (p *process) account() (account, error) {
	cpu, err := cpuTime(p.pid())
	return account{cpu, writeCalls(p.pid())}, err
}

// cpuTime returns the CPU time of a process, in nanoseconds where the kernel
// has a clock for it and in ticks of 10 ms where it has not.
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err == nil {
		return time.Duration(t.Nano()), nil
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in parentheses. utime and stime are the 14th
	// and 15th.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("cannot read /proc/pid/stat")
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func writeCalls(pid int) int64 {
	n, err := procField(fmt.Sprintf("/proc/%d/io", pid), "syscw:")
	if err != nil {
		return -1
	}
	return n
}

// resident returns the bytes of memory of a process, and the most it ever had.
func (p *process) resident() (now, most int64, err error) {
	now, err = procField(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid()), "Rss:")
	if err != nil {
		now, err = procField(fmt.Sprintf("/proc/%d/status", p.pid()), "VmRSS:")
	}
	if err != nil {
		return 0, 0, err
	}
	most, err = procField(fmt.Sprintf("/proc/%d/status", p.pid()), "VmHWM:")
	return now << 10, most << 10, err
}

// resetPeak makes the most that a process ever had what it has now.
func (p *process) resetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid()), []byte("5"), 0)
}

// procField returns the number that follows a name in one of the kernel's files.
func procField(file, name string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// cores are the CPUs that servers and the load run on. If they are empty, both
// run wherever they like.
type cores struct{ server, load []int }

// splitCores gives one half of the CPUs to the servers and the other to the
// load. If they shared them, a request's rate would tell as much about the load
// as about the server.
func splitCores(pin bool) cores {
	var set unix.CPUSet
	if !pin || unix.SchedGetaffinity(0, &set) != nil || set.Count() < 2 {
		return cores{}
	}
	var all []int
	for cpu := 0; len(all) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	half := len(all) / 2
	return cores{server: all[half:], load: all[:half]}
}

// count is how many CPUs a server has.
func (c cores) count() int {
	if len(c.server) == 0 {
		return runtime.NumCPU()
	}
	return len(c.server)
}

// onCPUs calls f on a thread that runs on the given CPUs only.
func onCPUs(cpus []int, f func() error) error {
	if len(cpus) == 0 {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := confine(cpus); err != nil {
		return err
	}
	defer unix.SchedSetaffinity(0, &before)
	return f()
}

// confine makes the thread it is called on stay on the given CPUs.
func confine(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(0, &set)
}

// raiseFileLimit makes room for n open files, as far as it may, and returns how
// many there may be.
func raiseFileLimit(n uint64) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	if limit.Cur >= n {
		return int(limit.Cur)
	}
	for _, l := range []unix.Rlimit{{Cur: n, Max: max(n, limit.Max)}, {Cur: limit.Max, Max: limit.Max}} {
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &l) == nil {
			return int(l.Cur)
		}
	}
	return int(limit.Cur)
}
