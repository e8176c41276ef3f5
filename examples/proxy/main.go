// Proxy forwards chats to servers by weight, or to the vendor with a key that the tenant has brought.
// A guardrail checks requests and replies, and equal requests of a tenant get the reply that was
// kept. After SIGHUP it reads its file again.
//
//	ACME_SECRET=sk-acme ACME_OWN_KEY=sk-... MODEL_KEY=sk-... go run ./examples/proxy -config examples/proxy/proxy.json
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A config is the file. Secrets are in the environment.
type config struct {
	Vendor  string // the URL for keys of tenants
	Servers []struct {
		Name, URL, KeyEnv string
		Weight            int
	}
	Tenants []*tenant
}

// A tenant is the Data of its key.
type tenant struct {
	Name, SecretEnv string
	OwnKeyEnv       string            // empty if the tenant uses our servers
	own             *upstream.Backend // nil if OwnKeyEnv is empty
}

// tenantOf returns the tenant of a request. Without a request, while model lists are refreshed, it
// returns one without a key.
func tenantOf(ctx context.Context) *tenant {
	if key := llmhttp.KeyFrom(ctx); key != nil {
		return key.Data.(*tenant)
	}
	return new(tenant)
}

// ownKeys is a Backend that uses the key of the tenant.
type ownKeys struct{}

func (ownKeys) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return tenantOf(ctx).own.Chat(ctx, req)
}

// A proxy is what can be replaced while requests run.
type proxy struct {
	router   *route.Router
	backends map[[2]string]*upstream.Backend         // by URL and key: those that stay keep their breakers
	keys     atomic.Pointer[map[string]*llmhttp.Key] // by the hash of the secret
}

// Lookup implements [llmhttp.KeyStore].
func (p *proxy) Lookup(_ context.Context, secret string) (*llmhttp.Key, error) {
	if key := (*p.keys.Load())[llmhttp.HashSecret(secret)]; key != nil {
		return key, nil
	}
	return nil, llmhttp.ErrKeyNotFound
}

// backend returns the Backend for a server and a key, the same one each time.
func (p *proxy) backend(url, keyEnv string) (*upstream.Backend, error) {
	id := [2]string{url, os.Getenv(keyEnv)}
	if p.backends[id] == nil {
		b, err := upstream.New(url, &upstream.Options{Key: id[1]})
		if err != nil {
			return nil, err
		}
		p.backends[id] = b
	}
	return p.backends[id], nil
}

// load makes p what the file says. After an error p is as before.
func (p *proxy) load(file string) error {
	var c config
	text, err := os.ReadFile(file)
	if err = cmp.Or(err, json.Unmarshal(text, &c)); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	targets := []route.Target{{Name: "own key", Backend: ownKeys{}, Model: "*",
		Allow: func(ctx context.Context, _ route.Request) bool { return tenantOf(ctx).own != nil }}}
	for _, s := range c.Servers {
		b, err := p.backend(s.URL, s.KeyEnv)
		if err != nil {
			return fmt.Errorf("%s: server %s: %w", file, s.Name, err)
		}
		targets = append(targets, route.Target{Name: s.Name, Backend: b, Model: "*", Weight: s.Weight,
			Allow: func(ctx context.Context, _ route.Request) bool { return tenantOf(ctx).own == nil }})
	}
	keys := make(map[string]*llmhttp.Key)
	for _, t := range c.Tenants {
		secret := os.Getenv(t.SecretEnv)
		if secret == "" {
			return fmt.Errorf("%s: tenant %s: the variable %q is not set", file, t.Name, t.SecretEnv)
		}
		if t.OwnKeyEnv != "" {
			if t.own, err = p.backend(c.Vendor, t.OwnKeyEnv); err != nil {
				return fmt.Errorf("%s: vendor: %w", file, err)
			}
		}
		keys[llmhttp.HashSecret(secret)] = &llmhttp.Key{ID: t.Name, Account: t.Name, Data: t}
	}
	routes := []route.Route{{Model: "*", Targets: targets}} // every model that a server lists
	if p.router == nil {
		p.router, err = route.New(routes, &route.Options{Fallback: fallback})
	} else {
		err = p.router.Update(routes)
	}
	if err == nil {
		p.keys.Store(&keys)
	}
	return err
}

// fallback sends prompts that are too long to another server. It tells a tenant that the vendor
// refuses its key, and does not take that for a failure of the vendor.
func fallback(ctx context.Context, err error) route.Decision {
	refused, ok := errors.AsType[*upstream.Error](err)
	switch {
	case route.IsContextLength(err):
		return route.Decision{TryNext: route.Yes}
	case ok && tenantOf(ctx).own != nil && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden):
		e := llm.Errorf(http.StatusForbidden, "own_key_refused", "The vendor refuses the key that you have brought.")
		e.Err = err
		return route.Decision{TryNext: route.No, Failed: route.No, Err: e}
	}
	return route.Decision{}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	file := flag.String("config", "proxy.json", "the `file` that describes servers and tenants")
	flag.Parse()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	l, err := net.Listen("tcp", *addr)
	if err == nil {
		err = run(ctx, l, *file, reload)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, l net.Listener, file string, reload <-chan os.Signal) error {
	p := &proxy{backends: make(map[[2]string]*upstream.Backend)}
	if err := p.load(file); err != nil {
		return err
	}
	go func() {
		for {
			select {
			case <-reload:
				slog.Info("configuration read", "error", p.load(file))
			case <-ctx.Done():
				return
			}
		}
	}()
	h := llmhttp.NewHandler(guard(newCache(p.router)), p, &llmhttp.Options{
		Usage: usagebuffer.New(memory.NewUsageStore(), nil), Routes: all.Routes(nil),
	})
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	return llmhttp.Serve(ctx, server, h, nil, l)
}
