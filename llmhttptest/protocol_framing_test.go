package llmhttptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// A toyFormat is a simple wire format whose streams have a certain framing. Its events are
// chunks, the last of which has the usage, or an error.
type toyFormat struct {
	framing       llmhttp.Framing // of a stream
	open, close   string          // around the events
	before, after string          // around each event
	between       string          // events
	textOnly      bool            // events are texts, and the other chunks are left out
	split         func(stream []byte, cut bool) ([]Event, error)
}

var toyFormats = map[string]toyFormat{
	"events": {framing: llmhttp.EventStream(), before: "data: ", after: "\n\n", split: SplitEvents},
	"events without comments": {
		framing: llmhttp.Framing{ContentType: "text/event-stream"}, before: "data: ", after: "\n\n", split: SplitEventsWithoutComments,
	},
	"events that start early and end cleanly": {
		framing: llmhttp.Framing{ContentType: "text/event-stream", KeepAlive: ": still here\n", StartsEarly: true, EndsCleanly: true},
		open:    "event: start\ndata: {}\n\n", before: "data: ", after: "\n\n", split: SplitEvents,
	},
	"a growing array": {
		framing: llmhttp.Framing{ContentType: "application/json", KeepAlive: "\n"}, open: "[", close: "]", between: ",\n", split: SplitJSONArray,
	},
	"lines of JSON": {framing: llmhttp.Framing{ContentType: "application/x-ndjson"}, after: "\n", split: SplitJSONLines},
	"raw bytes": {framing: llmhttp.Framing{ContentType: "text/plain"}, textOnly: true, split: func(stream []byte, _ bool) ([]Event, error) {
		return []Event{{Data: string(stream)}}, nil
	}},
}

func TestProtocol_Framings(t *testing.T) {
	for name, f := range toyFormats {
		t.Run(name, func(t *testing.T) { TestProtocol(t, f, f.options()) })
	}
}

// options returns the options of the kit for the format.
func (f toyFormat) options() ProtocolOptions {
	o := ProtocolOptions{
		Path: "/toy", StreamType: f.framing.ContentType, Split: f.split, EndsCleanly: f.framing.EndsCleanly, TextOnly: f.textOnly,
		Request: func(stream bool, _ int) []byte {
			return fmt.Appendf(nil, `{"model":"m","stream":%t,"messages":[{"role":"user","content":"Hi"}]}`, stream)
		},
		Authorize: completionOptions.Authorize, ReadWhole: completionOptions.ReadWhole, ReadStream: readToyStream,
		ReadError: readCompletionError, ReadFailure: readToyFailure,
	}
	if f.textOnly {
		o.WholeType, o.ReadFailure = f.framing.ContentType, nil
		o.ReadWhole = func(body []byte) (*llm.ChatResponse, error) { return join.Collect(llm.Reply(string(body))) }
		o.ReadStream = func(events []Event) (*llm.ChatResponse, error) { return o.ReadWhole([]byte(events[0].Data)) }
	}
	return o
}

func readToyStream(events []Event) (*llm.ChatResponse, error) {
	var chunks []*llm.ChatChunk
	var last *llm.ChatChunk
	for _, e := range events {
		if e.Name == "start" {
			continue
		}
		last = new(llm.ChatChunk)
		if err := json.Unmarshal([]byte(e.Data), last); err != nil {
			return nil, err
		}
		chunks = append(chunks, last)
	}
	if last == nil || last.Extra["end"] == nil {
		return nil, errors.New("the stream has no end")
	}
	return join.Collect(streamOf(chunks))
}

func readToyFailure(events []Event) (string, error) {
	if len(events) == 0 {
		return "", errors.New("there is no event")
	}
	var last struct{ Failure string }
	err := json.Unmarshal([]byte(events[len(events)-1].Data), &last)
	return last.Failure, err
}

func (toyFormat) Name() string { return "toy" }

func (f toyFormat) Routes() []llmhttp.Route {
	return []llmhttp.Route{{Pattern: "POST /toy", Bind: llmhttp.BindChat(f.decode)}}
}

func (toyFormat) Secret(r *http.Request) string { return llmhttp.BearerSecret(r) }

func (toyFormat) SetHeaders(http.Header, llmhttp.ReplyInfo) {}

func (toyFormat) AppendError(b []byte, e *llm.Error, requestID string) ([]byte, int) {
	return llmhttp.ChatCompletions().AppendError(b, e, requestID)
}

func (f toyFormat) decode(ctx context.Context, _ *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	req := new(llm.ChatRequest)
	if err := json.Unmarshal(body, req); err != nil {
		return nil, nil, llm.Errorf(http.StatusBadRequest, "", "Not a request.")
	}
	for name := range req.Extra {
		if !llmhttp.AllowsUnknownMember(ctx, name) {
			return nil, nil, llm.Errorf(http.StatusBadRequest, "", "Unknown member.")
		}
	}
	return req, &toyEncoder{format: f, whole: !req.Stream}, req.Validate()
}

