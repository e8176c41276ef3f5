package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// answerTimeout is how long a server may leave all connections unanswered.
const answerTimeout = 30 * time.Second

// A load sends a request on each of its connections, again and again: the next
// one as soon as an answer has come. It speaks just enough HTTP/1.1 to know
// where an answer ends, and waits with epoll, so that little of the machine is
// spent on it.
type load struct {
	loops  []*loop
	sleepy bool // wait in the kernel, where others need the CPU
}

// newLoad connects to addr. The connections are shared among as many threads as
// there are CPUs for the load.
func newLoad(addr string, request []byte, conns int, cpus []int) (*load, error) {
	l := &load{}
	for i := range max(min(len(cpus), conns), 1) {
		lp, err := newLoop(request, cpus)
		if err != nil {
			l.close()
			return nil, err
		}
		l.loops = append(l.loops, lp)
		share := conns / max(len(cpus), 1)
		if i < conns%max(len(cpus), 1) {
			share++
		}
		for range share {
			if err := lp.connect(addr); err != nil {
				l.close()
				return nil, err
			}
		}
	}
	return l, nil
}

// run sends requests for d and then waits for the answers that are missing. It
// returns how many answers came.
func (l *load) run(d time.Duration) (answers int, elapsed time.Duration, err error) {
	began := time.Now()
	var all sync.WaitGroup
	counts := make([]int, len(l.loops))
	errs := make([]error, len(l.loops))
	for i, lp := range l.loops {
		all.Go(func() { counts[i], errs[i] = lp.run(began.Add(d), l.sleepy) })
	}
	all.Wait()
	for _, n := range counts {
		answers += n
	}
	return answers, time.Since(began), errors.Join(errs...)
}

func (l *load) close() {
	for _, lp := range l.loops {
		lp.close()
	}
}

// A loop is the part of a load that one thread drives.
type loop struct {
	cpus    []int
	request []byte
	epoll   int
	conns   []*conn
	byFD    map[int32]*conn
	buf     []byte
}

type conn struct {
	fd      int
	sent    int  // of the request
	blocked bool // waits until more can be sent
	answer  answer
}

func newLoop(request []byte, cpus []int) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &loop{cpus: cpus, request: request, epoll: epoll, byFD: make(map[int32]*conn), buf: make([]byte, 64<<10)}, nil
}

func (l *loop) connect(addr string) error {
	fd, err := dial(addr)
	if err != nil {
		return err
	}
	c := &conn{fd: fd}
	l.conns = append(l.conns, c)
	l.byFD[int32(fd)] = c
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	return l.watch(unix.EPOLL_CTL_ADD, c)
}

// dial returns a connected socket, which must be on this machine.
func dial(addr string) (int, error) {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return -1, err
	}
	if !a.Addr().Is4() || !a.Addr().IsLoopback() {
		return -1, fmt.Errorf("%s is not on this machine", addr)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}); err != nil {
		unix.Close(fd)
		return -1, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return fd, errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		// A connection that is closed leaves nothing behind.
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
	)
}

func (l *loop) watch(op int, c *conn) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)}
	if c.blocked {
		e.Events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(l.epoll, op, c.fd, &e)
}

// run is what a load's run is, for one thread. The thread ends with it.
func (l *loop) run(until time.Time, sleepy bool) (answers int, err error) {
	if len(l.cpus) > 0 {
		runtime.LockOSThread() // and never unlock, so that the thread is not used again
		if err := confine(l.cpus); err != nil {
			return 0, err
		}
	}
	waiting := len(l.conns)
	for _, c := range l.conns {
		c.sent = 0
		if err := l.send(c); err != nil {
			return answers, err
		}
	}
	var events [64]unix.EpollEvent
	for waiting > 0 {
		n, err := l.wait(events[:], sleepy || len(l.cpus) == 0)
		if err != nil {
			return answers, err
		}
		over := !time.Now().Before(until)
		for _, e := range events[:n] {
			c := l.byFD[e.Fd]
			if c.blocked {
				if err := l.send(c); err != nil {
					return answers, err
				}
			}
			done, err := l.receive(c)
			if err != nil {
				return answers, err
			}
			if !done {
				continue
			}
			answers++
			if over {
				waiting--
				continue
			}
			c.sent = 0
			if err := l.send(c); err != nil {
				return answers, err
			}
		}
	}
	return answers, nil
}

