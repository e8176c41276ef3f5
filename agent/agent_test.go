package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
)

// A script is a model that replies to its nth call with the nth steps, and to later calls with the
// last ones. Each call uses 10 tokens of the prompt and 5 of the completion.
type script struct {
	replies [][]memory.Step
	silent  bool // reports no usage

	mu       sync.Mutex // guards requests
	requests []*llm.ChatRequest
}

func model(replies ...[]memory.Step) *script { return &script{replies: replies} }

func (s *script) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := slices.Clone(s.replies[min(len(s.requests), len(s.replies)-1)])
	s.requests = append(s.requests, req.Clone())
	if !s.silent {
		steps = append(steps, memory.Chunk(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15}}))
	}
	return memory.Scripted(steps...).Chat(ctx, req)
}

// tools returns what New takes.
func tools(all ...agent.Tool) func(context.Context) ([]agent.Tool, error) {
	return func(context.Context) ([]agent.Tool, error) { return all, nil }
}

// look is a tool that repeats its arguments.
var look = agent.Tool{Function: llm.Function{Name: "look"}, Run: func(_ context.Context, arguments string) (llm.Message, error) {
	return agent.Result("found " + arguments), nil
}}

var (
	callLook = []memory.Step{memory.Call("c1", "look", `{"a":1}`), memory.Finish(llm.FinishToolCalls)}
	answer   = []memory.Step{memory.Say("Done."), memory.Finish(llm.FinishStop)}
)

