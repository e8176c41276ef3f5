// Inmemory serves the whole API without a model, and Anthropic's Messages API
// too: a simulated model, one key, and stores in memory. It is the shortest
// complete host, and a server for the tests of clients.
//
//	go run ./examples/inmemory
//
// With -console it also serves the web console, below /console/.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	key := flag.String("key", "sk-demo", "API `key` to accept")
	rpm := flag.Int("rpm", 0, "`requests` a minute for the key; 0 is unlimited")
	tpm := flag.Int("tpm", 0, "`tokens` a minute for the key; 0 is unlimited")
	delay := flag.Duration("delay", 0, "`pause` before each streamed chunk")
	withConsole := flag.Bool("console", false, "serve the web console too; it prints a password unless CONSOLE_PASSWORD has one")
	flag.Parse()
	if err := run(*addr, *key, *rpm, *tpm, *delay, *withConsole); err != nil {
		log.Fatal(err)
	}
}

// perMinute returns the Rate of a flag, whose zero means no limit.
func perMinute(n int) llmhttp.Rate {
	if n == 0 {
		return llmhttp.Rate{}
	}
	return llmhttp.PerMinute(n)
}

func run(addr, key string, rpm, tpm int, delay time.Duration, withConsole bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	base := "http://" + l.Addr().String()

	keys := memory.NewKeyStore()
	keys.Add(key, &llmhttp.Key{
		ID:     "demo",
		Limits: llmhttp.Limits{Requests: perMinute(rpm), Tokens: perMinute(tpm)},
	})
	images := memory.NewImageStore(base + "/images/")
	backend := simulator.New()
	backend.Delay = delay
	monitor := console.NewMonitor()
	opts := &llmhttp.Options{
		Usage:     memory.NewUsageStore(),
		Limiter:   llmhttp.NewLimiter(),
		Price:     price,
		ImageURL:  images.Put,
		Estimates: llmhttp.TokenEstimates{TextTokens: simulator.CountTokens},
		Observe:   monitor.Observe,
		Routes:    all.Routes(nil),
		Protocols: []llmhttp.Protocol{
			messages.New(&messages.Options{Names: names}),
			responses.New(&responses.Options{Store: memory.NewResponseStore()}),
		},
	}
	h := llmhttp.NewHandler(backend, console.NewKeyStore(keys), opts)

	mux := http.NewServeMux()
	mux.Handle("/", h) // also replies to unknown paths
	mux.Handle("/images/", images)
	instructions := fmt.Sprintf(welcome, base, key)
	if withConsole {
		c, password, err := newConsole(keys, h, monitor, opts)
		if err != nil {
			return err
		}
		mux.Handle("/console/", c)
		instructions += fmt.Sprintf("\nConsole: %s/console/\nName: admin\nPassword: %s\n", base, password)
	}
	fmt.Print(instructions)
	context.AfterFunc(ctx, func() { fmt.Printf("draining ... for at most %v; Ctrl-C again ends at once\n", drainTimeout) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	return llmhttp.Serve(ctx, server, h, &llmhttp.ServeOptions{DrainTimeout: drainTimeout}, l)
}

// drainTimeout is how long requests may go on after a signal.
const drainTimeout = 5 * time.Second

// names are those for which agents ask that speak Anthropic's API. Those of the first line are listed, too:
// Claude Code offers models whose names contain "claude".
var names = messages.Names{
	"claude-demo-*": "demo-*",
	"claude-*":      simulator.ModelChat,
}

const welcome = `listening on %[1]s
API key: %[2]s

Try:
  curl -w '\n' %[1]s/v1/chat/completions -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello there, world!"}]}'
  curl -N %[1]s/v1/chat/completions -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model": "demo-chat", "stream": true, "messages": [{"role": "user", "content": "Hello there, world!"}]}'
  curl -w '\n' %[1]s/v1/completions -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model": "demo-complete", "prompt": "def add(a, b):", "suffix": "return c", "max_tokens": 9}'
  curl -w '\n' %[1]s/v1/images/generations -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model": "demo-image-small", "prompt": "a lighthouse at dawn", "size": "256x256", "response_format": "url"}'
  curl -w '\n' %[1]s/v1/embeddings -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model": "demo-embed", "input": "hello", "dimensions": 8}'
  curl -w '\n' %[1]s/v1/rerank -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model": "demo-rerank", "query": "capital of Norway", "documents": ["Bergen is rainy.", "Oslo is the capital of Norway."]}'
  curl -w '\n' %[1]s/v1/moderations -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"model": "demo-moderation", "input": ["Hello there, world!", "I hate that."]}'
  curl -w '\n' %[1]s/v1/messages -H 'x-api-key: %[2]s' -H 'Content-Type: application/json' -d '{"model": "demo-chat", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello there, world!"}]}'
  curl -w '\n' %[1]s/v1/models -H 'Authorization: Bearer %[2]s'
  curl -w '\n' %[1]s/v1/dashboard/billing/usage -H 'Authorization: Bearer %[2]s'
`
