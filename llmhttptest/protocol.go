package llmhttptest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
)

// ProtocolOptions describe the clients of a [llmhttp.Protocol] to
// [TestProtocol]: how they request a chat and how they read the reply.
type ProtocolOptions struct {
	// Path is where clients POST chat requests.
	Path string

	// Request returns the body of a valid request for the model "m" with one
	// user message. If choices is more than 1, it asks for that many.
	Request func(stream bool, choices int) []byte

	// Authorize makes r present secret.
	Authorize func(r *http.Request, secret string)

	// FailsCleanly reports whether clients expect a clean end after a failure in a
	// stream: Route.FailsCleanly of the route of Path. If false, they expect a cut.
	FailsCleanly bool

	// Choices is the largest number of choices a client can ask for. Zero means 1.
	Choices int

	// ReadWhole decodes a whole reply. ReadStream decodes a stream, and returns
	// an error if it is incomplete or if a strict client would refuse it, for
	// example because events are in the wrong order. The kit compares the text,
	// reasoning, tool calls, FinishReason and token counts of both results. Arguments of
	// calls must be as the model wrote them, even if they were cut or are not JSON.
	ReadWhole  func(body []byte) (*llmhttp.ChatResponse, error)
	ReadStream func(events []Event) (*llmhttp.ChatResponse, error)

	// ReadError returns the message of an error reply. ReadFailure returns the
	// message of the error at the end of a stream, which may have no events.
	ReadError   func(body []byte) (message string, err error)
	ReadFailure func(events []Event) (message string, err error)
}

// An Event is a server-sent event.
type Event struct {
	Name string // "" if the event has no name
	Data string
}

// TestProtocol tests a [llmhttp.Protocol] by serving chats with it, whole and
// streamed. The Backend yields chunks in many orders, including ones that the
// Handler must correct. If p is nil, the kit tests chat completions.
//
// The kit checks that keys are found, that each frame of a stream is a
// well-formed event, that whole and streamed replies agree with what the Backend
// yielded, and that clients receive errors before a reply and during a stream.
func TestProtocol(t *testing.T, p llmhttp.Protocol, opts ProtocolOptions) {
	t.Helper()
	opts.Choices = cmp.Or(opts.Choices, 1)
	runChecks(t, protocolChecks, func(testing.TB) *protocolTest { return &protocolTest{protocol: p, opts: opts} })
}

// A protocolTest is the Protocol that a check tests.
type protocolTest struct {
	protocol llmhttp.Protocol
	opts     ProtocolOptions
	wrap     func(http.Handler) http.Handler // for mutants; may be nil
}

const protocolSecret = "sk-protocol-0123456789abcdef"

// A protocolReply is what a client received.
type protocolReply struct {
	status int
	header http.Header
	body   []byte
	cut    bool // the connection was closed before the reply was complete
}

// newHandler returns a Handler whose Backend replies with stream.
func (p *protocolTest) newHandler(stream llmhttp.ChatStream) http.Handler {
	backend := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return stream })
	keys := llmhttp.KeyFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != protocolSecret {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &llmhttp.Key{ID: "key"}, nil
	})
	options := &llmhttp.Options{Logger: slog.New(slog.DiscardHandler)} // the checks provoke errors
	if p.protocol != nil {
		options.Protocols = []llmhttp.Protocol{p.protocol}
	}
	h := llmhttp.NewHandler(backend, keys, options)
	if p.wrap != nil {
		return p.wrap(h)
	}
	return h
}

// post sends a request to a Handler whose Backend replies with stream.
func (p *protocolTest) post(t testing.TB, stream llmhttp.ChatStream, body []byte, authorize func(*http.Request)) protocolReply {
	t.Helper()
	server := httptest.NewServer(p.newHandler(stream))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+p.opts.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	authorize(r)
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatalf("the request returned the error %v, want a reply", err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("reading the reply returned the error %v, want none or io.ErrUnexpectedEOF", err)
	}
	return protocolReply{resp.StatusCode, resp.Header, got, err != nil}
}

func (p *protocolTest) authorize(r *http.Request) { p.opts.Authorize(r, protocolSecret) }

// wantError checks an error reply and returns its message.
func (p *protocolTest) wantError(t testing.TB, r protocolReply, status int) string {
	t.Helper()
	if r.status != status {
		t.Errorf("the status is %d, want %d; the body is %s", r.status, status, r.body)
	}
	if ct := r.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("the Content-Type of an error is %q, want application/json", ct)
	}
	message, err := p.opts.ReadError(r.body)
	if err != nil {
		t.Errorf("ReadError returned the error %v, want nil; the body is %s", err, r.body)
	}
	return message
}

