package llmhttp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/endpoints"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
	"github.com/llmhttp/llmhttp/responses"
)

// shippedRoutes are the routes of the packages of this module, by the paths of the packages.
var shippedRoutes = map[string]func() []llmhttp.Route{
	endpoints.Root:                 func() []llmhttp.Route { return llmhttp.ChatCompletions().Routes() },
	endpoints.Root + "/messages":   func() []llmhttp.Route { return messages.New(nil).Routes() },
	endpoints.Root + "/responses":  func() []llmhttp.Route { return responses.New(nil).Routes() },
	endpoints.Root + "/audio":      func() []llmhttp.Route { return audio.Routes(nil) },
	endpoints.Root + "/completion": completion.Routes,
	endpoints.Root + "/imageedit":  func() []llmhttp.Route { return imageedit.Routes(nil) },
	endpoints.Root + "/moderation": moderation.Routes,
	endpoints.Root + "/rerank":     rerank.Routes,
}

// The list of endpoints has what the packages serve: each route, but those that exist only for some
// requests, with its scope and its operation, and no others.
func TestEndpoints_AreTheRoutesOfThePackages(t *testing.T) {
	type route struct {
		pkg, pattern string
		scope        llmhttp.Scope
		operation    llmhttp.Operation
	}
	var listed, served []route
	for _, e := range endpoints.All {
		require.Contains(t, shippedRoutes, e.Package, "add its routes to shippedRoutes")
		for _, pattern := range e.Patterns {
			listed = append(listed, route{e.Package, pattern, llmhttp.Scope(e.Scope), llmhttp.Operation(e.Operation)})
		}
	}
	for pkg, routes := range shippedRoutes {
		for _, rt := range routes() {
			if rt.Match == nil {
				scope, operation := llmhttp.ScopeAndOperation(rt)
				served = append(served, route{pkg, rt.Pattern, scope, operation})
			}
		}
	}
	assert.ElementsMatch(t, listed, served)
	for _, s := range llmhttp.Scopes() {
		assert.NoError(t, s.Validate())
	}
	for _, op := range llmhttp.Operations() {
		assert.NoError(t, op.Validate())
	}
}

// A scorer is the ability of an endpoint that is in no package of this module.
type scorer interface{ Score() }

// A scoringBackend is a scorer.
type scoringBackend struct{ llmhttp.Backend }

func (scoringBackend) Score() {}

const scorePackage = endpoints.Root + "/score"

// shipScore makes the endpoint for scorers one that this module ships, for a test.
func shipScore(t *testing.T) {
	before := endpoints.All
	t.Cleanup(func() { endpoints.All = before })
	endpoints.All = append(slices.Clone(before), endpoints.Endpoint{
		Name: "scores", Patterns: []string{"POST /v1/score", "POST /score"}, Scope: "score", Operation: "score", Package: scorePackage,
	})
	endpoints.Register("score", llmhttp.Has[scorer])
}

// scoreRoutes are those of the package of scores.
func scoreRoutes() []llmhttp.Route {
	e := &llmhttp.Endpoint{Operation: "score", Scope: "score", Supported: llmhttp.Has[scorer]}
	serve := func(*llmhttp.Call) error { return nil }
	return []llmhttp.Route{llmhttp.NewRoute("POST /v1/score", e, serve), llmhttp.NewRoute("POST /score", e, serve)}
}

// An endpoint in a package of its own is one of the module as those of the root package are, without
// anything in that.
func TestEndpoints_OfAPackage(t *testing.T) {
	assert.NotContains(t, llmhttp.Operations(), llmhttp.Operation("score"))
	shipScore(t)
	assert.Contains(t, llmhttp.Scopes(), llmhttp.Scope("score"))
	assert.Contains(t, llmhttp.Operations(), llmhttp.Operation("score"))
	score, plain := llmhttp.Operation("score"), new(stubBackend)
	assert.True(t, score.SupportedBy(t.Context(), scoringBackend{plain}))
	assert.True(t, score.SupportedBy(t.Context(), llmhttp.NewSwappableBackend(scoringBackend{plain})))
	assert.False(t, score.SupportedBy(t.Context(), plain))
	assert.False(t, llmhttp.Operation("").SupportedBy(t.Context(), scoringBackend{plain}))
}

// The 404 for an endpoint names the package that has it, as long as that is not mounted.
func TestEndpoints_UnmountedPackage(t *testing.T) {
	shipScore(t)
	const because, served = "because package " + scorePackage + " is not mounted. It serves ", "This server does not serve it. It serves "
	for _, tt := range []struct {
		method, path, prefix string
		routes               []llmhttp.Route
		backend              llmhttp.Backend
		want, wantNot        string
	}{
		{method: "POST", path: "/v1/score", want: "Invalid URL (POST /v1/score). This server does not serve it, " + because},
		{method: "POST", path: "/score", want: because},
		{method: "POST", path: "/llm/v1/score", prefix: "/llm", want: because},
		{method: "POST", path: "/v1/score", prefix: "/llm", want: served},
		{method: "GET", path: "/v1/score", want: served},
		{method: "POST", path: "/v1/score/x", want: served},
		{method: "POST", path: "/v1/scores", wantNot: "serve"},
		{method: "POST", path: "/v1/score", routes: scoreRoutes(), want: "Invalid URL (POST /v1/score)", wantNot: "serve"}, // no scorer
		{method: "POST", path: "/score", routes: scoreRoutes()[:1], wantNot: "mounted"},
		{method: "POST", path: "/v1/score", routes: []llmhttp.Route{{Pattern: "POST /score", Bind: scoreRoutes()[0].Bind}}, wantNot: "mounted"},
	} {
		h := llmhttp.NewHandler(textBackend("x"), llmhttp.AllowAll("a"), &llmhttp.Options{Prefix: tt.prefix, Routes: tt.routes, Logger: noLog})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, strings.NewReader("{}")))
		assert.Equal(t, 404, w.Code)
		assert.Contains(t, w.Body.String(), tt.want, "%+v", tt)
		if tt.wantNot != "" {
			assert.NotContains(t, w.Body.String(), tt.wantNot, "%+v", tt)
		}
	}
}

