package join_test

import (
	"errors"
	"fmt"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// Collect joins a stream where code needs the whole reply.
func ExampleCollect() {
	reply, err := join.Collect(llm.NewStream(func(send func(*llm.ChatChunk) error) error {
		for _, word := range []string{"1 ", "2 ", "3 "} {
			if err := send(llm.TextChunk(word)); err != nil {
				return err
			}
		}
		return send(&llm.ChatChunk{Usage: &llm.Usage{CompletionTokens: 3}})
	}))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%q\n", reply.Choices[0].Message.Content.Text())
	fmt.Println(reply.Usage.CompletionTokens, "tokens")

	_, err = join.Collect(llm.Fail(errors.New("no model")))
	fmt.Println(err)
	// Output:
	// "1 2 3 "
	// 3 tokens
	// no model
}
