package llmhttp

import (
	"context"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
)

func TestScopes_HasTheScopeOfEveryRoute(t *testing.T) {
	noModel := func(context.Context, *llm.ChatRequest) llm.ChatStream { return nil }
	h := NewHandler(BackendFunc(noModel), AllowAll("a"), nil)
	for e := range h.routes.All() {
		assert.Contains(t, Scopes(), e.Value.binding.scope)
	}
	assert.Equal(t, ScopeChat, Scopes()[0])
	assert.Equal(t, OperationChat, Operations()[0])
}
