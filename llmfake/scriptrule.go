// The rules of a file.

package llmfake

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/llmhttp/llmhttp"
)

type scriptRule struct {
	When    scriptWhen
	Replies list[scriptReply]
	Always  *scriptReply
}

func (r *scriptRule) UnmarshalJSON(b []byte) error {
	err := decodeMembers(b, map[string]any{"when": &r.When, "replies": &r.Replies, "always": &r.Always})
	switch {
	case err != nil:
		return err
	case len(r.Replies) == 0 && r.Always == nil:
		return errors.New("a rule needs replies or always")
	}
	return at("when", r.When.check())
}

type scriptWhen struct {
	Model       *string `json:"model"`
	Protocol    *string `json:"protocol"`
	User        *string `json:"user"`
	UserMatches *string `json:"user_matches"`
	System      *string `json:"system"`
	ToolResult  *struct {
		Tool string `json:"tool"`
		Text string `json:"text"`
	} `json:"tool_result"`
	OffersTool *string            `json:"offers_tool"`
	Turn       *int               `json:"turn"`
	Stream     *bool              `json:"stream"`
	Headers    map[string]string  `json:"headers"`
	Operation  *llmhttp.Operation `json:"operation"`
}

func (w *scriptWhen) check() error {
	if w.Operation != nil {
		if err := w.Operation.Validate(); err != nil {
			return at("operation", err)
		}
		if meant := w.Operation.Suggestion(); meant != "" {
			return at("operation", fmt.Errorf("there is no %q: did you mean %q?", *w.Operation, meant))
		}
	}
	if w.Protocol != nil && *w.Protocol != ChatCompletions && *w.Protocol != Messages && *w.Protocol != Responses {
		return at("protocol", fmt.Errorf("%q is none of chat, messages and responses", *w.Protocol))
	}
	if w.Turn != nil && *w.Turn < 1 {
		return at("turn", fmt.Errorf("the first turn is 1, and not %d", *w.Turn))
	}
	if w.UserMatches != nil {
		if _, err := regexp.Compile(*w.UserMatches); err != nil {
			return at("user_matches", err)
		}
	}
	return nil
}

// matchers returns the Matchers that w stands for. It must be valid.
func (w *scriptWhen) matchers() []Matcher {
	var list []Matcher
	for _, m := range []struct {
		value *string
		make  func(string) Matcher
	}{
		{w.Model, Model}, {w.Protocol, Protocol}, {w.User, UserText}, {w.UserMatches, UserTextMatches}, {w.System, SystemText}, {w.OffersTool, OffersTool},
	} {
		if m.value != nil {
			list = append(list, m.make(*m.value))
		}
	}
	if w.ToolResult != nil {
		list = append(list, HasToolResult(w.ToolResult.Tool, w.ToolResult.Text))
	}
	if w.Turn != nil {
		list = append(list, Turn(*w.Turn))
	}
	if w.Stream != nil {
		list = append(list, Streamed(*w.Stream))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
		list = append(list, HasHeader(name, w.Headers[name]))
	}
	if w.Operation != nil && *w.Operation != llmhttp.OperationChat {
		list = append(list, operationMatcher(*w.Operation))
	}
	return list
}
