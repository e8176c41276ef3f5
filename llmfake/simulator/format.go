// Replies in a format.

package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/simulator/internal/instance"
)

// formatReply returns text in the format f. A nil f means text.
func formatReply(f *llm.ResponseFormat, text string) (string, error) {
	if f == nil || f.Type != "json_object" && f.Type != "json_schema" {
		return text, nil
	}
	var schema json.RawMessage
	name, param := "", "response_format.json_schema.schema"
	switch {
	case f.Type == "json_object" && f.Extra["schema"] != nil: // an extension of llama.cpp
		schema, param = f.Extra["schema"], "response_format.schema"
	case f.JSONSchema != nil:
		schema, name = f.JSONSchema.Schema, f.JSONSchema.Name
	}
	if schema == nil || string(schema) == "null" {
		b, _ := jsontext.AppendQuote([]byte(`{"reply":`), text) // fails for what is not UTF-8, which it has replaced
		return string(append(b, '}')), nil
	}
	value, err := instance.Make(schema, text, false)
	if err != nil {
		return "", invalidSchema("invalid_json_schema", param, fmt.Sprintf("response_format '%.64s'", name), err)
	}
	return string(value), nil
}

// invalidSchema returns an error for the client. place describes the part of the
// request that contains the schema.
func invalidSchema(code, param, place string, err error) error {
	e := llm.Errorf(http.StatusBadRequest, code, "Invalid schema for %s: %v.", place, err)
	e.Param = param
	return e
}
