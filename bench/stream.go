package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"
)

// stream measures streams of chunkCount chunks.
func stream(b *bench) error {
	for _, c := range []struct {
		mode mode
		note string
	}{
		{modeTurns, "After each chunk it is the turn of the other 63 streams, so that a stream's chunks come one by one and each is flushed: see the writes. " +
			"Nothing waits, so that the server is busy. One write more than flushes is the end of the chunked body."},
		{modePaced, "A millisecond lies between the chunks, which includes its timer. Streams a second are bounded by that."},
		{modeReady, "All chunks are ready at once. llmhttp writes together what is ready; the others flush each chunk."},
	} {
		if err := b.compareStreams(c.mode, c.note); err != nil {
			return err
		}
	}
	return delays(b)
}

func streamComparison(m mode) *comparison {
	return &comparison{
		story: "stream", name: string(m), mode: m, peers: mainPeers,
		body: chatBody(512, true), conns: 64, window: 500 * time.Millisecond,
	}
}

func (b *bench) compareStreams(m mode, note string) error {
	c := streamComparison(m)
	if err := b.compare(c); err != nil {
		return err
	}
	t := &table{
		title: fmt.Sprintf("stream, %s: %d chunks", m, chunkCount),
		head:  []string{"", "CPU µs a stream", "of bare", "CPU µs a chunk", "streams/s", "chunks/s", "of bare", "of std", "writes", "server busy"},
		note:  "64 connections. " + note,
	}
	for _, peer := range mainPeers {
		of := func(peer, metric string) series { return b.report.series(c.figure(peer, metric)) }
		f := func(metric string) series { return of(peer, metric) }
		t.row(peer, f(cpu).String(), f(cpu).over(of(bare, cpu)).spread(), f(cpu).times(1.0/chunkCount).String(),
			f(perSecond).String(), f(perSecond).times(chunkCount).String(),
			f(perSecond).over(of(bare, perSecond)).spread(), f(perSecond).over(of(std, perSecond)).spread(), f(writes).String(), percent(f(busy)))
	}
	b.report.print(t)
	return nil
}

// What delays measures: how long after it was yielded a chunk reaches the
// client, in µs.
const (
	firstMedian = "first_median_us"
	firstWorst  = "first_worst_us"
	lastMedian  = "last_median_us"
	lastWorst   = "last_worst_us"
	heldBack    = "held_back" // chunks that came when half of the pause after them was over
)

// delays measures whether batching keeps anything back: a Backend yields some
// chunks at once and then pauses.
func delays(b *bench) error {
	b.say("stream, delays")
	peers := []string{bare, ours}
	bursts := b.size(40, 3)
	err := b.eachRound(min(b.rounds, 3), peers, func(peer string) error {
		s, err := b.startServer(peer, modeBursts)
		if err != nil {
			return err
		}
		defer s.stop()
		got, err := receiveBursts(s.addr, bursts)
		if err != nil {
			return err
		}
		var first, last []time.Duration
		late := 0
		for _, burst := range got {
			first, last = append(first, burst[0]), append(last, burst[burstChunks-1])
			for _, d := range burst {
				if d > burstPause/2 {
					late++
				}
			}
		}
		add := func(metric string, v float64) { b.report.add(figure{"stream", "delay", peer, metric}, v) }
		add(firstMedian, micros(middle(first)))
		add(firstWorst, micros(slices.Max(first)))
		add(lastMedian, micros(middle(last)))
		add(lastWorst, micros(slices.Max(last)))
		add(heldBack, float64(late))
		return nil
	})
	if err != nil {
		return err
	}
	t := &table{
		title: "stream, delay of a chunk",
		head:  []string{"", "first of a burst, µs", "worst", "last of a burst, µs", "worst", "held back"},
		note: fmt.Sprintf("From where the Backend yields it to where the client has read it, on one connection of an idle machine: %d bursts of %d chunks, %v apart, in each of %d rounds. "+
			"Held back are chunks that had not come when half of the pause was over.", bursts, burstChunks, burstPause, min(b.rounds, 3)),
	}
	for _, peer := range peers {
		f := func(metric string) string { return b.report.series(figure{"stream", "delay", peer, metric}).String() }
		t.row(peer, f(firstMedian), f(firstWorst), f(lastMedian), f(lastWorst), f(heldBack))
	}
	b.report.print(t)
	return nil
}

func middle(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// receiveBursts opens a stream of stamped chunks and returns how late the
// chunks of n bursts were. The first burst, with which the stream begins, does
// not count.
func receiveBursts(addr string, n int) ([][]time.Duration, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write(httpRequest(chatBody(512, true))); err != nil {
		return nil, err
	}
	conn.SetReadDeadline(time.Now().Add(answerTimeout))
	var bursts [][]time.Duration
	var burst []time.Duration
	var pending []byte
	buf := make([]byte, 64<<10)
	for {
		read, err := conn.Read(buf)
		now := time.Now().UnixNano()
		if err != nil {
			return nil, err
		}
		pending = append(pending, buf[:read]...)
		for {
			line, rest, ok := bytes.Cut(pending, []byte("\n"))
			if !ok {
				break
			}
			pending = rest
			_, after, ok := bytes.Cut(line, []byte(`"content":"`))
			if !ok {
				continue
			}
			digits, _, _ := bytes.Cut(after, []byte(`"`))
			if len(digits) == 0 {
				continue // what announces the role
			}
			made, err := strconv.ParseInt(string(digits), 10, 64)
			if err != nil {
				return nil, err
			}
			burst = append(burst, time.Duration(now-made))
			if len(burst) < burstChunks {
				continue
			}
			bursts = append(bursts, burst)
			burst = nil
			if len(bursts) > n {
				return bursts[1:], nil
			}
		}
		if len(pending) > 1<<20 {
			return nil, errors.New("no lines in a stream")
		}
	}
}
