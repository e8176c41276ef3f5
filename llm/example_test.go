package llm_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// A Backend that yields the same chunk again yields a clone, because the reader may change what it
// gets.
func ExampleChatChunk_Clone() {
	chunk := llm.TextChunk("ha")
	laugh := func(yield func(*llm.ChatChunk, error) bool) {
		for range 3 {
			if !yield(chunk.Clone(), nil) {
				return
			}
		}
	}
	reply, err := join.Collect(laugh)
	if err != nil {
		panic(err)
	}
	fmt.Println(reply.Choices[0].Message.Content.Text())
	// Output: hahaha
}

func ExampleTee() {
	var kept []*llm.ChatChunk
	stream := llm.Tee(llm.Reply("Hello!"), func(c *llm.ChatChunk, err error) {
		switch {
		case err != nil:
			fmt.Println("failed:", err)
		case c == nil:
			fmt.Println("complete, with", len(kept), "chunk")
		default:
			kept = append(kept, c.Clone())
		}
	})
	for range stream { // as a Handler reads it
	}
	// Output: complete, with 1 chunk
}

// A client of a model that sends what it gets to a channel.
type channelClient struct{}

type event struct {
	Text string
	Err  error
}

func (channelClient) Ask(ctx context.Context, prompt string) (<-chan event, error) {
	events := make(chan event)
	go func() {
		defer close(events)
		for _, word := range strings.SplitAfter("You said: "+prompt, " ") {
			select {
			case events <- event{Text: word}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events, nil
}

// A Backend whose model is behind a client with a channel.
func ExampleFromChannel() {
	client := channelClient{}
	chat := func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		return llm.FromChannel(ctx, func(ctx context.Context) (<-chan event, error) {
			return client.Ask(ctx, req.Messages[len(req.Messages)-1].Content.Text())
		}, func(e event) (*llm.ChatChunk, error) {
			return llm.TextChunk(e.Text), e.Err
		})
	}

	req := &llm.ChatRequest{Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.Content{{Type: llm.PartText, Text: "good morning"}}}}}
	for chunk, err := range chat(context.Background(), req) { // as a Handler reads it
		if err != nil {
			panic(err)
		}
		fmt.Printf("%q\n", chunk.Choices[0].Delta.Content)
	}
	// Output:
	// "You "
	// "said: "
	// "good "
	// "morning"
}

// Many clients of models call a function for each piece. Its error ends the request to the model
// when the client has left.
func ExampleNewStream() {
	generate := func(ctx context.Context, prompt string, onText func(text string) error) error {
		for _, word := range strings.SplitAfter("You said: "+prompt, " ") {
			if err := onText(word); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	chat := func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
			return generate(ctx, req.Messages[len(req.Messages)-1].Content.Text(), func(text string) error {
				return send(llm.TextChunk(text))
			})
		})
	}

	req := &llm.ChatRequest{Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.Content{{Type: llm.PartText, Text: "good morning"}}}}}
	reply, err := join.Collect(chat(context.Background(), req))
	fmt.Println(reply.Choices[0].Message.Content.Text(), err)
	// Output: You said: good morning <nil>
}

// A Backend tells a client that there is no such model as OpenAI's server does.
func ExampleModelNotFound() {
	chat := func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		if req.Model != "parrot" {
			return llm.Fail(llm.ModelNotFound(req.Model))
		}
		return llm.Reply("Squawk!")
	}

	for _, err := range chat(context.Background(), &llm.ChatRequest{Model: "parot"}) {
		var e *llm.Error
		if errors.As(err, &e) {
			fmt.Println(e.Status, http.StatusText(e.Status), e.Code)
			fmt.Println(e.Message)
		}
	}
	// Output:
	// 404 Not Found model_not_found
	// The model `parot` does not exist or you do not have access to it.
}
