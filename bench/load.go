package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A loadCase measures several contenders under the load of wrk.
type loadCase struct {
	name    string
	mode    mode // of the contenders, or of the server behind gateways
	request request
	conns   int
	gateway bool          // the contenders are gateways to a bare server
	warmUp  time.Duration // of each server
}

// runWhole warms servers up until the usage store of llmhttp has its full size, as a host's has.
func runWhole(b *bench) {
	small, large := chatRequest(512, false), chatRequest(8<<10, false)
	b.runLoadCase(
		loadCase{"Whole/size=0.5KB", modeWhole, small, 64, false, 4 * time.Second},
		ours,
		traced,
		priced,
		bare,
		bareWithHeaders,
		std,
	)
	b.runLoadCase(loadCase{"Whole/size=8KB", modeWhole, large, 64, false, 4 * time.Second}, ours, std)
}

func runStreams(b *bench) {
	r := chatRequest(512, true)
	b.runLoadCase(loadCase{"Stream/chunks=paced", modePaced, r, 64, false, time.Second}, ours, bare, messagesAPI, responsesAPI)
	b.runLoadCase(loadCase{"Stream/chunks=ready", modeReady, r, 64, false, time.Second}, ours, bare)
	b.runLoadCase(loadCase{"Speech/pieces=paced", modeSpeech, speechRequest(), 64, false, time.Second}, ours, bare)
}

func runGateways(b *bench) {
	whole, image, stream := chatRequest(512, false), imageRequest(1<<20), chatRequest(512, true)
	b.runLoadCase(loadCase{"Gateway/size=0.5KB", modeWhole, whole, 64, true, time.Second}, ours, example, proxy)
	b.runLoadCase(loadCase{"Gateway/size=1MB", modeWhole, image, 8, true, time.Second}, ours, proxy)
	b.runLoadCase(loadCase{"Gateway/request=agent", modeWhole, agentRequest(), 8, true, time.Second}, ours, proxy)
	b.runLoadCase(loadCase{"Gateway/chunks=paced", modePaced, stream, 64, true, time.Second}, ours, proxy)
	b.runLoadCase(loadCase{"Gateway/chunks=ready", modeReady, stream, 64, true, time.Second}, ours, proxy)
	b.runLoadCase(loadCase{"Gateway/connections=1", modeWhole, whole, 1, true, time.Second}, ours, proxy, bare)
}

func (b *bench) runLoadCase(c loadCase, contenders ...string) {
	if b.short {
		c.conns = min(c.conns, 2)
	}
	if b.base != "" && slices.Contains(contenders, ours) {
		contenders = append(contenders, base)
	}
	b.measureRounds(c.name, b.rounds, func(round int) (all results, err error) {
		var runs []*loadRun
		for _, contender := range contenders {
			run := &loadRun{loadCase: c, bench: b, contender: contender}
			defer run.stop()
			if err := run.start(); err != nil {
				return nil, fmt.Errorf("%s: %w", contender, err)
			}
			runs = append(runs, run)
		}
		if err := takeTurns(runs, round); err != nil {
			return nil, err
		}
		for _, run := range runs {
			v, err := run.finish()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", run.contender, err)
			}
			all = append(all, result{c.name, run.contender, v})
		}
		return all, nil
	})
}

// turn is how long a contender and its load run before the next ones continue. It is
// short beside the seconds in which the speed of a shared machine changes, and long
// beside the time in which caches fill.
const turn = 100 * time.Millisecond

// takeTurns starts the load of all runs and lets the processes of one run at a time
// proceed. Each round begins with another run.
func takeTurns(runs []*loadRun, round int) error {
	total := time.Duration(len(runs)) * 2 * time.Second
	if runs[0].short {
		total = time.Duration(len(runs)+2) / 3 * time.Second
		if m := runs[0].mode; m == modePaced || m == modeSpeech { // one reply can take longer than a turn on a busy machine
			total = time.Duration(len(runs)) * time.Second
		}
	}
	for _, run := range runs {
		if err := run.startLoad(total); err != nil {
			return err
		}
		run.signal(syscall.SIGSTOP)
	}
	for i, end := round, time.Now().Add(total); time.Now().Before(end); i++ {
		run := runs[i%len(runs)]
		run.signal(syscall.SIGCONT)
		time.Sleep(turn)
		run.signal(syscall.SIGSTOP)
	}
	return nil
}

// A loadRun measures a contender in new processes, once. Where the memory of a process
// lies changes its CPU time, and stays the same while it runs.
type loadRun struct {
	loadCase
	*bench
	contender string
	servers   []*server // the last one is the contender; before it is the one behind a gateway
	wrk       *exec.Cmd
	output    bytes.Buffer // of wrk
	before    usage        // of the contender, before the load
}

