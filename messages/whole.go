package messages

import (
	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

var _ llmhttp.ChunkCollector = (*encoder)(nil)

// CollectStart makes the encoder queue all blocks for AppendWhole.
func (e *encoder) CollectStart(*llmhttp.ReplyStart) { e.blocks.whole = true }

func (e *encoder) CollectChunk(c *llmhttp.ChatChunk) error {
	_, err := e.AppendChunk(nil, c)
	return err
}

// AppendWhole appends a message.
func (e *encoder) AppendWhole(b []byte, r *llmhttp.ChatResponse) ([]byte, error) {
	b = appendMessageHead(b, r.ID, e.modelName(r.Model))
	for i := range e.blocks.waiting {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = e.blocks.waiting[i].append(b, e.blocks.cut); err != nil {
			return b, err
		}
	}
	b = append(b, "],"...)
	b = e.stop.append(b)
	b = append(b, `,"usage":`...)
	b = appendUsage(b, r.Usage)
	return append(b, '}'), nil
}

// append appends a block of a whole reply. cut tells whether the reply was cut, so that
// the arguments of a call may be incomplete.
func (k *outputBlock) append(b []byte, cut bool) ([]byte, error) {
	switch k.kind {
	case textBlock:
		b = append(b, `{"type":"text","text":`...)
		b = jsonwire.AppendString(b, string(k.text))
	case thinkingBlock:
		b = append(b, `{"type":"thinking","thinking":`...)
		b = jsonwire.AppendString(b, string(k.text))
		b = append(b, `,"signature":`...)
		b = jsonwire.AppendString(b, k.signature)
	case redactedBlock:
		return k.appendEmpty(b), nil
	case callBlock:
		rest, err := argumentsCompletion(k.text, cut)
		if err != nil {
			return b, err
		}
		b = append(b, `{"type":"tool_use","id":`...)
		b = jsonwire.AppendString(b, k.id)
		b = append(b, `,"name":`...)
		b = jsonwire.AppendString(b, k.name)
		b = append(b, `,"input":`...)
		if startsObject(k.text) {
			b = append(append(b, k.text...), rest...)
		} else {
			b = append(b, "{}"...)
		}
	}
	return append(b, '}'), nil
}
