package llmhttp

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEndpoints_HasTheScopeOfEveryRoute(t *testing.T) {
	h := NewHandler(BackendFunc(nil), AllowAll("a"), nil)
	routes := h.routes.wildcards
	for _, list := range h.routes.exact {
		routes = append(routes, list...)
	}
	used := make(map[Endpoint]bool)
	for _, rt := range routes {
		assert.Contains(t, Endpoints(), rt.endpoint)
		used[rt.endpoint] = true
	}
	assert.Len(t, Endpoints(), len(used))
}
