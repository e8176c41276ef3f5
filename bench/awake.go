package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// keepAwake keeps the CPUs from sleeping until the process that it returns is
// stopped. What does so gives way to everybody else at once: the kernel lets it
// run only where a CPU would be idle.
func (b *bench) keepAwake() (*process, error) {
	p, err := spawn(nil, "awake")
	if err != nil {
		return nil, err
	}
	if _, err := p.out.ReadString('\n'); err != nil {
		p.stop()
		return nil, fmt.Errorf("the CPUs cannot be kept awake: %w", err)
	}
	return p, nil
}

// stayAwake is the main function of that process.
func stayAwake(out io.Writer) error {
	all := splitCores(true)
	cpus := append(all.server, all.load...)
	ready := make(chan error)
	for _, cpu := range cpus {
		go func() {
			runtime.LockOSThread()
			err := confine([]int{cpu})
			if err == nil {
				err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
			}
			ready <- err
			// Until the process is stopped it only reads the clock, which asks
			// nothing of the kernel.
			for began := time.Now(); err == nil && time.Since(began) >= 0; {
			}
		}()
	}
	for range cpus {
		if err := <-ready; err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "awake")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
