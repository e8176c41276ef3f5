// The blocks of content of a request, and what they become.

package messages

import (
	"encoding/json"
	"strings"

	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/headertext"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/llm"
)

// A block is an element of content. Type decides which other fields are used. Members
// whose JSON type depends on Type are raw and decoded later.
type block struct {
	Type string `json:"type"`

	Text *string `json:"text"` // type text

	Thinking  *string `json:"thinking"` // type thinking
	Signature string  `json:"signature"`

	ID    string `json:"id"` // type tool_use
	Name  string `json:"name"`
	Input *raw   `json:"input"`

	ToolUseID *string `json:"tool_use_id"` // type tool_result; a pointer, because it takes less memory (TestAllocs_LargeBodies)
	IsError   bool    `json:"is_error"`

	Source *source `json:"source"` // image, document, search_result

	Title    *raw `json:"title"`     // document, search_result: a string
	Data     *raw `json:"data"`      // redacted_thinking: a string
	Content  *raw `json:"content"`   // tool_result, search_result, compaction: a string or blocks
	ToolName *raw `json:"tool_name"` // tool_reference: a string

	cacheControl
}

// A source contains the data of an image or document, or tells where it is. That of a
// search_result is a string.
type source struct {
	Type      string `json:"type"` // base64, url, text, content or file
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
	URL       string `json:"url"`
	Content   *raw   `json:"content"` // a string or blocks

	isObject bool   // false for a string and for what is neither
	text     string // of a search_result
}

// DecodeTags reads the object in place, because it may contain megabytes that a second pass
// would read again.
func (s *source) DecodeTags(d *jsonwire.Decoder) {
	switch d.Kind() {
	case '{':
		s.isObject = true
		type members source // has no methods
		d.ByTags((*members)(s))
	case '"':
		s.text = d.String()
	default:
		d.Skip()
	}
}

// toolCall converts a tool_use block. The input that a whole reply has for invalid arguments
// is kept as it is: servers such as vLLM and llama.cpp refuse every request of a conversation
// in which the arguments of a call are not JSON (vllm-project/vllm#43995).
func (b *block) toolCall() (llm.ToolCall, error) {
	call := llm.ToolCall{ID: b.ID, Type: "function", Function: llm.FunctionCall{Name: b.Name}}
	switch {
	case b.ID == "":
		return call, missingField("id")
	case b.Name == "":
		return call, missingField("name")
	case b.Input == nil:
		return call, missingField("input")
	case b.Input.Kind() != '{':
		return call, fieldError("input", "Input should be an object")
	}
	compact, err := jsonwire.AppendRaw(nil, []byte(*b.Input))
	call.Function.Arguments = string(compact)
	return call, err
}

// contentParts converts content. convert converts one block.
func contentParts(encoded *raw, convert func(*block) (llm.Content, error)) (llm.Content, error) {
	if encoded == nil {
		return nil, missingField("")
	}
	var blocks content
	if err := decode(*encoded, &blocks); err != nil {
		return nil, err
	}
	var all llm.Content
	for i := range blocks {
		parts, err := convert(&blocks[i])
		if err != nil {
			return nil, prefixPath(err, i)
		}
		all = append(all, parts...)
		if err := blocks[i].mark(lastExtra(all)); err != nil {
			return nil, prefixPath(err, i)
		}
	}
	return all, nil
}

// parts converts a block to parts. It returns none for an empty text, and for blocks of
// tools that Anthropic runs.
func (b *block) parts() (llm.Content, error) {
	switch b.Type {
	case "text":
		if b.Text == nil {
			return nil, missingField("text")
		}
		return textParts(*b.Text), nil
	case "image":
		return b.imageParts()
	case "document":
		return b.documentParts()
	case "search_result":
		return b.searchResultParts()
	case "tool_reference":
		return textParts("Tool: " + stringValue(b.ToolName)), nil
	case "compaction":
		return textParts(stringValue(b.Content)), nil
	case "":
		return nil, missingField("type")
	}
	if anthropic.IsServerBlock(b.Type) {
		return nil, nil
	}
	return nil, b.unexpectedType()
}

