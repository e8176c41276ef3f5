package simulator_test

import (
	"fmt"

	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// A Handler can count tokens in the same way as the Backend.
func ExampleCountTokens() {
	fmt.Println(simulator.CountTokens("demo-chat", "Words, 日本語 and 👩‍👩‍👧‍👦."))
	// Output: 7
}
