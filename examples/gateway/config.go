package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// A config is the content of the configuration file. Secrets are not in the
// file but in environment variables, which the file names.
type config struct {
	// PublicURL is the address at which clients reach the gateway, such as
	// "https://llm.example.com", for the addresses of images. If empty, it is
	// the address that the gateway listens on.
	PublicURL string `json:"public_url"`

	Upstreams []upstreamConfig `json:"upstreams"`
	Routes    []routeConfig    `json:"routes"`
	Breaker   breakerConfig    `json:"breaker"`
	Keys      []keyConfig      `json:"keys"`
}

// A breakerConfig has the options of circuit breakers in [route.Options].
type breakerConfig struct {
	Failures int      `json:"failures"` // how many open a breaker; if missing, 5; if negative, breakers never open
	OpenFor  duration `json:"open_for"` // if missing, 10s
}

// An upstreamConfig is a server of models. Fields that are missing have the
// defaults of [upstream.Options], unless the comment says otherwise.
type upstreamConfig struct {
	Name              string   `json:"name"`
	URL               string   `json:"url"`     // such as "https://host/v1"
	KeyEnv            string   `json:"key_env"` // the environment variable with the server's key; if empty, it needs none
	ImageHosts        []string `json:"image_hosts"`
	FirstByteTimeout  duration `json:"first_byte_timeout"` // until another target is tried; if missing, 2m
	SilenceTimeout    duration `json:"silence_timeout"`
	OmitStreamOptions bool     `json:"omit_stream_options"`
	OmitImageFormat   bool     `json:"omit_image_format"`
}

// A routeConfig is a [route.Route].
type routeConfig struct {
	Model    string         `json:"model"`
	Strategy route.Strategy `json:"strategy"`
	Targets  []targetConfig `json:"targets"`
}

// A targetConfig is a [route.Target].
type targetConfig struct {
	Name     string `json:"name"` // if empty, the upstream's
	Upstream string `json:"upstream"`
	Model    string `json:"model"`
	Weight   int    `json:"weight"`
}

// A keyConfig is an [llmhttp.Key] and its secret, which is given by SecretEnv or
// by SecretHash.
type keyConfig struct {
	ID         string             `json:"id"`
	Account    string             `json:"account"`
	SecretEnv  string             `json:"secret_env"`  // the environment variable with the secret
	SecretHash string             `json:"secret_hash"` // the SHA-256 hash of the secret, in hexadecimal
	Scopes     []llmhttp.Endpoint `json:"scopes"`      // if missing, all; if empty, none
	Models     []string           `json:"models"`      // if missing, all; if empty, none
	Expires    time.Time          `json:"expires"`     // if missing, never
	Limits     struct {
		Requests   *rateConfig  `json:"requests"`
		Tokens     *rateConfig  `json:"tokens"`
		Quota      *quotaConfig `json:"quota"`
		Completion int          `json:"max_completion_tokens"`
		Concurrent int          `json:"concurrent"`
	} `json:"limits"`
}

// A rateConfig is an [llmhttp.Rate].
type rateConfig struct {
	N     int      `json:"n"`
	Per   duration `json:"per"`   // if missing, a minute
	Burst int      `json:"burst"` // if missing, N
}

// A quotaConfig is an [llmhttp.Quota].
type quotaConfig struct {
	Tokens int      `json:"tokens"`
	Per    duration `json:"per"` // of a sliding period; if missing, the calendar month
}

// A duration is positive. In the file it is a string such as "90s" or "1h30m".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err == nil && v <= 0 {
		err = fmt.Errorf("duration %q is not positive", text)
	}
	*d = duration(v)
	return err
}

// readConfig reads a file. Unknown and duplicate names are errors.
func readConfig(file string) (*config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := new(config)
	if err := json.Unmarshal(data, c, json.RejectUnknownMembers(true)); err != nil {
		var offset int64
		if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			offset = e.ByteOffset
		} else if e, ok := errors.AsType[*json.SemanticError](err); ok {
			offset = e.ByteOffset
		}
		return nil, fmt.Errorf("%s:%d: %w", file, 1+bytes.Count(data[:offset], []byte("\n")), err)
	}
	return c, nil
}

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

// A keyStore holds keys by the hashes of their secrets.
type keyStore map[string]*llmhttp.Key

