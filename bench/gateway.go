package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

const (
	proxied = "ReverseProxy" // httputil's, with a transport that keeps its connections
	direct  = "direct"       // without a gateway
)

var gateways = []string{ours, proxied}

// newGateway returns a gateway to the server at addr, or nil if there is no
// such gateway.
func newGateway(name, addr string) http.Handler {
	switch name {
	case ours:
		b, err := upstream.New("http://"+addr+"/v1", &upstream.Options{Key: "sk-upstream"})
		if err != nil {
			return nil
		}
		keys := memory.Keys()
		keys.Add(secret, &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Requests: plenty, Tokens: plenty}})
		return llmhttp.NewHandler(b, keys, &llmhttp.Options{Usage: memory.NewUsageStore()})
	case proxied:
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
		proxy.Transport = &http.Transport{
			MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
		}
		return proxy
	}
	return nil
}

// What gateway measures of latency, in µs.
const (
	latencyMedian = "median_us"
	addedMedian   = "added_median_us"
)

// gateway measures what it costs to stand in front of another server.
func gateway(b *bench) error {
	for _, c := range []struct {
		name  string
		mode  mode
		body  []byte
		conns int
		note  string
	}{
		{"0.5 KB", modeWhole, chatBody(512, false), 64, "64 connections. "},
		{"1 MB", modeWhole, imageBody(1<<20, false), 8, "One image as a data: URL; 8 connections. "},
		{string(modePaced), modePaced, chatBody(512, true), 64, "64 connections; 100 chunks a millisecond apart. "},
		{string(modeReady), modeReady, chatBody(512, true), 64, "64 connections; the server has 100 chunks ready at once, and flushes each. "},
	} {
		if err := b.compareGateways(c.name, c.mode, c.body, c.conns, c.note); err != nil {
			return err
		}
	}
	return b.latencies()
}

// startUpstream starts the server that the gateways stand in front of. It has
// the CPUs of the load.
func (b *bench) startUpstream(m mode) (*server, error) {
	return startServer(b.cores.load, "serve", bare, string(m))
}

func (b *bench) startGateway(name string, up *server) (*server, error) {
	return startServer(b.cores.server, "gateway", name, up.addr)
}

func (b *bench) compareGateways(name string, m mode, body []byte, conns int, note string) error {
	up, err := b.startUpstream(m)
	if err != nil {
		return err
	}
	defer up.stop()
	c := &comparison{
		story: "gateway", name: name, mode: m, peers: gateways, body: body, conns: conns, window: time.Second,
		start:  func(peer string) (*server, error) { return b.startGateway(peer, up) },
		sleepy: true, // the server behind needs the CPU
	}
	if err := b.compare(c); err != nil {
		return err
	}
	t := &table{
		title: "gateway, " + name,
		head:  []string{"", "CPU µs an answer", "of ReverseProxy", "answers/s", "of ReverseProxy", "writes", "gateway busy"},
		note:  note + "llmhttp has keys, two limits and usage; ReverseProxy has none of that, and a transport that keeps its connections.",
	}
	for _, peer := range gateways {
		of := func(peer, metric string) series { return b.report.series(c.figure(peer, metric)) }
		f := func(metric string) series { return of(peer, metric) }
		t.row(peer, f(cpu).String(), f(cpu).over(of(proxied, cpu)).spread(), f(perSecond).String(),
			f(perSecond).over(of(proxied, perSecond)).spread(), f(writes).String(), percent(f(busy)))
	}
	b.report.print(t)
	return nil
}

// latencies measures how much later an answer comes through a gateway, at a
// rate that leaves everybody time, but no CPU time to sleep: to wake one takes
// a virtual machine longer than anything that is to be measured.
func (b *bench) latencies() error {
	b.say("gateway, latency")
	awake, err := b.keepAwake()
	if err != nil {
		return err
	}
	defer awake.stop()
	up, err := b.startUpstream(modeWhole)
	if err != nil {
		return err
	}
	defer up.stop()
	addrs := map[string]string{direct: up.addr}
	for _, peer := range gateways {
		s, err := b.startGateway(peer, up)
		if err != nil {
			return err
		}
		defer s.stop()
		addrs[peer] = s.addr
	}
	peers := append([]string{direct}, gateways...)
	request := httpRequest(chatBody(512, false))
	n := b.size(2000, 50)
	err = b.eachRound(b.rounds, peers, func(peer string) error {
		var took []time.Duration
		err := onCPUs(b.cores.load, func() (err error) {
			took, err = oneByOne(addrs[peer], request, n)
			return err
		})
		if err != nil {
			return err
		}
		b.report.add(figure{"gateway", "latency", peer, latencyMedian}, micros(middle(took)))
		return nil
	})
	if err != nil {
		return err
	}
	f := func(peer, metric string) series { return b.report.series(figure{"gateway", "latency", peer, metric}) }
	for _, peer := range gateways {
		for _, added := range f(peer, latencyMedian).minus(f(direct, latencyMedian)) {
			b.report.add(figure{"gateway", "latency", peer, addedMedian}, added)
		}
	}
	t := &table{
		title: "gateway, latency",
		head:  []string{"", "median, µs", "added, µs", "of ReverseProxy"},
		note:  fmt.Sprintf("Of a request of 0.5 KB that is answered whole, on one connection: %d requests, one after the other, in each round, on CPUs that do not sleep.", n),
	}
	for _, peer := range peers {
		t.row(peer, f(peer, latencyMedian).String(), f(peer, addedMedian).String(), f(peer, addedMedian).over(f(proxied, addedMedian)).spread())
	}
	b.report.print(t)
	return nil
}

// oneByOne sends n requests, each when the last is answered, and returns how
// long each took. It is to be called on a thread of its own, which waits for
// the answers itself.
func oneByOne(addr string, request []byte, n int) ([]time.Duration, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	fd := int(file.Fd()) // whose calls block
	timeout := unix.NsecToTimeval(int64(answerTimeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10)
	took := make([]time.Duration, 0, n)
	var a answer
	for range n {
		began := time.Now()
		if _, err := unix.Write(fd, request); err != nil {
			return nil, err
		}
		for done := false; !done; {
			read, err := unix.Read(fd, buf)
			switch {
			case err == unix.EINTR:
				continue
			case err != nil:
				return nil, err
			case read == 0:
				return nil, io.ErrUnexpectedEOF
			}
			if done, err = a.add(buf[:read]); err != nil {
				return nil, err
			}
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
