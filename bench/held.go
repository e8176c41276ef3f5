package main

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What is measured of an idle stream.
const (
	settledBytes = "resident_bytes"          // after the collector has run
	freshBytes   = "resident_allocatedfresh" // as it is when the last stream was opened
	goroutines   = "goroutines"
)

// held measures streams that have begun and are silent.
func held(b *bench) error {
	want := b.size(10_000, 50)
	n := min(want, raiseFileLimit(uint64(want)+1000)-1000)
	if n < want {
		b.say("held: only %d streams, as there may be no more open files", n)
	}
	peers := []string{bare, headed, ours}
	rounds := min(b.rounds, 3)
	t := &table{
		title: fmt.Sprintf("held: %s idle streams", count(n)),
		head:  []string{"request", "", "resident KB a stream", "of bare", "before a collection", "of bare", "goroutines a stream"},
		note: fmt.Sprintf("What the server's resident memory grew by for each stream that had its first chunk and no other, over %d rounds, each in a new process. "+
			"The kernel's own memory for the sockets is not in it. headed is bare with the headers of llmhttp.", rounds),
	}
	for _, size := range []struct {
		name string
		body []byte
	}{{"0.5 KB", chatBody(512, true)}, {"128 KB", imageBody(128<<10, true)}} {
		b.say("held, after requests of %s", size.name)
		err := b.eachRound(rounds, peers, func(peer string) error {
			return b.holdStreams(figure{"held", size.name, peer, ""}, n, size.body)
		})
		if err != nil {
			return err
		}
		for _, peer := range peers {
			of := func(peer, metric string) series { return b.report.series(figure{"held", size.name, peer, metric}) }
			f := func(metric string) series { return of(peer, metric) }
			t.row(size.name, peer,
				f(settledBytes).times(1.0/1024).String(), f(settledBytes).over(of(bare, settledBytes)).spread(),
				f(freshBytes).times(1.0/1024).String(), f(freshBytes).over(of(bare, freshBytes)).spread(),
				f(goroutines).String())
		}
	}
	b.report.print(t)
	return nil
}

// holdStreams opens n streams to a new server and weighs it.
func (b *bench) holdStreams(f figure, n int, body []byte) error {
	s, err := b.startServer(f.Subject, modeHeld)
	if err != nil {
		return err
	}
	defer s.stop()
	request := httpRequest(body)
	weigh := func() (resident int64, st stats, err error) {
		if st, err = s.stats(); err == nil {
			resident, _, err = s.resident()
		}
		return resident, st, err
	}
	warm, err := openStreams(s.addr, request, 1)
	defer closeAll(warm)
	if err != nil {
		return err
	}
	if err := s.collect(); err != nil {
		return err
	}
	before, statsBefore, err := weigh()
	if err != nil {
		return err
	}
	open, err := openStreams(s.addr, request, n)
	defer closeAll(open)
	if err != nil {
		return err
	}
	fresh, statsAfter, err := weigh()
	if err != nil {
		return err
	}
	if err := s.collect(); err != nil {
		return err
	}
	settled, _, err := weigh()
	if err != nil {
		return err
	}
	add := func(metric string, v float64) {
		f.Metric = metric
		b.report.add(f, v/float64(n))
	}
	add(settledBytes, float64(settled-before))
	add(freshBytes, float64(fresh-before))
	add(goroutines, float64(statsAfter.Goroutines-statsBefore.Goroutines))
	return nil
}

// openStreams opens n streams and waits until each has had its first event. It
// returns what is open even if it fails.
func openStreams(addr string, request []byte, n int) ([]int, error) {
	const workers = 32
	fds := make([]int, n)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range min(workers, n) {
		all.Go(func() {
			buf := make([]byte, 4<<10)
			for i := w; i < n; i += workers {
				if errs[w] == nil {
					fds[i], errs[w] = openStream(addr, request, buf)
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return fds, err
		}
	}
	return fds, nil
}

// openStream opens one stream.
func openStream(addr string, request, buf []byte) (fd int, err error) {
	if fd, err = dial(addr); err != nil {
		return 0, err
	}
	patience := unix.NsecToTimeval(int64(answerTimeout / time.Nanosecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return fd, err
	}
	for len(request) > 0 {
		sent, err := unix.Write(fd, request)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fd, fmt.Errorf("send: %w", err)
		}
		request = request[sent:]
	}
	var head []byte
	for !bytes.Contains(head, []byte(`"content":"`+word(0)+`"`)) {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fd, fmt.Errorf("receive: %w", err)
		}
		if n == 0 || len(head) > 1<<16 {
			return fd, fmt.Errorf("no stream: %.500s", head)
		}
		head = append(head, buf[:n]...)
	}
	return fd, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd > 0 {
			unix.Close(fd)
		}
	}
}
