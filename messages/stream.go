package messages

import (
	"slices"
	"strconv"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// An encoder encodes one reply.
//
// The blocks of a stream may not overlap. At most one is open, and what belongs to
// other blocks waits until that one is complete: a tool call may be incomplete. In a
// whole reply all blocks wait for the end.
type encoder struct {
	whole    bool          // the reply is not a stream
	model    string        // the name that the client used, if the Backend knows another one
	index    int           // of the open block, or else of the next one
	isOpen   bool          // whether there is an open block
	open     outputBlock   // the open block
	waiting  []outputBlock // the blocks after it
	head     []byte        // what precedes the text of a delta of the open block
	dropped  []int         // the indices of calls that have no form in this API
	thoughts thoughts
	reason   reason
	err      error // the first error
}

// A blockKind is the type of a content block of a reply.
type blockKind uint8

const (
	textBlock blockKind = iota
	thinkingBlock
	redactedBlock
	callBlock
)

// An outputBlock is a content block of a reply.
type outputBlock struct {
	kind      blockKind
	text      []byte                 // of a block that waits; of a call, all of its arguments
	sent      int                    // how much of the arguments has been sent
	signature string                 // of thinking
	data      string                 // of redacted thinking
	call      int                    // the index of the call
	id, name  string                 // of the call
	scanner   jsonwire.ObjectScanner // of the arguments
}

// isComplete reports whether the block may end.
func (k *outputBlock) isComplete() bool { return k.kind != callBlock || k.scanner.Complete() }

// takes reports whether text of the kind belongs to the block.
func (k *outputBlock) takes(kind blockKind) bool { return k.kind == kind && k.signature == "" }

func (e *encoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	b = append(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	b = appendMessageHead(b, s.ID, e.modelName(s.Model))
	b = append(b, `],"stop_reason":null,"stop_sequence":null,"usage":`...)
	b = appendUsage(b, &llmhttp.Usage{PromptTokens: s.PromptTokens})
	return append(b, "}}\n\n"...)
}

func (e *encoder) modelName(served string) string {
	if e.model != "" {
		return e.model
	}
	return served
}

func (e *encoder) AppendChunk(b []byte, c *llmhttp.ChatChunk) ([]byte, error) {
	choice := &c.Choices[0]
	if choice.FinishReason != "" {
		e.reason.finish, e.reason.sequence = choice.FinishReason, choice.StopSequence
		return b, nil // AppendEnd sends it with the usage
	}
	d := &choice.Delta
	b = e.appendReasoning(b, d)
	b = e.appendText(b, textBlock, d.Content)
	if d.Refusal != "" {
		e.reason.refused = true
		b = e.appendText(b, textBlock, d.Refusal)
	}
	for i := range d.ToolCalls {
		b = e.appendCall(b, &d.ToolCalls[i])
	}
	return b, e.err
}

// AppendEnd sends the blocks that wait, and the end of the message.
func (e *encoder) AppendEnd(b []byte, u *llmhttp.Usage, _ llmhttp.Extra) ([]byte, error) {
	b = e.stopBlock(b)
	for len(e.waiting) > 0 {
		b = e.openNext(b)
		b = e.stopBlock(b)
	}
	b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	b = e.reason.append(b)
	b = append(b, `},"usage":`...)
	b = appendUsage(b, u)
	return append(b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...), e.err
}

func (e *encoder) AppendFailure(b []byte, failure *llmhttp.Error) []byte {
	b = append(b, "event: error\ndata: "...)
	b = appendErrorObject(b, failure, failure.Status)
	return append(b, "}\n\n"...)
}

// appendText adds text to the last block if that takes it, and otherwise begins a
// block.
func (e *encoder) appendText(b []byte, kind blockKind, text string) []byte {
	if text == "" {
		return b
	}
	last := e.last()
	if last == nil || !last.takes(kind) {
		b, last = e.begin(b, outputBlock{kind: kind})
	}
	if last == &e.open {
		return e.appendDelta(b, text)
	}
	last.text = append(last.text, text...)
	return b
}

// last returns the block that was begun last, or nil if no block is open.
func (e *encoder) last() *outputBlock {
	switch {
	case len(e.waiting) > 0:
		return &e.waiting[len(e.waiting)-1]
	case e.isOpen:
		return &e.open
	}
	return nil
}

// begin begins a block. It is opened at once unless the open block is incomplete.
func (e *encoder) begin(b []byte, k outputBlock) ([]byte, *outputBlock) {
	e.waiting = append(e.waiting, k)
	b = e.openWaiting(b)
	return b, e.last()
}

// openWaiting opens the blocks that wait, one after the other, until the open block is
// incomplete.
func (e *encoder) openWaiting(b []byte) []byte {
	for !e.whole && len(e.waiting) > 0 && (!e.isOpen || e.open.isComplete()) {
		b = e.stopBlock(b)
		b = e.openNext(b)
	}
	return b
}

// openNext opens the first block that waits, and sends what there is of it.
func (e *encoder) openNext(b []byte) []byte {
	e.open, e.isOpen = e.waiting[0], true
	e.waiting = append(e.waiting[:0], e.waiting[1:]...)
	b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
	b = strconv.AppendInt(b, int64(e.index), 10)
	b = append(b, `,"content_block":`...)
	b = e.open.appendEmpty(b)
	b = append(b, "}\n\n"...)
	e.setHead()
	if e.open.kind == callBlock {
		return e.appendArguments(b)
	}
	if len(e.open.text) > 0 {
		b = e.appendDelta(b, string(e.open.text))
	}
	return e.appendSignature(b)
}

// appendEmpty appends the block as it is when it begins.
func (k *outputBlock) appendEmpty(b []byte) []byte {
	switch k.kind {
	case thinkingBlock:
		return append(b, `{"type":"thinking","thinking":"","signature":""}`...)
	case redactedBlock:
		b = append(b, `{"type":"redacted_thinking","data":`...)
		b = jsonwire.AppendString(b, k.data)
		return append(b, '}')
	case callBlock:
		b = append(b, `{"type":"tool_use","id":`...)
		b = jsonwire.AppendString(b, k.id)
		b = append(b, `,"name":`...)
		b = jsonwire.AppendString(b, k.name)
		return append(b, `,"input":{}}`...)
	}
	return append(b, `{"type":"text","text":""}`...)
}

// setHead sets the head of the open block, so that a delta is its text and little
// else.
func (e *encoder) setHead() {
	b := append(e.head[:0], "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	b = strconv.AppendInt(b, int64(e.index), 10)
	switch e.open.kind {
	case thinkingBlock:
		b = append(b, `,"delta":{"type":"thinking_delta","thinking":`...)
	case callBlock:
		b = append(b, `,"delta":{"type":"input_json_delta","partial_json":`...)
	default:
		b = append(b, `,"delta":{"type":"text_delta","text":`...)
	}
	e.head = b
}

// appendDelta sends text of the open block.
func (e *encoder) appendDelta(b []byte, text string) []byte {
	b = append(b, e.head...)
	b = jsonwire.AppendString(b, text)
	return append(b, "}}\n\n"...)
}

// stopBlock ends the open block.
func (e *encoder) stopBlock(b []byte) []byte {
	if !e.isOpen {
		return b
	}
	switch e.open.kind {
	case callBlock:
		b = e.completeArguments(b)
	case thinkingBlock:
		e.thoughts.unsigned = e.open.signature == ""
	}
	e.isOpen = false
	b = append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
	b = strconv.AppendInt(b, int64(e.index), 10)
	e.index++
	return append(b, "}\n\n"...)
}

// appendCall adds to a tool call. Calls of other tools than functions are dropped:
// this API has none that a client could have asked for.
func (e *encoder) appendCall(b []byte, t *llmhttp.ToolCallDelta) []byte {
	if t.ID != "" && t.Type != "" && t.Type != "function" {
		e.dropped = append(e.dropped, t.Index)
	}
	if slices.Contains(e.dropped, t.Index) {
		return b
	}
	k := e.findCall(t.Index)
	if k == nil && t.ID != "" {
		if t.Function.Name == "" {
			e.fail(errCall)
		}
		e.reason.calls = true
		b, k = e.begin(b, outputBlock{kind: callBlock, call: t.Index, id: t.ID, name: t.Function.Name})
	}
	if k == nil { // the call has ended
		if !isSpace(t.Function.Arguments) {
			e.fail(errCall)
		}
		return b
	}
	k.text = append(k.text, t.Function.Arguments...)
	k.scanner.Scan(t.Function.Arguments)
	if k == &e.open {
		b = e.appendArguments(b)
	}
	return e.openWaiting(b)
}

// findCall returns a call that is open or waits, or nil.
func (e *encoder) findCall(index int) *outputBlock {
	if e.isOpen && e.open.kind == callBlock && e.open.call == index {
		return &e.open
	}
	for i := range e.waiting {
		if k := &e.waiting[i]; k.kind == callBlock && k.call == index {
			return k
		}
	}
	return nil
}

// appendArguments sends the arguments of the open call as far as they are known.
func (e *encoder) appendArguments(b []byte) []byte {
	k := &e.open
	if k.sent == len(k.text) || !startsObject(k.text) {
		return b
	}
	b = append(b, e.head...)
	b = jsonwire.AppendString(b, string(k.text[k.sent:]))
	k.sent = len(k.text)
	return append(b, "}}\n\n"...)
}

// completeArguments sends what the arguments of the open call lack. Without any
// delta, the input is an empty object.
func (e *encoder) completeArguments(b []byte) []byte {
	k := &e.open
	rest, err := missingArguments(k.text, e.reason.cut())
	if err != nil {
		e.fail(err)
		return b
	}
	k.text = append(k.text, rest...)
	return e.appendArguments(b)
}

// fail makes the stream end with an error.
func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// appendReasoning adds thinking, and the signatures and redacted thinking of details.
// Text of details comes first, because they divide it into blocks; signatures alone
// belong to the text.
func (e *encoder) appendReasoning(b []byte, d *llmhttp.Delta) []byte {
	divided := slices.ContainsFunc(d.ReasoningDetails, func(d llmhttp.ReasoningDetail) bool { return d.Text != "" || d.Summary != "" })
	if !divided && d.Reasoning != "" {
		b = e.appendText(b, thinkingBlock, e.thoughts.fromText(d.Reasoning))
	}
	for i := range d.ReasoningDetails {
		b = e.appendDetail(b, &d.ReasoningDetails[i])
	}
	if divided && d.Reasoning != "" {
		b = e.appendText(b, thinkingBlock, e.thoughts.fromText(d.Reasoning))
	}
	return b
}

func (e *encoder) appendDetail(b []byte, d *llmhttp.ReasoningDetail) []byte {
	if d.Type == llmhttp.ReasoningEncrypted {
		b, _ = e.begin(b, outputBlock{kind: redactedBlock, data: seal(d, d.Data)})
		return b
	}
	text := e.thoughts.fromDetails(d.Text + d.Summary)
	if text != "" && !e.thoughts.continues(d) {
		b, _ = e.begin(b, outputBlock{kind: thinkingBlock})
	}
	b = e.appendText(b, thinkingBlock, text)
	if d.Signature != "" {
		b = e.sign(b, seal(d, d.Signature))
	}
	return b
}

// sign adds a signature to the thinking that came last, if that has none. A signature
// of no text is a block of its own, but one that comes too late for its text is
// dropped: with no text or another one it would be wrong.
func (e *encoder) sign(b []byte, signature string) []byte {
	for i := len(e.waiting) - 1; i >= 0; i-- {
		if k := &e.waiting[i]; k.takes(thinkingBlock) {
			k.signature = signature
			return b
		}
	}
	switch {
	case e.isOpen && e.open.takes(thinkingBlock):
		e.open.signature = signature
		b = e.appendSignature(b)
	case !e.thoughts.unsigned:
		b, _ = e.begin(b, outputBlock{kind: thinkingBlock, signature: signature})
	}
	return b
}

// appendSignature sends the signature of the open block, if it has one.
func (e *encoder) appendSignature(b []byte) []byte {
	if e.open.signature == "" {
		return b
	}
	b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	b = strconv.AppendInt(b, int64(e.index), 10)
	b = append(b, `,"delta":{"type":"signature_delta","signature":`...)
	b = jsonwire.AppendString(b, e.open.signature)
	return append(b, "}}\n\n"...)
}
