// Agent serves an agent as if it were a model: a client of chat completions, of the Responses API or
// of Anthropic's Messages API sends a question and gets an answer, for which the agent has called a
// model and tools on the server. agent.go is what to copy.
//
//	go run ./examples/agent
//	MODEL_KEY=sk-... go run ./examples/agent -upstream https://models.example.com/v1
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
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/upstream"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	server := flag.String("upstream", "", "base `URL` of the server of the model; without it, a script takes the place of the model")
	flag.Parse()
	var model llmhttp.Backend = demoModel()
	if *server != "" {
		b, err := upstream.New(*server, &upstream.Options{Key: os.Getenv("MODEL_KEY")})
		if err != nil {
			log.Fatal(err)
		}
		model = b
	}
	if err := run(ctx, *addr, model, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// demoModel returns a script that takes the place of a model: it calls two tools, and answers when
// it has their results.
func demoModel() *memory.Backend {
	return &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		if last := req.Messages[len(req.Messages)-1]; last.Role == llm.RoleTool {
			return []memory.Step{memory.Say("Take an umbrella to Bergen.")}
		}
		return []memory.Step{
			memory.Reason("I need the weather. "),
			memory.Call("c1", "forecast", `{"city":"Bergen"}`),
			memory.Call("c2", "note", `{"fact":"goes to Bergen"}`),
		}
	}}
}

// newHandler returns a Handler that serves the agent in all formats. price may be nil; agent.Options.MaxCost
// needs it.
func newHandler(
	a llmhttp.Backend, keys llmhttp.KeyStore, usage llmhttp.UsageStore, price func(*llmhttp.UsageRecord) (llmhttp.Cost, error),
) *llmhttp.Handler {
	return llmhttp.NewHandler(a, keys, &llmhttp.Options{
		Usage:   usage,
		Price:   price,
		Observe: llmhttp.ConversationHeader(conversationHeader),
		Protocols: []llmhttp.Protocol{
			messages.New(nil),
			responses.New(&responses.Options{Store: memory.NewResponseStore()}),
		},
	})
}

// run serves until ctx is done. It writes instructions to out.
func run(ctx context.Context, addr string, model llmhttp.Backend, out io.Writer) error {
	h := newHandler(newAgent(model, agent.Options{}), memory.NewKeyStore("sk-demo"), memory.NewUsageStore(), nil)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute}
	fmt.Fprintf(out, welcome, l.Addr())
	return llmhttp.Serve(ctx, server, h, nil, l)
}

const welcome = `listening on http://%[1]s

Try:
  curl -N http://%[1]s/v1/chat/completions -H 'Authorization: Bearer sk-demo' -H 'Content-Type: application/json' -d '{"model": "demo-chat", "stream": true, "messages": [{"role": "user", "content": "What do I need in Bergen?"}]}'
  curl -w '\n' http://%[1]s/v1/responses -H 'Authorization: Bearer sk-demo' -H 'Content-Type: application/json' -d '{"model": "demo-chat", "input": "What do I need in Bergen?"}'
  curl -w '\n' http://%[1]s/v1/messages -H 'X-Api-Key: sk-demo' -H 'Anthropic-Version: 2023-06-01' -H 'Content-Type: application/json' -d '{"model": "demo-chat", "max_tokens": 100, "messages": [{"role": "user", "content": "What do I need in Bergen?"}]}'
`
