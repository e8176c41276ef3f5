// The encoder of streams and whole messages.

package messages

import (
	"context"
	"slices"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/citation"
	"github.com/llmhttp/llmhttp/internal/reasoning"
	"github.com/llmhttp/llmhttp/llm"
)

// An encoder encodes one reply.
type encoder struct {
	ctx        context.Context // of the request, for warnings
	params     replyParams
	model      string // the name that the client used, if the Backend knows another one
	start      llmhttp.ReplyStart
	blocks     blockQueue // also tells whether the reply is whole
	reasoning  reasoning.Merger
	inProgress bool  // the last block of thinking is of an agent's progress
	dropped    []int // the indices of calls that have no form in this API
	stop       stopReason
}

func (e *encoder) Framing() llmhttp.Framing {
	if e.blocks.whole {
		return llmhttp.Framing{Whole: true, ContentType: "application/json"}
	}
	f := llmhttp.EventStream()
	f.StartsEarly, f.EndsCleanly = true, true
	return f
}

// AppendStart appends nothing to a whole reply, and neither does AppendChunk: all blocks wait
// for AppendEnd.
func (e *encoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	e.start = *s
	if e.blocks.whole {
		return b
	}
	b = beginEvent(b, "message_start")
	b = append(b, `,"message":`...)
	b = appendMessageHead(b, s.ID, e.modelName(s.Model))
	b = append(b, `],"stop_reason":null,"stop_sequence":null,"stop_details":null,"container":null,"usage":`...)
	b = appendUsage(b, &llm.Usage{PromptTokens: s.PromptTokens}, e.params.inferenceGeo)
	return append(b, "}}\n\n"...)
}

func (e *encoder) modelName(served string) string {
	if e.model != "" {
		return e.model
	}
	return served
}

func (e *encoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	choice := &c.Choices[0]
	if e.params.isEmpty {
		e.stop.finish = llm.FinishLength
		return b, nil
	}
	if choice.FinishReason != "" {
		e.stop.finish, e.stop.sequence, e.stop.native = choice.FinishReason, choice.StopSequence, nativeReason(choice)
		e.stop.readExtra(choice.Extra, c.Extra)
		return b, nil // AppendEnd sends it with the usage
	}
	d := &choice.Delta
	b = e.appendReasoning(b, d)
	b = e.blocks.appendText(b, textBlock, d.Content)
	b, hasOwn := e.appendOwn(b, d)
	if !hasOwn { // they would be the same citations
		for _, c := range citation.Decode(d.Extra["annotations"]) {
			b = e.blocks.addRawCitation(b, appendCitation(nil, &c))
		}
	}
	if d.Refusal != "" {
		e.stop.refused = true
		b = e.blocks.appendText(b, textBlock, d.Refusal)
	}
	for i := range d.ToolCalls {
		b = e.appendCall(b, &d.ToolCalls[i])
	}
	return b, e.blocks.err
}

// appendCall begins a tool call or adds arguments to it. Calls of tools that are not
// functions are dropped, because this API has no form for them.
func (e *encoder) appendCall(b []byte, t *llm.ToolCallDelta) []byte {
	if t.ID != "" && t.Type != "" && t.Type != "function" {
		e.dropped = append(e.dropped, t.Index)
	}
	if slices.Contains(e.dropped, t.Index) {
		return b
	}
	k := e.blocks.findCall(t.Index)
	if k == nil && t.ID != "" {
		if t.Function.Name == "" {
			e.blocks.fail(errInvalidCall)
		}
		e.stop.hasCalls = true
		b, k = e.blocks.begin(b, outputBlock{
			kind: callBlock, call: t.Index, id: t.ID, name: t.Function.Name, data: string(object(anthropic.CallerOf(t.Extra[anthropic.Member]))),
		})
	}
	if k == nil || e.blocks.hasEnded(k) {
		if !isSpace(t.Function.Arguments) {
			e.blocks.fail(errInvalidCall)
		}
		return b
	}
	return e.blocks.addArguments(b, k, t.Function.Arguments)
}

// AppendEnd ends the blocks that have not ended, and then the message.
func (e *encoder) AppendEnd(b []byte, u *llm.Usage, _ llm.Extra) ([]byte, error) {
	if e.blocks.whole {
		return e.appendWhole(b, u), nil
	}
	b = e.blocks.endAll(b)
	if e.blocks.invalidCall {
		warnOfArguments(e.ctx, e.stop.isCut())
	}
	b = beginEvent(b, "message_delta")
	b = append(b, `,"delta":{`...)
	b = e.stop.appendMembers(b)
	b = e.stop.appendContext(append(b, '}'))
	b = append(b, `,"usage":{`...)
	b = appendTokens(b, u)
	b = append(b, "}}\n\n"...)
	b = beginEvent(b, "message_stop")
	return append(b, "}\n\n"...), e.blocks.err
}

func (e *encoder) AppendFailure(b []byte, failure *llm.Error) []byte {
	b = append(b, "event: error\ndata: "...)
	b = appendErrorObject(b, failure, failure.Status)
	return append(b, "}\n\n"...)
}

// appendWhole appends a message.
func (e *encoder) appendWhole(b []byte, u *llm.Usage) []byte {
	b = appendMessageHead(b, e.start.ID, e.modelName(e.start.Model))
	valid := true
	for i := range e.blocks.queue {
		if i > 0 {
			b = append(b, ',')
		}
		k := &e.blocks.queue[i]
		if k.kind == thinkingBlock {
			k.signature = e.blocks.signatureOf(k)
		}
		var ok bool
		b, ok = k.appendWhole(b)
		valid = valid && ok
	}
	if !valid {
		warnOfArguments(e.ctx, e.stop.isCut())
	}
	b = append(b, "],"...)
	b = e.stop.appendMembers(b)
	b = e.stop.appendContext(b)
	b = append(b, `,"usage":`...)
	b = appendUsage(b, u, e.params.inferenceGeo)
	return append(b, '}')
}

// beginEvent appends an event up to its type. The SDKs need the type in both places.
func beginEvent(b []byte, typ string) []byte {
	b = append(b, "event: "...)
	b = append(b, typ...)
	b = append(b, "\ndata: {\"type\":\""...)
	b = append(b, typ...)
	return append(b, '"')
}
