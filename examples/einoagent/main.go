// Einoagent serves an agent of Eino (github.com/cloudwego/eino) as if it were a model. agent.go is what to copy,
// and clientTool in tools.go.
//
//	MODEL_KEY=sk-... go run ./examples/einoagent -upstream https://models.example.com/v1
//
// A dependency of Eino does not compile with Go 1.26 in the version that go get chooses. In your module:
//
//	go get github.com/bytedance/sonic@v1.15.0
//
// What Eino, or its model for OpenAI's API, cannot do, and so this agent neither:
//
//   - The graph of an agent has its tools, so one is made for each request that brings tools.
//   - An error of a tool ends the run. What the model is to be told is a result.
//   - Beside a call of the client's tools, those of the agent are not carried out: the model repeats them.
//   - Of a reply, Eino keeps neither the name of the model that served it nor its service tier: calls are priced
//     by the name in the request.
//   - Schemas of tools pass through a type of its own, which drops what that does not know.
//   - The stream of the agent begins when the last reply is complete, because it must know whether that calls tools.
//     So the texts come from callbacks.
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

	"github.com/cloudwego/eino-ext/components/model/openai"

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
	a, err := newAgent(ctx, *server, os.Getenv("MODEL_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	h := llmhttp.NewHandler(a, memory.NewKeyStore("sk-demo"), &llmhttp.Options{
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
func newAgent(ctx context.Context, server, key string) (llmhttp.Backend, error) {
	m, err := openai.NewChatModel(ctx, &openai.ChatModelConfig{BaseURL: server, APIKey: key})
	return &assistant{model: m}, err
}
