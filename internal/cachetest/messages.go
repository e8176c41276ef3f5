// Prompts and replies of Messages.

package cachetest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A messagesBlock is a block of Messages. What is not listed is in raw.
type messagesBlock struct {
	Type         string          `json:"type"`
	Text         string          `json:"text"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	ToolUseID    string          `json:"tool_use_id"`
	Content      messagesContent `json:"content"`
	CacheControl json.RawMessage `json:"cache_control"`
	raw          string          // of blocks of other types, without the mark
}

// messagesContent is a string or blocks.
type messagesContent []messagesBlock

func (c *messagesContent) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*c = messagesContent{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(data, (*[]messagesBlock)(c))
}

func (b *messagesBlock) UnmarshalJSON(data []byte) error {
	type fields messagesBlock
	if err := json.Unmarshal(data, (*fields)(b)); err != nil {
		return err
	}
	switch b.Type {
	case "text", "tool_use", "tool_result":
		return nil
	}
	var rest map[string]json.RawMessage
	if err := json.Unmarshal(data, &rest); err != nil {
		return err
	}
	delete(rest, "cache_control")
	raw, err := json.Marshal(rest)
	b.raw = string(raw)
	return err
}

// ofMessages decodes a request of Messages.
func ofMessages(body []byte) (request, error) {
	var req struct {
		Model  string
		Stream bool
		System messagesContent
		Tools  []struct {
			Name, Description string
			InputSchema       json.RawMessage `json:"input_schema"`
			CacheControl      json.RawMessage `json:"cache_control"`
		}
		Messages []struct {
			Role    string
			Content messagesContent
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return request{}, err
	}
	r := request{stream: req.Stream, model: req.Model}
	for _, t := range req.Tools {
		r.add(t.CacheControl, "tool", t.Name, t.Description, string(t.InputSchema))
		r.tools = append(r.tools, t.Name)
	}
	for i := range req.System {
		if b := &req.System[i]; !strings.HasPrefix(b.Text, "x-anthropic-billing-header:") { // which Anthropic takes out
			r.addBlock("system", b)
		}
	}
	for _, m := range req.Messages {
		for i := range m.Content {
			r.addBlock(m.Role, &m.Content[i])
		}
	}
	return r, nil
}

func (r *request) addBlock(role string, b *messagesBlock) {
	switch b.Type {
	case "tool_use":
		r.add(b.CacheControl, "call"+b.ID, b.Name, string(b.Input))
	case "tool_result":
		r.results++
		for i := range b.Content {
			inner := &b.Content[i]
			mark := inner.CacheControl
			if i == len(b.Content)-1 && b.CacheControl != nil {
				mark = b.CacheControl
			}
			r.add(mark, "tool"+b.ToolUseID, inner.Text, inner.raw)
		}
	default:
		r.add(b.CacheControl, role, b.Text, b.raw)
	}
}

// messagesReply returns a reply of Messages.
func messagesReply(r *request, id string, call *call, text string, t *Tokens) string {
	usage := fmt.Sprintf(`{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation":%s,"output_tokens":%d,"service_tier":"standard"}`,
		t.Prompt-t.Read-t.Written, t.Written, t.Read, writtenFor(t), t.Completion)
	stop, block := "end_turn", `{"type":"text","text":`+quote(text)+`}`
	start, delta := `{"type":"text","text":""}`, `{"type":"text_delta","text":`+quote(text)+`}`
	if call != nil {
		stop = "tool_use"
		head := fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":`, quote(call.id), quote(call.name))
		block, start = head+call.input+`}`, head+`{}}`
		delta = `{"type":"input_json_delta","partial_json":` + quote(call.input) + `}`
	}
	message := func(content, stop string) string {
		return fmt.Sprintf(`{"id":"msg_%s","type":"message","role":"assistant","model":%s,"content":[%s],"stop_reason":%s,"stop_sequence":null,"usage":%s}`, id, quote(r.model), content, stop, usage)
	}
	if !r.stream {
		return message(block, quote(stop))
	}
	var b strings.Builder
	for _, e := range [][2]string{
		{"message_start", `"message":` + message("", "null")},
		{"content_block_start", `"index":0,"content_block":` + start}, {"content_block_delta", `"index":0,"delta":` + delta}, {"content_block_stop", `"index":0`},
		{"message_delta", `"delta":{"stop_reason":"` + stop + `","stop_sequence":null},"usage":` + usage},
	} {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%[1]q,%s}\n\n", e[0], e[1])
	}
	return b.String() + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
}
