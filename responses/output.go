// Turns chunks into items, and for a stream writes the events about them. A whole reply is made of the
// same items, so that the two cannot differ. One item that takes text is open at a time: a delta of
// another kind closes it, so items have the order in which the Backend yielded them. Calls stay open
// until the end of the reply.

package responses

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/citation"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/internal/reasoning"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// An outputBuilder builds the output of a response from chunks, and appends the events
// about its items.
//
// At most one text item, which is a message or reasoning, is open at a time. A delta
// of another type closes it, so that the items are in the order in which the Backend
// yielded them. Calls stay open until the end, because the arguments of several calls
// may alternate.
type outputBuilder struct {
	req      *request
	sealer   *sealer // nil if neither the client nor the store gets encrypted_content
	events   eventWriter
	items    []*item
	textItem *item // the open text item, or nil
	merger   reasoning.Merger
	calls    []*item // by the index of the call
}

// addDelta adds a delta and the logprobs of its choice.
func (o *outputBuilder) addDelta(d *llm.Delta, logprobs []byte) error {
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
	for _, c := range citation.Decode(d.Extra["annotations"]) {
		o.addCitation(&c)
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

// maxItems is the maximum number of items of an output. An item needs about a kilobyte,
// and a Backend may alternate between reasoning and text with every character.
const maxItems = 4096

// openItem adds an item to the output.
func (o *outputBuilder) openItem(it *item) (*item, error) {
	if len(o.items) >= maxItems {
		e := llm.Errorf(http.StatusBadGateway, "", "The reply of the model has more than %d items.", maxItems)
		e.NoRetry = true
		return nil, e
	}
	it.id, it.index, it.status = randomid.New(idPrefixes[it.typ]), len(o.items), statusInProgress
	o.items = append(o.items, it)
	o.events.itemEvent("response.output_item.added", it)
	return it, nil
}

// openTextItem returns the open text item if it has the given type. Otherwise it closes
// that item and opens a new one.
func (o *outputBuilder) openTextItem(typ string) (it *item, err error) {
	if o.textItem != nil && o.textItem.typ == typ {
		return o.textItem, nil
	}
	if err := o.closeTextItem(statusCompleted); err != nil {
		return nil, err
	}
	o.textItem, err = o.openItem(&item{typ: typ})
	return o.textItem, err
}

func (o *outputBuilder) closeTextItem(status string) error {
	if o.textItem == nil {
		return nil
	}
	it := o.textItem
	o.textItem = nil
	return o.closeItem(it, status)
}

func (o *outputBuilder) addReasoning(d *llm.Delta) error {
	it, err := o.openTextItem(itemReasoning)
	if err != nil {
		return err
	}
	it.details = append(it.details, d.ReasoningDetails...)
	if o.sealer != nil {
		it.reasoning = append(it.reasoning, d.Reasoning...)
		it.alias = it.alias || d.ReasoningAlias
	}
	if d.Progress || repeatsText(d) {
		o.addSummary(it, d.Reasoning, false)
		return nil
	}
	o.addSummary(it, o.merger.FromText(d.Reasoning), false)
	for i := range d.ReasoningDetails {
		r := &d.ReasoningDetails[i]
		if text := o.merger.FromDetails(r.Text + r.Summary); text != "" {
			o.addSummary(it, text, o.merger.SetIndex(r.Extra["index"]))
		}
	}
	return nil
}

// repeatsText reports whether the details of d have the text of its reasoning once more.
func repeatsText(d *llm.Delta) bool {
	rest, ok := d.Reasoning, true
	for i := range d.ReasoningDetails {
		r := &d.ReasoningDetails[i]
		if rest, ok = strings.CutPrefix(rest, r.Text+r.Summary); !ok {
			return false
		}
	}
	return rest == ""
}

// addSummary adds text to the summary of an item, to another part of it if another text
// begins. It holds back a character that is not complete: those of details may be split.
func (o *outputBuilder) addSummary(it *item, text string, begins bool) {
	if begins {
		o.flushSummary(it)
		o.events.partDone(it)
		o.openPart(it, partSummary)
	}
	text, it.held = splitIncomplete(it.held + text)
	o.appendSummary(it, text)
}

// flushSummary adds what addSummary has held back.
func (o *outputBuilder) flushSummary(it *item) {
	o.appendSummary(it, it.held)
	it.held = ""
}

func (o *outputBuilder) appendSummary(it *item, text string) {
	if text == "" {
		return
	}
	if len(it.parts) == 0 {
		o.openPart(it, partSummary)
	}
	o.appendText(it, text, nil)
}

// splitIncomplete splits off the character at the end of s if it is not complete.
func splitIncomplete(s string) (complete, rest string) {
	for i := len(s) - 1; i >= 0 && i > len(s)-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			if !utf8.FullRuneInString(s[i:]) {
				return s[:i], s[i:]
			}
			break
		}
	}
	return s, ""
}

