// Package promptcache knows cache_control, the member that marks where the part of a prompt ends that a
// server caches. It is Anthropic's; in requests of chat completions it has the places that OpenRouter and
// LiteLLM give it: parts of the content, tools beside "function", tool calls, and the request itself.
package promptcache

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
)

// Member is the name of the member, which is in the Extra of what it marks.
const Member = "cache_control"

// Separator stands between the paragraphs of a system prompt. If they are parts, all but the first begin with
// it, so that their texts are together the one text that they are without marks.
const Separator = "\n\n"

// Set sets the mark of extra to value, unless there is one already.
func Set(extra *llm.Extra, value json.RawMessage) {
	if (*extra)[Member] != nil {
		return
	}
	if *extra == nil {
		*extra = make(llm.Extra, 1)
	}
	(*extra)[Member] = value
}

// Last returns the mark that comes last in c, or nil.
func Last(c llm.Content) json.RawMessage {
	for i := range slices.Backward(c) {
		if mark := c[i].Extra[Member]; mark != nil {
			return mark
		}
	}
	return nil
}

// Join returns paragraphs as the content of a system prompt: one text or, if one of them has a mark, parts. It
// may change paragraphs. The result is nil if there are none.
func Join(paragraphs llm.Content) llm.Content {
	if len(paragraphs) == 0 {
		return nil
	}
	if Last(paragraphs) == nil {
		texts := make([]string, len(paragraphs))
		for i := range paragraphs {
			texts[i] = paragraphs[i].Text
		}
		return llm.TextContent(strings.Join(texts, Separator))
	}
	for i := range paragraphs[1:] {
		p := &paragraphs[i+1]
		p.Text = Separator + p.Text
	}
	return paragraphs
}

// rejoin returns what Join has made parts of as one text, and other content unchanged.
func rejoin(c llm.Content) llm.Content {
	for i := range c {
		p := &c[i]
		if p.Type != llm.PartText || len(p.Extra) > 0 || i > 0 && !strings.HasPrefix(p.Text, Separator) {
			return c
		}
	}
	return llm.TextContent(c.Text())
}
