// Package openai appends what replies in the formats of OpenAI's API have in common: errors, server-sent
// events, the members and the end of completions, of chats and of prompts, and lists of models.
package openai

import (
	"strconv"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/llm"
)

var (
	chunkJSON = jsonwire.ObjectOf[llm.ChatChunk]("")
	usageJSON = jsonwire.ObjectOf[llm.Usage]("")
	modelJSON = jsonwire.ObjectOf[llm.Model]("")
)

// AppendError appends an error object, all of whose members are required.
func AppendError(b []byte, e *llm.Error) []byte {
	// go-openai recognises an error in a stream by this beginning.
	b = append(b, `{"error":{"message":`...)
	b = jsonwire.AppendString(b, e.Message)
	b = append(b, `,"type":`...)
	b = jsonwire.AppendString(b, e.Type)
	b = append(b, `,"param":`...)
	b = AppendNullable(b, e.Param)
	b = append(b, `,"code":`...)
	b = AppendNullable(b, e.Code)
	return append(b, "}}"...)
}

// AppendNullable appends s as a JSON string, or null if it is empty.
func AppendNullable(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return jsonwire.AppendString(b, s)
}

// Streams are server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): lines
// "data: ", each followed by an empty line. An event has one line, because it is JSON, which escapes line
// breaks; so no text of a Backend can begin an event. Most events have no names, and none has an ID.

// AppendEventStart begins an event. JSON on one line and AppendEventEnd follow.
func AppendEventStart(b []byte) []byte { return append(b, "data: "...) }

// AppendEventEnd ends an event.
func AppendEventEnd(b []byte) []byte { return append(b, "\n\n"...) }

// AppendDone appends the event that ends a complete stream. It is not JSON.
func AppendDone(b []byte) []byte { return AppendEventEnd(append(AppendEventStart(b), "[DONE]"...)) }

// AppendErrorEvent appends an event with an error.
func AppendErrorEvent(b []byte, e *llm.Error) []byte {
	return AppendEventEnd(AppendError(AppendEventStart(b), e))
}

// A Head has the members that begin a completion, and each chunk of one.
type Head struct {
	ID      string // as the Backend set it, or empty: then the ID begins with Prefix
	Prefix  string
	Object  string
	Created int64
	Model   string
}

// CompletionID returns the ID of the completion.
func (h Head) CompletionID() string {
	if h.ID == "" {
		return randomid.New(h.Prefix)
	}
	return h.ID
}

// Append begins the object of a completion, or of a chunk of it.
func (h Head) Append(b []byte) []byte {
	b = jsonwire.AppendString(append(b, `{"id":`...), h.CompletionID())
	b = append(append(append(b, `,"object":"`...), h.Object...), `","created":`...)
	b = strconv.AppendInt(b, h.Created, 10)
	return jsonwire.AppendString(append(b, `,"model":`...), h.Model)
}

// A Stream encodes what streams of completions have in common. It has methods of llmhttp.ChatEncoder.
type Stream struct {
	ShowUsage bool   // the client asked for a chunk with the usage
	Head      []byte // the beginning of each event: the members that all chunks have
}

// Start sets the Head.
func (s *Stream) Start(h Head) { s.Head = h.Append(AppendEventStart(make([]byte, 0, 160))) }

// AppendEnd appends the usage, if the client asked for it, and [DONE]. Other
// clients get no chunk without choices: many look at the first choice of every
// chunk.
func (s *Stream) AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	if s.ShowUsage {
		b = append(b, s.Head...)
		b = append(b, `,"choices":[],"usage":`...)
		var err error
		if b, err = usageJSON.Append(b, u); err != nil {
			return b, err
		}
		if b, err = chunkJSON.AppendExtra(b, &llm.ChatChunk{Extra: extra}); err != nil {
			return b, err
		}
		b = AppendEventEnd(append(b, '}'))
	}
	return AppendDone(b), nil
}

// AppendFailure appends the event of an error.
func (*Stream) AppendFailure(b []byte, e *llm.Error) []byte { return AppendErrorEvent(b, e) }

// AppendModels appends a list of models.
func AppendModels(b []byte, models []llm.Model) ([]byte, error) {
	b, err := AppendModelData(b, models)
	return append(b, '}'), err
}

// AppendModelData is AppendModels without the last brace, so that members may follow.
func AppendModelData(b []byte, models []llm.Model) ([]byte, error) {
	b = append(b, `{"object":"list","data":`...)
	return jsonwire.AppendArray(b, models, func(b []byte, m llm.Model) ([]byte, error) { return AppendModel(b, &m) })
}

// AppendModel appends an entry of a list of models.
func AppendModel(b []byte, m *llm.Model) ([]byte, error) { return modelJSON.Append(b, m) }
