// Joins surrogate pairs that a server has split between chunks.

package reply

import (
	"bytes"
	"encoding/json"
	"regexp"

	"github.com/llmhttp/llmhttp/llm"
)

// A surrogateJoiner joins surrogate pairs that a server has split between two chunks. Servers that
// split texts by UTF-16 code units, as JavaScript does, end a chunk with the high surrogate
// "\ud83d" and begin the next one with the low surrogate "\ude42": that of elizaOS does
// (elizaOS/eliza#30904), OpenClaw's gateway did in arguments (openclaw/openclaw#115536), and lone
// surrogates were seen from OpenRouter (Kohaku-Lab/KohakuTerrarium#48). A decoder would replace each of the two by U+FFFD. The joiner holds back a
// high surrogate at the end of a text until the next piece of the text arrives.
type surrogateJoiner struct {
	completes bool // the texts are those of completions of prompts

	held map[textID]string // escape sequences that are held back, such as `\ud83d`
}

// A textID identifies a text that comes in pieces: a member of a choice and, for
// arguments, the index of the tool call.
type textID struct {
	choice int
	member string
	call   int
}

// maxHeld bounds the number of surrogates that are held back.
const maxHeld = 1024

// A rawDelta has the texts of a delta as they are written in its JSON.
type rawDelta struct {
	Content   json.RawMessage `json:"content"`
	Reasoning json.RawMessage `json:"reasoning_content"`
	Refusal   json.RawMessage `json:"refusal"`
	Alias     json.RawMessage `json:"reasoning"`
	ToolCalls []struct {
		Function struct {
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// join corrects the texts of chunk, which was decoded from data.
func (j *surrogateJoiner) join(chunk *llm.ChatChunk, data []byte) {
	if len(j.held) == 0 && !bytes.Contains(data, []byte(`\ud`)) && !bytes.Contains(data, []byte(`\uD`)) {
		return
	}
	var raw struct {
		Choices []struct {
			Delta rawDelta
			Text  json.RawMessage
		}
	}
	if json.Unmarshal(data, &raw) != nil || len(raw.Choices) != len(chunk.Choices) {
		return // an unusual type, which no server that splits surrogates is known to send
	}
	for i := range chunk.Choices {
		c, d := &chunk.Choices[i], &raw.Choices[i].Delta
		if j.completes {
			d.Content = raw.Choices[i].Text
		}
		last := c.FinishReason != ""
		j.joinPiece(&c.Delta.Content, d.Content, textID{c.Index, "content", 0}, last)
		if c.Delta.ReasoningAlias {
			d.Reasoning = d.Alias
		}
		j.joinPiece(&c.Delta.Refusal, d.Refusal, textID{c.Index, "refusal", 0}, last)
		j.joinPiece(&c.Delta.Reasoning, d.Reasoning, textID{c.Index, "reasoning", 0}, last)
		if len(d.Alias) > 0 && c.Delta.Extra[Reasoning] != nil && bytes.Equal(d.Alias, d.Reasoning) {
			c.Delta.Extra[Reasoning], _ = json.Marshal(c.Delta.Reasoning) // the same text once more
		}
		for k := range min(len(c.Delta.ToolCalls), len(d.ToolCalls)) {
			t := &c.Delta.ToolCalls[k]
			j.joinPiece(&t.Function.Arguments, d.ToolCalls[k].Function.Arguments, textID{c.Index, "arguments", t.Index}, last)
		}
	}
}

var highSurrogate = regexp.MustCompile(`(?i)^\\ud[89ab][0-9a-f]{2}$`)

// splitHighSurrogate splits off the high surrogate at the end of text. high is nil if
// there is none.
func splitHighSurrogate(text []byte) (before, high []byte) {
	n := len(text) - len(`\ud83d`)
	if n < 0 || !highSurrogate.Match(text[n:]) {
		return text, nil
	}
	backslashes := n - len(bytes.TrimRight(text[:n], `\`))
	if backslashes%2 == 1 {
		return text, nil // they escape each other, and the "u" is an ordinary character
	}
	return text[:n], text[n:]
}

// joinPiece sets s to the corrected piece of the text id. raw is the piece as JSON. last
// tells whether it is the last piece of the text.
func (j *surrogateJoiner) joinPiece(s *string, raw json.RawMessage, id textID, last bool) {
	text := []byte(j.held[id])
	if len(raw) > 2 && raw[0] == '"' {
		text = append(text, raw[1:len(raw)-1]...)
	} else if !last {
		return
	}
	if len(text) == 0 {
		return
	}
	delete(j.held, id)
	if before, high := splitHighSurrogate(text); high != nil && !last && len(j.held) < maxHeld {
		if j.held == nil {
			j.held = make(map[textID]string)
		}
		j.held[id], text = string(high), before
	}
	json.Unmarshal([]byte(`"`+string(text)+`"`), s) // writes U+FFFD for what is not a character
}
