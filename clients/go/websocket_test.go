package clients

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	llmresponses "github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/responsesws"
)

// A webSocketServer serves the Responses API over WebSockets. Its model calls the tool "weather" if it has that, and
// then replies with the result, or else with the number of messages and the last text. "fail" makes it fail.
type webSocketServer struct {
	url    string
	posts  atomic.Int32 // requests that were no upgrades
	client openai.Client
}

func startWebSocketServer(t *testing.T) *webSocketServer {
	backend := &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		last := &req.Messages[len(req.Messages)-1]
		switch {
		case last.Role == llm.RoleTool:
			return []memory.Step{memory.Say("It is " + last.Content.Text() + ".")}
		case len(req.Tools) > 0:
			return []memory.Step{memory.Reason("Let me see."), memory.Call("call_1", "weather", `{"city":"Rome"}`)}
		case last.Content.Text() == "fail":
			return []memory.Step{memory.Say("Well"), memory.Fail(llm.Errorf(http.StatusBadGateway, "broken", "The model is broken."))}
		}
		return []memory.Step{memory.Say(string(rune('0'+len(req.Messages))) + ": "), memory.Say(last.Content.Text())}
	}}
	keys := memory.NewKeyStore()
	keys.Add(key, &llmhttp.Key{ID: "demo", Models: []string{"demo-chat"}})
	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{
		Protocols: []llmhttp.Protocol{llmresponses.New(nil)}, Logger: slog.New(slog.DiscardHandler),
	})
	s := new(webSocketServer)
	ws := responsesws.New(h, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.posts.Add(1)
		}
		ws.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		done, cancel := context.WithCancel(context.Background())
		cancel()
		_ = ws.Shutdown(done)
		server.Close()
	})
	s.url = server.URL + "/v1"
	s.client = openai.NewClient(option.WithBaseURL(s.url), option.WithAPIKey(key), option.WithMaxRetries(0))
	return s
}

// connect opens a connection that ends with t.
func (s *webSocketServer) connect(t *testing.T) *responses.ResponseConnection {
	t.Helper()
	c, err := s.client.Responses.Connect(testContext(t), responses.ResponseConnectionOptions{})
	require.NoError(t, err)
	t.Cleanup(c.Abort)
	return c
}

// createText returns a request for a response to text that continues previous, unless that is empty.
func createText(text, previous string) responses.ResponsesClientEventResponseCreateParam {
	p := responses.ResponsesClientEventResponseCreateParam{
		Model: "demo-chat", Store: openai.Bool(false),
		Input: responses.ResponsesClientEventResponseCreateInputUnionParam{OfString: openai.String(text)},
	}
	if previous != "" {
		p.PreviousResponseID = openai.String(previous)
	}
	return p
}

func TestOpenAIWebSocket(t *testing.T) {
	t.Parallel()
	s := startWebSocketServer(t)
	c := s.connect(t)
	require.NoError(t, c.Create(testContext(t), createText("one", "")))
	var acc responses.ResponseAccumulator
	for {
		e, err := c.Recv(testContext(t))
		require.NoError(t, err)
		require.NoError(t, acc.AddEvent(e))
		if e.Type == "response.completed" {
			break
		}
	}
	first := acc.Snapshot()
	assert.Equal(t, "1: one", first.OutputText())
	id := acc.DetailedSnapshot().Response["id"]
	require.NoError(t, c.Create(testContext(t), createText("two", string(id[1:len(id)-1]))))
	second, err := c.FinalResponse(testContext(t))
	require.NoError(t, err)
	assert.Equal(t, "3: two", second.OutputText())
	assert.Equal(t, string(id), `"`+second.PreviousResponseID+`"`)
	assert.Positive(t, second.Usage.InputTokens)
	assert.NoError(t, c.Close())
	assert.Zero(t, s.posts.Load())
}

func TestOpenAIWebSocket_Warmup(t *testing.T) {
	t.Parallel()
	c := startWebSocketServer(t).connect(t)
	request := createText("one", "")
	request.SetExtraFields(map[string]any{"generate": false})
	require.NoError(t, c.Create(testContext(t), request))
	warm, err := c.FinalResponse(testContext(t))
	require.NoError(t, err)
	assert.EqualValues(t, "completed", warm.Status)
	assert.Empty(t, warm.Output)
	require.NoError(t, c.Create(testContext(t), createText("two", warm.ID)))
	r, err := c.FinalResponse(testContext(t))
	require.NoError(t, err)
	assert.Equal(t, "2: two", r.OutputText())
}