// question returns a request with the names of tools of the client.
func question(clientTools ...string) *llm.ChatRequest {
	req := &llm.ChatRequest{Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hi")}}}
	for _, name := range clientTools {
		req.Tools = append(req.Tools, llm.Tool{Type: "function", Function: &llm.Function{Name: name}})
	}
	return req
}

func ask(t *testing.T, b llmhttp.Backend, req *llm.ChatRequest) *llm.ChatResponse {
	t.Helper()
	reply, err := join.Collect(b.Chat(t.Context(), req))
	require.NoError(t, err)
	return reply
}

func names(tools []llm.Tool) (names []string) {
	for _, t := range tools {
		names = append(names, t.Function.Name)
	}
	return names
}

// Without calls of tools, an agent is as its model.
func TestBackend_Kit(t *testing.T) {
	b := agent.New(modeltest.New(), tools(), nil)
	llmhttptest.TestBackend(t, b, llmhttptest.BackendOptions{ChatModel: modeltest.Chat})
}

func TestBackend(t *testing.T) {
	m := model(append([]memory.Step{memory.Say("Looking. ")}, callLook...), answer)
	reply := ask(t, agent.New(m, tools(look), nil), question())
	assert.Equal(t, "Looking. Done.", reply.Choices[0].Message.Content.Text())
	assert.Empty(t, reply.Choices[0].Message.Reasoning)
	assert.Equal(t, llm.FinishStop, reply.Choices[0].FinishReason)
	assert.Equal(t, 30, reply.Usage.TotalTokens)
	require.Len(t, m.requests, 2)
	assert.Equal(t, []string{"look"}, names(m.requests[0].Tools))
	messages := m.requests[1].Messages
	require.Len(t, messages, 3)
	assert.Equal(t, "c1", messages[1].ToolCalls[0].ID)
	assert.Equal(t, llm.Message{Role: llm.RoleTool, ToolCallID: "c1", Content: llm.TextContent(`found {"a":1}`)}, messages[2])
}

func TestBackend_Progress(t *testing.T) {
	m := model([]memory.Step{memory.Call("c1", "look", "{}"), memory.Call("c2", "look", `{"secret":1}`)}, answer)
	b := agent.New(m, tools(look), &agent.Options{Progress: func(call llm.ToolCall) string {
		if call.ID == "c2" {
			return ""
		}
		return "I " + call.Function.Name + ". "
	}})
	assert.Equal(t, "I look. ", ask(t, b, question()).Choices[0].Message.Reasoning)
}

// Tools run in parallel: these wait for each other.
func TestBackend_ParallelCalls(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	meet := agent.Tool{Function: llm.Function{Name: "meet"}, Run: func(context.Context, string) (llm.Message, error) {
		both.Done()
		both.Wait()
		return agent.Result("met"), nil
	}}
	m := model([]memory.Step{memory.Call("c1", "meet", "{}"), memory.Call("c2", "meet", "{}")}, answer)
	ask(t, agent.New(m, tools(meet), nil), question())
	assert.Len(t, m.requests[1].Messages, 4)
}

// Calls of the client's tools go to the client, those of the agent beside them do not.
func TestBackend_ClientTools(t *testing.T) {
	m := model([]memory.Step{memory.Call("c1", "look", "{}"), memory.Call("c2", "read", `{"path":"a"}`), memory.Finish(llm.FinishToolCalls)}, answer)
	b := agent.New(m, tools(look), nil)
	choice := ask(t, b, question("read")).Choices[0]
	assert.Equal(t, llm.FinishToolCalls, choice.FinishReason)
	require.Len(t, choice.Message.ToolCalls, 1)
	assert.Equal(t, llm.FunctionCall{Name: "read", Arguments: `{"path":"a"}`}, choice.Message.ToolCalls[0].Function)
	require.Len(t, m.requests, 1)
	assert.Equal(t, []string{"read", "look"}, names(m.requests[0].Tools))

	req := question("read")
	req.ToolChoice = &llm.ToolChoice{Mode: llm.ToolChoiceNone}
	ask(t, b, req)
	assert.Equal(t, []string{"look"}, names(m.requests[1].Tools), "none of the client's tools")
	assert.Nil(t, m.requests[1].ToolChoice)
}

// A model that calls a tool that does not exist is told. It may be one of the client's, if the client
// has sent tools whose names are not known here.
func TestBackend_UnknownTool(t *testing.T) {
	call := []memory.Step{memory.Call("c1", "bash", "{}")}
	m := model(call, answer)
	ask(t, agent.New(m, tools(look), nil), question("read"))
	require.Len(t, m.requests, 2)
	result := m.requests[1].Messages[2]
	assert.True(t, result.IsError)
	assert.Equal(t, "There is no tool with this name.", result.Content.Text())

	req := question("read")
	req.Tools = append(req.Tools, llm.Tool{Type: "bash_20250124"})
	assert.Len(t, ask(t, agent.New(model(call), tools(look), nil), req).Choices[0].Message.ToolCalls, 1)
}

func TestBackend_Refuses(t *testing.T) {
	b := agent.New(model(answer), tools(look), nil)
	several := question()
	several.N = new(2)
	for param, req := range map[string]*llm.ChatRequest{"n": several, "tools": question("look")} {
		_, err := join.Collect(b.Chat(t.Context(), req))
		e, ok := errors.AsType[*llm.Error](err)
		require.True(t, ok, param)
		assert.Equal(t, http.StatusBadRequest, e.Status)
		assert.Equal(t, param, e.Param)
	}
}

// When a bound is reached, the model may not call the agent's tools any more.
func TestBackend_Bounds(t *testing.T) {
	perCall := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{Output: llm.Money(r.Units.CompletionTokens) * llm.MoneyUnit}, nil // 5 each
	}
	for name, tc := range map[string]struct {
		opts   *agent.Options
		silent bool
		turns  int
	}{
		"turns by default":     {nil, false, 8},
		"turns":                {&agent.Options{MaxTurns: 3}, false, 3},
		"one turn":             {&agent.Options{MaxTurns: 1}, false, 1},
		"cost":                 {&agent.Options{MaxCost: llm.USD(6)}, false, 3},
		"cost, reached":        {&agent.Options{MaxCost: llm.USD(5)}, false, 2},
		"cost and turns":       {&agent.Options{MaxCost: llm.USD(100), MaxTurns: 2}, false, 2},
		"cost, no turns":       {&agent.Options{MaxCost: llm.USD(50), MaxTurns: -1}, false, 11},
		"cost, not reported":   {&agent.Options{MaxCost: llm.USD(100)}, true, 2},
		"without cost, silent": {&agent.Options{MaxTurns: 4}, true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			m := model(callLook)
			m.silent = tc.silent
			choice := askHandler(t, agent.New(m, tools(look), tc.opts), &llmhttp.Options{Price: perCall}).Choices[0]
			require.Len(t, m.requests, tc.turns)
			for i, req := range m.requests {
				assert.Equal(t, []string{"look"}, names(req.Tools))
				if isLast := i == tc.turns-1; isLast {
					assert.Equal(t, &llm.ToolChoice{Mode: llm.ToolChoiceNone}, req.ToolChoice)
				} else {
					assert.Nil(t, req.ToolChoice)
				}
			}
			assert.Equal(t, llm.FinishLength, choice.FinishReason, "the script calls it nevertheless")
			assert.Empty(t, choice.Message.ToolCalls)
		})
	}

	m := model(answer)
	ask(t, agent.New(m, tools(), &agent.Options{MaxTurns: 1}), question())
	assert.Nil(t, m.requests[0].ToolChoice, "there are no tools")

	m = model(callLook, callLook, []memory.Step{memory.Call("c2", "read", "{}"), memory.Finish(llm.FinishToolCalls)})
	choice := ask(t, agent.New(m, tools(look), &agent.Options{MaxTurns: 3}), question("read")).Choices[0]
	assert.Equal(t, []string{"read"}, names(m.requests[2].Tools), "the client's tools stay")
	assert.Equal(t, llm.FinishToolCalls, choice.FinishReason)
	assert.Len(t, choice.Message.ToolCalls, 1)
}

