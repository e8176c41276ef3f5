package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/pricing"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// models are what is served and what it costs. SIGHUP makes them read the files of the flags
// again.
type models struct {
	config    *config
	backend   llmhttp.Backend
	router    *route.Router // the backend; nil with -demo
	upstreams map[string]server
	prices    atomic.Pointer[pricing.Table] // nil without -prices
}

// An upstreamConfig is a server of models, from a flag or a file.
type upstreamConfig struct {
	Name    string `json:"name"` // lower-case letters, digits and _
	URL     string `json:"url"`
	KeyFile string `json:"key_file"` // has the server's key; if empty, LLMHTTP_KEY_<NAME> has it

	field string // where it is from, for errors
}

// A server is an upstream. Its Backend has the connections to it.
type server struct {
	config  upstreamConfig
	key     string
	backend *upstream.Backend
}

// newModels returns the models of the flags. A request is sent to the upstream with the fewest
// requests in flight. If that fails or does not know the model, the others are tried.
func newModels(c *config) (*models, error) {
	m := &models{config: c, backend: memory.Echo()}
	switch {
	case c.demo && (len(c.upstreams) > 0 || c.upstreamFile != ""):
		return nil, errors.New("-demo and -upstream exclude each other")
	case !c.demo && len(c.upstreams) == 0 && c.upstreamFile == "":
		return nil, errors.New("no models to serve: set -upstream or -demo")
	case c.demo:
		return m, m.replace(func([]route.Route) error { return nil })
	}
	err := m.replace(func(routes []route.Route) (err error) {
		m.router, err = route.New(routes, &c.breaker)
		m.backend = m.router
		return err
	})
	return m, err
}

// reloadOn reads the files again for each signal, until ctx is done. After a mistake everything
// stays as it is. Requests in progress end as they have begun.
func (m *models) reloadOn(ctx context.Context, signals <-chan os.Signal) {
	m.checkPrices(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		update := func([]route.Route) error { return nil }
		if m.router != nil {
			update = m.router.Update
		}
		if err := m.replace(update); err != nil {
			slog.Error("not reloaded, the old configuration stays", "error", err.Error())
			continue
		}
		slog.Info("reloaded")
		m.checkPrices(ctx)
	}
}

// replace reads the prices and the upstreams, and sets the routes. Upstreams whose configuration
// and key are the same keep their connections. After an error nothing has changed.
func (m *models) replace(setRoutes func([]route.Route) error) error {
	prices, err := m.config.readPrices()
	if err != nil {
		return err
	}
	configs, err := m.config.readUpstreams()
	if err != nil {
		return err
	}
	upstreams := make(map[string]server)
	var targets []route.Target
	for _, u := range configs {
		s, err := u.server()
		if err != nil {
			return fmt.Errorf("%s: %w", u.field, err)
		}
		if old := m.upstreams[u.Name]; old.key == s.key && old.config.URL == u.URL {
			s.backend = old.backend
		}
		upstreams[u.Name] = s
		targets = append(targets, route.Target{Name: u.Name, Backend: s.backend})
	}
	if err := setRoutes([]route.Route{{Model: "*", Strategy: route.LeastInFlight, Targets: targets}}); err != nil {
		return fmt.Errorf("-upstream: %w", err)
	}
	m.prices.Store(prices)
	for name, old := range m.upstreams {
		if old.backend != upstreams[name].backend {
			old.backend.CloseIdleConnections()
		}
	}
	m.upstreams = upstreams
	return nil
}

// checkPrices logs which models have no price. Their requests are refused if the key has a quota in
// money, and are otherwise recorded as unpriced.
func (m *models) checkPrices(ctx context.Context) {
	prices := m.prices.Load()
	if prices == nil {
		return
	}
	if err := prices.Check(ctx, m.backend); err != nil && ctx.Err() == nil {
		slog.Error("prices are missing", "error", err.Error())
	}
}

// price is the Price of [llmhttp.Options].
func (m *models) price(r *llmhttp.UsageRecord) (llmhttp.Cost, error) { return m.prices.Load().Price(r) }

// readPrices reads the file of -prices. It returns nil without that flag.
func (c *config) readPrices() (*pricing.Table, error) {
	if c.prices == "" {
		return nil, nil
	}
	table, err := pricing.ReadFile(c.prices, nil)
	if err != nil {
		return nil, fmt.Errorf("-prices: %w", err)
	}
	return table, nil
}

var upstreamName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// readUpstreams returns the upstreams of the flags and of the file of -upstream-file.
func (c *config) readUpstreams() (all []upstreamConfig, err error) {
	for i, s := range c.upstreams {
		name, url, _ := strings.Cut(s, "=")
		if !upstreamName.MatchString(name) {
			return nil, fmt.Errorf("-upstream %d: expected name=URL with lower-case letters, digits and _ in the name", i+1)
		}
		all = append(all, upstreamConfig{Name: name, URL: url, field: "-upstream " + name})
	}
	if c.upstreamFile == "" {
		return all, nil
	}
	data, err := os.ReadFile(c.upstreamFile)
	if err != nil {
		return nil, fmt.Errorf("-upstream-file: %w", err)
	}
	var file struct {
		Upstreams []upstreamConfig `json:"upstreams"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: %w", c.upstreamFile, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s: there is more after the object", c.upstreamFile)
	}
	for i, u := range file.Upstreams {
		u.field = fmt.Sprintf("%s: upstreams[%d]", c.upstreamFile, i)
		if !upstreamName.MatchString(u.Name) {
			return nil, fmt.Errorf("%s.name: expected lower-case letters, digits and _", u.field)
		}
		all = append(all, u)
	}
	return all, nil
}

// server returns the upstream with a new Backend. Its errors have no key.
func (u upstreamConfig) server() (server, error) {
	key := os.Getenv("LLMHTTP_KEY_" + strings.ToUpper(u.Name))
	if u.KeyFile != "" {
		data, err := os.ReadFile(u.KeyFile)
		if err != nil {
			return server{}, fmt.Errorf("key_file: %w", err)
		}
		if key = strings.TrimSpace(string(data)); key == "" {
			return server{}, fmt.Errorf("key_file: %s is empty", u.KeyFile)
		}
	}
	b, err := upstream.New(u.URL, &upstream.Options{
		Name: u.Name, Key: key, Transport: propagator{upstream.NewTransport(nil)},
	})
	return server{u, key, b}, err
}
