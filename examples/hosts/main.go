// Hosts serves one API at several addresses: at a host of its own, beside a
// website, and under a path prefix. One Handler serves them all, so they share
// keys, limits and usage.
//
//	go run ./examples/hosts
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// mount returns a handler that serves h and a website.
func mount(h http.Handler) http.Handler {
	mux := http.NewServeMux()

	// A host of its own: h also replies to paths outside the API.
	mux.Handle("api.example.com/", h)

	// A host with a website.
	mux.Handle("www.example.com/v1/", h)
	mux.HandleFunc("www.example.com/{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "Welcome to example.com.")
	})

	// All other hosts, under a prefix: the base URL of clients ends in /llm/v1. A
	// Handler that is only there sets Options.Prefix instead, so that logs and errors
	// have the prefix too.
	mux.Handle("/llm/v1/", http.StripPrefix("/llm", h))

	// Old clients request their usage without /v1.
	mux.Handle("GET www.example.com/dashboard/billing/usage", h)
	return mux
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	if err := run(ctx, *addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done. It writes instructions to out.
func run(ctx context.Context, addr string, out io.Writer) error {
	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), &llmhttp.Options{Usage: memory.NewUsageStore()})
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mount(h), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	fmt.Fprintf(out, welcome, l.Addr())
	return llmhttp.Serve(ctx, server, h, nil, l)
}

const welcome = `listening on http://%[1]s

Try:
  curl -w '\n' http://%[1]s/v1/models -H 'Host: api.example.com' -H 'Authorization: Bearer sk-demo'
  curl -w '\n' http://%[1]s/v1/models -H 'Host: www.example.com' -H 'Authorization: Bearer sk-demo'
  curl -w '\n' http://%[1]s/llm/v1/models -H 'Authorization: Bearer sk-demo'
  curl -w '\n' http://%[1]s/ -H 'Host: www.example.com'
`