// wantSameReplies requests chunks as a whole reply and as a stream, and compares both
// with what [llmhttp.Collect] returns for chunks.
func (p *protocolTest) wantSameReplies(t testing.TB, name string, chunks []*llmhttp.ChatChunk, choices int) {
	t.Helper()
	post := func(stream bool) protocolReply {
		return p.post(t, streamOf(chunks), p.opts.Request(stream, choices), p.authorize)
	}
	whole, streamed := post(false), post(true)
	if !whole.wantComplete(t, name, "the whole reply", "application/json") || !streamed.wantComplete(t, name, "the stream", "text/event-stream") {
		return
	}
	fromWhole, err := p.opts.ReadWhole(whole.body)
	if err != nil {
		t.Errorf("%s: ReadWhole returned the error %v, want nil; the body is %s", name, err, whole.body)
		return
	}
	fromStream, err := p.opts.ReadStream(parseEvents(t, streamed.body))
	if err != nil {
		t.Errorf("%s: ReadStream returned the error %v, want nil; the stream is %s", name, err, streamed.body)
		return
	}
	if a, b := describeReply(fromWhole, fromWhole), describeReply(fromStream, fromWhole); a != b {
		t.Errorf("%s: the whole reply is %s, and the stream %s; want them to be equal", name, a, b)
	}
	yielded, _ := llmhttp.Collect(streamOf(chunks))
	if got, want := describeReply(fromWhole, yielded), describeReply(yielded, yielded); got != want {
		t.Errorf("%s: the whole reply is %s, want %s as yielded", name, got, want)
	}
}

// wantComplete reports an error, and returns false, unless r has the status 200 and was not
// cut. It also reports an error unless the Content-Type begins with contentType. name and
// what describe r.
func (r protocolReply) wantComplete(t testing.TB, name, what, contentType string) (ok bool) {
	t.Helper()
	if r.status != http.StatusOK || r.cut {
		t.Errorf("%s: the status of %s is %d and cut is %t, want 200 and false", name, what, r.status, r.cut)
		return false
	}
	if ct := r.header.Get("Content-Type"); !strings.HasPrefix(ct, contentType) {
		t.Errorf("%s: the Content-Type of %s is %q, want %s", name, what, ct, contentType)
	}
	return true
}

// describeReply describes the parts of r that the kit compares with reference. It leaves
// out what a Handler adds and reference lacks: an empty choice if there is none, the
// FinishReason of an unfinished choice, and an estimated Usage.
func describeReply(r, reference *llmhttp.ChatResponse) string {
	var b strings.Builder
	for i := range r.Choices {
		if len(reference.Choices) == 0 {
			break
		}
		c := &r.Choices[i]
		fmt.Fprintf(&b, "[%d text %q reasoning %q", c.Index, c.Message.Content.Text(), c.Message.Reasoning)
		for _, call := range c.Message.ToolCalls {
			fmt.Fprintf(&b, " call %s(%s)", call.Function.Name, compactArguments(call.Function.Arguments))
		}
		if i < len(reference.Choices) && reference.Choices[i].FinishReason != "" {
			fmt.Fprintf(&b, " %s", c.FinishReason)
		}
		b.WriteString("]")
	}
	if r.Usage != nil && reference.Usage != nil {
		fmt.Fprintf(&b, " %d+%d tokens", r.Usage.PromptTokens, r.Usage.CompletionTokens)
	}
	return b.String()
}

// compactArguments returns JSON arguments without spaces. No arguments are
// equivalent to an empty object.
func compactArguments(s string) string {
	var b bytes.Buffer
	if s == "" {
		return "{}"
	}
	if json.Compact(&b, []byte(s)) != nil {
		return s
	}
	return b.String()
}

// parseEvents parses a stream and reports faults in it. Each event must have at
// most one name, then exactly one line of data, and end with an empty line.
// Comments are allowed between lines.
func parseEvents(t testing.TB, body []byte) []Event {
	t.Helper()
	var events []Event
	var e Event
	hasData := false
	for len(body) > 0 {
		line, rest, ok := bytes.Cut(body, []byte("\n"))
		if !ok {
			t.Errorf("the stream ends with %q, want a line break at its end", line)
		}
		body = rest
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case len(line) == 0:
			if !hasData {
				t.Error("an event has no data, want some; openai-python and openai-node fail otherwise")
			}
			events = append(events, e)
			e, hasData = Event{}, false
		case name == "":
		case name == "event" && e.Name == "" && !hasData:
			e.Name = value
		case name == "data" && !hasData:
			e.Data, hasData = value, true
			if value != "[DONE]" && !json.Valid([]byte(value)) {
				t.Errorf("the data of an event is %s, want valid JSON or [DONE]", value)
			}
		default:
			t.Errorf("an event has the line %q, want only one name and then one line of data", line)
		}
	}
	if hasData {
		t.Errorf("the last event %q has no empty line after it, want one", e.Data)
	}
	return events
}
