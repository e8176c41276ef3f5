package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/memory/internal/instance"
)

// formatReply returns text in the format f. A nil f means text.
func formatReply(f *llmhttp.ResponseFormat, text string) (string, error) {
	if f == nil || f.Type != "json_object" && f.Type != "json_schema" {
		return text, nil
	}
	var format struct {
		Name   string
		Schema json.RawMessage
	}
	param := "response_format.json_schema.schema"
	switch {
	case f.Type == "json_object" && f.Extra["schema"] != nil: // an extension of llama.cpp
		format.Schema, param = f.Extra["schema"], "response_format.schema"
	case f.Extra["json_schema"] != nil:
		if err := json.Unmarshal(f.Extra["json_schema"], &format); err != nil {
			return "", invalidSchema("invalid_json_schema", "response_format.json_schema", "response_format", errors.New("it is not an object with a name and a schema"))
		}
	}
	if format.Schema == nil || string(format.Schema) == "null" {
		b := jsonwire.AppendString([]byte(`{"reply":`), text)
		return string(append(b, '}')), nil
	}
	value, err := instance.Make(format.Schema, text, false)
	if err != nil {
		return "", invalidSchema("invalid_json_schema", param, fmt.Sprintf("response_format '%.64s'", format.Name), err)
	}
	return string(value), nil
}

// invalidSchema returns an error for the client. place describes the part of the
// request that contains the schema.
func invalidSchema(code, param, place string, err error) error {
	e := llmhttp.Errorf(http.StatusBadRequest, code, "Invalid schema for %s: %v.", place, err)
	e.Param = param
	return e
}

// cutAtStop returns the part of text before the first stop sequence, and that
// sequence. If there is none it returns text and "".
func cutAtStop(text string, sequences []string) (head, stop string) {
	end := len(text)
	for _, s := range sequences {
		if s == "" {
			continue
		}
		if i := strings.Index(text[:end], s); i >= 0 {
			end, stop = i, s
		}
	}
	return text[:end], stop
}
