package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// A config is what the file says. Durations are as in "90s" or "1h30m".
// Secrets are not in it: it names the environment variables that hold them.
type config struct {
	// PublicURL is where clients reach the gateway, for the addresses of
	// images: "https://llm.example.com". If empty, it is where it listens.
	PublicURL string `json:"public_url"`

	Upstreams []upstreamConfig `json:"upstreams"`
	Routes    []routeConfig    `json:"routes"`
	Keys      []keyConfig      `json:"keys"`
}

// An upstreamConfig is a server of the API. What else it leaves out has the
// default of [upstream.Options].
type upstreamConfig struct {
	Name              string   `json:"name"`
	URL               string   `json:"url"`     // as clients of it have it: "https://host/v1"
	KeyEnv            string   `json:"key_env"` // if empty, it needs no key
	ImageHosts        []string `json:"image_hosts"`
	FirstByteTimeout  string   `json:"first_byte_timeout"` // then another target is tried; if empty, 2m
	SilenceTimeout    string   `json:"silence_timeout"`
	OmitStreamOptions bool     `json:"omit_stream_options"`
	OmitImageFormat   bool     `json:"omit_image_format"`
}

// A routeConfig is a [route.Route].
type routeConfig struct {
	Model    string         `json:"model"`
	Strategy route.Strategy `json:"strategy"`
	Targets  []targetConfig `json:"targets"`
}

type targetConfig struct {
	Name     string `json:"name"` // in logs; if empty, the upstream's
	Upstream string `json:"upstream"`
	Model    string `json:"model"` // as the upstream calls it; if empty, as clients do
	Weight   int    `json:"weight"`
}

// A keyConfig is a [llmhttp.Key]. Its secret is in the environment or, as its
// SHA-256 hash in hexadecimal, in the file.
type keyConfig struct {
	ID         string             `json:"id"`
	Account    string             `json:"account"`
	SecretEnv  string             `json:"secret_env"`
	SecretHash string             `json:"secret_hash"`
	Scopes     []llmhttp.Endpoint `json:"scopes"` // if missing, all; if empty, none
	Models     []string           `json:"models"` // likewise
	Expires    string             `json:"expires"`
	Limits     struct {
		Requests   *rateConfig `json:"requests"`
		Tokens     *rateConfig `json:"tokens"`
		Quota      *rateConfig `json:"quota"`
		Concurrent int         `json:"concurrent"`
	} `json:"limits"`
}

// A rateConfig is a [llmhttp.Rate].
type rateConfig struct {
	N     int    `json:"n"`
	Per   string `json:"per"` // if empty, a minute
	Burst int    `json:"burst"`
}

// readConfig reads a file. Names that it does not know are errors.
func readConfig(file string) (*config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := new(config)
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("%s%s", file, explain(data, err))
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s:%d: there is more after the end", file, line(data, d.InputOffset()))
	}
	if name := repeated(json.NewDecoder(bytes.NewReader(data)), ""); name != "" {
		return nil, fmt.Errorf("%s: %s: is there twice", file, name)
	}
	return c, nil
}

// repeated returns a name that an object of the next value of d has twice,
// under the path at, or "" if there is none. The value is valid.
func repeated(d *json.Decoder, at string) (found string) {
	t, _ := d.Token()
	switch t {
	case json.Delim('{'):
		seen := make(map[string]bool)
		for d.More() {
			t, _ := d.Token()
			name, _ := t.(string)
			path := strings.TrimPrefix(at+"."+name, ".")
			if name = strings.ToLower(name); seen[name] { // to package json they are the same
				found = cmp.Or(found, path)
			}
			seen[name] = true
			found = cmp.Or(found, repeated(d, path))
		}
		d.Token()
	case json.Delim('['):
		for i := 0; d.More(); i++ {
			found = cmp.Or(found, repeated(d, fmt.Sprintf("%s[%d]", at, i)))
		}
		d.Token()
	}
	return found
}

// explain says what is wrong with data, and where, without the names that Go
// has for it.
func explain(data []byte, err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf(":%d: %s: must be %s, not %s", line(data, e.Offset), cmp.Or(e.Field, "the file"), kinds[e.Type.Kind()], e.Value)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf(":%d: %v", line(data, e.Offset), e)
	}
	if err == io.EOF {
		return ": it is empty"
	}
	return ": " + strings.TrimPrefix(err.Error(), "json: ")
}

