package keytext

import (
	"fmt"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// ParseScopes is ParseList for scopes, which may be those of endpoints of a host.
func ParseScopes(s string) ([]llmhttp.Scope, error) {
	scopes, err := ParseList[llmhttp.Scope](s)
	if err != nil {
		return nil, err
	}
	for _, scope := range scopes {
		if err := scope.Validate(); err != nil {
			return nil, err
		}
	}
	return scopes, nil
}

// ScopeHint returns a text about each scope that may be a mistake for one of llmhttp.Scopes, such as
// "chats", or "". It is only a hint: a host may have an endpoint with that scope.
func ScopeHint(scopes []llmhttp.Scope) string {
	var hints []string
	for _, scope := range scopes {
		if meant := scope.Suggestion(); meant != "" {
			hints = append(hints, fmt.Sprintf("llmhttp has no endpoint with the scope %q: did you mean %q?", scope, meant))
		}
	}
	return strings.Join(hints, " ")
}
