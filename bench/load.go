package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A loadCase measures several contenders under the load of wrk.
type loadCase struct {
	name     string
	mode     mode               // of the contenders, or of the server behind gateways
	requests map[string]request // by contender; one with another wire format needs another request
	conns    int
	window   time.Duration // of one measurement, in whole seconds
	gateway  bool          // the contenders are gateways to a bare server
}

func (c *loadCase) loadCPU() int {
	if c.gateway {
		return otherCPU
	}
	return serverCPU
}

// sendAll returns the requests of a case that sends r to all contenders.
func sendAll(r request, contenders ...string) map[string]request {
	m := make(map[string]request)
	for _, c := range contenders {
		m[c] = r
	}
	return m
}

func runWhole(b *bench) {
	small, large := chatRequest(512, false), chatRequest(8<<10, false)
	b.runLoadCases(
		loadCase{name: "Whole/size=0.5KB", mode: modeWhole, requests: sendAll(small, ours, bare, bareWithHeaders, std), conns: 64, window: time.Second},
		loadCase{name: "Whole/size=8KB", mode: modeWhole, requests: sendAll(large, ours, std), conns: 64, window: time.Second},
	)
}

func runTelemetry(b *bench) {
	b.runLoadCases(loadCase{name: "Telemetry/size=0.5KB", mode: modeWhole, requests: sendAll(chatRequest(512, false), ours, traced), conns: 64, window: time.Second})
}

func runStreams(b *bench) {
	requests := sendAll(chatRequest(512, true), ours, bare)
	requests[messagesAPI] = messagesRequest(chatRequest(512, true))
	requests[responsesAPI] = responsesRequest(chatRequest(512, true))
	b.runLoadCases(
		loadCase{name: "Stream/chunks=paced", mode: modePaced, requests: requests, conns: 64, window: 2 * time.Second},
		loadCase{name: "Stream/chunks=ready", mode: modeReady, requests: requests, conns: 64, window: time.Second},
	)
}

func runGateways(b *bench) {
	whole, image := chatRequest(512, false), imageRequest(1<<20)
	streams := sendAll(chatRequest(512, true), ours, proxy)
	b.runLoadCases(
		loadCase{name: "Gateway/size=0.5KB", mode: modeWhole, requests: sendAll(whole, ours, proxy), conns: 64, window: time.Second, gateway: true},
		loadCase{name: "Gateway/size=1MB", mode: modeWhole, requests: sendAll(image, ours, proxy), conns: 8, window: 2 * time.Second, gateway: true},
		loadCase{name: "Gateway/chunks=paced", mode: modePaced, requests: streams, conns: 64, window: 2 * time.Second, gateway: true},
		loadCase{name: "Gateway/chunks=ready", mode: modeReady, requests: streams, conns: 64, window: time.Second, gateway: true},
		loadCase{name: "Gateway/connections=1", mode: modeWhole, requests: sendAll(whole, ours, proxy, bare), conns: 1, window: time.Second, gateway: true},
	)
}

func (b *bench) runLoadCases(cases ...loadCase) {
	for _, c := range cases {
		if b.short {
			c.conns, c.window = min(c.conns, 2), time.Second
		}
		if err := b.runLoadCase(c); err != nil && b.err == nil {
			b.err = fmt.Errorf("%s: %w", c.name, err)
		}
	}
}

func (b *bench) runLoadCase(c loadCase) error {
	upstreamAddr := ""
	if c.gateway {
		s, err := startServer(otherCPU, bare, c.mode, "")
		if err != nil {
			return err
		}
		defer s.stop()
		upstreamAddr = s.addr
	}
	var ms []measurement
	for _, contender := range slices.Sorted(maps.Keys(c.requests)) {
		ms = append(ms, measurement{contender, func() (values, error) { return b.measureLoad(c, contender, upstreamAddr) }})
	}
	b.measureCase(c.name, b.rounds, ms...)
	return nil
}

