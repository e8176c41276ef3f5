package responsesws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/coder/websocket"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/responsesws"
)

func Example() {
	backend := llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
		return llm.Reply(fmt.Sprintf("You said %q.", req.Messages[0].Content.Text()))
	})
	h := llmhttp.NewHandler(backend, llmhttp.AllowAll("demo"), &llmhttp.Options{Protocols: []llmhttp.Protocol{responses.New(nil)}})
	ws := responsesws.New(h, nil)
	server := httptest.NewUnstartedServer(ws)
	server.Config.RegisterOnShutdown(ws.Drain)
	server.Start()
	defer server.Close()

	// A client, such as Codex.
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, server.URL+"/v1/responses", &websocket.DialOptions{HTTPHeader: http.Header{}})
	if err != nil {
		panic(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type": "response.create", "model": "m", "input": "Hello"}`)); err != nil {
		panic(err)
	}
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			panic(err)
		}
		var event struct{ Type, Text string }
		if err := json.Unmarshal(message, &event); err != nil {
			panic(err)
		}
		switch event.Type {
		case "response.output_text.done":
			fmt.Println(event.Text)
		case "response.completed":
			return
		}
	}
	// Output: You said "Hello".
}
