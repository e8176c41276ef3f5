// Streams of server-sent events.

package llmhttp

import (
	"strconv"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/openai"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

// EventStream returns the Framing of server-sent events, with comments that keep a silent
// stream alive. See "Protocols" in the package documentation.
func EventStream() Framing {
	// The comment has no empty line, which would end an event. Old releases of openai-go and
	// openai-python fail on an empty event.
	return Framing{ContentType: "text/event-stream; charset=utf-8", KeepAlive: ": keep-alive\n"}
}

// A completionEncoder encodes one stream of chat completions.
type completionEncoder struct{ openai.Stream }

func (*completionEncoder) Framing() Framing { return EventStream() }

func (e *completionEncoder) AppendStart(b []byte, s *ReplyStart) []byte {
	e.Start(headOf(s, membername.ObjectChunk))
	return b
}

func (e *completionEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	choice := &c.Choices[0]
	b = append(b, e.Head...)
	b = append(b, `,"choices":[{"index":`...)
	b = strconv.AppendInt(b, int64(choice.Index), 10)
	var err error
	switch {
	case choice.Delta.Role != "":
		b = append(b, `,"delta":{"role":"assistant","content":""},"finish_reason":null`...)
	case choice.FinishReason != "":
		b = append(b, `,"delta":{"content":null},"finish_reason":`...)
		b = jsonwire.AppendString(b, string(choice.FinishReason))
		if choice.StopSequence != "" {
			b = append(b, `,"stop_reason":`...)
			b = jsonwire.AppendString(b, choice.StopSequence)
		}
	default:
		d := &choice.Delta
		withBothNames(d.Reasoning, &d.ReasoningAlias, &d.Extra)
		b = append(b, `,"delta":`...)
		b, err = appendDelta(b, &choice.Delta)
		b = append(b, `,"finish_reason":null`...)
	}
	if err == nil && len(choice.Extra) > 0 {
		b, err = chunkChoiceJSON.AppendExtra(b, choice)
	}
	b = append(b, "}]"...)
	if err == nil && len(c.Extra) > 0 {
		b, err = chatChunkJSON.AppendExtra(b, c)
	}
	return openai.AppendEventEnd(append(b, '}')), err
}

// appendDelta is like deltaJSON.Append, and faster for a delta that has only content
// (budget: stream, a flush per chunk; BenchmarkAppendDelta).
func appendDelta(b []byte, d *llm.Delta) ([]byte, error) {
	if !isContent(d) {
		return deltaJSON.Append(b, d)
	}
	b = jsonwire.AppendString(append(b, `{"content":`...), d.Content)
	return append(b, '}'), nil
}

// isContent reports whether d has content and nothing else.
func isContent(d *llm.Delta) bool {
	for i, s := range texts.OfDelta(d) {
		if (*s != "") != (i == texts.Content) {
			return false
		}
	}
	return d.Role == "" && len(d.ToolCalls) == 0 && len(d.ReasoningDetails) == 0 && len(d.Extra) == 0
}
