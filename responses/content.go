package responses

import (
	"encoding/json"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// readContent decodes content, which is a string or an array of parts. It returns the
// text of refusals separately.
func readContent(raw jsonwire.Value, path string) (content llmhttp.Content, refusal string, err error) {
	switch raw.Kind() {
	case '"':
		text, err := decodeString(raw, path)
		return llmhttp.Text(text), "", err
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
		part, text, err := parts[i].convert(elementPath(path, i))
		if err != nil {
			return nil, "", err
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
}

// convert returns nil for a refusal, and for a part of an unknown type without text.
func (p *contentPart) convert(path string) (part *llmhttp.Part, refusal string, err error) {
	switch p.Type {
	case "":
		return nil, "", missingParam(memberPath(path, "type"))
	case "refusal":
		if p.Refusal == nil {
			return nil, "", missingParam(memberPath(path, "refusal"))
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
			return nil, "", missingParam(memberPath(path, "input_audio"))
		}
		return &llmhttp.Part{Type: llmhttp.PartAudio, Extra: llmhttp.Extra{llmhttp.PartAudio: json.RawMessage(p.Audio)}}, "", nil
	case "input_text", "output_text", "text":
		if p.Text == nil {
			return nil, "", missingParam(memberPath(path, "text"))
		}
	}
	if p.Text == nil {
		return nil, "", nil
	}
	return &llmhttp.Part{Type: llmhttp.PartText, Text: *p.Text}, "", nil
}

func (p *contentPart) image(path string) (*llmhttp.Part, error) {
	switch {
	case p.ImageURL != nil && *p.ImageURL != "":
		return &llmhttp.Part{Type: llmhttp.PartImage, ImageURL: &llmhttp.ImageURL{URL: *p.ImageURL, Detail: p.Detail}}, nil
	case p.FileID != nil:
		return nil, unsupportedParam(
			memberPath(path, "file_id"),
			"Files are not stored. Send the image as '%s', which can be a data: URL.",
			memberPath(path, "image_url"),
		)
	}
	return nil, missingParam(memberPath(path, "image_url"))
}

// file returns the part for an input_file. Its members are passed on unchanged.
func (p *contentPart) file(path string) (*llmhttp.Part, error) {
	if p.FileID == nil && p.FileURL == nil && p.FileData == nil {
		return nil, missingParam(memberPath(path, "file_data"))
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
	return &llmhttp.Part{Type: llmhttp.PartFile, Extra: llmhttp.Extra{llmhttp.PartFile: file}}, nil
}
