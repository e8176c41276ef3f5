package responses

import (
	"encoding/json"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// An output turns chunks into items, and appends the events about them.
//
// At most one item that takes text is open at a time: reasoning or a message. A
// delta of another kind closes it, so that the order of the items is that in
// which the Backend yielded them. Calls stay open until the end, because their
// arguments may arrive in turns.
type output struct {
	req    *request
	sealer *sealer // nil if nobody gets encrypted_content
	events events
	items  []*item
	text   *item   // the open item that takes text, or nil
	calls  []*item // by the index of the call
}

// add adds a delta and the logprobs of its choice.
func (o *output) add(d *llmhttp.Delta, logprobs []byte) error {
	if d.Reasoning != "" || len(d.ReasoningDetails) > 0 {
		if err := o.addReasoning(d); err != nil {
			return err
		}
	}
	if d.Content != "" {
		if err := o.addText(partText, d.Content, logprobs); err != nil {
			return err
		}
	}
	if d.Refusal != "" {
		if err := o.addText(partRefusal, d.Refusal, nil); err != nil {
			return err
		}
	}
	for i := range d.ToolCalls {
		if err := o.addCall(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

// open adds an item to the output.
func (o *output) open(it *item) *item {
	it.id, it.index, it.status = newID(idPrefixes[it.typ]), len(o.items), statusInProgress
	o.items = append(o.items, it)
	o.events.itemEvent("response.output_item.added", it)
	return it
}

// openText returns the open item that takes text of a type. It closes the one of
// another type.
func (o *output) openText(typ string) (*item, error) {
	if o.text != nil && o.text.typ == typ {
		return o.text, nil
	}
	if err := o.closeText(statusCompleted); err != nil {
		return nil, err
	}
	o.text = o.open(&item{typ: typ})
	return o.text, nil
}

func (o *output) closeText(status string) error {
	if o.text == nil {
		return nil
	}
	it := o.text
	o.text = nil
	return o.close(it, status)
}

func (o *output) addReasoning(d *llmhttp.Delta) error {
	it, err := o.openText(itemReasoning)
	if err != nil {
		return err
	}
	it.details = append(it.details, d.ReasoningDetails...)
	if d.Reasoning == "" {
		return nil
	}
	if len(it.parts) == 0 {
		o.openPart(it, partSummary)
	}
	o.addDelta(it, d.Reasoning, nil)
	return nil
}

// logprobsOf returns the logprobs of a choice if the client wants them. Those of
// tokens that are only a part of a character arrive without a text: they are
// added to the open part.
func (o *output) logprobsOf(c *llmhttp.ChunkChoice) ([]byte, error) {
	raw := c.Extra["logprobs"]
	if !o.req.logprobs || len(raw) == 0 {
		return nil, nil
	}
	logprobs, err := convertLogprobs(raw)
	if err != nil || c.Delta.Content != "" || len(logprobs) == 0 {
		return logprobs, err
	}
	if it := o.text; it != nil && it.typ == itemMessage && it.parts[len(it.parts)-1].typ == partText {
		o.addDelta(it, "", logprobs)
	}
	return nil, nil
}

func (o *output) addText(typ partType, text string, logprobs []byte) error {
	it, err := o.openText(itemMessage)
	if err != nil {
		return err
	}
	if n := len(it.parts); n == 0 || it.parts[n-1].typ != typ {
		if n > 0 {
			o.closePart(it)
		}
		o.openPart(it, typ)
	}
	o.addDelta(it, text, logprobs)
	return nil
}

func (o *output) openPart(it *item, typ partType) {
	it.parts = append(it.parts, part{typ: typ})
	o.events.partEvent(partAdded, it)
}

func (o *output) closePart(it *item) {
	o.events.textDone(it)
	o.events.partEvent(partDone, it)
}

// addDelta adds text to the last part of an item.
func (o *output) addDelta(it *item, text string, logprobs []byte) {
	p := &it.parts[len(it.parts)-1]
	p.text = append(p.text, text...)
	if len(logprobs) > 0 {
		if len(p.logprobs) > 0 {
			p.logprobs = append(p.logprobs, ',')
		}
		p.logprobs = append(p.logprobs, logprobs...)
	}
	o.events.textDelta(it, text, logprobs)
}

func (o *output) addCall(t *llmhttp.ToolCallDelta) error {
	if t.Index == len(o.calls) {
		if err := o.closeText(statusCompleted); err != nil {
			return err
		}
		o.calls = append(o.calls, o.open(o.newCall(t)))
	}
	it := o.calls[t.Index]
	it.arguments = append(it.arguments, t.Function.Arguments...)
	if it.typ == itemCall && t.Function.Arguments != "" {
		o.events.argumentsEvent("response.function_call_arguments.delta", it, t.Function.Arguments)
	}
	return nil
}

// newCall returns the item of a call, whose first delta is t. A Backend may also
// call a custom tool by its own type.
func (o *output) newCall(t *llmhttp.ToolCallDelta) *item {
	it := &item{typ: itemCall, callID: t.ID}
	if t.Type == toolCustom {
		var custom struct{ Name, Input string }
		if json.Unmarshal(t.Extra[toolCustom], &custom) == nil {
			it.typ, it.name.name = itemCustom, custom.Name
			it.arguments = append(it.arguments, wrapInput(custom.Input)...)
			return it
		}
	}
	var custom bool
	if it.name, custom = o.req.tools.tool(t.Function.Name); custom {
		it.typ = itemCustom
	}
	return it
}

// end closes the items. The last one gets the status of the response.
func (o *output) end(status string) error {
	if len(o.items) == 0 {
		// Agents ask the model again if there is no message.
		it, err := o.openText(itemMessage)
		if err != nil {
			return err
		}
		o.openPart(it, partText)
	}
	for i, it := range o.items {
		if it.status != statusInProgress {
			continue
		}
		itemStatus := statusCompleted
		if i == len(o.items)-1 {
			itemStatus = status
		}
		if err := o.close(it, itemStatus); err != nil {
			return err
		}
	}
	o.text = nil
	return nil
}

// fail marks the items that are open as incomplete.
func (o *output) fail() {
	for _, it := range o.items {
		if it.status != statusInProgress {
			continue
		}
		if it.status = statusIncomplete; it.typ == itemCustom {
			it.arguments = nil // they are JSON until the call is complete
		}
	}
}

// close completes an item.
func (o *output) close(it *item, status string) error {
	it.status = status
	switch it.typ {
	case itemCall:
		if len(it.arguments) == 0 && status == statusCompleted {
			// Clients parse the arguments.
			it.arguments = []byte("{}")
			o.events.argumentsEvent("response.function_call_arguments.delta", it, "{}")
		}
		o.events.argumentsEvent("response.function_call_arguments.done", it, string(it.arguments))
	case itemCustom:
		input := unwrapInput(string(it.arguments))
		it.arguments = []byte(input)
		o.events.argumentsEvent("response.custom_tool_call_input.delta", it, input)
		o.events.argumentsEvent("response.custom_tool_call_input.done", it, input)
	default:
		if len(it.parts) > 0 {
			o.closePart(it)
		}
	}
	if it.typ == itemReasoning {
		if err := o.seal(it); err != nil {
			return err
		}
	}
	o.events.itemEvent("response.output_item.done", it)
	return nil
}

// seal sets the encrypted_content of an item if a client or the store gets it.
func (o *output) seal(it *item) error {
	if o.sealer == nil {
		return nil
	}
	sealed := &sealedReasoning{Details: joinDetails(it.details)}
	if len(it.parts) > 0 {
		sealed.Text = string(it.parts[0].text)
	}
	var err error
	it.encrypted, err = o.sealer.seal(o.req.account, sealed)
	return err
}

// joinDetails joins details that arrived in pieces.
func joinDetails(details []llmhttp.ReasoningDetail) []llmhttp.ReasoningDetail {
	if len(details) == 0 {
		return nil
	}
	chunk := &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{ReasoningDetails: details}}}}
	joined, err := llmhttp.Collect(func(yield func(*llmhttp.ChatChunk, error) bool) { yield(chunk, nil) })
	if err != nil || len(joined.Choices) == 0 {
		return details
	}
	return joined.Choices[0].Message.ReasoningDetails
}

// convertLogprobs returns the logprobs of the content in those of a choice of chat
// completions, joined by commas.
func convertLogprobs(raw json.RawMessage) ([]byte, error) {
	type token struct {
		Token       string          `json:"token"`
		Bytes       json.RawMessage `json:"bytes,omitempty"`
		Logprob     float64         `json:"logprob"`
		TopLogprobs []token         `json:"top_logprobs,omitempty"`
	}
	var all struct{ Content []token }
	if json.Unmarshal(raw, &all) != nil || len(all.Content) == 0 {
		return nil, nil // of another server, in another form
	}
	var b strings.Builder
	for i := range all.Content {
		t := &all.Content[i]
		encoded, err := marshal(&struct {
			Token       string          `json:"token"`
			Bytes       json.RawMessage `json:"bytes,omitzero"`
			Logprob     float64         `json:"logprob"`
			TopLogprobs []token         `json:"top_logprobs"`
		}{t.Token, t.Bytes, t.Logprob, append([]token{}, t.TopLogprobs...)})
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encoded)
	}
	return []byte(b.String()), nil
}
