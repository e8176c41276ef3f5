package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
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
	name    string
	mode    mode // of the contenders, or of the server behind gateways
	request request
	conns   int
	window  time.Duration // of one measurement, in whole seconds
	gateway bool          // the contenders are gateways to a bare server
}

func runWhole(b *bench) {
	small, large := chatRequest(512, false), chatRequest(8<<10, false)
	b.runLoadCase(loadCase{name: "Whole/size=0.5KB", mode: modeWhole, request: small, conns: 64, window: time.Second}, ours, bare, bareWithHeaders, std)
	b.runLoadCase(loadCase{name: "Whole/size=8KB", mode: modeWhole, request: large, conns: 64, window: time.Second}, ours, std)
}

func runTelemetry(b *bench) {
	r := chatRequest(512, false)
	b.runLoadCase(loadCase{name: "Telemetry/size=0.5KB", mode: modeWhole, request: r, conns: 64, window: time.Second}, ours, traced)
}

func runStreams(b *bench) {
	r := chatRequest(512, true)
	b.runLoadCase(loadCase{name: "Stream/chunks=paced", mode: modePaced, request: r, conns: 64, window: 2 * time.Second}, ours, bare, messagesAPI, responsesAPI)
	b.runLoadCase(loadCase{name: "Stream/chunks=ready", mode: modeReady, request: r, conns: 64, window: time.Second}, ours, bare, messagesAPI, responsesAPI)
}

func runGateways(b *bench) {
	whole, image, stream := chatRequest(512, false), imageRequest(1<<20), chatRequest(512, true)
	b.runLoadCase(loadCase{name: "Gateway/size=0.5KB", mode: modeWhole, request: whole, conns: 64, window: time.Second, gateway: true}, ours, proxy)
	b.runLoadCase(loadCase{name: "Gateway/size=1MB", mode: modeWhole, request: image, conns: 8, window: 2 * time.Second, gateway: true}, ours, proxy)
	b.runLoadCase(loadCase{name: "Gateway/chunks=paced", mode: modePaced, request: stream, conns: 64, window: 2 * time.Second, gateway: true}, ours, proxy)
	b.runLoadCase(loadCase{name: "Gateway/chunks=ready", mode: modeReady, request: stream, conns: 64, window: time.Second, gateway: true}, ours, proxy)
	b.runLoadCase(loadCase{name: "Gateway/connections=1", mode: modeWhole, request: whole, conns: 1, window: time.Second, gateway: true}, ours, proxy, bare)
}

func (b *bench) runLoadCase(c loadCase, contenders ...string) {
	if b.short {
		c.conns, c.window = min(c.conns, 2), time.Second
	}
	var ms []measurement
	for _, contender := range contenders {
		ms = append(ms, measurement{contender, func() (values, error) { return b.measureLoad(c, contender) }})
	}
	b.measureCase(c.name, b.rounds, ms...)
}

// measureLoad measures a contender in a new process. Where the memory of a process lies
// changes its CPU time, and stays the same while it runs.
func (b *bench) measureLoad(c loadCase, contender string) (values, error) {
	loadCPU, upstreamAddr := serverCPU, ""
	if c.gateway {
		s, err := startServer(otherCPU, bare, c.mode, "")
		if err != nil {
			return nil, err
		}
		defer s.stop()
		loadCPU, upstreamAddr = otherCPU, s.addr
	}
	s, err := startServer(serverCPU, contender, c.mode, upstreamAddr)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	r := c.request.forAPI(contender)
	if err := verify(s.addr, r, c.mode); err != nil {
		return nil, err
	}
	if !b.short { // warm up
		if _, _, err := b.generateLoad(loadCPU, s.addr, r, c.conns, time.Second); err != nil {
			return nil, err
		}
	}
	var requests, latency float64
	used, err := s.measure(false, func() (err error) {
		requests, latency, err = b.generateLoad(loadCPU, s.addr, r, c.conns, c.window)
		return err
	})
	return values{unitCPU: used.CPU.Seconds() / requests, unitLatency: latency}, err
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
		chunks, late := 0, 0.0
		err = receive(s.addr, chatRequest(512, true), func(text string) {
			yielded, _ := strconv.ParseInt(text, 10, 64) // a text that is not a time is late
			if time.Since(time.Unix(0, yielded)) > burstPause/2 {
				late++
			}
			chunks++
		})
		if err == nil && chunks != chunkCount {
			err = fmt.Errorf("%d of %d chunks", chunks, chunkCount)
		}
		return values{unitLate: late}, err
	}})
}

// verify checks that the server at addr answers r with the text of its model.
func verify(addr string, r request, m mode) error {
	want := strings.Join(slices.Collect(m.texts(context.Background())), "")
	got := ""
	err := receive(addr, r, func(text string) { got += text })
	if err == nil && got != want {
		err = fmt.Errorf("wrong text: %q", got)
	}
	return err
}

// contentText matches a text in a whole reply or in an event of a stream.
var contentText = regexp.MustCompile(`"(?:content|delta|text_delta","text)":"((?:[^"\\]|\\.)+)"`)

// receive sends r to the server at addr and calls each for every text of the reply,
// as soon as the text arrives.
func receive(addr string, r request, each func(text string)) error {
	resp, err := http.DefaultClient.Do(r.http(addr))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if match := contentText.FindSubmatch(lines.Bytes()); match != nil {
			each(string(match[1]))
		}
	}
	return lines.Err()
}

//go:embed load.lua
var loadScript []byte

// generateLoad runs wrk, which sends r to the server at addr for a window of whole
// seconds. It uses conns connections with one request at a time. It returns the number
// of requests and the median latency in seconds.
func (b *bench) generateLoad(cpu int, addr string, r request, conns int, window time.Duration) (requests, latency float64, err error) {
	script := filepath.Join(b.dir, "load.lua")
	if err := os.WriteFile(script, loadScript, 0o600); err != nil {
		return 0, 0, err
	}
	cmd := pinned(cpu, "wrk", "--threads", "1", "--connections", fmt.Sprint(conns), "--duration", fmt.Sprint(window.Seconds()),
		"--timeout", "10s", "--script", script, "http://"+addr+r.path, "--", secret)
	cmd.Stdin = bytes.NewReader(r.body)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	_, line, _ := strings.Cut(string(out), "FIGURES ")
	failed := 0
	if _, err := fmt.Sscan(line, &requests, &latency, &failed); err != nil || failed > 0 {
		return 0, 0, fmt.Errorf("wrk: %v replies, %v errors\n%s", requests, failed, out)
	}
	if requests == 0 { // on a busy machine a stream can take longer than the window
		return b.generateLoad(cpu, addr, r, conns, 2*window)
	}
	return requests, latency / 1e6, nil
}
