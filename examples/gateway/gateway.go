package main

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// A gateway is what a config describes.
type gateway struct {
	publicURL string        // without a slash at the end; may be empty
	timeout   time.Duration // for llmhttp.Options
	router    *route.Router
	keys      keyStore
}

// newGateway validates c. Its errors name the field that is not valid.
func newGateway(c *config) (*gateway, error) {
	g := &gateway{publicURL: strings.TrimSuffix(c.PublicURL, "/"), timeout: 5 * time.Minute}
	if g.publicURL != "" {
		u, err := url.Parse(g.publicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("public_url: %q is not a URL such as %q", c.PublicURL, "https://llm.example.com")
		}
	}
	for i := range c.Upstreams {
		// Leave enough time for the first byte of two targets.
		g.timeout = max(g.timeout, 2*c.Upstreams[i].firstByteTimeout()+time.Minute)
	}
	var err error
	if g.router, err = newRouter(c); err != nil {
		return nil, err
	}
	g.keys, err = newKeyStore(c.Keys)
	return g, err
}

func newRouter(c *config) (*route.Router, error) {
	upstreams := make(map[string]llmhttp.Backend)
	for i := range c.Upstreams {
		u, field := &c.Upstreams[i], fmt.Sprintf("upstreams[%d]", i)
		switch {
		case u.Name == "":
			return nil, fmt.Errorf("%s.name: must not be empty", field)
		case upstreams[u.Name] != nil:
			return nil, fmt.Errorf("%s.name: another upstream has the name %q", field, u.Name)
		}
		b, err := u.backend(field)
		if err != nil {
			return nil, err
		}
		upstreams[u.Name] = b
	}
	var routes []route.Route
	for i, r := range c.Routes {
		var targets []route.Target
		for j, t := range r.Targets {
			b := upstreams[t.Upstream]
			if b == nil {
				return nil, fmt.Errorf("routes[%d].targets[%d].upstream: there is no upstream %q", i, j, t.Upstream)
			}
			targets = append(targets, route.Target{Name: cmp.Or(t.Name, t.Upstream), Backend: b, Model: t.Model, Weight: t.Weight})
		}
		routes = append(routes, route.Route{Model: r.Model, Strategy: r.Strategy, Targets: targets})
	}
	return route.New(routes, &route.Options{
		TryTimeout: -1, // each upstream has its own timeouts
		Failures:   c.Breaker.Failures,
		OpenFor:    time.Duration(c.Breaker.OpenFor),
	})
}

func (u *upstreamConfig) backend(field string) (llmhttp.Backend, error) {
	o := &upstream.Options{
		Name:              u.Name,
		FirstByteTimeout:  u.firstByteTimeout(),
		IdleTimeout:       time.Duration(u.SilenceTimeout),
		TokenizePath:      u.TokenizePath,
		OmitStreamOptions: u.OmitStreamOptions,
		Images:            upstream.ImageOptions{Hosts: u.ImageHosts, OmitFormat: u.OmitImageFormat},
	}
	if u.KeyEnv != "" {
		var err error
		if o.Key, err = environment(field+".key_env", u.KeyEnv); err != nil {
			return nil, err
		}
	}
	b, err := upstream.New(u.URL, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return b, nil
}

func (u *upstreamConfig) firstByteTimeout() time.Duration {
	return cmp.Or(time.Duration(u.FirstByteTimeout), 2*time.Minute)
}