// Lookup implements [llmhttp.KeyStore].
func (s keyStore) Lookup(_ context.Context, secret string) (*llmhttp.Key, error) {
	if key := s[llmhttp.HashSecret(secret)]; key != nil {
		return key, nil
	}
	return nil, llmhttp.ErrKeyNotFound
}

func newKeyStore(keys []keyConfig) (keyStore, error) {
	if len(keys) == 0 {
		return nil, errors.New("keys: must not be empty")
	}
	store := make(keyStore)
	ids := make(map[string]bool)
	for i := range keys {
		k, field := &keys[i], fmt.Sprintf("keys[%d]", i)
		switch {
		case k.ID == "":
			return nil, fmt.Errorf("%s.id: must not be empty", field)
		case ids[k.ID]:
			return nil, fmt.Errorf("%s.id: another key has the ID %q", field, k.ID)
		}
		ids[k.ID] = true
		hash, err := k.hash(field)
		if err != nil {
			return nil, err
		}
		if other := store[hash]; other != nil {
			return nil, fmt.Errorf("%s: key %q has the same secret", field, other.ID)
		}
		if store[hash], err = k.key(field); err != nil {
			return nil, err
		}
	}
	return store, nil
}

// hash returns the hash of the secret, as [llmhttp.HashSecret] does.
func (k *keyConfig) hash(field string) (string, error) {
	if (k.SecretEnv == "") == (k.SecretHash == "") {
		return "", fmt.Errorf("%s: must have either secret_env or secret_hash", field)
	}
	if k.SecretEnv != "" {
		secret, err := environment(field+".secret_env", k.SecretEnv)
		return llmhttp.HashSecret(secret), err
	}
	if b, err := hex.DecodeString(k.SecretHash); err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("%s.secret_hash: must be a SHA-256 hash of %d hexadecimal digits", field, 2*sha256.Size)
	}
	return strings.ToLower(k.SecretHash), nil
}

func (k *keyConfig) key(field string) (*llmhttp.Key, error) {
	for i, scope := range k.Scopes {
		if endpoints := llmhttp.Endpoints(); !slices.Contains(endpoints, scope) {
			return nil, fmt.Errorf("%s.scopes[%d]: %q is not one of %q", field, i, scope, endpoints)
		}
	}
	if k.Limits.Concurrent < 0 {
		return nil, fmt.Errorf("%s.limits.concurrent: must not be negative", field)
	}
	key := &llmhttp.Key{ID: k.ID, Account: k.Account, Scopes: k.Scopes, Models: k.Models, Expires: k.Expires}
	if k.Limits.Completion < 0 {
		return nil, fmt.Errorf("%s.limits.max_completion_tokens: must not be negative", field)
	}
	key.Limits.Concurrent, key.Limits.MaxCompletionTokens = k.Limits.Concurrent, k.Limits.Completion
	var err error
	if key.Limits.Requests, err = k.Limits.Requests.rate(field + ".limits.requests"); err != nil {
		return nil, err
	}
	if key.Limits.Tokens, err = k.Limits.Tokens.rate(field + ".limits.tokens"); err != nil {
		return nil, err
	}
	if q := k.Limits.Quota; q != nil {
		if q.Tokens <= 0 {
			return nil, fmt.Errorf("%s.limits.quota.tokens: must be positive", field)
		}
		key.Limits.Quota = llmhttp.Quota{Tokens: q.Tokens, Per: time.Duration(q.Per)}
	}
	return key, nil
}

// rate returns the Rate of r, which is nil if there is no limit.
func (r *rateConfig) rate(field string) (llmhttp.Rate, error) {
	switch {
	case r == nil:
		return llmhttp.Rate{}, nil
	case r.N <= 0:
		return llmhttp.Rate{}, fmt.Errorf("%s.n: must be positive", field)
	case r.Burst < 0:
		return llmhttp.Rate{}, fmt.Errorf("%s.burst: must not be negative", field)
	}
	return llmhttp.Rate{N: r.N, Per: time.Duration(r.Per), Burst: r.Burst}, nil
}

// environment returns the secret in the environment variable that a field names.
// The errors do not contain the name, which might be the secret itself by
// mistake.
func environment(field, name string) (string, error) {
	v := os.Getenv(name)
	switch {
	case v == "":
		return "", fmt.Errorf("%s: the environment variable is not set", field)
	case strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", fmt.Errorf("%s: the environment variable has a character that a key must not have, such as a space or a line break", field)
	}
	return v, nil
}
