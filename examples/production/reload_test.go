package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// After SIGHUP, upstreams and prices are those of the files, and a mistake changes neither.
func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dsn, upstreams, prices, keyFile := filepath.Join(dir, "llm.db"), filepath.Join(dir, "upstreams.json"), filepath.Join(dir, "prices.json"), filepath.Join(dir, "key")
	write := func(file, text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(keyFile, upstreamKey+"\n")
	write(prices, `{"models": {"demo-chat": {"input": 0, "output": 1e6}}}`)
	slow, fast := startUpstream(t, 5*time.Millisecond), startUpstream(t, 0)
	upstream := func(name, url string) string {
		return fmt.Sprintf(`{"name": %q, "url": "%s/v1", "key_file": %q}`, name, url, keyFile)
	}
	write(upstreams, `{"upstreams": [`+upstream("slow", slow.url)+`]}`)
	p := start(t, newCommand([]string{"LLMHTTP_DSN=" + dsn, "LLMHTTP_UPSTREAM_FILE=" + upstreams}, "-prices", prices, "-usage-delay", "0s"))
	c := client{p.url, createKey(t, dsn).Secret}

	reloads := 0
	reload := func() (line string) { // the last line about it
		require.NoError(t, p.Cmd.Process.Signal(syscall.SIGHUP))
		reloads++
		eventually(t, func(c *assert.CollectT) {
			var lines []string
			for l := range strings.Lines(p.Output.String()) {
				if strings.Contains(l, `reloaded`) {
					lines = append(lines, l)
				}
			}
			require.Len(c, lines, reloads)
			line = lines[reloads-1]
		})
		return line
	}
	chats := 0
	targetAndCost := func() (string, float64) {
		before := c.costs(t)
		c.mustChat(t, 1)
		chats++
		var lines []string
		eventually(t, func(c *assert.CollectT) {
			lines = nil
			for l := range strings.Lines(p.Output.String()) {
				if strings.Contains(l, `"scope":"chat"`) && strings.Contains(l, `"streamed":false`) {
					lines = append(lines, l)
				}
			}
			require.Len(c, lines, chats)
		})
		var last struct{ Target string }
		require.NoError(t, json.Unmarshal([]byte(lines[chats-1]), &last))
		return last.Target, c.costs(t) - before
	}

	checked := 0
	checkPrices := func() { // at the start and after each reload, the log names the models without a price
		checked++
		eventually(t, func(c *assert.CollectT) {
			line := `"level":"ERROR","msg":"prices are missing","error":"pricing: these models have no price: [`
			assert.Equal(c, checked, strings.Count(p.Output.String(), line), p.Output.String())
		})
	}
	checkPrices()

	target, cost := targetAndCost()
	assert.Equal(t, "slow", target)
	assert.InDelta(t, 100, cost, 0.001, "in cents")
	running := c.startStream(t, 200)
	write(upstreams, `{"upstreams": [`+upstream("fast", fast.url)+`]}`)
	write(prices, `{"models": {"demo-chat": {"input": 0, "output": 2e6}}}`)
	assert.Contains(t, reload(), `"level":"INFO","msg":"reloaded"`)
	checkPrices()
	running.requireComplete(t, 200)
	target, cost = targetAndCost()
	assert.Equal(t, "fast", target)
	assert.InDelta(t, 200, cost, 0.001)

	for want, mistake := range map[string][2]string{
		upstreams + `: upstreams[1].name: expected lower-case letters, digits and _`:  {upstreams, `{"upstreams": [` + upstream("slow", slow.url) + "," + upstream("Fast", fast.url) + `]}`},
		upstreams + `: upstreams[0]: key_file: open /none: no such file or directory`: {upstreams, `{"upstreams": [{"name": "slow", "url": "http://127.0.0.1:1/v1", "key_file": "/none"}]}`},
		upstreams + `: json: unknown field \"key\"`:                                   {upstreams, `{"upstreams": [{"name": "slow", "key": "sk-x"}]}`},
		upstreams + `: there is more after the object`:                                {upstreams, `{"upstreams": []}{}`},
		`-upstream: route: routes[0].targets: must not be empty`:                      {upstreams, `{"upstreams": []}`},
		`-prices: ` + prices + `: pricing: member \"x\": is unknown`:                  {prices, `{"x": 1}`},
	} {
		file, text := mistake[0], mistake[1]
		valid, err := os.ReadFile(file)
		require.NoError(t, err)
		write(file, text)
		line := reload()
		assert.Contains(t, line, `"level":"ERROR","msg":"not reloaded, the old configuration stays","error":"`+want)
		write(file, string(valid))
		target, cost = targetAndCost()
		assert.Equal(t, "fast", target)
		assert.InDelta(t, 200, cost, 0.001)
	}
	assert.NotContains(t, p.Output.String(), "sk-")
	p.stop(t)
}

// costs returns what the client's account has used, in cents.
func (c client) costs(t *testing.T) float64 {
	t.Helper()
	status, reply := c.send(t, "GET", usagePath, "")
	require.Equal(t, 200, status, reply)
	var r struct {
		TotalUsage float64 `json:"total_usage"`
	}
	require.NoError(t, json.Unmarshal([]byte(reply), &r))
	return r.TotalUsage
}