// askHandler sends a chat to a Handler of b and returns the reply.
func askHandler(t *testing.T, b llmhttp.Backend, opts *llmhttp.Options) (reply *llm.ChatResponse) {
	t.Helper()
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"Hi"}]}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	llmhttp.NewHandler(b, llmhttp.AllowAll(""), opts).ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
	return reply
}

// After a call of a model without a price, the tools end, and a bound that cannot be enforced is told.
func TestBackend_UnknownCost(t *testing.T) {
	opts := &agent.Options{MaxCost: llm.MoneyUnit}
	usage := usageLog{memory.NewUsageStore(), make(chan llmhttp.UsageRecord, 1)}
	m := model(callLook)
	askHandler(t, agent.New(m, tools(look), opts), &llmhttp.Options{Usage: usage, Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{}, errors.New("no price")
	}})
	assert.Len(t, m.requests, 2)
	assert.True(t, (<-usage.records).Unpriced)

	m = model(callLook)
	var log bytes.Buffer
	h := llmhttp.NewHandler(agent.New(m, tools(look), opts), llmhttp.AllowAll(""), &llmhttp.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	assert.Contains(t, post(h, "", ""), `"error"`)
	assert.Contains(t, log.String(), "agent: Options.MaxCost cannot be enforced: llmhttp: Spent: there is no Options.Price")
	assert.Empty(t, m.requests)
	_, err := join.Collect(agent.New(m, tools(look), opts).Chat(t.Context(), question()))
	assert.ErrorContains(t, err, "agent: Options.MaxCost cannot be enforced")
}

