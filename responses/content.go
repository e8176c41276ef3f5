// The content of items.

package responses

import (
	"encoding/json"
	"strings"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
)

// readContent decodes content, which is a string or an array of parts. It returns the
// text of refusals separately.
func readContent(raw jsonwire.Value, path string) (content llm.Content, refusal string, err error) {
	switch raw.Kind() {
	case '"':
		text, err := decodeString(raw, path)
		return llm.TextContent(text), "", err
	case '[':
	default:
		return nil, "", invalidType(path, "a string or an array of parts", raw)
	}
	var parts []contentPart
	if err := decode(raw, path, &parts); err != nil {
		return nil, "", err
	}
	var refusals []string
	for i := range parts {
		part, text, err := parts[i].convert(param.Path(path, i, ""))
		if err != nil {
			return nil, "", err
		}
		if part != nil {
			parts[i].passMembers(part)
		}
		if text != "" {
			refusals = append(refusals, text)
		}
		if part != nil {
			content = append(content, *part)
		}
	}
	return content, strings.Join(refusals, ""), nil
}

// A contentPart is a part of content.
type contentPart struct {
	Type     string         `json:"type"`
	Text     *string        `json:"text"`
	Refusal  *string        `json:"refusal"`
	ImageURL *string        `json:"image_url"`
	Detail   string         `json:"detail"`
	FileID   *string        `json:"file_id"`
	FileURL  *string        `json:"file_url"`
	FileData *string        `json:"file_data"`
	Filename *string        `json:"filename"`
	Audio    jsonwire.Value `json:"input_audio"`
	Others   jsonwire.Others
}

// convert returns nil for a refusal. It refuses a part of an unknown type without text, and one that was
// encrypted elsewhere, because the model would not get what they tell.
func (p *contentPart) convert(path string) (part *llm.Part, refusal string, err error) {
	switch p.Type {
	case "":
		return nil, "", invalid.Missing(memberPath(path, "type"))
	case "refusal":
		if p.Refusal == nil {
			return nil, "", invalid.Missing(memberPath(path, "refusal"))
		}
		return nil, *p.Refusal, nil
	case "input_image":
		part, err = p.image(path)
		return part, "", err
	case "input_file":
		part, err = p.file(path)
		return part, "", err
	case "input_audio":
		if p.Audio.IsNull() {
			return nil, "", invalid.Missing(memberPath(path, "input_audio"))
		}
		return &llm.Part{Type: llm.PartAudio, Extra: llm.Extra{llm.PartAudio: json.RawMessage(p.Audio)}}, "", nil
	case "encrypted_content":
		return nil, "", errNotDecrypted(path, "")
	case "input_text", "output_text", "text":
		if p.Text == nil {
			return nil, "", invalid.Missing(memberPath(path, "text"))
		}
	}
	if p.Text == nil {
		return nil, "", invalid.Param(
			"invalid_value",
			memberPath(path, "type"),
			"The part '%s' has the type '%s', which is not supported, and no 'text' that could be used instead.",
			path,
			clip(p.Type),
		)
	}
	return &llm.Part{Type: llm.PartText, Text: *p.Text}, "", nil
}

func (p *contentPart) image(path string) (*llm.Part, error) {
	switch {
	case p.ImageURL != nil && *p.ImageURL != "":
		return &llm.Part{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: *p.ImageURL, Detail: p.Detail}}, nil
	case p.FileID != nil:
		return nil, unsupportedParam(
			memberPath(path, "file_id"),
			"Files are not stored. Send the image as '%s', which can be a data: URL.",
			memberPath(path, "image_url"),
		)
	}
	return nil, invalid.Missing(memberPath(path, "image_url"))
}

// file returns the part for an input_file. Its members are passed on unchanged.
func (p *contentPart) file(path string) (*llm.Part, error) {
	if p.FileID == nil && p.FileURL == nil && p.FileData == nil {
		return nil, invalid.Missing(memberPath(path, "file_data"))
	}
	file, err := marshal(&struct {
		Filename *string `json:"filename,omitzero"`
		FileData *string `json:"file_data,omitzero"`
		FileID   *string `json:"file_id,omitzero"`
		FileURL  *string `json:"file_url,omitzero"`
	}{p.Filename, p.FileData, p.FileID, p.FileURL})
	if err != nil {
		return nil, err
	}
	return &llm.Part{Type: llm.PartFile, Extra: llm.Extra{llm.PartFile: file}}, nil
}
