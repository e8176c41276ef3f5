package messages

import "github.com/llmhttp/llmhttp"

// An encoder encodes one reply.
type encoder struct {
	model     string // the name that the client used, if the Backend knows another one
	blocks    blockQueue
	reasoning reasoningState
	dropped   []int // the indices of calls that have no form in this API
	stop      stopReason
}

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
		e.blocks.cut = e.stop.isCut()
		return b, nil // AppendEnd sends it with the usage
	}
	d := &choice.Delta
	b = e.appendReasoning(b, d)
	b = e.blocks.appendText(b, textBlock, d.Content)
	if d.Refusal != "" {
		e.stop.refused = true
		b = e.blocks.appendText(b, textBlock, d.Refusal)
	}
	for i := range d.ToolCalls {
		b = e.appendCall(b, &d.ToolCalls[i])
	}
	return b, e.blocks.err
}

// AppendEnd sends the blocks that wait, and the end of the message.
func (e *encoder) AppendEnd(b []byte, u *llmhttp.Usage, _ llmhttp.Extra) ([]byte, error) {
	b = e.blocks.endAll(b)
	b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	b = e.stop.append(b)
	b = append(b, `},"usage":`...)
	b = appendUsage(b, u)
	return append(b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...), e.blocks.err
}

func (e *encoder) AppendFailure(b []byte, failure *llmhttp.Error) []byte {
	b = append(b, "event: error\ndata: "...)
	b = appendErrorObject(b, failure, failure.Status)
	return append(b, "}\n\n"...)
}
