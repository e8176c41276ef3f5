package llmhttp

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// Extra holds the JSON members of an object that have no field in its Go type.
// They are kept when the object is encoded again, so that new and
// vendor-specific members pass through without a release of this package.
// A member that has a field is never encoded from Extra.
type Extra map[string]json.RawMessage

var extraJSON = jsonwire.NewObject(jsonwire.Extra(func(e *Extra) *Extra { return e }))

// size returns the number of bytes of the members of e.
func (e Extra) size() int {
	if len(e) == 0 { // the usual case, in which a loop would cost more (budget: stream, a flush per chunk)
		return 0
	}
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

// mergeExtra adds the members of b to a, which it may change, and returns the
// result.
func mergeExtra(a, b Extra) Extra {
	if len(a) == 0 {
		return b
	}
	maps.Copy(a, b)
	return a
}

// hasValue reports whether e has a member that is not null.
func hasValue(e Extra) bool {
	for _, v := range e {
		if string(v) != "null" {
			return true
		}
	}
	return false
}
