package textfilter_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/llmhttp/llmhttp/examples/redaction/replacer"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/textfilter"
)

// The model gets placeholders, and the client gets the names back.
func Example() {
	in := replacer.New("Ada Lovelace", "<person-1>")
	out := replacer.New("<person-1>", "Ada Lovelace")
	backend := textfilter.New(memory.Echo(), func(context.Context) textfilter.Filter {
		return textfilter.Filter{Request: in.Request, Reply: out.Reply}
	})

	reply, err := join.Collect(backend.Chat(context.Background(), &llm.ChatRequest{
		Model:    memory.ModelChat,
		Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Who was Ada Lovelace?")}},
	}))
	fmt.Println(reply.Choices[0].Message.Content.Text(), err)
	// Output: Who was Ada Lovelace? <nil>
}

func ExampleRewrite() {
	req := &llm.ChatRequest{
		Model: "demo",
		Messages: []llm.Message{
			{Role: llm.RoleSystem, Content: llm.TextContent("You serve acme.")},
			{Role: llm.RoleUser, Content: llm.TextContent("Who am I?")},
		},
	}
	err := textfilter.Rewrite(req, func(kind textfilter.Kind, text string) (string, error) {
		return strings.ReplaceAll(text, "acme", "[tenant]"), nil
	})
	fmt.Println(req.Messages[0].Content.Text(), err)
	// Output: You serve [tenant]. <nil>
}

func ExampleStream() {
	// The model's reply comes in pieces that divide what is to be removed.
	pieces := textStream("My number is 555-", "0100, call ", "me.")

	filtered := textfilter.Stream(pieces, 1, func(t *textfilter.ReplyText) (release, hold string, err error) {
		end := len(t.Text)
		if !t.End { // the last word may go on
			end = strings.LastIndexByte(t.Text, ' ') + 1
		}
		return strings.ReplaceAll(t.Text[:end], "555-0100", "[number]"), t.Text[end:], nil
	})
	for chunk := range filtered {
		if text := chunk.Choices[0].Delta.Content; text != "" {
			fmt.Printf("%q\n", text)
		}
	}
	// Output:
	// "My number is "
	// "[number], call "
	// "me."
}

// streamOf returns a stream of chunks.
func streamOf(chunks ...*llm.ChatChunk) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// textStream returns a stream of one chunk for each piece of a text.
func textStream(pieces ...string) llm.ChatStream {
	var chunks []*llm.ChatChunk
	for _, p := range pieces {
		chunks = append(chunks, llm.TextChunk(p))
	}
	return streamOf(chunks...)
}
