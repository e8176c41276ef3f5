package llm_test

import (
	"fmt"

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