var kinds = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.Int: "an integer", reflect.String: "a string",
	reflect.Slice: "an array", reflect.Struct: "an object",
}

func line(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n"))
}

// A gateway is what a config makes.
type gateway struct {
	publicURL string        // with no slash at its end; may be empty
	timeout   time.Duration // of a request, until it is answered
	router    *route.Router
	keys      keyStore
}

func (c *config) gateway() (g gateway, err error) {
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return g, fmt.Errorf("public_url: %q is not a URL such as %q", c.PublicURL, "https://llm.example.com")
		}
		g.publicURL = strings.TrimSuffix(c.PublicURL, "/")
	}
	if g.router, err = c.router(); err != nil {
		return g, err
	}
	g.timeout = 5 * time.Minute
	for i := range c.Upstreams {
		d, _ := c.Upstreams[i].firstByte("")        // which is valid
		g.timeout = max(g.timeout, 2*d+time.Minute) // so that there is time for another target
	}
	g.keys, err = c.keys()
	return g, err
}

func (c *config) router() (*route.Router, error) {
	upstreams := make(map[string]*upstream.Backend)
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		at := fmt.Sprintf("upstreams[%d]", i)
		switch {
		case u.Name == "":
			return nil, fmt.Errorf("%s.name: must not be empty", at)
		case upstreams[u.Name] != nil:
			return nil, fmt.Errorf("%s.name: there is another upstream %q", at, u.Name)
		}
		b, err := u.backend(at)
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
				return nil, fmt.Errorf("routes[%d].targets[%d].upstream: no upstream %q", i, j, t.Upstream)
			}
			targets = append(targets, route.Target{Name: cmp.Or(t.Name, t.Upstream), Backend: b, Model: t.Model, Weight: t.Weight})
		}
		routes = append(routes, route.Route{Model: r.Model, Strategy: r.Strategy, Targets: targets})
	}
	// Each try is bounded by the timeouts of its upstream.
	router, err := route.New(routes, &route.Options{TryTimeout: -1})
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "route: ")) // it has our names for the fields
	}
	return router, nil
}

func (u *upstreamConfig) backend(at string) (*upstream.Backend, error) {
	o := &upstream.Options{
		Name: u.Name, OmitStreamOptions: u.OmitStreamOptions,
		Images: upstream.ImageOptions{Hosts: u.ImageHosts, OmitFormat: u.OmitImageFormat},
	}
	var err error
	if o.FirstByteTimeout, err = u.firstByte(at); err != nil {
		return nil, err
	}
	if o.IdleTimeout, err = duration(at+".silence_timeout", u.SilenceTimeout); err != nil {
		return nil, err
	}
	if u.KeyEnv != "" {
		if o.Key, err = environment(at+".key_env", u.KeyEnv); err != nil {
			return nil, err
		}
	}
	b, err := upstream.New(u.URL, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", at, fieldNames.Replace(err.Error()))
	}
	return b, nil
}

// firstByte returns how long u may take until another target is tried.
func (u *upstreamConfig) firstByte(at string) (time.Duration, error) {
	d, err := duration(at+".first_byte_timeout", u.FirstByteTimeout)
	return cmp.Or(d, 2*time.Minute), err
}

// fieldNames puts our names in the place of those of [upstream.New].
var fieldNames = strings.NewReplacer("upstream: ", "", "the base URL", "url", "; use Options.Key or Options.Header", "",
	"Options.Key", "key_env", "Options.Images.Hosts", "image_hosts")

// A keyStore has the keys by the hashes of their secrets.
type keyStore map[string]*llmhttp.Key

// Lookup implements [llmhttp.KeyStore].
func (s keyStore) Lookup(_ context.Context, secret string) (*llmhttp.Key, error) {
	if key := s[llmhttp.HashSecret(secret)]; key != nil {
		return key, nil
	}
	return nil, llmhttp.ErrKeyNotFound
}

