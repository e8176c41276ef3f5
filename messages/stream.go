package messages

import (
	"strconv"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// An encoder encodes one reply.
//
// The blocks of a stream must not overlap. So at most one block is open, and the
// others are queued in waiting until it is complete. Only a tool call can be
// incomplete. In a whole reply all blocks are queued until the end.
type encoder struct {
	whole     bool          // the reply is not a stream
	model     string        // the name that the client used, if the Backend knows another one
	index     int           // the index of the open block, or of the next one if none is open
	isOpen    bool          // whether there is an open block
	open      outputBlock   // the open block
	waiting   []outputBlock // the blocks after the open one
	deltaHead []byte        // the bytes before the text in a delta of the open block
	dropped   []int         // the indices of calls that have no form in this API
	reasoning reasoningState
	stop      stopReason
	err       error // the first error
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
	text      []byte                 // the text while the block waits; for a call, all of its arguments
	sent      int                    // how many bytes of the arguments were sent
	signature string                 // the signature of thinking
	data      string                 // the data of redacted thinking
	call      int                    // the index of the call
	id, name  string                 // the ID and the function of the call
	scanner   jsonwire.ObjectScanner // finds the end of the arguments
}

// isComplete reports whether the block may end.
func (k *outputBlock) isComplete() bool { return k.kind != callBlock || k.scanner.Complete() }

// accepts reports whether the block takes text of this kind.
func (k *outputBlock) accepts(kind blockKind) bool { return k.kind == kind && k.signature == "" }

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
		e.stop.finish, e.stop.sequence = choice.FinishReason, choice.StopSequence
		return b, nil // AppendEnd sends it with the usage
	}
	d := &choice.Delta
	b = e.appendReasoning(b, d)
	b = e.appendText(b, textBlock, d.Content)
	if d.Refusal != "" {
		e.stop.refused = true
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
		b = e.openNextBlock(b)
		b = e.stopBlock(b)
	}
	b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	b = e.stop.append(b)
	b = append(b, `},"usage":`...)
	b = appendUsage(b, u)
	return append(b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...), e.err
}

func (e *encoder) AppendFailure(b []byte, failure *llmhttp.Error) []byte {
	b = append(b, "event: error\ndata: "...)
	b = appendErrorObject(b, failure, failure.Status)
	return append(b, "}\n\n"...)
}

// appendText adds text to the last block if that accepts it, and otherwise begins a
// block.
func (e *encoder) appendText(b []byte, kind blockKind, text string) []byte {
	if text == "" {
		return b
	}
	last := e.lastBlock()
	if last == nil || !last.accepts(kind) {
		b, last = e.beginBlock(b, outputBlock{kind: kind})
	}
	if last == &e.open {
		return e.appendDelta(b, text)
	}
	last.text = append(last.text, text...)
	return b
}

// lastBlock returns the block that was begun last, or nil if no block is open.
func (e *encoder) lastBlock() *outputBlock {
	switch {
	case len(e.waiting) > 0:
		return &e.waiting[len(e.waiting)-1]
	case e.isOpen:
		return &e.open
	}
	return nil
}

// beginBlock begins a block. It is opened at once unless the open block is incomplete.
func (e *encoder) beginBlock(b []byte, k outputBlock) ([]byte, *outputBlock) {
	e.waiting = append(e.waiting, k)
	b = e.openWaitingBlocks(b)
	return b, e.lastBlock()
}

// openWaitingBlocks opens the blocks that wait, one after the other, until the open block is
// incomplete.
func (e *encoder) openWaitingBlocks(b []byte) []byte {
	for !e.whole && len(e.waiting) > 0 && (!e.isOpen || e.open.isComplete()) {
		b = e.stopBlock(b)
		b = e.openNextBlock(b)
	}
	return b
}

// openNextBlock opens the first block that waits, and sends the content that it has
// so far.
func (e *encoder) openNextBlock(b []byte) []byte {
	e.open, e.isOpen = e.waiting[0], true
	e.waiting = append(e.waiting[:0], e.waiting[1:]...)
	b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
	b = strconv.AppendInt(b, int64(e.index), 10)
	b = append(b, `,"content_block":`...)
	b = e.open.appendEmpty(b)
	b = append(b, "}\n\n"...)
	e.setDeltaHead()
	if e.open.kind == callBlock {
		return e.appendArguments(b)
	}
	if len(e.open.text) > 0 {
		b = e.appendDelta(b, string(e.open.text))
	}
	return e.appendSignature(b)
}

// appendEmpty appends the block without its content, as a stream begins it.
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

// setDeltaHead sets deltaHead for the open block.
func (e *encoder) setDeltaHead() {
	b := append(e.deltaHead[:0], "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	b = strconv.AppendInt(b, int64(e.index), 10)
	switch e.open.kind {
	case thinkingBlock:
		b = append(b, `,"delta":{"type":"thinking_delta","thinking":`...)
	case callBlock:
		b = append(b, `,"delta":{"type":"input_json_delta","partial_json":`...)
	default:
		b = append(b, `,"delta":{"type":"text_delta","text":`...)
	}
	e.deltaHead = b
}

// appendDelta sends text of the open block.
func (e *encoder) appendDelta(b []byte, text string) []byte {
	b = append(b, e.deltaHead...)
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
		e.reasoning.unsigned = e.open.signature == ""
	}
	e.isOpen = false
	b = append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
	b = strconv.AppendInt(b, int64(e.index), 10)
	e.index++
	return append(b, "}\n\n"...)
}

// fail makes the stream end with an error.
func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}
