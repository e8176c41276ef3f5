package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

// A gateway is what a config describes. Its routes, upstreams and keys can be replaced while it
// serves.
type gateway struct {
	publicURL string        // without a slash at the end; may be empty
	timeout   time.Duration // for llmhttp.Options
	breaker   breakerConfig
	codex     codexInstructions
	secretEnv string // of the secret
	secret    []byte // for responses.Options; may be nil
	router    *route.Router
	keys      keyStore
	upstreams map[string]server // by name
}

// A server is an upstream. Its Backend has the connections to it.
type server struct {
	config  upstreamConfig
	key     string
	backend backend
}

// A backend is that of package upstream or anthropic.
type backend interface {
	llmhttp.Backend
	CloseIdleConnections()
}

// codexInstructions are those for Codex, and the file that they are from.
type codexInstructions struct{ file, text string }

func readInstructions(file string) (codexInstructions, error) {
	if file == "" {
		return codexInstructions{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return codexInstructions{}, fmt.Errorf("codex_instructions_file: %w", err)
	}
	return codexInstructions{file, string(text)}, nil
}

// newGateway validates c. Its errors name the field that is not valid.
func newGateway(c *config) (*gateway, error) {
	g := &gateway{publicURL: strings.TrimSuffix(c.PublicURL, "/"), timeout: c.timeout(), breaker: c.Breaker, secretEnv: c.ResponsesSecretEnv}
	if g.publicURL != "" {
		u, err := url.Parse(g.publicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("public_url: %q is not a URL such as %q", c.PublicURL, "https://llm.example.com")
		}
	}
	var err error
	if g.codex, err = readInstructions(c.CodexInstructions); err != nil {
		return nil, err
	}
	if g.secretEnv != "" {
		secret, err := environment("responses_secret_env", g.secretEnv)
		if err != nil {
			return nil, err
		}
		if g.secret = []byte(secret); len(secret) < 16 {
			return nil, errors.New("responses_secret_env: the secret has less than 16 characters")
		}
	}
	return g, g.replace(c, func(routes []route.Route) (err error) {
		g.router, err = route.New(routes, &route.Options{
			TryTimeout: -1, // each upstream has its own timeouts
			Failures:   c.Breaker.Failures,
			OpenFor:    time.Duration(c.Breaker.OpenFor),
			Fallback:   fallback,
		})
		return err
	})
}

// fallback sends prompts that are too long for a target to the next one.
func fallback(_ context.Context, err error) route.Decision {
	if route.IsContextLength(err) {
		return route.Decision{TryNext: route.Yes}
	}
	return route.Decision{}
}

// reload makes g what c describes. If c is not valid, or changes what cannot change while the
// gateway serves, it returns an error that names the field, and g stays as it is.
func (g *gateway) reload(c *config) error {
	const restart = "a change takes effect only when the gateway starts again"
	switch {
	case strings.TrimSuffix(c.PublicURL, "/") != g.publicURL:
		return errors.New("public_url: " + restart)
	case c.Breaker != g.breaker:
		return errors.New("breaker: " + restart)
	case c.CodexInstructions != g.codex.file:
		return errors.New("codex_instructions_file: " + restart)
	case c.ResponsesSecretEnv != g.secretEnv:
		return errors.New("responses_secret_env: " + restart)
	case c.timeout() > g.timeout:
		return fmt.Errorf("upstreams: a first_byte_timeout is longer than the gateway waits, which is %v: %s", g.timeout, restart)
	}
	return g.replace(c, g.router.Update)
}

// replace replaces the upstreams and the keys by those of c, and sets the routes. Upstreams whose
// configuration is the same keep their connections. After an error nothing has changed.
func (g *gateway) replace(c *config, setRoutes func([]route.Route) error) error {
	upstreams, err := g.newUpstreams(c.Upstreams)
	if err != nil {
		return err
	}
	routes, err := newRoutes(c.Routes, upstreams)
	if err != nil {
		return err
	}
	keys, err := newKeys(c.Keys)
	if err != nil {
		return err
	}
	if err := setRoutes(routes); err != nil {
		return err
	}
	g.keys.current.Store(&keys)
	for name, old := range g.upstreams {
		if old.backend != upstreams[name].backend {
			old.backend.CloseIdleConnections()
		}
	}
	g.upstreams = upstreams
	return nil
}

// newUpstreams returns the servers that configs describe, with those of g that are the same.
func (g *gateway) newUpstreams(configs []upstreamConfig) (map[string]server, error) {
	upstreams := make(map[string]server)
	for i := range configs {
		u, field := &configs[i], fmt.Sprintf("upstreams[%d]", i)
		switch {
		case u.Name == "":
			return nil, fmt.Errorf("%s.name: must not be empty", field)
		case upstreams[u.Name].backend != nil:
			return nil, fmt.Errorf("%s.name: another upstream has the name %q", field, u.Name)
		}
		s, err := u.server(field)
		if err != nil {
			return nil, err
		}
		if old := g.upstreams[u.Name]; old.key == s.key && reflect.DeepEqual(old.config, s.config) {
			s = old
		}
		upstreams[u.Name] = s
	}
	return upstreams, nil
}

func newRoutes(configs []routeConfig, upstreams map[string]server) ([]route.Route, error) {
	var routes []route.Route
	for i, r := range configs {
		var targets []route.Target
		for j, t := range r.Targets {
			u, ok := upstreams[t.Upstream]
			if !ok {
				return nil, fmt.Errorf("routes[%d].targets[%d].upstream: there is no upstream %q", i, j, t.Upstream)
			}
			targets = append(targets, route.Target{
				Name: cmp.Or(t.Name, t.Upstream), Backend: u.backend, Model: t.Model, Weight: t.Weight, Params: route.ParamRules(t.Params),
			})
		}
		routes = append(routes, route.Route{Model: r.Model, Strategy: r.Strategy, Targets: targets})
	}
	return routes, nil
}

func (u *upstreamConfig) server(field string) (server, error) {
	o := &upstream.Options{
		Name:              u.Name,
		FirstByteTimeout:  u.firstByteTimeout(),
		IdleTimeout:       time.Duration(u.SilenceTimeout),
		TokenizePath:      u.TokenizePath,
		OmitStreamOptions: u.OmitStreamOptions,
		CacheControl:      u.CacheControl,
		Images:            upstream.ImageOptions{Hosts: u.ImageHosts, OmitFormat: u.OmitImageFormat},
	}
	if u.KeyEnv != "" {
		var err error
		if o.Key, err = environment(field+".key_env", u.KeyEnv); err != nil {
			return server{}, err
		}
	}
	b, err := u.backend(o)
	if err != nil {
		return server{}, fmt.Errorf("%s: %w", field, err)
	}
	return server{*u, o.Key, b}, nil
}

// backend returns the backend of the format of u.
func (u *upstreamConfig) backend(o *upstream.Options) (backend, error) {
	switch u.Format {
	case "", "openai":
		if !reflect.DeepEqual(u.Anthropic, anthropicConfig{}) {
			return nil, errors.New(`anthropic: the format must be "anthropic"`)
		}
		return upstream.New(u.URL, o)
	case "anthropic":
		a := &u.Anthropic
		return anthropic.New(u.URL, &anthropic.Options{
			Server: *o, BearerKey: a.BearerKey, Version: a.Version, Betas: a.Betas, MaxTokens: a.MaxTokens,
			ThinkingBudgets: a.ThinkingBudgets, UnsignedThinking: a.UnsignedThinking, OmitCacheControl: a.OmitCacheControl,
		})
	}
	return nil, fmt.Errorf("format: %q is neither openai nor anthropic", u.Format)
}

func (u *upstreamConfig) firstByteTimeout() time.Duration {
	return cmp.Or(time.Duration(u.FirstByteTimeout), 2*time.Minute)
}

// timeout returns how long a request may take: long enough for the first byte of two targets.
func (c *config) timeout() time.Duration {
	timeout := 5 * time.Minute
	for i := range c.Upstreams {
		timeout = max(timeout, 2*c.Upstreams[i].firstByteTimeout()+time.Minute)
	}
	return timeout
}