// Errors are not for the client, and mistakes of tools are told.
func TestBackend_Errors(t *testing.T) {
	secret := errors.New("password is swordfish")
	failing := agent.Tool{Function: look.Function, Run: func(context.Context, string) (llm.Message, error) {
		return llm.Message{}, secret
	}}
	for name, tc := range map[string]struct {
		tools func(context.Context) ([]agent.Tool, error)
		text  string
	}{
		"a tool fails":   {tools(failing), "swordfish"},
		"no tools":       {func(context.Context) ([]agent.Tool, error) { return nil, secret }, "swordfish"},
		"no name":        {tools(agent.Tool{Run: look.Run}), `tool 0, "", has no name`},
		"nothing to run": {tools(agent.Tool{Function: look.Function}), `tool 0, "look", has no`},
		"a name twice":   {tools(look, look), `tool 1, "look", has no`},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			h := llmhttp.NewHandler(agent.New(model(callLook), tc.tools, nil), llmhttp.AllowAll(""), &llmhttp.Options{
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			reply := post(h, "", "")
			assert.Contains(t, reply, `"error"`)
			assert.NotContains(t, reply, tc.text)
			assert.Contains(t, strings.ReplaceAll(log.String(), `\`, ""), tc.text)
		})
	}
}

func TestNew_Panics(t *testing.T) {
	assert.Panics(t, func() { agent.New(nil, tools(), nil) })
	assert.PanicsWithValue(t, "agent: New without a model or tools", func() { agent.New((*llmhttp.SwappableBackend)(nil), tools(), nil) })
	assert.Panics(t, func() { agent.New(model(), nil, nil) })
}

// The record of a request has the model that served it, also if the first chunk shows progress.
func TestBackend_ServedModel(t *testing.T) {
	served := memory.Chunk(&llm.ChatChunk{Model: "large-2"})
	for name, opts := range map[string]*agent.Options{
		"text first":     nil,
		"progress first": {Progress: func(llm.ToolCall) string { return "Looking. " }},
	} {
		usage := usageLog{memory.NewUsageStore(), make(chan llmhttp.UsageRecord, 1)}
		m := model(append([]memory.Step{served}, callLook...), append([]memory.Step{served}, answer...))
		h := llmhttp.NewHandler(agent.New(m, tools(look), opts), llmhttp.AllowAll(""), &llmhttp.Options{Usage: usage})
		require.Equal(t, "Done.", post(h, "", ""))
		record := <-usage.records
		assert.Equal(t, "m large-2", record.Model+" "+record.ServedModel, name)
	}
}

// A model may change the request that it gets.
func TestBackend_ModelChangesRequest(t *testing.T) {
	m := model(callLook, answer)
	changing := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		stream := m.Chat(ctx, req)
		req.Messages[0].Content = llm.TextContent("changed")
		return stream
	})
	ask(t, agent.New(changing, tools(look), nil), question())
	assert.Equal(t, "Hi", m.requests[1].Messages[0].Content.Text())
}

// What is recorded if a call of the model fails that has used something, and if none reports usage.
func TestBackend_Usage(t *testing.T) {
	usage := usageLog{memory.NewUsageStore(), make(chan llmhttp.UsageRecord, 1)}
	record := func(m llmhttp.Backend) llmhttp.UsageRecord {
		post(llmhttp.NewHandler(agent.New(m, tools(look), nil), llmhttp.AllowAll(""), &llmhttp.Options{Usage: usage}), "", "")
		return <-usage.records
	}
	m := model(callLook)
	r := record(llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		if len(m.requests) == 0 {
			return m.Chat(ctx, req)
		}
		llm.ReportUsage(ctx, llm.Usage{PromptTokens: 20, CompletionTokens: 1})
		return llm.Fail(io.ErrUnexpectedEOF)
	}))
	assert.Equal(t, int64(15+21), r.Units.Tokens())
	assert.False(t, r.Estimated)

	silent := model(callLook, answer)
	silent.silent = true
	r = record(silent)
	assert.Positive(t, r.Units.Tokens())
	assert.True(t, r.Estimated)
}

// A usageLog is a UsageStore that passes on its records.
type usageLog struct {
	llmhttp.UsageStore
	records chan llmhttp.UsageRecord
}

func (l usageLog) Record(_ context.Context, records ...llmhttp.UsageRecord) error {
	for i := range records {
		l.records <- records[i]
	}
	return nil
}

// When the client leaves, the tools stop, and the client has paid for the calls until then.
func TestBackend_ClientLeaves(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	var stopped atomic.Bool
	hang := agent.Tool{Function: look.Function, Run: func(ctx context.Context, _ string) (llm.Message, error) {
		leave()
		<-ctx.Done()
		stopped.Store(true)
		return llm.Message{}, ctx.Err()
	}}
	usage := usageLog{memory.NewUsageStore(), make(chan llmhttp.UsageRecord, 1)}
	m := model(callLook, answer)
	server := httptest.NewServer(llmhttp.NewHandler(agent.New(m, tools(hang), nil), llmhttp.AllowAll(""), &llmhttp.Options{Usage: usage}))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"Hi"}]}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	_, err = http.DefaultClient.Do(r)
	require.ErrorIs(t, err, context.Canceled)
	record := <-usage.records
	assert.True(t, stopped.Load())
	assert.Equal(t, int64(15), record.Units.Tokens())
	assert.Len(t, m.requests, 1)
}

var (
	_ llmhttp.Backend     = (*agent.Backend)(nil)
	_ llmhttp.ModelLister = (*agent.Backend)(nil)
)

// An agent lists the models also of what its model wraps, unless that is hidden, and as the request has it.
func TestBackend_ListModels(t *testing.T) {
	swap := llmhttp.NewSwappableBackend(memory.Echo())
	for name, m := range map[string]agent.Model{
		"a lister":            memory.Echo(),
		"a wrapper":           llmhttp.Choices(memory.Echo()),
		"a wrapper in a Swap": llmhttp.NewSwappableBackend(llmhttp.Choices(memory.Echo())),
		"an agent":            agent.New(swap, tools(), nil),
	} {
		models, err := agent.New(m, tools(), nil).ListModels(t.Context())
		require.NoError(t, err, name)
		assert.NotEmpty(t, models, name)
	}
	for name, m := range map[string]agent.Model{
		"no lister":              model(answer),
		"a wrapper of no lister": llmhttp.Choices(model(answer)),
		"a hidden one":           llmhttp.ChatOnly(memory.Echo()),
		"a Model alone":          chatFunc(model(answer).Chat),
	} {
		_, err := agent.New(m, tools(), nil).ListModels(t.Context())
		assert.ErrorIs(t, err, errors.ErrUnsupported, name)
	}

	// A SwappableBackend keeps the Backend of a request.
	b := agent.New(swap, tools(), nil)
	listing := llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		_, before := b.ListModels(ctx)
		swap.Replace(model(answer))
		_, after := b.ListModels(ctx)
		return llm.Reply(fmt.Sprint(before, after))
	})
	assert.Equal(t, "<nil> <nil>", post(llmhttp.NewHandler(listing, llmhttp.AllowAll(""), nil), "", ""))
	_, err := b.ListModels(t.Context())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

// A chatFunc is a Model that package llmhttp knows nothing of.
type chatFunc func(context.Context, *llm.ChatRequest) llm.ChatStream

func (f chatFunc) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream { return f(ctx, req) }

func TestNewTool(t *testing.T) {
	type arguments struct{ City string }
	tool := agent.NewTool(llm.Function{Name: "f"}, func(_ context.Context, a arguments) (llm.Message, error) {
		return agent.Result("in " + a.City), io.EOF
	})
	assert.Equal(t, "f", tool.Name)
	for given, want := range map[string]string{`{"city":"Bergen"}`: "in Bergen", "": "in ", "{}": "in "} {
		m, err := tool.Run(t.Context(), given)
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, llm.Message{Content: llm.TextContent(want)}, m)
	}
	for _, given := range []string{`{"city":`, `{"city":1}`, "Bergen"} {
		m, err := tool.Run(t.Context(), given)
		require.NoError(t, err)
		assert.True(t, m.IsError)
		assert.Contains(t, m.Content.Text(), "The arguments are not those of this tool: ")
	}
}
