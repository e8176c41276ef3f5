package messages

import (
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// decode decodes a JSON value strictly. Unknown members are ignored. The error is a
// *requestError.
func decode[V any](data []byte, t jsonwire.Type[V], v *V) error {
	e := jsonwire.Unmarshal(data, t, v)
	if e == nil {
		return nil
	}
	path := pathReplacer.Replace(e.Path)
	switch e.Kind {
	case jsonwire.WrongType:
		return fieldError(path, "Input should be %s", e.Want)
	case jsonwire.OutOfRange:
		return fieldError(path, "Input should be a number that is not as large")
	case jsonwire.Duplicate:
		return fieldError(path, "Duplicate field")
	case jsonwire.TooDeep:
		return fieldError("", "The request body nests deeper than %d levels", jsonwire.MaxDepth)
	case jsonwire.TooManyMembers, jsonwire.TooManyValues:
		return fieldError("", "The request body has too many values")
	}
	return fieldError("", "The request body is not valid JSON: it must be one document in UTF-8")
}

// pathReplacer gives paths the form of this API's messages, such as
// "messages.2.content".
var pathReplacer = strings.NewReplacer("[", ".", "]", "")

// clip shortens a text of the client, so that an error message can quote it.
func clip(s string) string { return jsonwire.Clip(s, 64) }

// decodeStrings decodes an array of strings.
func decodeStrings(d *jsonwire.Decoder) []string {
	var list []string
	d.Array(0, func(int) { list = append(list, d.String()) })
	return list
}

// decodeContent decodes a string or an array of blocks.
func decodeContent(data []byte) ([]block, error) {
	var c content
	err := decode(data, contentType{}, &c)
	return c, err
}

// content is a string or an array of blocks. A string is a block of text.
type content []block

type contentType struct{}

func (contentType) Decode(d *jsonwire.Decoder, c *content) {
	switch d.Kind() {
	case '"':
		*c = content{{Type: "text", Text: d.String()}}
	case '[':
		blockList.Decode(d, (*[]block)(c))
	default:
		d.Mismatch("a string or an array")
	}
}

// Append is not used: requests are not encoded.
func (contentType) Append(b []byte, _ *content) ([]byte, error) { return b, nil }
func (contentType) IsZero(c *content) bool                      { return *c == nil }

var blockList = jsonwire.ListOf(jsonwire.NewObject(
	jsonwire.String("type", func(k *block) *string { return &k.Type }),
	jsonwire.String("text", func(k *block) *string { return &k.Text }),
	jsonwire.String("thinking", func(k *block) *string { return &k.Thinking }),
	jsonwire.String("signature", func(k *block) *string { return &k.Signature }),
	jsonwire.String("id", func(k *block) *string { return &k.ID }),
	jsonwire.String("name", func(k *block) *string { return &k.Name }),
	jsonwire.Raw("input", func(k *block) *raw { return &k.Input }),
	jsonwire.String("tool_use_id", func(k *block) *string { return &k.ToolUseID }),
	jsonwire.Bool("is_error", func(k *block) *bool { return &k.IsError }),
	jsonwire.Raw("title", func(k *block) *raw { return &k.Title }),
	jsonwire.Raw("data", func(k *block) *raw { return &k.Data }),
	jsonwire.Raw("source", func(k *block) *raw { return &k.Source }),
	jsonwire.Raw("content", func(k *block) *raw { return &k.Content }),
	jsonwire.Raw("tool_name", func(k *block) *raw { return &k.ToolName }),
), 0)

var sourceObject = jsonwire.NewObject(
	jsonwire.String("type", func(s *source) *string { return &s.Type }),
	jsonwire.String("media_type", func(s *source) *string { return &s.MediaType }),
	jsonwire.String("data", func(s *source) *string { return &s.Data }),
	jsonwire.String("url", func(s *source) *string { return &s.URL }),
	jsonwire.Raw("content", func(s *source) *raw { return &s.Content }),
)

var paramsObject = jsonwire.NewObject(
	jsonwire.String("model", func(p *params) *string { return &p.Model }),
	jsonwire.List("messages", func(p *params) *[]turn { return &p.Messages }, turnObject, 0),
	jsonwire.Member("system", func(p *params) *content { return &p.System }, contentType{}),
	jsonwire.OptionalInt("max_tokens", func(p *params) **int { return &p.MaxTokens }),
	jsonwire.Bool("stream", func(p *params) *bool { return &p.Stream }),
	jsonwire.Func("stop_sequences", func(p *params, d *jsonwire.Decoder) { p.StopSequences = decodeStrings(d) }, nil),
	jsonwire.OptionalFloat("temperature", func(p *params) **float64 { return &p.Temperature }),
	jsonwire.OptionalFloat("top_p", func(p *params) **float64 { return &p.TopP }),
	jsonwire.OptionalInt("top_k", func(p *params) **int { return &p.TopK }),
	jsonwire.List("tools", func(p *params) *[]tool { return &p.Tools }, toolObject, 0),
	jsonwire.Pointer("tool_choice", func(p *params) **toolChoice { return &p.ToolChoice }, toolChoiceObject),
	jsonwire.Pointer("thinking", func(p *params) **thinkingConfig { return &p.Thinking }, thinkingObject),
	jsonwire.Struct("output_config", func(p *params) *outputConfig { return &p.OutputConfig }, outputConfigObject),
	jsonwire.Pointer("output_format", func(p *params) **outputFormat { return &p.OutputFormat }, outputFormatObject),
	jsonwire.Struct("metadata", func(p *params) *metadata { return &p.Metadata }, metadataObject),
	jsonwire.String("service_tier", func(p *params) *string { return &p.ServiceTier }),
	jsonwire.Raw("thread", func(p *params) *raw { return &p.Thread }),
)

var (
	turnObject = jsonwire.NewObject(
		jsonwire.String("role", func(t *turn) *string { return &t.Role }),
		jsonwire.Member("content", func(t *turn) *content { return &t.Content }, contentType{}),
	)
	toolObject = jsonwire.NewObject(
		jsonwire.String("type", func(t *tool) *string { return &t.Type }),
		jsonwire.String("name", func(t *tool) *string { return &t.Name }),
		jsonwire.String("description", func(t *tool) *string { return &t.Description }),
		jsonwire.Raw("input_schema", func(t *tool) *raw { return &t.InputSchema }),
		jsonwire.OptionalBool("strict", func(t *tool) **bool { return &t.Strict }),
	)
	toolChoiceObject = jsonwire.NewObject(
		jsonwire.String("type", func(c *toolChoice) *string { return &c.Type }),
		jsonwire.String("name", func(c *toolChoice) *string { return &c.Name }),
		jsonwire.OptionalBool("disable_parallel_tool_use", func(c *toolChoice) **bool { return &c.DisableParallel }),
	)
	thinkingObject = jsonwire.NewObject(
		jsonwire.String("type", func(c *thinkingConfig) *string { return &c.Type }),
		jsonwire.OptionalInt("budget_tokens", func(c *thinkingConfig) **int { return &c.BudgetTokens }),
	)
	outputConfigObject = jsonwire.NewObject(
		jsonwire.String("effort", func(c *outputConfig) *string { return &c.Effort }),
		jsonwire.Pointer("format", func(c *outputConfig) **outputFormat { return &c.Format }, outputFormatObject),
	)
	outputFormatObject = jsonwire.NewObject(
		jsonwire.String("type", func(f *outputFormat) *string { return &f.Type }),
		jsonwire.Raw("schema", func(f *outputFormat) *raw { return &f.Schema }),
	)
	metadataObject = jsonwire.NewObject(
		jsonwire.String("user_id", func(m *metadata) *string { return &m.UserID }),
	)
)
