// Cors puts middleware in front of the API: rs/cors for web pages of other
// origins, and a middleware that refuses clients by address with an error in the
// format of the API.
//
//	go run ./examples/cors
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rs/cors"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// allowOrigins returns middleware that lets web pages of the given origins use
// the API. It answers preflight requests itself, because browsers send them
// without a key.
func allowOrigins(origins []string) *cors.Cors {
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodPost},
		AllowedHeaders: []string{"*"}, // client libraries send headers of their own
		ExposedHeaders: []string{
			"X-Request-Id", "Openai-Processing-Ms",
			"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
			"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens",
			"Retry-After", "Retry-After-Ms", "X-Should-Retry",
		},
		MaxAge: int(time.Hour / time.Second),
	})
}

// denyNetworks refuses requests from the given networks. Behind a proxy, the
// remote address is that of the proxy.
func denyNetworks(denied []netip.Prefix, api *llmhttp.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remote, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			api.WriteError(w, r, err) // status 500; the client does not see err
			return
		}
		for _, p := range denied {
			if p.Contains(remote.Addr().Unmap()) {
				api.WriteError(
					w,
					r,
					llm.Errorf(http.StatusForbidden, "address_denied", "Requests from %s are not allowed.", remote.Addr()),
				)
				return
			}
		}
		api.ServeHTTP(w, r)
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	addr := flag.String("addr", "127.0.0.1:8080", "the `address` to listen on")
	origins := flag.String("origins", "https://app.example.com", "comma-separated `origins` of the web pages that may use the API")
	var denied []netip.Prefix
	flag.Func("deny", "a `network` to refuse, such as 192.0.2.0/24; can be repeated", func(s string) error {
		p, err := netip.ParsePrefix(s)
		denied = append(denied, p)
		return err
	})
	flag.Parse()
	if err := run(ctx, *addr, strings.Split(*origins, ","), denied, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, addr string, origins []string, denied []netip.Prefix, out io.Writer) error {
	keys := memory.NewKeyStore()
	keys.Add("sk-demo", &llmhttp.Key{ID: "demo", Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(60)}})
	h := llmhttp.NewHandler(memory.Echo(), keys, &llmhttp.Options{Usage: memory.NewUsageStore()})

	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{
		// A web page can read a refusal only if it has CORS headers, so
		// allowOrigins is the outer middleware.
		Handler:           allowOrigins(origins).Handler(denyNetworks(denied, h)),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      5 * time.Minute, // for other handlers; that of llmhttp sets its own deadlines
	}
	fmt.Fprintf(out, welcome, l.Addr(), origins[0])
	return llmhttp.Serve(ctx, server, h, nil, l)
}

const welcome = `listening on http://%[1]s

Try:
  curl -i -X OPTIONS http://%[1]s/v1/chat/completions -H 'Origin: %[2]s' -H 'Access-Control-Request-Method: POST' -H 'Access-Control-Request-Headers: authorization,content-type'
  curl -i http://%[1]s/v1/models -H 'Origin: %[2]s' -H 'Authorization: Bearer sk-demo'
`
