package upstream_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/cachetest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/pricing"
	"github.com/llmhttp/llmhttp/upstream"
)

// cachePrices are the prices of cachetest.Tokens.Dollars.
const cachePrices = `{"default": {"input": "3", "cache_read": "0.3", "cache_write": "3.75", "cache_write_1h": "6", "output": "15"}}`

// A cachePath is a way from a client of Messages to a model that caches by prefix.
type cachePath struct {
	server  *cachetest.Server
	url     string   // for clients
	gateway *gateway // nil if the client speaks with the server directly
}

func newCachePath(t *testing.T, direct bool, opts *upstream.Options, calls int) *cachePath {
	p := &cachePath{server: &cachetest.Server{Tool: "Bash", Calls: calls, Input: func(turn int) string {
		return fmt.Sprintf(`{"command":"seq -s ' ' %d000 %d300","description":"Step %d"}`, turn+1, turn+1, turn)
	}}}
	s := httptest.NewServer(p.server)
	t.Cleanup(s.Close)
	if p.url = s.URL; !direct {
		prices, err := pricing.Parse([]byte(cachePrices), nil)
		require.NoError(t, err)
		p.gateway = newGateway(t, s.URL+"/v1", opts, withProtocols, func(o *llmhttp.Options) { o.Price = prices.Price })
		p.url = p.gateway.URL
	}
	return p
}

// check checks that the records of the gateway have the tokens that the server has counted, and their price.
func (p *cachePath) check(t *testing.T, total cachetest.Tokens) {
	t.Helper()
	if p.gateway == nil {
		return
	}
	var units llmhttp.Units
	var cost llm.Money
	eventually(t, func() bool {
		units, cost = llmhttp.Units{}, 0
		n := 0
		for _, s := range p.gateway.ended() {
			if s.Record.Units.CompletionTokens > 0 { // it is a chat
				units.Add(s.Record.Units)
				cost += s.Record.Cost.Total()
				n++
			}
		}
		return n == len(p.server.Turns())
	}, "the requests end")
	assert.EqualValues(t, total.Prompt, units.PromptTokens)
	assert.EqualValues(t, total.Read, units.CachedTokens)
	assert.EqualValues(t, total.Written, units.CacheWriteTokens)
	assert.Equal(t, total.WrittenFor, units.CacheWrites)
	assert.InDelta(t, total.Dollars(), float64(cost)/1e9, 1e-6)
}

// loopOfClaudeCode sends the requests that Claude Code sends in a loop of calls, with prompts of its size.
func loopOfClaudeCode(t *testing.T, p *cachePath) {
	t.Helper()
	const hour = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	filler := strings.Repeat("Work with care. ", 1700) // 27 KB
	system := `"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1"},{"type":"text","text":"You are an agent.",` + hour + `},{"type":"text","text":"\n` + filler + `",` + hour + `}]`
	tools := `"tools":[{"name":"Bash","description":"` + filler + `","input_schema":{"type":"object"}},{"name":"Read","description":"R","input_schema":{"type":"object"}}]`
	history := []string{`{"role":"user","content":[{"type":"text","text":"<system-reminder>"},{"type":"text","text":"Go on."%s}]}`}
	for turn := 0; ; turn++ {
		marked := strings.Replace(history[len(history)-1], "%s", `,"cache_control":{"type":"ephemeral"}`, 1)
		messages := strings.ReplaceAll(strings.Join(append(history[:len(history)-1:len(history)-1], marked), ","), "%s", "")
		w := sendTo(t, p.url+"/v1/messages", `{"model":"m","max_tokens":9,"messages":[`+messages+`],`+system+`,`+tools+`}`)
		var reply struct {
			Content    []json.RawMessage
			StopReason string `json:"stop_reason"`
		}
		require.NoError(t, json.Unmarshal([]byte(w), &reply), w)
		if reply.StopReason == "end_turn" {
			return
		}
		var use struct{ ID string }
		require.NoError(t, json.Unmarshal(reply.Content[0], &use))
		history = append(history, `{"role":"assistant","content":[`+string(reply.Content[0])+`]}`,
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+use.ID+`","content":"`+strings.Repeat(fmt.Sprint(turn), 1500)+`"%s}]}`)
	}
}

// sendTo sends a request of Messages and returns the body of the reply.
func sendTo(t *testing.T, url, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", mediaJSON)
	r.Header.Set("Authorization", "Bearer "+clientKey)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	reply, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode, "%s", reply)
	return string(reply)
}

