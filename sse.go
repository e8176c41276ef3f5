package llmhttp

import (
	"strconv"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
)

// Streams of chat completions are server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html): lines "data: ", each followed
// by an empty line. An event has one line, because it is JSON, which escapes line breaks; so no
// text of a Backend can begin an event. Events have no names and no IDs.

// EventStream returns the Framing of server-sent events, with comments that keep a silent
// stream alive. See "Protocols" in the package documentation.
func EventStream() Framing {
	// The comment has no empty line, which would end an event. Old releases of openai-go and
	// openai-python fail on an empty event.
	return Framing{ContentType: "text/event-stream; charset=utf-8", KeepAlive: ": keep-alive\n"}
}

// maxDeltaText is how many bytes of text one event may have, and so one delta of any stream.
// Escaped, the text is at most six times as long, and old releases of openai-go read lines of at
// most 64 KiB.
const maxDeltaText = 8 << 10

// appendEventStart begins an event. JSON on one line and appendEventEnd follow.
func appendEventStart(b []byte) []byte { return append(b, "data: "...) }

// appendEventEnd ends an event.
func appendEventEnd(b []byte) []byte { return append(b, "\n\n"...) }

// appendDone appends the event that ends a complete stream. It is not JSON.
func appendDone(b []byte) []byte { return appendEventEnd(append(appendEventStart(b), "[DONE]"...)) }

// A completionEncoder encodes one stream of chat completions.
type completionEncoder struct {
	showUsage bool   // the client asked for a chunk with the usage
	head      []byte // the beginning of each event: the members that all chunks have
}

func (*completionEncoder) Framing() Framing { return EventStream() }

func (e *completionEncoder) AppendStart(b []byte, s *ReplyStart) []byte {
	e.head = appendReplyHead(appendEventStart(make([]byte, 0, 160)), idPrefix, membername.ObjectChunk, s)
	return b
}

// appendReplyHead begins the object of a reply, or of a chunk of it, with the members that all have.
// prefix is that of completionID.
func appendReplyHead(b []byte, prefix, object string, s *ReplyStart) []byte {
	b = jsonwire.AppendString(append(b, `{"id":`...), completionID(s.ID, prefix))
	b = append(append(append(b, `,"object":"`...), object...), `","created":`...)
	b = strconv.AppendInt(b, s.Created, 10)
	return jsonwire.AppendString(append(b, `,"model":`...), s.Model)
}

func (e *completionEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	choice := &c.Choices[0]
	b = append(b, e.head...)
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
	return appendEventEnd(append(b, '}')), err
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

// AppendEnd appends the usage, if the client asked for it, and [DONE]. Other
// clients get no chunk without choices: many look at the first choice of every
// chunk.
func (e *completionEncoder) AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	if e.showUsage {
		b = append(b, e.head...)
		b = append(b, `,"choices":[],"usage":`...)
		var err error
		if b, err = usageJSON.Append(b, u); err != nil {
			return b, err
		}
		if b, err = chatChunkJSON.AppendExtra(b, &llm.ChatChunk{Extra: extra}); err != nil {
			return b, err
		}
		b = appendEventEnd(append(b, '}'))
	}
	return appendDone(b), nil
}

func (*completionEncoder) AppendFailure(b []byte, e *llm.Error) []byte { return appendErrorEvent(b, e) }

// appendErrorEvent appends an event with an error.
func appendErrorEvent(b []byte, e *llm.Error) []byte {
	b, _ = chatCompletions{}.AppendError(appendEventStart(b), e, "")
	return appendEventEnd(b)
}
