package completion

import (
	"strconv"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/openai"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// newEncoder returns the encoder of the reply to req, to which it does not refer.
func newEncoder(req *Request) llmhttp.ChatEncoder {
	if !req.Stream {
		return new(wholeEncoder)
	}
	return &streamEncoder{openai.Stream{ShowUsage: req.StreamOptions != nil && req.StreamOptions.IncludeUsage}}
}

// headOf returns what begins a reply, or a chunk of it.
func headOf(s *llmhttp.ReplyStart) openai.Head {
	return openai.Head{ID: s.ID, Prefix: "cmpl-", Object: "text_completion", Created: s.Created, Model: s.Model}
}

// A streamEncoder encodes one stream.
type streamEncoder struct{ openai.Stream }

func (*streamEncoder) Framing() llmhttp.Framing { return llmhttp.EventStream() }

func (e *streamEncoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	e.Start(headOf(s))
	return b
}

func (e *streamEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	choice := &c.Choices[0]
	if choice.Delta.Role != "" { // the format has no such event
		return b, nil
	}
	b, err := appendChoice(append(append(b, e.Head...), `,"choices":[`...), choice)
	if b = append(b, ']'); err == nil {
		b, err = chatChunkJSON.AppendExtra(b, c)
	}
	return openai.AppendEventEnd(append(b, '}')), err
}

// appendChoice appends a choice, of whose Delta only the Content is sent.
func appendChoice(b []byte, c *llm.ChunkChoice) ([]byte, error) {
	b = jsonwire.AppendString(append(b, `{"text":`...), c.Delta.Content)
	b = strconv.AppendInt(append(b, `,"index":`...), int64(c.Index), 10)
	if c.Extra[membername.Logprobs] == nil {
		b = append(b, `,"logprobs":null`...)
	}
	b = openai.AppendNullable(append(b, `,"finish_reason":`...), string(c.FinishReason))
	if c.StopSequence != "" {
		b = jsonwire.AppendString(append(b, `,"stop_reason":`...), c.StopSequence)
	}
	b, err := chunkChoiceJSON.AppendExtra(b, c)
	return append(b, '}'), err
}

// A wholeEncoder encodes one whole reply.
type wholeEncoder struct {
	start  llmhttp.ReplyStart
	joined join.Accumulator
}

func (*wholeEncoder) Framing() llmhttp.Framing {
	return llmhttp.Framing{Whole: true, ContentType: "application/json"}
}

func (e *wholeEncoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	e.start = *s
	return b
}

func (e *wholeEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	e.joined.Add(c)
	return b, nil
}

func (e *wholeEncoder) AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	r := e.joined.Response()
	b = append(headOf(&e.start).Append(b), `,"choices":[`...)
	for i := range r.Choices {
		if i > 0 {
			b = append(b, ',')
		}
		c := &r.Choices[i]
		choice := llm.ChunkChoice{Index: c.Index, FinishReason: c.FinishReason, StopSequence: c.StopSequence, Extra: c.Extra}
		choice.Delta.Content = c.Message.Content.Text()
		var err error
		if b, err = appendChoice(b, &choice); err != nil {
			return b, err
		}
	}
	b, err := usageJSON.Append(append(b, `],"usage":`...), u)
	if err != nil {
		return b, err
	}
	b, err = chatResponseJSON.AppendExtra(b, &llm.ChatResponse{Extra: jsonwire.MergeExtra(r.Extra, extra)})
	return append(b, '}'), err
}

// AppendFailure is not called for a whole reply.
func (*wholeEncoder) AppendFailure(b []byte, _ *llm.Error) []byte { return b }