// A panickingWrapper needs the key of a request to tell what it wraps.
type panickingWrapper struct{ llmhttp.Backend }

func (w panickingWrapper) Unwrap(ctx context.Context) llmhttp.Backend {
	_ = llmhttp.KeyFrom(ctx).Data
	return w.Backend
}

// NewHandler logs once what the Backend could do if the host had mounted it.
func TestEndpoints_UnmountedAbilitiesAreLogged(t *testing.T) {
	shipScore(t)
	plain := textBackend("x")
	scoring := scoringBackend{plain}
	const line = `level=INFO msg="the Backend has methods of endpoints that are not mounted" endpoints=[scores] packages=[` + scorePackage + "]\n"
	own := &llmhttp.Endpoint{Operation: "own", Scope: "own"}
	for name, tt := range map[string]struct {
		backend llmhttp.Backend
		opts    llmhttp.Options
		want    string
	}{
		"without the ability":     {backend: plain},
		"with":                    {backend: scoring, want: line},
		"in a Swap":               {backend: llmhttp.NewSwappableBackend(scoring), want: line},
		"in wrappers":             {backend: passing{passing{scoring}}, want: line},
		"hidden":                  {backend: hiding{scoring}},
		"of a request only":       {backend: panickingWrapper{scoring}},
		"mounted":                 {backend: scoring, opts: llmhttp.Options{Routes: scoreRoutes()}},
		"mounted below a prefix":  {backend: scoring, opts: llmhttp.Options{Prefix: "/llm", Routes: scoreRoutes()}},
		"mounted at another path": {backend: scoring, opts: llmhttp.Options{Routes: []llmhttp.Route{{Pattern: "POST /rank", Bind: scoreRoutes()[0].Bind}}}},
		"an endpoint of the host": {backend: scoring, opts: llmhttp.Options{Routes: []llmhttp.Route{
			llmhttp.NewRoute("POST /v1/score", own, func(*llmhttp.Call) error { return nil }),
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			noTime := func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}
			tt.opts.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: noTime}))
			h := llmhttp.NewHandler(tt.backend, llmhttp.AllowAll("a"), &tt.opts)
			for range 2 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, tt.opts.Prefix+chatPath, strings.NewReader(chatBody)))
				assert.Equal(t, 200, w.Code, w.Body)
			}
			assert.Equal(t, tt.want, log.String())
		})
	}
}

func TestScope_Validate(t *testing.T) {
	for s, valid := range map[string]bool{
		"classify": true, "a": true, "a1.b-c_d": true, strings.Repeat("a", 63): true, "chats": true,
		"": false, "Chat": false, "1a": false, "-a": false, "a b": false, "a,b": false, "ä": false, "a\n": false, strings.Repeat("a", 64): false,
		"all": false, "none": false, // in lists
	} {
		check := assert.Error
		if valid {
			check = assert.NoError
		}
		check(t, llmhttp.Scope(s).Validate(), "%q", s)
		if s != "all" && s != "none" {
			check(t, llmhttp.Operation(s).Validate(), "%q", s)
		}
	}
	for _, s := range []llmhttp.Scope{"chat", "classify", ""} {
		assert.Empty(t, s.Suggestion(), s)
	}
	assert.Equal(t, llmhttp.ScopeChat, llmhttp.Scope("chats").Suggestion())
	assert.Equal(t, imageedit.Operation, llmhttp.Operation("image-edits").Suggestion())
	assert.EqualError(t, llmhttp.Scope("a b").Validate(),
		`llmhttp: the scope "a b" is malformed: want a lower-case letter, and then at most 62 of these, digits, '-', '_' and '.'`)
	assert.Less(t, len(llmhttp.Operation(strings.Repeat("X", 1<<20)).Validate().Error()), 300)
}

// A key may have scopes of hosts, and none that is malformed.
func TestKey_ValidateScopes(t *testing.T) {
	assert.NoError(t, (&llmhttp.Key{Scopes: []llmhttp.Scope{"chat", "classify"}}).Validate())
	assert.NoError(t, (&llmhttp.Key{Scopes: []llmhttp.Scope{}}).Validate())
	assert.ErrorContains(t, (&llmhttp.Key{Scopes: []llmhttp.Scope{"chat", "No"}}).Validate(), `Key.Scopes[1]: llmhttp: the scope "No" is malformed`)
	assert.ErrorContains(t, (&llmhttp.Key{Scopes: []llmhttp.Scope{"all"}}).Validate(), `Key.Scopes[0]: llmhttp: "all" is not a scope`)
}
