package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// startExample builds and starts examples/gateway in front of a server, with a key, its limits and
// its log, which goes to /dev/null.
func startExample(cpu int, dir, upstreamAddr string) (*server, error) {
	binary, config := filepath.Join(dir, "gateway"), filepath.Join(dir, "gateway.json")
	if _, err := os.Stat(binary); err != nil { // the first round
		if out, err := exec.Command("go", "build", "-o", binary, "github.com/llmhttp/llmhttp/examples/gateway").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	type object = map[string]any
	limit := object{"n": 1 << 40}
	data, err := json.Marshal(object{
		"upstreams": []object{{"name": "bare", "url": "http://" + upstreamAddr + "/v1", "key_env": "BENCH_KEY"}},
		"routes":    []object{{"model": "demo-*", "targets": []object{{"upstream": "bare"}}}},
		"keys": []object{{
			"id": "key_1", "account": accountName, "secret_hash": llmhttp.HashSecret(secret), "limits": object{"requests": limit, "tokens": limit},
		}},
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, data, 0o600); err != nil {
		return nil, err
	}
	cmd := pinned(cpu, binary, "-config", config, "-addr", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "BENCH_KEY=sk-upstream")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on http://")
	if !ok {
		s.stop()
		return nil, fmt.Errorf("examples/gateway: %q, %w", line, err)
	}
	s.addr = addr
	return s, nil
}

var cpuTicks = regexp.MustCompile(`\) \S (?:\S+ ){10}(\d+) (\d+) `) // utime and stime in /proc/PID/stat

// processUsage returns the CPU time of a process that does not tell its usage itself.
func processUsage(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	m := cpuTicks.FindSubmatch(stat)
	if m == nil {
		return u, fmt.Errorf("unexpected /proc/%d/stat: %q", pid, stat)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture that Go supports
	for _, ticks := range m[1:] {
		var n time.Duration
		if _, err := fmt.Sscan(string(ticks), (*int64)(&n)); err != nil {
			return u, err
		}
		u.CPU += n * tick
	}
	return u, nil
}