// measureLoad measures a contender in a new process. Where the memory of a process lies
// changes its CPU time, and stays the same while it runs.
func (b *bench) measureLoad(c loadCase, contender, upstreamAddr string) (values, error) {
	s, err := startServer(serverCPU, contender, c.mode, upstreamAddr)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if err := verify(s.addr, c.requests[contender], c.mode); err != nil {
		return nil, err
	}
	if !b.short { // warm up
		if _, err := b.generateLoad(c.loadCPU(), s.addr, c.requests[contender], c.conns, time.Second); err != nil {
			return nil, err
		}
	}
	var load loadSummary
	used, err := s.measure(false, func() (err error) {
		load, err = b.generateLoad(c.loadCPU(), s.addr, c.requests[contender], c.conns, c.window)
		return err
	})
	if err != nil {
		return nil, err
	}
	return values{unitCPU: used.CPU.Seconds() / load.requests, unitLatency: load.p50 / 1e6}, nil
}

// runBursts counts the chunks that the Handler delays. The model yields chunks in bursts.
// A chunk is late if it reaches the client after half of the pause between two bursts.
func runBursts(b *bench) {
	b.measureCase("Stream/chunks=bursts", b.rounds, measurement{ours, func() (values, error) {
		s, err := startServer(serverCPU, ours, modeBursts, "")
		if err != nil {
			return nil, err
		}
		defer s.stop()
		late, err := countLate(s.addr)
		return values{unitLate: late}, err
	}})
}

// countLate receives a stream and returns how many chunks were late.
func countLate(addr string) (late float64, err error) {
	resp, err := http.DefaultClient.Do(chatRequest(512, true).http(addr))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	chunks := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		match := contentText.FindSubmatch(lines.Bytes())
		if match == nil || len(match[1]) == 0 {
			continue // an empty line, or an event without text
		}
		var yielded int64
		if _, err := fmt.Sscan(string(match[1]), &yielded); err != nil {
			return 0, err
		}
		if time.Since(time.Unix(0, yielded)) > burstPause/2 {
			late++
		}
		chunks++
	}
	if chunks != chunkCount {
		err = fmt.Errorf("%d of %d chunks: %s", chunks, chunkCount, resp.Status)
	}
	return late, err
}

// contentText matches a text in a reply or in an event of a stream.
var contentText = regexp.MustCompile(`"(?:content|delta|text_delta","text)":"((?:[^"\\]|\\.)*)"`)

// verify checks that the server at addr answers r with the text of its model.
func verify(addr string, r request, m mode) error {
	resp, err := http.DefaultClient.Do(r.http(addr))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	text := ""
	for _, match := range contentText.FindAllSubmatch(body, -1) {
		text += string(match[1])
	}
	want := strings.Join(slices.Collect(m.texts(resp.Request.Context())), "")
	if resp.StatusCode != http.StatusOK || text != want {
		return fmt.Errorf("wrong reply: %s\n%.1000s", resp.Status, body)
	}
	return nil
}

//go:embed load.lua
var loadScript []byte

// A loadSummary is the outcome of one run of wrk. The median latency p50 is in
// microseconds.
type loadSummary struct{ requests, p50, errors float64 }

// generateLoad runs wrk, which sends r to the server at addr for a window of whole
// seconds. It uses conns connections with one request at a time.
func (b *bench) generateLoad(cpu int, addr string, r request, conns int, window time.Duration) (s loadSummary, err error) {
	script := filepath.Join(b.dir, "load.lua")
	if err := os.WriteFile(script, loadScript, 0o600); err != nil {
		return s, err
	}
	cmd := pinned(cpu, "wrk", "--threads", "1", "--connections", strconv.Itoa(conns), "--duration", strconv.Itoa(int(window.Seconds())),
		"--timeout", "10s", "--script", script, "http://"+addr+r.path, "--", secret)
	cmd.Stdin = bytes.NewReader(r.body)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return s, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	_, line, _ := strings.Cut(string(out), "FIGURES ")
	if _, err := fmt.Sscan(line, &s.requests, &s.p50, &s.errors); err != nil || s.errors > 0 {
		return s, fmt.Errorf("wrk: %v replies, %v errors\n%s", s.requests, s.errors, out)
	}
	if s.requests == 0 { // on a busy machine a stream can take longer than the window
		return b.generateLoad(cpu, addr, r, conns, 2*window)
	}
	return s, nil
}
