package keytext

import (
	"fmt"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// ParseScopes is [ParseList] for the scopes of a key. Those of endpoints of the host are allowed too; an error
// is what [llmhttp.Scope.Validate] refuses.
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

// ScopeHint returns a sentence for each scope that may be a mistake for one of [llmhttp.Scopes], such as
// chats, and "" if there is none. It is only a hint: a host may have an endpoint with that scope.
func ScopeHint(scopes []llmhttp.Scope) string {
	var hints []string
	for _, scope := range scopes {
		if meant := scope.Suggestion(); meant != "" {
			hints = append(hints, fmt.Sprintf("llmhttp has no endpoint with the scope %q: did you mean %q?", scope, meant))
		}
	}
	return strings.Join(hints, " ")
}
