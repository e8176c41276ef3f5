// Gateway serves models of other servers behind keys, limits and a record of
// usage of its own. A file names the servers, who answers for which model, and
// the keys; the secrets are in the environment. Usage and images last as long
// as the process.
//
//	go run ./examples/gateway -config examples/gateway/gateway.json
package main

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/llmhttp/llmhttp/memory"
)

func main() {
	file := flag.String("config", "gateway.json", "`file` that says what to serve")
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	drain := flag.Duration("drain", 7*time.Second, "how `long` requests may go on after SIGTERM")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "gateway: %q: there are no arguments, only flags\n", flag.Arg(0))
		os.Exit(2)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(*file, *addr, *drain); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(file, addr string, drain time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	c, err := readConfig(file)
	if err != nil {
		return err
	}
	g, err := c.gateway()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}

	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	base := "http://" + l.Addr().String()
	images := memory.NewImages(cmp.Or(g.publicURL, base) + "/images/")
	h := llmhttp.NewHandler(g.router, g.keys, &llmhttp.Options{
		Timeout:  g.timeout,
		Usage:    memory.NewUsageStore(),
		ImageURL: images.Put,
		Observe:  observe,
	})

	mux := http.NewServeMux()
	mux.Handle("/", h) // the API answers for unknown addresses as well
	mux.Handle("/images/", images)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 5 * time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	fmt.Print(c.welcome(base))

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	fmt.Println("draining ...")
	draining, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := h.Shutdown(draining); err != nil {
		slog.Warn("requests were cut", "err", err)
	}
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// observe logs a line for each request, with neither secrets nor what was said:
// errors that are the client's fault may quote it, so their texts are not in it.
func observe(ctx context.Context, r *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
	return ctx, func(x *llmhttp.RequestSummary) {
		attrs := []slog.Attr{
			slog.String("request_id", x.ID), slog.String("key", x.KeyID), slog.String("endpoint", string(x.Endpoint)),
			slog.String("model", x.Model), slog.Int("status", x.Status),
			slog.String("target", x.Target), slog.Int("tries", x.Tries),
			slog.Bool("streamed", x.Streamed), slog.Int("tokens", x.Usage.TotalTokens),
			slog.Duration("first", x.FirstChunk), slog.Duration("took", x.Duration),
		}
		if x.Err != nil && !isClients(x) {
			attrs = append(attrs, slog.Any("err", x.Err))
		}
		slog.LogAttrs(ctx, slog.LevelInfo, "served", attrs...)
	}
}

// isClients reports whether the error of x is its client's fault. Such a one may
// come in the middle of a stream, whose status is 200.
func isClients(x *llmhttp.RequestSummary) bool {
	status := x.Status
	if e, ok := errors.AsType[*llmhttp.Error](x.Err); ok && e.Status != 0 {
		status = e.Status
	}
	return status >= 400 && status < 499
}

// welcome says where the gateway listens and, if the secret of a key is in the
// environment, how to ask it.
func (c *config) welcome(base string) string {
	s := "listening on " + base + "\n"
	for _, k := range c.Keys {
		if k.SecretEnv != "" {
			s += fmt.Sprintf("\nTry:\n  curl %s/v1/models -H \"Authorization: Bearer $%s\"\n", base, k.SecretEnv)
			break
		}
	}
	return s
}
