package main

import (
	"cmp"
	"crypto/rand"
	"os"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/memory"
)

// newConsole returns a console for the stores, in which the user admin can sign
// in with the password that is returned, and people with an API key.
func newConsole(keys *memory.KeyStore, h *llmhttp.Handler, monitor *console.Monitor, opts *llmhttp.Options) (c *console.Handler, password string, err error) {
	password = cmp.Or(os.Getenv("CONSOLE_PASSWORD"), rand.Text()[:12])
	hash, err := console.HashPassword(password)
	if err != nil {
		return nil, "", err
	}
	c, err = console.New(keys, &console.Options{
		SignIn:  &console.SignIn{Admins: map[string]string{"admin": hash}, Keys: true},
		Usage:   opts.Usage,
		Limiter: opts.Limiter,
		Cost:    opts.Cost,
		API:     h,
		Monitor: monitor,
	})
	return c, password, err
}

// cost is what an imaginary vendor charges.
func cost(u llmhttp.UsageSum) float64 {
	const million = 1e6
	return float64(u.PromptTokens)*0.5/million + float64(u.CompletionTokens)*2/million + float64(u.Images)*0.04
}