// wait waits for events. A thread that has CPUs of its own does not sleep: a
// server would have to wake it, and a slower one more often, as that one's
// answers come further apart.
func (l *loop) wait(events []unix.EpollEvent, sleepy bool) (int, error) {
	timeout := 0
	if sleepy {
		timeout = int(answerTimeout.Milliseconds())
	}
	began := time.Now()
	for {
		n, err := unix.EpollWait(l.epoll, events, timeout)
		switch {
		case err == unix.EINTR:
		case err != nil || n > 0:
			return n, err
		case time.Since(began) >= answerTimeout:
			return 0, fmt.Errorf("no answer within %v", answerTimeout)
		}
	}
}

// send sends what is left of the request, as far as that goes.
func (l *loop) send(c *conn) error {
	for c.sent < len(l.request) {
		n, err := unix.Write(c.fd, l.request[c.sent:])
		if err == unix.EAGAIN {
			return l.block(c, true)
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		c.sent += n
	}
	return l.block(c, false)
}

func (l *loop) block(c *conn, blocked bool) error {
	if c.blocked == blocked {
		return nil
	}
	c.blocked = blocked
	return l.watch(unix.EPOLL_CTL_MOD, c)
}

// receive reads what has come and reports whether the answer is whole.
func (l *loop) receive(c *conn) (done bool, err error) {
	n, err := unix.Read(c.fd, l.buf)
	switch {
	case err == unix.EAGAIN:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("receive: %w", err)
	case n == 0:
		return false, errors.New("the server closed a connection")
	}
	return c.answer.add(l.buf[:n])
}

func (l *loop) close() {
	for _, c := range l.conns {
		unix.Close(c.fd)
	}
	unix.Close(l.epoll)
}

// An answer is an HTTP/1.1 response as far as it has come.
type answer struct {
	head []byte // until it is whole
	open bool   // the head is whole
	left int    // of a body whose length is known; -1 if it is chunked
	tail []byte // the last bytes of a chunked body
}

// lastChunk ends a chunked body.
const lastChunk = "\r\n0\r\n\r\n"

// add adds what has come and reports whether the answer is whole. What follows
// is the next one.
func (a *answer) add(p []byte) (done bool, err error) {
	if !a.open {
		a.head = append(a.head, p...)
		end := bytes.Index(a.head, []byte("\r\n\r\n"))
		if end < 0 {
			return false, nil
		}
		head := a.head[:end+2]
		if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
			return false, fmt.Errorf("refused: %.500s", a.head)
		}
		if a.left, err = bodyLength(head); err != nil {
			return false, err
		}
		a.open = true
		p = a.head[end+4:]
		a.head = a.head[:0]
	}
	if a.left >= 0 {
		a.left -= len(p)
		if a.left < 0 {
			return false, errors.New("an answer is longer than it says")
		}
		done = a.left == 0
	} else {
		if len(p) >= len(lastChunk) {
			a.tail = append(a.tail[:0], p[len(p)-len(lastChunk):]...)
		} else {
			a.tail = append(a.tail, p...)
			a.tail = a.tail[max(len(a.tail)-len(lastChunk), 0):]
		}
		done = string(a.tail) == lastChunk
	}
	if done {
		a.open, a.tail = false, a.tail[:0]
	}
	return done, nil
}

// bodyLength returns the length that a response's head gives, or -1 if the body
// is chunked.
func bodyLength(head []byte) (int, error) {
	if _, after, ok := bytes.Cut(head, []byte("\r\nContent-Length: ")); ok {
		digits, _, _ := bytes.Cut(after, []byte("\r\n"))
		return strconv.Atoi(string(digits))
	}
	if bytes.Contains(head, []byte("\r\nTransfer-Encoding: chunked\r\n")) {
		return -1, nil
	}
	return 0, fmt.Errorf("an answer without a length: %.500s", head)
}
