//go:build unix

package servertest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// A process is the main process of a server.
type process struct {
	*os.Process
	exited chan struct{} // closed when it has exited
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd.Process, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// signalAll sends sig to the process and to its children.
func (p *process) signalAll(sig syscall.Signal) {
	_ = p.Signal(sig)
	for _, pid := range childrenOf(p.Pid) {
		_ = syscall.Kill(pid, sig)
	}
}

// killAll ends the process and its children with SIGKILL, and waits until they
// have ended.
func (p *process) killAll() {
	_ = p.Signal(syscall.SIGSTOP) // a stopped process starts no further children
	children := childrenOf(p.Pid)
	_ = p.Kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.exited
	// PostgreSQL does not start while children of its previous process run.
	for _, pid := range children {
		for isRunning(pid) {
			time.Sleep(time.Millisecond)
		}
	}
}

// childrenOf returns the process IDs of the children of pid. It works on Linux. On other systems it
// returns none; there the children of a server end when they notice that their parent has ended.
func childrenOf(pid int) (children []int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	for _, field := range bytes.Fields(b) {
		if child, err := strconv.Atoi(string(field)); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// isRunning reports whether the process pid exists and is not a zombie. It works on Linux. On other
// systems it returns false.
func isRunning(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := bytes.Cut(b, []byte(") ")) // the name of the program is in parentheses
	return err == nil && !bytes.HasPrefix(state, []byte("Z")) && !bytes.HasPrefix(state, []byte("X"))
}

// A reaper is a process that kills a server and removes its directory when this process ends for
// any reason.
type reaper struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// The script reads the process IDs from setProcess until this process ends.
const reaperScript = `
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

func startReaper(dir string) (*reaper, error) {
	cmd := exec.Command("/bin/sh", "-c", reaperScript, "reaper", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &reaper{cmd, pipe}, cmd.Start()
}

// setProcess sets the process to kill. Zero means none.
func (r *reaper) setProcess(pid int) { fmt.Fprintln(r.pipe, pid) }

// close waits until the reaper has removed the directory.
func (r *reaper) close() {
	r.pipe.Close()
	_ = r.cmd.Wait()
}
