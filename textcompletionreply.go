package llmhttp

import (
	"strconv"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	objectTextCompletion = "text_completion"
	textCompletionPrefix = "cmpl-"
)

// A textCompletionEncoder encodes one stream of completions of prompts.
type textCompletionEncoder struct{ completionEncoder }

func (e *textCompletionEncoder) AppendStart(b []byte, s *ReplyStart) []byte {
	e.head = appendReplyHead(appendEventStart(make([]byte, 0, 160)), textCompletionPrefix, objectTextCompletion, s)
	return b
}

func (e *textCompletionEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	choice := &c.Choices[0]
	if choice.Delta.Role != "" { // the format has no such event
		return b, nil
	}
	b, err := appendTextChoice(append(append(b, e.head...), `,"choices":[`...), choice)
	if b = append(b, ']'); err == nil {
		b, err = chatChunkJSON.AppendExtra(b, c)
	}
	return appendEventEnd(append(b, '}')), err
}

// appendTextChoice appends a choice, of whose Delta only the Content is sent.
func appendTextChoice(b []byte, c *llm.ChunkChoice) ([]byte, error) {
	b = jsonwire.AppendString(append(b, `{"text":`...), c.Delta.Content)
	b = strconv.AppendInt(append(b, `,"index":`...), int64(c.Index), 10)
	if c.Extra[membername.Logprobs] == nil {
		b = append(b, `,"logprobs":null`...)
	}
	b = appendNullable(append(b, `,"finish_reason":`...), string(c.FinishReason))
	if c.StopSequence != "" {
		b = jsonwire.AppendString(append(b, `,"stop_reason":`...), c.StopSequence)
	}
	b, err := chunkChoiceJSON.AppendExtra(b, c)
	return append(b, '}'), err
}

// A wholeTextCompletion encodes one whole reply of completions of prompts.
type wholeTextCompletion struct{ wholeCompletion }

func (e *wholeTextCompletion) AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	r := e.joined.Response()
	b = append(appendReplyHead(b, textCompletionPrefix, objectTextCompletion, &e.start), `,"choices":[`...)
	for i := range r.Choices {
		if i > 0 {
			b = append(b, ',')
		}
		c := &r.Choices[i]
		choice := llm.ChunkChoice{Index: c.Index, FinishReason: c.FinishReason, StopSequence: c.StopSequence, Extra: c.Extra}
		choice.Delta.Content = c.Message.Content.Text()
		var err error
		if b, err = appendTextChoice(b, &choice); err != nil {
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