func TestOpenAIWebSocket_Tools(t *testing.T) {
	t.Parallel()
	c := startWebSocketServer(t).connect(t)
	request := createText("How is the weather?", "")
	request.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
		Name: "weather", Parameters: map[string]any{"type": "object"}, Strict: openai.Bool(false),
	}}}
	require.NoError(t, c.Create(testContext(t), request))
	first, err := c.FinalResponse(testContext(t))
	require.NoError(t, err)
	call := first.Output[len(first.Output)-1]
	require.Equal(t, "weather", call.Name)
	output := responses.ResponseInputItemParamOfFunctionCallOutput("sunny")
	output.OfFunctionCallOutput.CallID = openai.String(call.CallID)
	request.PreviousResponseID = openai.String(first.ID)
	request.Input = responses.ResponsesClientEventResponseCreateInputUnionParam{OfResponse: &responses.ResponseInputParam{output}}
	require.NoError(t, c.Create(testContext(t), request))
	second, err := c.FinalResponse(testContext(t))
	require.NoError(t, err)
	assert.Equal(t, "It is sunny.", second.OutputText())
}

// Lanes run at the same time, and one can continue the response of another.
func TestOpenAIWebSocket_Lanes(t *testing.T) {
	t.Parallel()
	c := startWebSocketServer(t).connect(t)
	on := func(lane, text, previous string) {
		request := createText(text, previous)
		request.StreamID = openai.String(lane)
		require.NoError(t, c.Create(testContext(t), request))
	}
	lanes := make(map[string]*responses.ResponseLane)
	for _, name := range []string{"planner", "research", "critic"} {
		lane, err := c.Lane(name)
		require.NoError(t, err)
		lanes[name] = lane
	}
	on("planner", "plan", "")
	on("research", "risks", "")
	plan, err := lanes["planner"].FinalResponse(testContext(t))
	require.NoError(t, err)
	risks, err := lanes["research"].FinalResponse(testContext(t))
	require.NoError(t, err)
	assert.Equal(t, "1: risks", risks.OutputText())
	on("critic", "gaps", plan.ID)
	gaps, err := lanes["critic"].FinalResponse(testContext(t))
	require.NoError(t, err)
	assert.Equal(t, "3: gaps", gaps.OutputText())
}

// Errors are told once, and the connection goes on.
func TestOpenAIWebSocket_Errors(t *testing.T) {
	t.Parallel()
	s := startWebSocketServer(t)
	c := s.connect(t)
	request := createText("one", "resp_unknown")
	require.NoError(t, c.Create(testContext(t), request))
	_, err := c.FinalResponse(testContext(t))
	var protocol *responses.ResponseProtocolError
	require.ErrorAs(t, err, &protocol)
	e := protocol.Event.OfResponsesServerEventResponseWsError
	assert.EqualValues(t, 400, e.Status)
	assert.Equal(t, "previous_response_not_found", e.Error.Code)
	assert.Equal(t, "previous_response_id", e.Error.Param)
	assert.Regexp(t, "^req_", e.Error.Headers["x-request-id"])

	request = createText("one", "")
	request.Model = "other"
	require.NoError(t, c.Create(testContext(t), request))
	_, err = c.FinalResponse(testContext(t))
	require.ErrorAs(t, err, &protocol)
	assert.EqualValues(t, 404, protocol.Event.OfResponsesServerEventResponseWsError.Status)

	require.NoError(t, c.Create(testContext(t), createText("fail", "")))
	failed, err := c.FinalResponse(testContext(t))
	require.NoError(t, err)
	assert.EqualValues(t, "failed", failed.Status)
	assert.Equal(t, "The model is broken.", failed.Error.Message)
	require.NoError(t, c.Create(testContext(t), createText("one", "")))
	r, err := c.FinalResponse(testContext(t))
	require.NoError(t, err)
	assert.Equal(t, "1: one", r.OutputText())

	_, err = s.client.Responses.Connect(testContext(t), responses.ResponseConnectionOptions{}, option.WithAPIKey("sk-other"))
	require.Error(t, err)
	assert.ErrorContains(t, err, "401")
}