// takeLogprobs returns the logprobs of a choice if the client wants them. Tokens that
// are only a part of a character have logprobs but no text. takeLogprobs adds their
// logprobs to the open part and returns nil.
func (o *outputBuilder) takeLogprobs(c *llm.ChunkChoice) ([]byte, error) {
	raw := c.Extra["logprobs"]
	if !o.req.wantsLogprobs || len(raw) == 0 {
		return nil, nil
	}
	logprobs, err := convertLogprobs(raw)
	if err != nil || c.Delta.Content != "" || len(logprobs) == 0 {
		return logprobs, err
	}
	if it := o.textItem; it != nil && it.typ == itemMessage && it.lastPart().typ == partText {
		o.appendText(it, "", logprobs)
	}
	return nil, nil
}

func (o *outputBuilder) addText(typ partType, text string, logprobs []byte) error {
	it, err := o.openTextItem(itemMessage)
	if err != nil {
		return err
	}
	switch {
	case len(it.parts) == 0:
		o.openPart(it, typ)
	case it.lastPart().typ != typ:
		o.events.partDone(it)
		o.openPart(it, typ)
	}
	o.appendText(it, text, logprobs)
	return nil
}

// addCitation adds a citation to the text of the open message. It is dropped if no text is open,
// because the events about its text have been sent.
func (o *outputBuilder) addCitation(c *citation.Citation) {
	it := o.textItem
	if it == nil || it.typ != itemMessage || it.lastPart().typ != partText {
		return
	}
	p := it.lastPart()
	if p.annotated == 0 {
		p.before = o.textBefore(p)
	}
	if p.before > 0 && c.End <= p.before {
		return // it is for a part that has ended
	}
	b := append([]byte(nil), `{"type":"url_citation","start_index":`...)
	b = strconv.AppendInt(b, int64(max(0, c.Start-p.before)), 10)
	b = append(b, `,"end_index":`...)
	b = strconv.AppendInt(b, int64(max(0, c.End-p.before)), 10)
	b = append(b, `,"url":`...)
	b = appendString(b, c.URL)
	b = append(b, `,"title":`...)
	b = append(appendString(b, c.Title), '}')
	if p.annotated++; p.annotated > 1 {
		p.annotations = append(p.annotations, ',')
	}
	p.annotations = append(p.annotations, b...)
	o.events.annotationAdded(it, b)
}

// textBefore returns the length of the texts of all other parts than last, in characters.
func (o *outputBuilder) textBefore(last *part) int {
	n := 0
	for _, it := range o.items {
		for i := range it.parts {
			if p := &it.parts[i]; p.typ == partText && p != last {
				n += utf8.RuneCount(p.text)
			}
		}
	}
	return n
}

func (o *outputBuilder) openPart(it *item, typ partType) {
	it.parts = append(it.parts, part{typ: typ})
	o.events.partAdded(it)
}

// appendText adds text and logprobs to the last part of an item.
func (o *outputBuilder) appendText(it *item, text string, logprobs []byte) {
	p := it.lastPart()
	p.text = append(p.text, text...)
	if len(logprobs) > 0 {
		if len(p.logprobs) > 0 {
			p.logprobs = append(p.logprobs, ',')
		}
		p.logprobs = append(p.logprobs, logprobs...)
	}
	o.events.textDelta(it, text, logprobs)
}

func (o *outputBuilder) addCall(t *llm.ToolCallDelta) error {
	if t.Index == len(o.calls) {
		if err := o.closeTextItem(statusCompleted); err != nil {
			return err
		}
		it, err := o.openItem(o.newCall(t))
		if err != nil {
			return err
		}
		o.calls = append(o.calls, it)
	}
	it := o.calls[t.Index]
	it.arguments = append(it.arguments, t.Function.Arguments...)
	if it.typ == itemCall && t.Function.Arguments != "" {
		o.events.argumentsDelta(it, t.Function.Arguments)
	}
	return nil
}

