package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

// The program that is tested. It gets an HTTP client or a base URL.

func newClient(opts ...option.RequestOption) *openai.Client {
	c := openai.NewClient(append([]option.RequestOption{option.WithAPIKey("test")}, opts...)...)
	return &c
}

func newClaude(opts ...anthropicoption.RequestOption) *anthropic.Client {
	c := anthropic.NewClient(append([]anthropicoption.RequestOption{anthropicoption.WithAPIKey("test")}, opts...)...)
	return &c
}

func params(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    "gpt-4o",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage(text)},
	}
}

// ask returns the reply to a text.
func ask(ctx context.Context, c *openai.Client, text string) (string, error) {
	r, err := c.Chat.Completions.New(ctx, params(text))
	if err != nil {
		return "", err
	}
	return r.Choices[0].Message.Content, nil
}

// askClaude returns the reply of the other vendor.
func askClaude(ctx context.Context, c *anthropic.Client, text string) (string, error) {
	r, err := c.Messages.New(ctx, anthropic.MessageNewParams{
		Model: "claude-sonnet-4-5", MaxTokens: 100, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	})
	if err != nil {
		return "", err
	}
	return r.Content[0].Text, nil
}

// read reads a reply as it is written, and passes on its pieces.
func read(ctx context.Context, c *openai.Client, text string, piece func(string)) error {
	stream := c.Chat.Completions.NewStreaming(ctx, params(text))
	for stream.Next() {
		if choices := stream.Current().Choices; len(choices) > 0 && choices[0].Delta.Content != "" {
			piece(choices[0].Delta.Content)
		}
	}
	return stream.Err()
}

type forecast struct {
	City string `json:"city"`
	Rain bool   `json:"rain"`
}

// extract returns a reply in a format.
func extract(ctx context.Context, c *openai.Client, text string) (f forecast, err error) {
	reply, err := ask(ctx, c, text)
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal([]byte(reply), &f)
}

// runAgent lets the model call a tool until it has an answer.
func runAgent(ctx context.Context, c *openai.Client, text string) (string, error) {
	p := params(text)
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "forecast"})}
	for range 5 {
		r, err := c.Chat.Completions.New(ctx, p)
		if err != nil {
			return "", err
		}
		m := r.Choices[0].Message
		if len(m.ToolCalls) == 0 {
			return m.Content, nil
		}
		p.Messages = append(p.Messages, m.ToParam())
		for _, call := range m.ToolCalls {
			p.Messages = append(p.Messages, openai.ToolMessage("rain: "+strings.TrimSpace(call.Function.Arguments), call.ID))
		}
	}
	return "", errors.New("too many turns")
}
