// Mount serves the API next to the other routes of a program. There is a file for each of net/http,
// chi, gin, with a gin.Default() too, and echo.
//
//	go run ./examples/mount -router chi
//	go run ./examples/mount -prefix /llm
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// routers return the routes of the program with the API, whose Options.Prefix is prefix,
// among them.
var routers = map[string]func(api http.Handler, prefix string) http.Handler{
	"nethttp": withNetHTTP,
	"chi":     withChi,
	"gin":     withGin,
	"default": withGinDefault,
	"echo":    withEcho,
}

// homePage is what each router serves at /.
const homePage = "This is not the API.\n"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	names := strings.Join(slices.Sorted(maps.Keys(routers)), ", ")
	addr := flag.String("addr", "127.0.0.1:8080", "the `address` to listen on")
	router := flag.String("router", "nethttp", "the `router`: one of "+names)
	prefix := flag.String("prefix", "", "the `path` below which the API is, such as /llm; the default is none")
	flag.Parse()
	if err := run(ctx, *addr, *router, *prefix, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, addr, router, prefix string, out io.Writer) error {
	routes := routers[router]
	if routes == nil {
		return fmt.Errorf("unknown router %q", router)
	}
	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), &llmhttp.Options{Prefix: prefix, Usage: memory.NewUsageStore()})
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           routes(h, prefix),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      5 * time.Minute, // for other handlers; that of llmhttp sets its own deadlines
	}
	fmt.Fprintf(out, welcome, l.Addr(), prefix)
	return llmhttp.Serve(ctx, server, h, nil, l)
}

const welcome = `listening on http://%[1]s

Try:
  curl -N http://%[1]s%[2]s/v1/chat/completions -H 'Authorization: Bearer sk-demo' -H 'Content-Type: application/json' -d '{"model": "demo-chat", "stream": true, "messages": [{"role": "user", "content": "Hello there, world!"}]}'
  curl http://%[1]s%[2]s/v1/models -H 'Authorization: Bearer sk-demo'
  curl http://%[1]s/
`
