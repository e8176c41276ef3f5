// Package serve is the program around the agents beside it.
package serve

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

// Main serves the agent that newAgent returns, whose model is at a server.
func Main(newAgent func(server, key string) llmhttp.Backend) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	server := flag.String("upstream", "http://127.0.0.1:8081", "base `URL` of the server of the model, as its SDK has it")
	flag.Parse()
	h := llmhttp.NewHandler(newAgent(*server, os.Getenv("MODEL_KEY")), memory.NewKeyStore("sk-demo"), &llmhttp.Options{
		Usage:     memory.NewUsageStore(),
		Observe:   llmhttp.ConversationHeader("X-Conversation-Id"),
		Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(&responses.Options{Store: memory.NewResponseStore()})},
	})
	log.Println("listening on", *addr, "with the key sk-demo")
	s := &http.Server{Addr: *addr, Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	if err := llmhttp.Serve(ctx, s, h, nil); err != nil {
		log.Fatal(err)
	}
}
