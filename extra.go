package llmhttp

import (
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// size returns the number of bytes of the members of e.
func (e Extra) size() int {
	n := 0
	for name, v := range e {
		n += len(name) + len(v)
	}
	return n
}

// texts returns the strings among the members of e.
func (e Extra) texts() string {
	var all strings.Builder
	for _, v := range e {
		if len(v) > 0 && v[0] == '"' {
			all.WriteString(textOf(v))
		}
	}
	return all.String()
}

// dropInvalid removes the members of several Extras that are not JSON, and
// reports whether there were any.
func dropInvalid(extras ...Extra) (dropped bool) {
	for _, e := range extras {
		for name, v := range e {
			if _, err := jsonwire.AppendRaw(nil, v); err != nil {
				delete(e, name)
				dropped = true
			}
		}
	}
	return dropped
}

func (u *Usage) dropInvalid() bool {
	return dropInvalid(u.Extra, u.PromptTokensDetails.Extra, u.CompletionTokensDetails.Extra)
}
