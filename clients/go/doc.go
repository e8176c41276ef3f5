// Package clients drives examples/inmemory with the Go clients people use:
// the official github.com/openai/openai-go and the widely used
// github.com/sashabaranov/go-openai. It is a module of its own, so that
// llmhttp depends on neither.
package clients