func (c *config) keys() (keyStore, error) {
	if len(c.Keys) == 0 {
		return nil, errors.New("keys: there must be at least one")
	}
	store := make(keyStore)
	ids := make(map[string]bool)
	for i := range c.Keys {
		k := &c.Keys[i]
		at := fmt.Sprintf("keys[%d]", i)
		switch {
		case k.ID == "":
			return nil, fmt.Errorf("%s.id: must not be empty", at)
		case ids[k.ID]:
			return nil, fmt.Errorf("%s.id: there is another key %q", at, k.ID)
		}
		ids[k.ID] = true
		hash, err := k.hash(at)
		if err != nil {
			return nil, err
		}
		if other := store[hash]; other != nil {
			return nil, fmt.Errorf("%s: has the secret of key %q", at, other.ID)
		}
		if store[hash], err = k.key(at); err != nil {
			return nil, err
		}
	}
	return store, nil
}

func (k *keyConfig) hash(at string) (string, error) {
	switch {
	case (k.SecretEnv == "") == (k.SecretHash == ""):
		return "", fmt.Errorf("%s: must have either secret_env or secret_hash", at)
	case k.SecretEnv != "":
		secret, err := environment(at+".secret_env", k.SecretEnv)
		return llmhttp.HashSecret(secret), err
	}
	hash := strings.ToLower(k.SecretHash)
	if b, err := hex.DecodeString(hash); err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("%s.secret_hash: must be a SHA-256 hash: %d hexadecimal digits", at, 2*sha256.Size)
	}
	return hash, nil
}

var endpoints = []llmhttp.Endpoint{
	llmhttp.EndpointChat, llmhttp.EndpointImages, llmhttp.EndpointEmbeddings, llmhttp.EndpointModels, llmhttp.EndpointUsage,
}

func (k *keyConfig) key(at string) (*llmhttp.Key, error) {
	key := &llmhttp.Key{ID: k.ID, Account: k.Account, Scopes: k.Scopes, Models: k.Models}
	for i, scope := range k.Scopes {
		if !slices.Contains(endpoints, scope) {
			return nil, fmt.Errorf("%s.scopes[%d]: %q is none of %q", at, i, scope, endpoints)
		}
	}
	var err error
	if k.Expires != "" {
		if key.Expires, err = time.Parse(time.RFC3339, k.Expires); err != nil {
			return nil, fmt.Errorf("%s.expires: %q is not a time such as %q", at, k.Expires, "2030-12-31T23:59:59Z")
		}
	}
	at += ".limits"
	l := &key.Limits
	l.Concurrent = k.Limits.Concurrent
	if l.Requests, err = k.Limits.Requests.rate(at + ".requests"); err != nil {
		return nil, err
	}
	if l.Tokens, err = k.Limits.Tokens.rate(at + ".tokens"); err != nil {
		return nil, err
	}
	if l.Quota, err = k.Limits.Quota.rate(at + ".quota"); err != nil {
		return nil, err
	}
	if l.Concurrent < 0 {
		return nil, fmt.Errorf("%s.concurrent: must not be negative", at)
	}
	return key, nil
}

// rate returns no limit for a nil r.
func (r *rateConfig) rate(at string) (llmhttp.Rate, error) {
	switch {
	case r == nil:
		return llmhttp.Rate{}, nil
	case r.N <= 0:
		return llmhttp.Rate{}, fmt.Errorf("%s.n: must be positive", at)
	case r.Burst < 0:
		return llmhttp.Rate{}, fmt.Errorf("%s.burst: must not be negative", at)
	}
	per, err := duration(at+".per", r.Per)
	return llmhttp.Rate{N: r.N, Per: per, Burst: r.Burst}, err
}

// duration returns 0 for an empty s.
func duration(at, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s: %q is not a positive duration such as %q", at, s, "1m30s")
	}
	return d, nil
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// environment returns the variable that the field at names.
func environment(at, name string) (string, error) {
	v := os.Getenv(name)
	switch {
	case !variable.MatchString(name): // perhaps the secret itself
		return "", fmt.Errorf("%s: must be the name of an environment variable", at)
	case v == "":
		return "", fmt.Errorf("%s: %s is not set in the environment", at, name)
	case strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", fmt.Errorf("%s: %s has a character that no key may have, such as a space or a line break", at, name)
	}
	return v, nil
}