// A server that caches by itself, and refuses marks, gets prompts that are stable without them.
func TestCacheLoop_Automatic(t *testing.T) {
	p := newCachePath(t, false, nil, 29)
	p.server.Automatic = true
	loopOfClaudeCode(t, p)
	total := p.server.Total()
	t.Logf("%d tokens, %.1f%% from the cache", total.Prompt, 100*total.Share())
	p.check(t, total)
	assert.Greater(t, total.Share(), 0.9)
	assert.Zero(t, p.server.Marks())
}

// Through Messages and a Backend whose server knows the marks, a loop of calls reads as much from the cache as
// without them. Without the option nothing is cached.
func TestCacheLoop(t *testing.T) {
	const turns = 30
	shares := make(map[string]float64)
	for name, opts := range map[string]*upstream.Options{
		"direct": nil, "without the option": {}, upstream.CacheControlType: {CacheControl: upstream.CacheControlType}, upstream.CacheControlTTL: {CacheControl: upstream.CacheControlTTL},
	} {
		p := newCachePath(t, name == "direct", opts, turns-1)
		loopOfClaudeCode(t, p)
		require.Len(t, p.server.Turns(), turns)
		total := p.server.Total()
		shares[name] = total.Share()
		t.Logf("%s: %d tokens, %.1f%% from the cache, %v written, $%.4f", name, total.Prompt, 100*total.Share(), total.WrittenFor, total.Dollars())
		p.check(t, total)
		if name != "without the option" {
			assert.Equal(t, 3*turns, p.server.Marks())
		}
		if name == upstream.CacheControlTTL {
			assert.Len(t, total.WrittenFor, 2)
		}
	}
	assert.Greater(t, shares["direct"], 0.9)
	assert.InDelta(t, shares["direct"], shares[upstream.CacheControlTTL], 0.001)
	assert.InDelta(t, shares["direct"], shares[upstream.CacheControlType], 0.001)
	assert.Zero(t, shares["without the option"])
}

// The same with Claude Code itself, whose marks have a lifetime if it is asked for an hour.
func TestCacheLoop_ClaudeCode(t *testing.T) {
	claude := os.Getenv("LLMHTTP_CLAUDE_CODE")
	if claude == "" {
		t.Skip("LLMHTTP_CLAUDE_CODE is not the path of Claude Code")
	}
	const turns = 30
	run := func(t *testing.T, direct bool, opts *upstream.Options, env ...string) cachetest.Tokens {
		p := newCachePath(t, direct, opts, turns-1)
		c := exec.CommandContext(t.Context(), claude, "-p", "Run the steps.", "--output-format", "json", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash")
		c.Dir = t.TempDir()
		c.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(), "ANTHROPIC_BASE_URL="+p.url, "ANTHROPIC_AUTH_TOKEN="+clientKey, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
		out, err := c.Output()
		require.NoError(t, err, "%s", out)
		var result struct {
			Result string
			Usage  struct {
				Read     int `json:"cache_read_input_tokens"`
				Written  int `json:"cache_creation_input_tokens"`
				Creation struct {
					Hour int64 `json:"ephemeral_1h_input_tokens"`
				} `json:"cache_creation"`
			}
		}
		require.NoError(t, json.Unmarshal(out, &result), "%s", out)
		assert.Equal(t, "Done.", result.Result)
		require.Len(t, p.server.Turns(), turns)
		total := p.server.Total()
		t.Logf("%d tokens, %.1f%% from the cache, %v written, $%.4f", total.Prompt, 100*total.Share(), total.WrittenFor, total.Dollars())
		p.check(t, total)
		assert.Equal(t, total.Read, result.Usage.Read, "what Claude Code shows")
		assert.Equal(t, total.Written, result.Usage.Written)
		assert.Equal(t, total.WrittenFor[time.Hour], result.Usage.Creation.Hour)
		return total
	}
	for name, env := range map[string][]string{"5 minutes": nil, "1 hour": {"ENABLE_PROMPT_CACHING_1H=1"}} {
		t.Run(name, func(t *testing.T) {
			direct := run(t, true, nil, env...)
			through := run(t, false, &upstream.Options{CacheControl: upstream.CacheControlTTL}, env...)
			assert.Greater(t, direct.Share(), 0.9)
			assert.InDelta(t, direct.Share(), through.Share(), 0.005)
			assert.InDelta(t, direct.Dollars(), through.Dollars(), direct.Dollars()/20)
		})
	}
	t.Run("without the option", func(t *testing.T) {
		total := run(t, false, nil)
		assert.Zero(t, total.Read)
	})
}
