// Fake answers questions of customers with the official SDKs of OpenAI and Anthropic. Nothing in it
// is for tests: main_test.go fakes both vendors with package llmfake.
//
//	cd examples/fake && OPENAI_API_KEY=sk-... ANTHROPIC_API_KEY=sk-ant-... go run . "Where is order 7?"
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

const instructions = "Answer the customer in one sentence."

var orderTool = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name: "order_status",
	Parameters: shared.FunctionParameters{
		"type": "object", "properties": map[string]any{"id": map[string]any{"type": "integer"}}, "required": []string{"id"},
	},
})

// A desk answers questions.
type desk struct {
	openai openai.Client
	claude anthropic.Client
	orders map[int]string // the status of each order
}

// answer writes the answer of the first vendor that has one to w.
func (d *desk) answer(ctx context.Context, w io.Writer, question string) error {
	text, err := d.ask(ctx, question)
	if err != nil {
		log.Println("the first vendor fails:", err)
		return d.askClaude(ctx, w, question)
	}
	_, err = fmt.Fprintln(w, text)
	return err
}

// ask lets the model look up orders until it has an answer.
func (d *desk) ask(ctx context.Context, question string) (string, error) {
	params := openai.ChatCompletionNewParams{
		Model:    "gpt-4o",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(instructions), openai.UserMessage(question)},
		Tools:    []openai.ChatCompletionToolUnionParam{orderTool},
	}
	for range 5 {
		reply, err := d.openai.Chat.Completions.New(ctx, params)
		if err != nil {
			return "", err
		}
		m := reply.Choices[0].Message
		if len(m.ToolCalls) == 0 {
			return m.Content, nil
		}
		params.Messages = append(params.Messages, m.ToParam())
		for _, call := range m.ToolCalls {
			params.Messages = append(params.Messages, openai.ToolMessage(d.status(call.Function.Arguments), call.ID))
		}
	}
	return "", errors.New("no answer after 5 turns")
}

// status is the tool. The model is told what is wrong with its arguments.
func (d *desk) status(arguments string) string {
	var a struct{ ID int }
	if err := json.Unmarshal([]byte(arguments), &a); err != nil {
		return "invalid arguments: " + err.Error()
	}
	if s := d.orders[a.ID]; s != "" {
		return s
	}
	return "unknown order"
}

// askClaude streams the answer of the other vendor, which does not know the orders.
func (d *desk) askClaude(ctx context.Context, w io.Writer, question string) error {
	stream := d.claude.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
		Model: "claude-sonnet-4-5", MaxTokens: 200,
		System:   []anthropic.TextBlockParam{{Text: instructions}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))},
	})
	for stream.Next() {
		if _, err := io.WriteString(w, stream.Current().Delta.Text); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	return stream.Err()
}

func main() {
	d := &desk{openai.NewClient(), anthropic.NewClient(), map[int]string{7: "on its way"}}
	if err := d.answer(context.Background(), os.Stdout, strings.Join(os.Args[1:], " ")); err != nil {
		log.Fatal(err)
	}
}
