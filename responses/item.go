// The items of a response. IDs are made when an item opens.

package responses

import (
	"strconv"

	"github.com/llmhttp/llmhttp/llm"
)

// An item is an element of the output. typ determines which fields are used.
type item struct {
	typ       string
	id        string
	index     int
	status    string
	parts     []part                // for a message or reasoning; the last may be open
	details   []llm.ReasoningDetail // for reasoning
	reasoning []byte                // for encrypted_content: the Backend's text, which the parts may take from details
	held      string                // of a summary: the beginning of a character
	alias     bool                  // of reasoning: see llm.Message.ReasoningAlias
	encrypted string                // encrypted_content, for reasoning and a compaction
	callID    string
	name      toolName
	arguments []byte // or the input of a custom tool
}

// idPrefixes has the prefixes of the IDs of items, by the type of the item.
var idPrefixes = map[string]string{
	itemMessage: "msg_", itemReasoning: "rs_", itemCall: "fc_", itemCustom: "ctc_",
	itemCallOutput: "fco_", itemCustomOutput: "ctco_", itemCompaction: "cmp_",
}

// A partType is the type of a part. It determines which events are about the part.
type partType string

const (
	partText    partType = "output_text"
	partRefusal partType = "refusal"
	partSummary partType = "summary_text"
)

// A part is a part of a message or of the summary of reasoning.
type part struct {
	typ         partType
	text        []byte
	logprobs    []byte // JSON values joined by commas
	annotations []byte // the same
	annotated   int    // the number of annotations
	before      int    // the characters of the message before the part, if it has annotations
}

// appendJSON appends the item in its current state as JSON. encrypted tells whether to
// include encrypted_content.
func (it *item) appendJSON(b []byte, encrypted bool) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, it.id...)
	b = append(b, `","type":"`...)
	b = append(b, it.typ...)
	b = append(b, '"')
	switch it.typ {
	case itemCompaction:
		b = append(b, `,"encrypted_content":`...)
		return append(appendString(b, it.encrypted), '}')
	case itemReasoning:
		b = append(b, `,"summary":`...)
		b = it.appendParts(b)
		if encrypted && it.encrypted != "" {
			b = append(b, `,"encrypted_content":`...)
			b = appendString(b, it.encrypted)
		}
		return append(b, '}')
	case itemMessage:
		b = append(b, `,"role":"assistant","content":`...)
		b = it.appendParts(b)
	default:
		b = it.appendCall(b)
	}
	b = append(b, `,"status":"`...)
	b = append(b, it.status...)
	return append(b, `"}`...)
}

func (it *item) appendCall(b []byte) []byte {
	b = append(b, `,"call_id":`...)
	b = appendString(b, it.callID)
	b = append(b, `,"name":`...)
	b = appendString(b, it.name.name)
	if it.name.namespace != "" {
		b = append(b, `,"namespace":`...)
		b = appendString(b, it.name.namespace)
	}
	if it.typ == itemCall {
		b = append(b, `,"arguments":`...)
		return appendString(b, string(it.arguments))
	}
	b = append(b, `,"input":`...)
	if it.status == statusInProgress {
		return append(b, `""`...)
	}
	return appendString(b, string(it.arguments))
}

// lastPart returns the last part. There must be one.
func (it *item) lastPart() *part { return &it.parts[len(it.parts)-1] }

func (it *item) appendParts(b []byte) []byte {
	b = append(b, '[')
	for i := range it.parts {
		if i > 0 {
			b = append(b, ',')
		}
		b = it.parts[i].appendJSON(b)
	}
	return append(b, ']')
}

func (p *part) appendJSON(b []byte) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, p.typ...)
	if p.typ == partRefusal {
		b = append(b, `","refusal":`...)
		b = appendString(b, string(p.text))
		return append(b, '}')
	}
	b = append(b, `","text":`...)
	b = appendString(b, string(p.text))
	if p.typ == partText {
		b = append(b, `,"annotations":[`...)
		b = append(b, p.annotations...)
		b = append(b, `],"logprobs":[`...)
		b = append(b, p.logprobs...)
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendIndex appends a member with a number, such as output_index.
func appendIndex(b []byte, name string, i int) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return strconv.AppendInt(b, int64(i), 10)
}
