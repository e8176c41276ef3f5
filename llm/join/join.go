package join

import (
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonjoin"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

// An Accumulator joins the chunks that a ChatEncoder of package llmhttp gets, each of which has one choice, to
// a whole reply. Its zero value has no chunks. See "Protocols" in the documentation of package llmhttp.
type Accumulator struct {
	choices []joinedChoice // in the order in which they opened
	extra   llm.Extra

	// Storage of the reply, and of its choice if there is one (budget: allocations of a
	// whole request).
	reply         llm.ChatResponse
	joinedStorage [1]joinedChoice
	choiceStorage [1]llm.Choice
	partStorage   [1]llm.Part
}

// A joinedChoice is what has been joined of a choice. All of its texts are
// collected first and joined once, so that the time is linear in their length.
type joinedChoice struct {
	index                     int
	texts                     [texts.PerReply]jsonjoin.Text
	reasoningAlias            bool
	details                   []joinedDetail
	calls                     []joinedCall
	messageExtra, choiceExtra jsonjoin.Members
	reason                    llm.FinishReason
	stop                      string
}

// A joinedCall is a tool call. Its first delta has everything but the texts.
type joinedCall struct {
	first                    llm.ToolCallDelta
	texts                    [texts.PerCall]jsonjoin.Text
	callExtra, functionExtra jsonjoin.Members
}

type joinedDetail struct {
	first llm.ReasoningDetail
	text  jsonjoin.Text
}

// Add adds a chunk, which is only valid during the call. Chunks must be in the order in which
// a ChatEncoder gets them.
func (j *Accumulator) Add(c *llm.ChatChunk) {
	j.extra = jsonwire.MergeExtra(j.extra, c.Extra)
	from := &c.Choices[0]
	if from.Delta.Role != "" {
		if j.choices == nil {
			j.choices = j.joinedStorage[:0]
		}
		j.choices = append(j.choices, joinedChoice{index: from.Index})
	}
	to := j.find(from.Index)
	to.choiceExtra.Add(from.Extra)
	if from.FinishReason != "" {
		to.reason, to.stop = from.FinishReason, from.StopSequence
		return
	}
	d := &from.Delta
	for i, s := range texts.OfDelta(d) {
		to.texts[i].Add(*s)
	}
	to.reasoningAlias = to.reasoningAlias || d.ReasoningAlias
	to.messageExtra.Add(d.Extra)
	to.addDetails(d.ReasoningDetails)
	to.addCalls(d.ToolCalls)
}

func (j *Accumulator) find(index int) *joinedChoice {
	for i := range j.choices {
		if j.choices[i].index == index {
			return &j.choices[i]
		}
	}
	panic("llmhttp: choice is not open")
}

func (c *joinedChoice) addCalls(deltas []llm.ToolCallDelta) {
	for i := range deltas {
		t := &deltas[i]
		if t.Index == len(c.calls) {
			c.calls = append(c.calls, joinedCall{first: *t})
		}
		call := &c.calls[t.Index]
		for i, s := range texts.OfCall(&t.Function) {
			call.texts[i].Add(*s)
		}
		call.callExtra.Add(t.Extra)
		call.functionExtra.Add(t.Function.Extra)
	}
}

// addDetails adds reasoning details. Pieces of one text have the same index, and
// only the last has a signature.
func (c *joinedChoice) addDetails(details []llm.ReasoningDetail) {
	for i := range details {
		d := &details[i]
		if n := len(c.details); n > 0 && texts.Continues(&c.details[n-1].first, d) {
			last := &c.details[n-1]
			last.text.Add(d.Text)
			last.first.Signature = d.Signature
			last.first.Extra = jsonwire.MergeExtra(last.first.Extra, d.Extra)
			continue
		}
		added := joinedDetail{first: *d}
		added.text.Add(d.Text)
		c.details = append(c.details, added)
	}
}

// Response returns the reply as far as it was joined: its Choices, in the order of their
// indices, and its Extra. The caller sets the other fields. What Response returns is valid
// until its next call.
func (j *Accumulator) Response() *llm.ChatResponse {
	r := &j.reply
	*r = llm.ChatResponse{Extra: j.extra, Choices: slices.Grow(j.choiceStorage[:0], len(j.choices))[:len(j.choices)]}
	parts := slices.Grow(j.partStorage[:0], len(j.choices))[:len(j.choices)]
	slices.SortFunc(j.choices, func(a, b joinedChoice) int { return a.index - b.index })
	for i := range j.choices {
		c := &j.choices[i]
		r.Choices[i] = llm.Choice{
			Index:        c.index,
			Message:      c.joinMessage(parts[i : i+1 : i+1]),
			FinishReason: c.reason,
			StopSequence: c.stop,
			Extra:        c.choiceExtra.Join(false),
		}
	}
	return r
}

// joinMessage returns the message. content is the storage of its content, one part.
func (c *joinedChoice) joinMessage(content llm.Content) llm.Message {
	m := llm.Message{Role: llm.RoleAssistant, ReasoningAlias: c.reasoningAlias, Extra: c.messageExtra.Join(true)}
	var text string // of the content
	for i, s := range texts.OfMessage(&m, &text) {
		*s = c.texts[i].String()
	}
	for i := range c.details {
		d := c.details[i].first
		d.Text = c.details[i].text.String()
		m.ReasoningDetails = append(m.ReasoningDetails, d)
	}
	for i := range c.calls {
		call := &c.calls[i]
		f := call.first.Function
		f.Extra = call.functionExtra.Join(false)
		for i, s := range texts.OfCall(&f) {
			*s = call.texts[i].String()
		}
		m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: call.first.ID, Type: call.first.Type, Function: f, Extra: call.callExtra.Join(true)})
	}
	// The content of a message that only calls tools or refuses is null.
	if text != "" || len(m.ToolCalls) == 0 && m.Refusal == "" && !jsonwire.HasValue(m.Extra) {
		content[0] = llm.Part{Type: llm.PartText, Text: text}
		m.Content = content
	}
	return m
}
