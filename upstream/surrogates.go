package upstream

import (
	"bytes"
	"encoding/json"
	"regexp"

	"github.com/llmhttp/llmhttp"
)

// A surrogateJoiner restores characters that a server has cut in two. Servers
// that cut texts by UTF-16 code units, as those in JavaScript do, may end one
// chunk with the high surrogate "\ud83d" and begin the next with the low one,
// "\ude42", and a decoder replaces each of them by U+FFFD. The joiner holds back
// a high surrogate at the end of a text until there is more of the text.
type surrogateJoiner struct {
	held map[textID]string // escape sequences, such as `\ud83d`
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
	ToolCalls []struct {
		Function struct {
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// join corrects the texts of chunk, which was decoded from data.
func (j *surrogateJoiner) join(chunk *llmhttp.ChatChunk, data []byte) {
	if len(j.held) == 0 && !bytes.Contains(data, []byte(`\ud`)) && !bytes.Contains(data, []byte(`\uD`)) {
		return
	}
	var raw struct {
		Choices []struct{ Delta rawDelta }
	}
	if json.Unmarshal(data, &raw) != nil || len(raw.Choices) != len(chunk.Choices) {
		return // the chunk has odd types, which no server that cuts texts is known to use
	}
	for i := range chunk.Choices {
		c, d := &chunk.Choices[i], &raw.Choices[i].Delta
		last := c.FinishReason != ""
		j.piece(&c.Delta.Content, d.Content, textID{c.Index, "content", 0}, last)
		j.piece(&c.Delta.Reasoning, d.Reasoning, textID{c.Index, "reasoning", 0}, last)
		for k := range min(len(c.Delta.ToolCalls), len(d.ToolCalls)) {
			t := &c.Delta.ToolCalls[k]
			j.piece(&t.Function.Arguments, d.ToolCalls[k].Function.Arguments, textID{c.Index, "arguments", t.Index}, last)
		}
	}
}

var highSurrogate = regexp.MustCompile(`(?i)^\\ud[89ab][0-9a-f]{2}$`)

// cutHigh splits text before the high surrogate that it ends with, if it does.
func cutHigh(text []byte) (before, high []byte) {
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

// piece corrects a piece of the text id. raw is the piece as it is written in
// JSON; last says that it is the last piece.
func (j *surrogateJoiner) piece(s *string, raw json.RawMessage, id textID, last bool) {
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
	if before, high := cutHigh(text); high != nil && !last && len(j.held) < maxHeld {
		if j.held == nil {
			j.held = make(map[textID]string)
		}
		j.held[id], text = string(high), before
	}
	json.Unmarshal([]byte(`"`+string(text)+`"`), s) // writes U+FFFD for what is not a character
}
