// Langchainagent serves an agent of langchaingo (github.com/tmc/langchaingo) as if it were a model.
//
//	cd examples/otheragents && MODEL_KEY=sk-... GOWORK=off go run ./langchainagent -upstream https://models.example.com/v1
//
// What langchaingo cannot do, and so this agent neither:
//
//   - Its agents have one question and no conversation, and offer tools with one text as argument: the model in front of
//     them, in this file, adds the messages of the request after their prompt, and offers all tools with their schemas.
//   - The function for streams gets the deltas of tool calls as JSON between the texts, which this agent drops.
//   - A stream that breaks off is a complete reply: neither the agent nor its client learns that it is not.
//   - An error of a tool ends the run. Of a reply, the name of the model that served it and its service tier are lost.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/tmc/langchaingo/agents"
	"github.com/tmc/langchaingo/chains"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/openai"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/examples/otheragents/notes"
	"github.com/llmhttp/llmhttp/examples/otheragents/serve"
	"github.com/llmhttp/llmhttp/llm"
)

func main() { serve.Main(newAgent) }

func newAgent(server, key string) llmhttp.Backend {
	m, err := openai.New(openai.WithBaseURL(server), openai.WithToken(key))
	if err != nil {
		panic(err)
	}
	return &assistant{model: m}
}

// An assistant is an agent of langchaingo.
type assistant struct {
	model  llms.Model
	states agent.Sessions[notes.Notes]
}

func (a *assistant) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return agent.Stream(ctx, nil, func(ctx context.Context, w *agent.Writer) error {
		state := a.states.Get(ctx)
		client, err := agent.ClientTools(req, "forecast", "note")
		if err != nil {
			return err
		}
		history, err := convert(slices.Concat(state.Messages(), req.Messages))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(client, func(t llm.Tool) bool { return t.Function == nil }) {
			return llm.Errorf(400, "unsupported_value", "There are only tools that are functions.").WithParam("tools")
		}
		offered, err := agent.Convert[[]llms.Tool](slices.Concat(notes.Tools, client))
		if err != nil {
			return err
		}
		m := &model{Model: a.model, w: w, name: req.Model, history: history, offered: offered, client: client}
		executor := agents.NewExecutor(agents.NewOpenAIFunctionsAgent(m, ownTools(state)), agents.WithMaxIterations(8))
		_, err = chains.Run(ctx, executor, "") // the question is in history
		if calls, ok := errors.AsType[clientCalls](err); ok {
			return w.Calls(calls...)
		}
		return err
	})
}

// A model is in front of that of the agent: it adds the request, sends on what the model says, and accounts for it.
type model struct {
	llms.Model
	w       *agent.Writer
	name    string
	history []llms.MessageContent
	offered []llms.Tool
	client  []llm.Tool // of offered
}

// clientCalls end a run with calls of the client's tools.
type clientCalls []llm.ToolCall

func (clientCalls) Error() string { return "calls of tools of the client" }

// GenerateContent gets the system message of the agent, its question, and what its tools have found.
func (m *model) GenerateContent(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	messages = slices.Concat(messages[:1], m.history, messages[2:])
	options = append(options, llms.WithModel(m.name), llms.WithFunctions(nil), llms.WithTools(m.offered), llms.WithStreamingReasoningFunc(m.send))
	ctx, end := llm.StartCall(ctx, m.name)
	reply, err := m.Model.GenerateContent(ctx, messages, options...)
	if err != nil {
		end(llm.CallResult{Err: err})
		return nil, err
	}
	count := func(name string) int { n, _ := reply.Choices[0].GenerationInfo[name].(int); return n }
	end(llm.CallResult{Usage: &llm.Usage{
		PromptTokens: count("PromptTokens"), CompletionTokens: count("CompletionTokens"),
		PromptTokensDetails:     llm.PromptTokensDetails{CachedTokens: count("PromptCachedTokens")},
		CompletionTokensDetails: llm.CompletionTokensDetails{ReasoningTokens: count("CompletionReasoningTokens")},
	}})
	m.w.Finish(llm.FinishReason(reply.Choices[0].StopReason)) // the last one counts
	var calls []llm.ToolCall
	for _, c := range reply.Choices[0].ToolCalls {
		calls = append(calls, llm.ToolCall{ID: c.ID, Function: llm.FunctionCall{Name: c.FunctionCall.Name, Arguments: c.FunctionCall.Arguments}})
	}
	if _, theirs := agent.SplitCalls(calls, m.client); len(theirs) > 0 {
		return nil, clientCalls(theirs)
	}
	return reply, nil
}

// send sends on what the model says. A text that is a delta of calls is none.
func (m *model) send(_ context.Context, reasoning, text []byte) error {
	var calls []struct{ Function json.RawMessage }
	if json.Unmarshal(text, &calls) == nil && len(calls) > 0 && calls[0].Function != nil {
		text = nil
	}
	return errors.Join(m.w.Progress(string(reasoning)), m.w.Text(string(text)))
}

// convert returns messages as langchaingo has them.
func convert(from []llm.Message) (to []llms.MessageContent, err error) {
	if from, err = agent.TextMessages(from); err != nil {
		return nil, err
	}
	names := agent.CallNames(from)
	roles := map[llm.Role]llms.ChatMessageType{
		llm.RoleSystem: llms.ChatMessageTypeSystem, llm.RoleUser: llms.ChatMessageTypeHuman, llm.RoleAssistant: llms.ChatMessageTypeAI, llm.RoleTool: llms.ChatMessageTypeTool,
	}
	for _, m := range from {
		c := llms.MessageContent{Role: roles[m.Role]}
		if m.Role == llm.RoleTool {
			c.Parts = []llms.ContentPart{llms.ToolCallResponse{ToolCallID: m.ToolCallID, Name: names[m.ToolCallID], Content: m.Content.Text()}}
		} else if text := m.Content.Text(); text != "" {
			c.Parts = []llms.ContentPart{llms.TextPart(text)}
		}
		for _, call := range m.ToolCalls {
			f := &llms.FunctionCall{Name: call.Function.Name, Arguments: call.Function.Arguments}
			c.Parts = append(c.Parts, llms.ToolCall{ID: call.ID, Type: "function", FunctionCall: f})
		}
		to = append(to, c)
	}
	return to, nil
}
