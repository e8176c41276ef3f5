package main

import (
	"cmp"
	"crypto/rand"
	"os"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/console/passwordhash"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// newConsole returns a console for the stores, in which the user admin can sign
// in with the password that is returned, and people with an API key.
func newConsole(
	keys *memory.KeyStore,
	h *llmhttp.Handler,
	monitor *console.Monitor,
	opts *llmhttp.Options,
) (c *console.Handler, password string, err error) {
	password = cmp.Or(os.Getenv("CONSOLE_PASSWORD"), rand.Text()[:12])
	hash, err := passwordhash.New(password)
	if err != nil {
		return nil, "", err
	}
	c, err = console.New(keys, &console.Options{
		SignIn:  &console.SignIn{Admins: map[string]string{"admin": hash}, Keys: true},
		Usage:   opts.Usage,
		Limiter: opts.Limiter,
		API:     h,
		Monitor: monitor,
	})
	return c, password, err
}

// price is what an imaginary vendor charges: 0.50 for a million tokens of prompts, 2 for a
// million of completions, and 0.04 for an image.
func price(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
	const million, unit = 1_000_000, llm.MoneyUnit
	return llmhttp.Cost{
		Input:  (unit / 2).Scale(r.Units.PromptTokens, million),
		Output: (2 * unit).Scale(r.Units.CompletionTokens, million).Add((4 * unit).Scale(r.Units.Images, 100)),
	}, nil
}
