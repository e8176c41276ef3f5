package upstream_test

import (
	"net/http/httptest"
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

// A cachePath is a way from a client of Messages to a model that caches by prefix.
type cachePath struct {
	server  *cachetest.Server
	url     string   // for clients
	gateway *gateway // nil if the client speaks with the server directly
}

func newCachePath(t *testing.T, direct bool, opts *upstream.Options, calls int) *cachePath {
	p := &cachePath{server: cachetest.NewServer(calls)}
	s := httptest.NewServer(p.server)
	t.Cleanup(s.Close)
	if p.url = s.URL; !direct {
		prices, err := pricing.Parse([]byte(cachetest.Prices), nil)
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

// A server that caches by itself, and refuses marks, gets prompts that are stable without them.
func TestCacheLoop_Automatic(t *testing.T) {
	p := newCachePath(t, false, nil, 29)
	p.server.Automatic = true
	cachetest.Loop(t, p.url, clientKey)
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
		cachetest.Loop(t, p.url, clientKey)
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
	const turns = 30
	run := func(t *testing.T, direct bool, opts *upstream.Options, env ...string) cachetest.Tokens {
		p := newCachePath(t, direct, opts, turns-1)
		result := cachetest.ClaudeCode(t, p.url, clientKey, "Run the steps.", env...)
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