// start starts the servers, checks that the contender replies, and warms it up.
func (r *loadRun) start() error {
	r.request = r.request.forAPI(r.contender)
	upstreamAddr := ""
	if r.gateway {
		s, err := startServer(otherCPU, bare, r.mode, "")
		if err != nil {
			return err
		}
		r.servers, upstreamAddr = append(r.servers, s), s.addr
	}
	s, err := r.startContender(upstreamAddr)
	if err != nil {
		return err
	}
	r.servers = append(r.servers, s)
	if err := verify(s.addr, r.request, r.mode); err != nil || r.short {
		return err
	}
	if err := r.startLoad(r.warmUp); err != nil {
		return err
	}
	_, err = r.finish()
	return err
}

func (r *loadRun) startContender(upstreamAddr string) (*server, error) {
	switch r.contender {
	case example:
		return startExample(serverCPU, filepath.Dir(r.script), upstreamAddr)
	case base:
		return startCommand(serverCPU, r.base, ours, r.mode, upstreamAddr)
	}
	return startServer(serverCPU, r.contender, r.mode, upstreamAddr)
}

func (r *loadRun) server() *server { return r.servers[len(r.servers)-1] }

func (r *loadRun) signal(s syscall.Signal) {
	for _, server := range r.servers {
		server.cmd.Process.Signal(s)
	}
	if r.wrk != nil {
		r.wrk.Process.Signal(s)
	}
}

func (r *loadRun) stop() {
	r.signal(syscall.SIGKILL)
	for _, server := range r.servers {
		server.stop()
	}
}

// runBursts counts the chunks that the Handler delays. The model yields chunks in bursts.
// A chunk is late if it reaches the client after half of the pause between two bursts.
func runBursts(b *bench) {
	b.measureCase("Stream/chunks=bursts", b.rounds, serverMeasurement(ours, modeBursts, func(s *server) (values, error) {
		chunks, late := 0, 0.0
		err := receive(s.addr, chatRequest(512, true), func(text string) {
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
	}))
}

// verify checks that the server at addr answers r with the text of its model, or with its audio.
func verify(addr string, r request, m mode) error {
	if m == modeSpeech {
		return verifySpeech(addr, r)
	}
	got := ""
	err := receive(addr, r, func(text string) { got += text })
	if err == nil && got != strings.Join(slices.Collect(m.texts(context.Background())), "") {
		err = fmt.Errorf("wrong text: %q", got)
	}
	return err
}

func verifySpeech(addr string, r request) error {
	resp, err := http.DefaultClient.Do(r.http(addr))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Equal(body, bytes.Join(spoken, nil)) {
		err = fmt.Errorf("%s with %d bytes, which are not the audio", resp.Status, len(body))
	}
	return err
}

// contentText matches a text in a whole reply or in an event of a stream.
var contentText = regexp.MustCompile(`"(?:content|delta|text_delta","text)":"((?:[^"\\]|\\.)+)"`)

// receive sends r to the server at addr and calls each for every text as it arrives.
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

// startLoad starts wrk, which sends the request for whole seconds. It uses conns
// connections with one request at a time.
func (r *loadRun) startLoad(d time.Duration) (err error) {
	cpu := serverCPU
	if r.gateway {
		cpu = otherCPU
	}
	if r.before, err = r.server().usage(false); err != nil {
		return err
	}
	r.wrk = pinned(cpu, "wrk", "--threads", "1", "--connections", fmt.Sprint(r.conns), "--duration", fmt.Sprint(d.Seconds()),
		"--timeout", "60s", "--script", r.script, "http://"+r.server().addr+r.request.path, "--", secret)
	r.output.Reset()
	r.wrk.Stdin, r.wrk.Stdout, r.wrk.Stderr = bytes.NewReader(r.request.body), &r.output, &r.output
	return r.wrk.Start()
}

// finish waits for the end of the load and returns what was measured.
func (r *loadRun) finish() (values, error) {
	r.signal(syscall.SIGCONT)
	if err := r.wrk.Wait(); err != nil {
		return nil, fmt.Errorf("wrk: %w\n%s", err, &r.output)
	}
	var requests, latency, failed float64
	_, line, _ := strings.Cut(r.output.String(), "FIGURES ")
	if _, err := fmt.Sscan(line, &requests, &latency, &failed); err != nil || failed > 0 || requests == 0 {
		return nil, fmt.Errorf("wrk: %v replies, %v errors\n%s", requests, failed, &r.output)
	}
	after, err := r.server().usage(false)
	return values{unitCPU: (after.CPU - r.before.CPU).Seconds() / requests, unitLatency: latency / 1e6}, err
}