// newCall returns the item of a call, whose first delta is t. A Backend may report a
// call of a custom tool as a function call or with the type "custom".
func (o *outputBuilder) newCall(t *llm.ToolCallDelta) *item {
	it := &item{typ: itemCall, callID: t.ID}
	if t.Type == toolCustom {
		var call struct{ Name, Input string }
		if json.Unmarshal(t.Extra[toolCustom], &call) == nil {
			it.typ, it.name.name = itemCustom, call.Name
			it.arguments = append(it.arguments, wrapInput(call.Input)...)
			return it
		}
	}
	name, isCustom := o.req.tools.toolOf(t.Function.Name)
	it.name = name
	if isCustom {
		it.typ = itemCustom
	}
	return it
}

// closeAll closes the open items. The last item gets the status of the response.
func (o *outputBuilder) closeAll(status string) error {
	if len(o.items) == 0 {
		// Agents repeat the request if there is no message.
		it, err := o.openTextItem(itemMessage)
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
		if err := o.closeItem(it, itemStatus); err != nil {
			return err
		}
	}
	o.textItem = nil
	return nil
}

// markIncomplete marks the items that are open as incomplete.
func (o *outputBuilder) markIncomplete() {
	for _, it := range o.items {
		if it.status != statusInProgress {
			continue
		}
		it.status = statusIncomplete
		if it.typ == itemCustom {
			it.arguments = nil // the input is only decoded from them when the call is complete
		}
	}
}

// closeItem completes an item.
func (o *outputBuilder) closeItem(it *item, status string) error {
	it.status = status
	switch it.typ {
	case itemCall:
		if len(it.arguments) == 0 && status == statusCompleted {
			// Clients parse the arguments as JSON.
			it.arguments = []byte("{}")
			o.events.argumentsDelta(it, "{}")
		}
		o.events.argumentsDone(it)
	case itemCustom:
		input := unwrapInput(string(it.arguments))
		it.arguments = []byte(input)
		o.events.argumentsDelta(it, input)
		o.events.argumentsDone(it)
	default:
		o.flushSummary(it)
		if len(it.parts) > 0 {
			o.events.partDone(it)
		}
	}
	if it.typ == itemReasoning {
		if err := o.sealReasoning(it); err != nil {
			return err
		}
	}
	o.events.itemEvent("response.output_item.done", it)
	return nil
}

// sealReasoning sets the encrypted_content of an item, if the builder has a sealer.
func (o *outputBuilder) sealReasoning(it *item) error {
	if o.sealer == nil {
		return nil
	}
	sealed := &plainReasoning{Text: string(it.reasoning), Alias: it.alias, Details: joinDetails(it.details)}
	var err error
	it.encrypted, err = o.sealer.seal(o.req.account, sealed)
	return err
}

// joinDetails joins the pieces of details, as join.Collect does.
func joinDetails(details []llm.ReasoningDetail) []llm.ReasoningDetail {
	if len(details) == 0 {
		return nil
	}
	chunk := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{ReasoningDetails: details}}}}
	joined, err := join.Collect(func(yield func(*llm.ChatChunk, error) bool) { yield(chunk, nil) })
	if err != nil || len(joined.Choices) == 0 {
		return details
	}
	return joined.Choices[0].Message.ReasoningDetails
}

// convertLogprobs converts the logprobs of a choice of chat completions. It returns the
// elements for the content, joined by commas.
func convertLogprobs(raw json.RawMessage) ([]byte, error) {
	type token struct {
		Token       string           `json:"token"`
		Bytes       *json.RawMessage `json:"bytes,omitzero"`
		Logprob     float64          `json:"logprob"`
		TopLogprobs []token          `json:"top_logprobs,omitzero"`
	}
	var all struct{ Content []token }
	if json.Unmarshal(raw, &all) != nil || len(all.Content) == 0 {
		return nil, nil // another format, which some servers use
	}
	for i := range all.Content {
		if t := &all.Content[i]; t.TopLogprobs == nil {
			t.TopLogprobs = []token{} // required here, but not in the elements of top_logprobs
		}
	}
	list, err := marshal(all.Content)
	if err != nil {
		return nil, err
	}
	return list[1 : len(list)-1], nil
}
