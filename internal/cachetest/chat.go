// Prompts and replies of chat completions.

package cachetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
)

// ofChat decodes a request of chat completions.
func ofChat(body []byte) (request, error) {
	var req llm.ChatRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return request{}, err
	}
	r := request{stream: req.Stream, model: req.Model}
	for _, t := range req.Tools {
		r.add(t.Extra["cache_control"], "tool", t.Function.Name, t.Function.Description, string(t.Function.Parameters))
		r.tools = append(r.tools, t.Function.Name)
	}
	for _, m := range req.Messages {
		if m.Role == llm.RoleTool {
			r.results++
		}
		for _, p := range m.Content {
			rest := ""
			if p.Type != llm.PartText {
				rest = fmt.Sprintf("%+v %s", p.ImageURL, p.Extra[p.Type])
			}
			r.add(p.Extra["cache_control"], string(m.Role)+m.ToolCallID, p.Text, rest)
		}
		for _, c := range m.ToolCalls {
			r.add(c.Extra["cache_control"], "call"+c.ID, c.Function.Name, c.Function.Arguments)
		}
	}
	return r, nil
}

// chatReply returns a reply of chat completions, whose usage is LiteLLM's.
func chatReply(r *request, id string, call *call, text string, t *Tokens) string {
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"cache_creation_tokens":%d,"cache_creation_token_details":%s},`+
		`"cache_creation_input_tokens":%[5]d,"cache_read_input_tokens":%[4]d}`, t.Prompt, t.Completion, t.Prompt+t.Completion, t.Read, t.Written, writtenFor(t))
	content, finish := `"content":`+quote(text), "stop"
	if call != nil {
		finish = "tool_calls"
		content = fmt.Sprintf(`"content":null,"tool_calls":[{"index":0,"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}]`, quote(call.id), quote(call.name), quote(call.input))
	}
	if !r.stream {
		return fmt.Sprintf(`{"id":%q,"object":"chat.completion","model":%s,"choices":[{"index":0,"message":{"role":"assistant",%s},"finish_reason":%q}],"usage":%s}`, id, quote(r.model), content, finish, usage)
	}
	var b strings.Builder
	for _, rest := range []string{`"choices":[{"index":0,"delta":{` + content + `}}]`, `"choices":[{"index":0,"delta":{},"finish_reason":"` + finish + `"}]`, `"choices":[],"usage":` + usage} {
		fmt.Fprintf(&b, "data: {\"id\":%q,\"object\":\"chat.completion.chunk\",\"model\":%s,%s}\n\n", id, quote(r.model), rest)
	}
	return b.String() + "data: [DONE]\n\n"
}

// writtenFor returns the tokens written to the cache as an object of Anthropic's API.
func writtenFor(t *Tokens) string {
	return fmt.Sprintf(`{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d}`, t.WrittenFor[lifetimes["5m"]], t.WrittenFor[lifetimes["1h"]])
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
