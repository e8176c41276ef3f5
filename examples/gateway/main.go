// Gateway serves the models of other servers, with its own keys, limits and usage records. A JSON
// file names the servers, the routes of the models and the keys; the secrets are in environment
// variables. Usage, responses and images are kept in memory until the process ends.
//
//	go run ./examples/gateway -config examples/gateway/gateway.json
//
// SIGHUP makes it read the file again, without ending a request or a connection to a server whose
// configuration stays. SIGTERM and SIGINT end it after requests in progress.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/responsesws"
)

func main() {
	file := flag.String("config", "gateway.json", "configuration `file`")
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	drain := flag.Duration("drain", 7*time.Second, "how `long` requests may go on after SIGTERM")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "gateway: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, *file, *addr, *drain); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done. Requests in progress may go on for the duration
// drain.
func run(ctx context.Context, file, addr string, drain time.Duration) error {
	c, err := readConfig(file)
	if err != nil {
		return err
	}
	g, err := newGateway(c)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	base := "http://" + l.Addr().String()
	images := memory.NewImageStore(cmp.Or(g.publicURL, base) + "/images/")
	h := llmhttp.NewHandler(g.router, &g.keys, &llmhttp.Options{
		Bounds:   llmhttp.Bounds{Timeout: g.timeout},
		Usage:    memory.NewUsageStore(),
		Accept:   llmhttp.AcceptOptions{Decode: decode},
		ImageURL: images.Put,
		Observe:  llmhttp.LogRequests(nil),
		Routes:   all.Routes(nil),
		// The name of a model is what a route says: it may be a pattern such as claude-*.
		Protocols: []llmhttp.Protocol{
			messages.New(&messages.Options{Anthropic: true}), // upstreams of the other format leave it out
			responses.New(&responses.Options{Store: memory.NewResponseStore(), CodexInstructions: g.codex.text, Secret: g.secret}),
		},
	})
	ws := responsesws.New(h, nil) // Codex tries a WebSocket first
	mux := http.NewServeMux()
	mux.Handle("/", ws) // unknown paths get an error in the format of the API
	mux.Handle("/images/", images)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	go g.reloadOn(ctx, hangups, file)
	fmt.Print(c.welcome(base))
	return serve(ctx, l, mux, h, ws, drain)
}

// reloadOn reads the configuration again for each signal, until ctx is done. After a mistake the
// gateway stays as it is.
func (g *gateway) reloadOn(ctx context.Context, signals <-chan os.Signal, file string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		c, err := readConfig(file)
		if err == nil {
			if err = g.reload(c); err != nil {
				err = fmt.Errorf("%s: %w", file, err)
			}
		}
		if err != nil {
			slog.Error("not reloaded, the old configuration stays", "error", err)
			continue
		}
		slog.Info("reloaded", "file", file)
	}
}

// serve serves mux until ctx is done. Then the requests to h may go on for the
// duration drain.
func serve(ctx context.Context, l net.Listener, mux http.Handler, h *llmhttp.Handler, ws *responsesws.Handler, drain time.Duration) error {
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,     // of a request with its body
		WriteTimeout:      5 * time.Minute, // for other handlers; that of llmhttp sets its own deadlines
		IdleTimeout:       2 * time.Minute, // of a connection between requests
	}
	server.RegisterOnShutdown(ws.Drain)
	context.AfterFunc(ctx, func() { fmt.Printf("draining ... for at most %v; Ctrl-C again ends at once\n", drain) })
	return llmhttp.Serve(ctx, server, h, &llmhttp.ServeOptions{DrainTimeout: max(drain, 1)}, l) // zero would be the default
}

// welcome returns the text that says where the gateway listens and, if the secret of a key is in
// the environment, how to call it.
func (c *config) welcome(base string) string {
	s := "listening on " + base + "\n"
	for _, k := range c.Keys {
		if k.SecretEnv != "" {
			return s + fmt.Sprintf("\nTry:\n  curl %s/v1/models -H \"Authorization: Bearer $%s\"\n", base, k.SecretEnv)
		}
	}
	return s
}
