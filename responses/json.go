package responses

import (
	"fmt"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte { return jsonwire.AppendString(b, s) }

// marshal returns v as JSON without white space between tokens.
func marshal(v any) ([]byte, error) {
	b, err := jsonv2.Marshal(v, jsonv2.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("responses: encoding %T: %w", v, err)
	}
	return []byte(escapeLineBreaks.Replace(string(b))), nil
}

// escapeLineBreaks escapes characters that JSON need not escape, but at which some
// clients split the lines of a stream, as Python's splitlines does.
var escapeLineBreaks = strings.NewReplacer("\u0085", `\u0085`, "\u2028", `\u2028`, "\u2029", `\u2029`)

// clip shortens a text of the client, so that an error message can quote it.
func clip(s string) string { return jsonwire.Clip(s, 64) }
