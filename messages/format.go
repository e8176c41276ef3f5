// The output format and the effort.

package messages

import (
	"encoding/json"

	"github.com/llmhttp/llmhttp/llm"
)

// outputParams are the parameters about the output: its format, and the effort to make it.
type outputParams struct {
	OutputConfig outputConfig  `json:"output_config"`
	OutputFormat *outputFormat `json:"output_format"` // the name of OutputConfig.Format in a beta of version 2023-06-01
}

type outputConfig struct {
	Effort string        `json:"effort"`
	Format *outputFormat `json:"format"`
}

type outputFormat struct {
	Type   string `json:"type"`
	Schema *raw   `json:"schema"`
}

// convertFormat sets the response format.
func (p *outputParams) convertFormat(req *llm.ChatRequest) error {
	f, path := p.OutputConfig.Format, "output_config.format"
	if f == nil {
		f, path = p.OutputFormat, "output_format"
	}
	if f == nil {
		return nil
	}
	switch {
	case f.Type == "":
		return prefixPath(missingField("type"), path)
	case f.Type != "json_schema":
		return prefixPath(fieldError("type", "Input should be 'json_schema'"), path)
	case f.Schema == nil:
		return prefixPath(missingField("schema"), path)
	case f.Schema.Kind() != '{':
		return prefixPath(fieldError("schema", "Input should be an object"), path)
	}
	req.ResponseFormat = &llm.ResponseFormat{Type: "json_schema", JSONSchema: &llm.JSONSchema{
		Name: "output", Schema: json.RawMessage(*f.Schema), Strict: new(true),
	}}
	return nil
}
