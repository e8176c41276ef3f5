// Helpers that append JSON.

package responses

import (
	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte { return jsonwire.AppendString(b, s) }

// marshal returns v as JSON without white space between tokens.
func marshal(v any) ([]byte, error) { return llmhttp.AppendJSON(nil, v) }

// clip shortens a text of the client, so that an error message can quote it.
func clip(s string) string { return jsonwire.Clip(s, 64) }
