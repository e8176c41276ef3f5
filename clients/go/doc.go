// Package clients tests examples/inmemory with other people's Go clients: the
// official github.com/openai/openai-go, and github.com/sashabaranov/go-openai. It
// is a separate module, so that llmhttp does not depend on them.
package clients
