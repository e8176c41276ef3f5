// Openaiagent serves an agent of your own as if it were a model: a plain loop on openai-go, OpenAI's Go SDK.
// agent.go is what to copy. Package agent has such a loop already, see examples/agent: a loop of
// your own is for what that does not do.
//
//	MODEL_KEY=sk-... go run ./examples/openaiagent -upstream https://models.example.com/v1
//
// The SDK has no types for what other servers than OpenAI's add, such as reasoning_content, so requests and
// chunks pass it as raw JSON. It repeats requests that fail before the reply begins, which llmhttp cannot see.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	server := flag.String("upstream", "http://127.0.0.1:8081/v1", "base `URL` of the server of the model")
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

// newAgent returns an agent whose model is at a server.
func newAgent(server, key string) llmhttp.Backend {
	return &assistant{client: openai.NewClient(option.WithBaseURL(server), option.WithAPIKey(key))}
}