// innerParts converts a block within a document or a search result. These blocks cannot
// contain others: each level of nesting would take memory for everything inside it.
func (b *block) innerParts() (llm.Content, error) {
	switch b.Type {
	case "text", "image", "":
		return b.parts()
	}
	return nil, b.unexpectedType()
}

func (b *block) unexpectedType() error {
	return fieldError("type", "Input tag '%s' does not match any of the expected tags", clip(b.Type))
}

func textParts(text string) llm.Content {
	if text == "" {
		return nil
	}
	return llm.TextContent(text)
}

// checkSource returns an error if an image or a document has no valid source.
func (b *block) checkSource() error {
	s := b.Source
	switch {
	case s == nil:
		return missingField("source")
	case !s.isObject:
		return fieldError("source", "Input should be an object")
	case s.Type == "":
		return missingField("source.type")
	case s.Type == "file":
		return fieldError("source.type", "Uploaded files are not supported")
	case s.Type == "base64" && s.MediaType == "":
		return missingField("source.media_type")
	case (s.Type == "base64" || s.Type == "text") && s.Data == "":
		return missingField("source.data")
	case s.Type == "url" && s.URL == "":
		return missingField("source.url")
	}
	return nil
}

// dataURL returns the data of a source of type base64 as a data: URL.
func (s *source) dataURL() (string, error) {
	media, ok := headertext.MediaType(s.MediaType)
	if !ok {
		return "", fieldError("source.media_type", "Input should be a media type, such as 'image/png'")
	}
	return "data:" + media + ";base64," + s.Data, nil
}

func (b *block) imageParts() (llm.Content, error) {
	if err := b.checkSource(); err != nil {
		return nil, err
	}
	s, url := b.Source, b.Source.URL
	switch s.Type {
	case "base64":
		var err error
		if url, err = s.dataURL(); err != nil {
			return nil, err
		}
	case "url":
	default:
		return nil, fieldError("source.type", "Input should be 'base64', 'url' or 'file'")
	}
	return llm.Content{{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: url}}}, nil
}

func (b *block) documentParts() (llm.Content, error) {
	if err := b.checkSource(); err != nil {
		return nil, err
	}
	switch s := b.Source; s.Type {
	case "text":
		return textParts(withTitle(stringValue(b.Title), s.Data)), nil
	case "content":
		parts, err := contentParts(s.Content, (*block).innerParts)
		return parts, prefixPath(err, "source.content")
	case "base64":
		url, err := s.dataURL()
		if err != nil {
			return nil, err
		}
		return b.fileParts(url), nil
	case "url":
		return b.fileParts(s.URL), nil
	}
	return nil, fieldError("source.type", "Input should be 'base64', 'text', 'content', 'url' or 'file'")
}

// fileParts returns a part with the file at url, which may be a data: URL.
func (b *block) fileParts(url string) llm.Content {
	name := stringValue(b.Title)
	if name == "" {
		name = "document.pdf"
	}
	file := mustMarshal(map[string]string{"filename": name, "file_data": url})
	return llm.Content{{Type: llm.PartFile, Extra: llm.Extra{llm.PartFile: file}}}
}

func withTitle(title, text string) string {
	if title == "" {
		return text
	}
	return title + "\n\n" + text
}

func (b *block) searchResultParts() (llm.Content, error) {
	parts, err := contentParts(b.Content, (*block).innerParts)
	if err != nil {
		return nil, prefixPath(err, "content")
	}
	title := stringValue(b.Title)
	if b.Source != nil {
		title += " " + b.Source.text
	}
	title = strings.TrimSpace(title)
	result := textParts(withTitle(title, parts.Text()))
	if mark := promptcache.Last(parts); mark != nil && len(result) > 0 {
		promptcache.Set(lastExtra(result), mark)
	}
	return result, nil
}

// stringValue returns the text of a JSON string, or "" if v is another value.
func stringValue(v *raw) (s string) {
	if v == nil || json.Unmarshal([]byte(*v), &s) != nil {
		return ""
	}
	return s
}
