package route_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// newAliasedServer returns a Backend with names of its own for models.
func newAliasedServer(t *testing.T, models map[string]string) llmhttp.Backend {
	b, err := upstream.New("http://upstream.test/v1", &upstream.Options{Models: models})
	require.NoError(t, err)
	return b
}

func TestAliases(t *testing.T) {
	plain := newAliasedServer(t, nil)
	named := newAliasedServer(t, map[string]string{"mini": "gpt-5-mini", "large": "gpt-5", "same": "same"})
	target := func(name, model string, b llmhttp.Backend) route.Target {
		return route.Target{Name: name, Model: model, Backend: b}
	}
	for name, tt := range map[string]struct {
		routes []route.Route
		want   map[string][]string
	}{
		"the same name": {[]route.Route{{Model: "gpt-5", Targets: []route.Target{target("a", "", plain)}}}, map[string][]string{}},
		"another name":  {[]route.Route{{Model: "fast", Targets: []route.Target{target("a", "gpt-5", plain)}}}, map[string][]string{"fast": {"gpt-5"}}},
		"several": {[]route.Route{{Model: "fast", Targets: []route.Target{target("a", "gpt-5", plain), target("b", "claude", plain), target("c", "gpt-5", plain), target("d", "", plain)}}},
			map[string][]string{"fast": {"gpt-5", "claude"}}},
		"another name of the Backend":      {[]route.Route{{Model: "fast", Targets: []route.Target{target("a", "mini", named)}}}, map[string][]string{"fast": {"gpt-5-mini"}}},
		"a name of the Backend":            {[]route.Route{{Model: "mini", Targets: []route.Target{target("a", "", named)}}}, map[string][]string{"mini": {"gpt-5-mini"}}},
		"all names":                        {[]route.Route{{Model: "*", Targets: []route.Target{target("a", "", named)}}}, map[string][]string{"mini": {"gpt-5-mini"}, "large": {"gpt-5"}}},
		"names with a prefix":              {[]route.Route{{Model: "local/*", Targets: []route.Target{target("a", "*", named)}}}, map[string][]string{"local/*": {"*"}, "local/mini": {"gpt-5-mini"}, "local/large": {"gpt-5"}}},
		"all names for a model":            {[]route.Route{{Model: "*", Targets: []route.Target{target("a", "mini", named)}}}, map[string][]string{"*": {"gpt-5-mini"}}},
		"a name that no request can reach": {[]route.Route{{Model: "other", Targets: []route.Target{target("a", "", named)}}}, map[string][]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := route.New(tt.routes, nil)
			require.NoError(t, err)
			assert.Equal(t, tt.want, r.Aliases())
		})
	}
}

// NewHandler tells of an alias that Options.Cost does not know, so that it is free or has
// the price of all other models.
func TestAliases_Cost(t *testing.T) {
	prices := map[string]float64{"gpt-5": 10, "claude": 20, "known": 5}
	cost := func(s llmhttp.UsageSum) float64 { return float64(s.PromptTokens) / 1e6 * prices[s.Model] }
	withDefault := func(s llmhttp.UsageSum) float64 {
		if p, ok := prices[s.Model]; ok {
			return float64(s.PromptTokens) / 1e6 * p
		}
		return float64(s.PromptTokens) / 1e6 * 0.1
	}
	r, err := route.New([]route.Route{
		{Model: "fast", Targets: []route.Target{{Name: "a", Model: "gpt-5", Backend: newAliasedServer(t, nil)}, {Name: "b", Model: "own", Backend: newAliasedServer(t, nil)}}},
		{Model: "known", Targets: []route.Target{{Name: "a", Model: "claude", Backend: newAliasedServer(t, nil)}}},
		{Model: "claude-*", Targets: []route.Target{{Name: "a", Model: "claude", Backend: newAliasedServer(t, nil)}}},
		{Model: "free", Targets: []route.Target{{Name: "a", Model: "own", Backend: newAliasedServer(t, nil)}}},
		{Model: "*", Targets: []route.Target{{Name: "a", Backend: newAliasedServer(t, map[string]string{"sonnet": "claude"})}}},
	}, nil)
	require.NoError(t, err)
	type wrapper struct{ llmhttp.Forwarder }
	for name, tt := range map[string]struct {
		cost func(llmhttp.UsageSum) float64
		want []string
	}{
		"prices":    {cost, []string{"alias=fast model=gpt-5", "alias=sonnet model=claude"}},
		"a default": {withDefault, []string{"alias=fast model=gpt-5", "alias=sonnet model=claude"}},
		"no prices": {nil, nil},
		"all paid":  {func(s llmhttp.UsageSum) float64 { return float64(s.Requests) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			llmhttp.NewHandler(wrapper{llmhttp.Forwarder{Backend: r}}, llmhttp.AllowAll(""), &llmhttp.Options{
				Cost: tt.cost, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
			var got []string
			for line := range strings.Lines(log.String()) {
				_, names, _ := strings.Cut(strings.TrimSpace(line), "alias=")
				got = append(got, "alias="+names)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}
