package llmhttp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestScopes_HasTheScopeOfEveryRoute(t *testing.T) {
	used := make(map[Scope]bool)
	noModel := func(context.Context, *ChatRequest) ChatStream { return nil }
	h := NewHandler(BackendFunc(noModel), AllowAll("a"), nil)
	h.routes.contains(func(rt *boundRoute) bool {
		assert.Contains(t, Scopes(), rt.binding.scope)
		used[rt.binding.scope] = true
		return false
	})
	assert.Len(t, Scopes(), len(used))
	assert.Equal(t, []Scope{ScopeChat, ScopeImages, ScopeEmbeddings, ScopeModels, ScopeUsage}, Scopes())
	assert.Equal(t, []Operation{OperationChat, OperationImages, OperationEmbeddings}, Operations())
}
