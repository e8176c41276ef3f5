// Mcpagent serves an agent whose tools are those of an MCP server. It is package agent with the
// official Go SDK of the Model Context Protocol.
//
//	MODEL_KEY=sk-... go run ./examples/mcpagent -upstream https://models.example.com/v1 -mcp https://tools.example.com/mcp
//	go run ./examples/mcpagent -upstream http://127.0.0.1:8081/v1 -mcp "npx @modelcontextprotocol/server-everything"
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
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
	server := flag.String("upstream", "http://127.0.0.1:8081/v1", "base `URL` of the server of the model")
	tools := flag.String("mcp", "", "URL of the MCP server, or the `command` that starts it")
	flag.Parse()
	if err := run(ctx, *addr, *server, transport(*tools)); err != nil {
		log.Fatal(err)
	}
}

// transport returns how to reach an MCP server.
func transport(server string) mcp.Transport {
	if strings.HasPrefix(server, "http") {
		return &mcp.StreamableClientTransport{Endpoint: server}
	}
	command := strings.Fields(server + " ")
	if len(command) == 0 {
		log.Fatal("-mcp is missing")
	}
	return &mcp.CommandTransport{Command: exec.Command(command[0], command[1:]...)}
}

// run serves until ctx is done.
func run(ctx context.Context, addr, server string, t mcp.Transport) error {
	model, err := upstream.New(server, &upstream.Options{Key: os.Getenv("MODEL_KEY")})
	if err != nil {
		return err
	}
	session, err := connect(ctx, t)
	if err != nil {
		return err
	}
	defer session.Close()
	h := newHandler(newAgent(model, session, agent.Options{}), nil)
	log.Println("listening on", addr, "with the key sk-demo")
	return llmhttp.Serve(
		ctx,
		&http.Server{Addr: addr, Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 5 * time.Minute},
		h,
		nil,
	)
}

// connect begins a session with an MCP server, which all requests share. It outlives ctx: requests
// in progress call tools while the server stops.
func connect(ctx context.Context, t mcp.Transport) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "mcpagent", Version: "v0.0.1"}, nil)
	return client.Connect(context.WithoutCancel(ctx), t, nil)
}

// newHandler returns a Handler that serves the agent in all formats. price may be nil; agent.Options.MaxCost
// needs it.
func newHandler(a llmhttp.Backend, price func(*llmhttp.UsageRecord) (llmhttp.Cost, error)) *llmhttp.Handler {
	return llmhttp.NewHandler(a, memory.NewKeyStore("sk-demo"), &llmhttp.Options{
		Usage:     memory.NewUsageStore(),
		Price:     price,
		Observe:   llmhttp.ConversationHeader("X-Conversation-Id"),
		Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(&responses.Options{Store: memory.NewResponseStore()})},
	})
}
