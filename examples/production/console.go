package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/route"
)

// withConsole returns a handler for the paths of the console, if the flag asks for
// it, and of h. The administrator of the flag can sign in, and people with a key.
// Copies with the same LLMHTTP_CONSOLE_SECRET accept each other's sessions.
func (c *config) withConsole(h http.Handler, keys manage.KeyManager, router *route.Router, opts *console.Options) (http.Handler, error) {
	if c.console == "" {
		return h, nil
	}
	name, hash, _ := strings.Cut(c.console, ":")
	opts.TrustedProxies = c.proxies
	opts.SignIn = &console.SignIn{
		Admins:        map[string]string{name: hash},
		Keys:          true,
		SessionSecret: []byte(os.Getenv("LLMHTTP_CONSOLE_SECRET")),
	}
	if router != nil {
		opts.Targets = router.Status
	}
	pages, err := console.New(keys, opts)
	if err != nil {
		return nil, fmt.Errorf("-console: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle("/console/", pages)
	return mux, nil
}