type toyEncoder struct {
	format toyFormat
	whole  bool
	joined join.Accumulator // of a whole reply
	opened bool             // format.open was appended
	events int
}

func (e *toyEncoder) Framing() llmhttp.Framing {
	switch {
	case !e.whole:
		return e.format.framing
	case e.format.textOnly:
		return llmhttp.Framing{Whole: true, ContentType: e.format.framing.ContentType}
	}
	return llmhttp.Framing{Whole: true, ContentType: "application/json"}
}

// appendEvent appends an event, and before the first one what opens the stream.
func (e *toyEncoder) appendEvent(b []byte, v any) []byte {
	data, _ := json.Marshal(v)
	b = e.appendOpen(b)
	if e.events++; e.events > 1 {
		b = append(b, e.format.between...)
	}
	return fmt.Appendf(b, "%s%s%s", e.format.before, data, e.format.after)
}

func (e *toyEncoder) appendOpen(b []byte) []byte {
	if e.opened {
		return b
	}
	e.opened = true
	return append(b, e.format.open...)
}

func (e *toyEncoder) AppendStart(b []byte, _ *llmhttp.ReplyStart) []byte {
	if e.whole {
		return b
	}
	return e.appendOpen(b)
}

func (e *toyEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	choice := &c.Choices[0]
	switch {
	case e.format.textOnly:
		return append(b, choice.Delta.Content...), nil
	case e.whole:
		e.joined.Add(c)
		return b, nil
	}
	return e.appendEvent(b, c), nil
}

func (e *toyEncoder) AppendEnd(b []byte, u *llm.Usage, _ llm.Extra) ([]byte, error) {
	switch {
	case e.format.textOnly:
		return b, nil
	case e.whole:
		r := e.joined.Response()
		r.Usage = u
		return llmhttp.AppendJSON(b, r)
	}
	b = e.appendEvent(b, map[string]any{"end": true, "choices": []any{}, "usage": u})
	return append(b, e.format.close...), nil
}

func (e *toyEncoder) AppendFailure(b []byte, failure *llm.Error) []byte {
	if e.format.textOnly {
		return b
	}
	return e.appendEvent(b, map[string]string{"failure": failure.Message})
}

// toyMutant returns a constructor of a test of a format that is made from the one of the
// given name by a change of its framing. Clients still expect the unchanged format.
func toyMutant(name string, change func(f *toyFormat)) func(testing.TB) *protocolTest {
	f := toyFormats[name]
	opts := f.options()
	change(&f)
	return func(testing.TB) *protocolTest { return newProtocolTest(f, opts) }
}

var framingMutants = []mutant[*protocolTest]{
	{"comments for clients that fail on them", "Silence", toyMutant("events without comments", func(f *toyFormat) { f.framing.KeepAlive = ": keep-alive\n" })},
	{"empty lines between lines of JSON", "Silence", toyMutant("lines of JSON", func(f *toyFormat) { f.framing.KeepAlive = "\n" })},
	{"comments in an array", "Silence", toyMutant("a growing array", func(f *toyFormat) { f.framing.KeepAlive = ": keep-alive\n" })},
	{"a value keeps an array alive, without a comma", "Silence", toyMutant("a growing array", func(f *toyFormat) { f.framing.KeepAlive = "{}" })},
	{"bytes keep raw bytes alive", "Silence", toyMutant("raw bytes", func(f *toyFormat) { f.framing.KeepAlive = "\n" })},
	{"an array without an end", kit.RandomCalls, toyMutant("a growing array", func(f *toyFormat) { f.close = "" })},
	{"an array with two ends", kit.RandomCalls, toyMutant("a growing array", func(f *toyFormat) { f.close = "]]" })},
	{"elements without commas", kit.RandomCalls, toyMutant("a growing array", func(f *toyFormat) { f.between = "\n" })},
	{"an array of another type", kit.RandomCalls, toyMutant("a growing array", func(f *toyFormat) { f.framing.ContentType = "text/event-stream" })},
	{"lines without line breaks", kit.RandomCalls, toyMutant("lines of JSON", func(f *toyFormat) { f.after = " " })},
	{"lines of server-sent events", kit.RandomCalls, toyMutant("lines of JSON", func(f *toyFormat) { f.before = "data: " })},
	{"a stream without a Content-Type", kit.RandomCalls, toyMutant("lines of JSON", func(f *toyFormat) { f.framing.ContentType = "" })},
	{"lines that fail and end cleanly", "ErrorInStream", toyMutant("lines of JSON", func(f *toyFormat) { f.framing.EndsCleanly = true })},
	{"raw bytes that fail and end cleanly", "ErrorInStream", toyMutant("raw bytes", func(f *toyFormat) { f.framing.EndsCleanly = true })},
	{"an end after a failure that is cut", "ErrorInStream", toyMutant("events that start early and end cleanly", func(f *toyFormat) { f.framing.EndsCleanly = false })},
}
