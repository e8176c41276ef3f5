// Genkitagent serves an agent of Genkit (github.com/firebase/genkit/go) as if it were a model. agent.go is what to
// copy.
//
//	cd examples/genkitagent && MODEL_KEY=sk-... GOWORK=off go run . -upstream https://models.example.com/v1 -model large-2
//
// What Genkit, or its plugin for OpenAI's API, cannot do, and so this agent neither:
//
//   - Reasoning of the model does not arrive, nor do the name and the service tier of what served it.
//   - The choice of tools in a request, stop sequences and several choices do not reach the model.
//   - An error of a tool ends the run, and so do arguments that are not JSON or not those of the tool's schema.
//   - Beside a call of the client's tools, those of the agent run too, and their results are lost.
//   - Names of models and tools stay in a registry, so the host names the model, and not the client.
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

	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai/openai"
	"github.com/openai/openai-go/option"

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
	model := flag.String("model", "gpt-4.1", "`name` of the model")
	flag.Parse()
	h := llmhttp.NewHandler(newAgent(ctx, *server, os.Getenv("MODEL_KEY"), *model), memory.NewKeyStore("sk-demo"), &llmhttp.Options{
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

// newAgent returns an agent whose model is at a server. key must not be empty.
func newAgent(ctx context.Context, server, key, model string) llmhttp.Backend {
	plugin := &openai.OpenAI{APIKey: key, Opts: []option.RequestOption{option.WithBaseURL(server)}}
	return &assistant{genkit: genkit.Init(ctx, genkit.WithPlugins(plugin)), model: "openai/" + model}
}
