// Between the types of package llm and those of frameworks.

package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/llm"
)

// Convert returns v as a T that has the same JSON: many SDKs and frameworks have types for messages, tools, calls
// and chunks that are encoded as those of OpenAI's API, as the types of package llm are. What T has no
// field for is lost, unless it keeps it, as those of llm do in Extra. v may be a [json.RawMessage].
//
//	messages, err := agent.Convert[[]*schema.Message](texts)
//	calls, err := agent.Convert[[]llm.ToolCall](message.ToolCalls)
func Convert[T any](v any) (to T, err error) {
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &to)
	}
	if err != nil {
		return to, fmt.Errorf("agent: %T does not become a %T: %w", v, to, err)
	}
	return to, nil
}

// TextMessages returns copies of messages for frameworks whose messages have one text and no role for developers:
// the contents are one text each, and RoleDeveloper is RoleSystem. It returns an error for the client, with
// status 400, if a message has a part other than text, such as an image: a framework that takes these needs them in a form of
// its own.
func TextMessages(messages []llm.Message) ([]llm.Message, error) {
	texts := slices.Clone(messages)
	for i := range texts {
		m := &texts[i]
		for j := range m.Content {
			if part := &m.Content[j]; part.Type != llm.PartText {
				return nil, llm.Errorf(http.StatusBadRequest, "unsupported_value", "This model takes texts only, and no part of the type %q.", part.Type).
					WithParam(fmt.Sprintf("messages[%d].content[%d]", i, j))
			}
		}
		if m.Content != nil {
			m.Content = llm.TextContent(m.Content.Text())
		}
		if m.Role == llm.RoleDeveloper {
			m.Role = llm.RoleSystem
		}
	}
	return texts, nil
}

// ClientTools returns the tools of a request that an agent offers to its model beside its own, which have the names own:
// those of the client, and none if the client's ToolChoice is none. It returns an error for the client, with status 400, if one of
// them has the name of one of the agent's, because nobody knew whose a call is.
func ClientTools(req *llm.ChatRequest, own ...string) ([]llm.Tool, error) {
	for _, t := range req.Tools {
		if t.Function != nil && slices.Contains(own, t.Function.Name) {
			return nil, llm.Errorf(http.StatusBadRequest, "invalid_value", "The server has a tool with the name %q.", t.Function.Name).
				WithParam("tools")
		}
	}
	if req.ToolChoice != nil && req.ToolChoice.Mode == llm.ToolChoiceNone {
		return nil, nil
	}
	return req.Tools, nil
}
