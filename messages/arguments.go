// The arguments of tool calls, and what becomes of those that are not a JSON object.

package messages

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// errInvalidCall is the error for a reply with a call that this API cannot express.
var errInvalidCall = &llm.Error{
	Status:  http.StatusBadGateway,
	Message: "The model called a tool without its name, or added arguments to a call that had ended.",
}

const space = " \t\r\n"

// startsObject reports whether text begins with the brace of a JSON object.
func startsObject(text []byte) bool {
	trimmed := bytes.TrimLeft(text, space)
	return len(trimmed) > 0 && trimmed[0] == '{'
}

func isSpace(s string) bool { return strings.Trim(s, space) == "" }

// mayBecomeEmpty reports whether text is empty or the beginning of null. Arguments that
// are empty or null stand for the input {}.
func mayBecomeEmpty(text []byte) bool {
	const null = "null"
	trimmed := bytes.Trim(text, space)
	return len(trimmed) <= len(null) && string(trimmed) == null[:len(trimmed)]
}

// warnOfArguments logs that a reply has a call whose arguments are not a JSON object. cut
// reports whether the reply was cut.
func warnOfArguments(ctx context.Context, cut bool) {
	if cut {
		llmhttp.LogBackendMistake(ctx, "a tool call was cut", errors.New("messages: its arguments are passed on as far as they came: "+
			"the token limit or a content filter ended the reply"))
		return
	}
	llmhttp.LogBackendMistake(ctx, "the arguments of a tool call are not a JSON object", errors.New("messages: they are passed on unchanged"))
}
