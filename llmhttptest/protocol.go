// TestProtocol, its options and what its checks share.

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
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// ProtocolOptions describe the clients of a [llmhttp.Protocol] to
// [TestProtocol]: how they request a chat and how they read the reply.
type ProtocolOptions struct {
	// Path is where clients POST chat requests.
	Path string

	// Request returns the body of a valid request for the model "m" with one user message. If
	// choices is more than 1, it asks for that many.
	Request func(stream bool, choices int) []byte

	// Authorize makes r present secret.
	Authorize func(r *http.Request, secret string)

	// WholeType and StreamType are the Content-Types of whole replies and of streams, without
	// parameters. Empty means application/json and text/event-stream.
	WholeType, StreamType string

	// Split divides a stream into events as strict clients do. cut tells whether the
	// connection was cut before the end of the stream. Nil means [SplitEvents].
	Split func(stream []byte, cut bool) ([]Event, error)

	// EndsCleanly reports whether clients expect a clean end after a failure in a
	// stream, as Framing.EndsCleanly promises. If false, they expect a cut.
	EndsCleanly bool

	// TextOnly is for formats whose replies have the text of the first choice and nothing
	// else.
	TextOnly bool

	// Choices is the largest number of choices a client can ask for. Zero means 1;
	// negative means no limit.
	Choices int

	// ReadWhole decodes a whole reply. ReadStream decodes a stream, and returns
	// an error if it is incomplete or if a strict client would refuse it, for
	// example because events are in the wrong order. The kit compares the text,
	// reasoning, tool calls, FinishReason and token counts of both results. Arguments of
	// calls must be as the model wrote them, even if they were cut or are not JSON.
	ReadWhole  func(body []byte) (*llm.ChatResponse, error)
	ReadStream func(events []Event) (*llm.ChatResponse, error)

	// ReadError returns the message of an error reply. ReadFailure returns the
	// message of the error at the end of a stream, which may have no events. It is nil if
	// only the cut tells that a stream has failed.
	ReadError   func(body []byte) (message string, err error)
	ReadFailure func(events []Event) (message string, err error)
}

// An Event is a part of a stream, such as a server-sent event.
type Event struct {
	Name string // of a server-sent event; "" if it has none
	Data string
}

// TestProtocol tests a [llmhttp.Protocol] by serving chats with it, whole and
// streamed. The Backend yields chunks in many orders, including ones that the
// Handler must correct. If p is nil, the kit tests chat completions.
//
// The kit checks that keys are found, that malformed bodies and members that the Handler does
// not allow are refused, that streams are well-formed, also when the Backend is
// silent, that whole and streamed replies agree with what the Backend yielded, and that
// clients receive errors before a reply and during a stream. Streams may be server-sent
// events or have another Framing: see ProtocolOptions.Split.
func TestProtocol(t *testing.T, p llmhttp.Protocol, opts ProtocolOptions) {
	t.Helper()
	newTest := func(testing.TB) *protocolTest { return newProtocolTest(p, opts) }
	t.Run(kit.RandomCalls, func(t *testing.T) { protocolSequences.Run(t, newTest) })
	runChecks(t, protocolChecks, newTest)
}

func newProtocolTest(p llmhttp.Protocol, opts ProtocolOptions) *protocolTest {
	opts.Choices = option.Bound(opts.Choices, 1)
	opts.WholeType, opts.StreamType = cmp.Or(opts.WholeType, "application/json"), cmp.Or(opts.StreamType, "text/event-stream")
	if opts.Split == nil {
		opts.Split = SplitEvents
	}
	return &protocolTest{protocol: p, opts: opts}
}

// A protocolTest is the Protocol that a check tests.
type protocolTest struct {
	protocol llmhttp.Protocol
	opts     ProtocolOptions
	wrap     func(http.Handler) http.Handler // for mutants; may be nil
}

// refusedMember is a member that the Handler of a check refuses, besides those that Handlers
// refuse by default.
const refusedMember = "x_refused"

const protocolSecret = "sk-protocol-0123456789abcdef"

// A protocolReply is what a client received.
type protocolReply struct {
	status int
	header http.Header
	body   []byte
	cut    bool // the connection was closed before the reply was complete
}

// newHandler returns a Handler whose Backend replies with stream, and whose streams may be
// silent for keepAlive.
func (p *protocolTest) newHandler(stream llm.ChatStream, keepAlive time.Duration) http.Handler {
	backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return stream })
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != protocolSecret {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &llmhttp.Key{ID: "key"}, nil
	})
	options := &llmhttp.Options{
		Logger: slog.New(slog.DiscardHandler), // the checks provoke errors
		Bounds: llmhttp.Bounds{KeepAlive: keepAlive},
		Accept: llmhttp.AcceptOptions{UnknownMembers: func(name string) bool { return name != refusedMember && llmhttp.DefaultUnknownMembers(name) }},
	}
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
func (p *protocolTest) post(t testing.TB, stream llm.ChatStream, body []byte, authorize func(*http.Request)) protocolReply {
	t.Helper()
	server := httptest.NewServer(p.newHandler(stream, 0))
	defer server.Close()
	r := p.newRequest(t, server.URL, body)
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

func (p *protocolTest) newRequest(t testing.TB, server string, body []byte) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+p.opts.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// serveSilent requests a stream from a Handler whose Backend replies with stream, and keeps
// the client's connection alive very often. There is no network, so that the check can run in
// a bubble of testing/synctest, where stream may sleep without a loss of time.
func (p *protocolTest) serveSilent(t testing.TB, stream llm.ChatStream) protocolReply {
	t.Helper()
	r := p.newRequest(t, "http://localhost", p.opts.Request(true, 1))
	p.authorize(r)
	w := httptest.NewRecorder()
	cut := func() (cut bool) {
		defer func() { cut = recover() == http.ErrAbortHandler }()
		p.newHandler(stream, silence/4).ServeHTTP(w, r)
		return false
	}()
	return protocolReply{w.Code, w.Header(), w.Body.Bytes(), cut}
}

// silence is how long a Backend is silent for serveSilent.
const silence = 20 * time.Millisecond

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
// with yielded, the reply that chunks make.
func (p *protocolTest) wantSameReplies(t testing.TB, chunks []*llm.ChatChunk, choices int, yielded *llm.ChatResponse) {
	t.Helper()
	post := func(stream bool) protocolReply {
		return p.post(t, streamOf(chunks), p.opts.Request(stream, choices), p.authorize)
	}
	whole, streamed := post(false), post(true)
	if !whole.wantComplete(t, "the whole reply", p.opts.WholeType) ||
		!streamed.wantComplete(t, "the stream", p.opts.StreamType) {
		return
	}
	fromWhole, err := p.opts.ReadWhole(whole.body)
	if err != nil {
		kit.Wrong(t, fmt.Sprintf("ReadWhole of %.500s", whole.body), err, nil)
		return
	}
	fromStream, err := p.opts.ReadStream(p.split(t, streamed))
	if err != nil {
		kit.Wrong(t, "ReadStream", fmt.Sprintf("the error %v for %.500q", err, streamed.body), nil)
		return
	}
	if a, b := p.describeReply(fromWhole, fromWhole), p.describeReply(fromStream, fromWhole); a != b {
		kit.Wrong(t, "ReadStream", b, a+", as the whole reply")
	}
	if got, want := p.describeReply(fromWhole, yielded), p.describeReply(yielded, yielded); got != want {
		kit.Wrong(t, "ReadWhole", got, want+", as yielded")
	}
}

// wantComplete reports an error, and returns false, unless r has the status 200 and was not
// cut. It also reports an error unless the Content-Type begins with contentType. what describes r.
func (r protocolReply) wantComplete(t testing.TB, what, contentType string) (ok bool) {
	t.Helper()
	if r.status != http.StatusOK || r.cut {
		kit.Wrong(t, "a chat", fmt.Sprintf("%s has the status %d, and is cut: %t", what, r.status, r.cut), "200 and false")
		return false
	}
	if ct := r.header.Get("Content-Type"); !strings.HasPrefix(ct, contentType) {
		kit.Wrong(t, "a chat", fmt.Sprintf("%s has the Content-Type %q", what, ct), contentType)
	}
	return true
}

// describeReply describes the parts of r that the kit compares with reference. It leaves
// out what a Handler adds and reference lacks: an empty choice if there is none, the
// FinishReason of an unfinished choice, and an estimated Usage.
func (p *protocolTest) describeReply(r, reference *llm.ChatResponse) string {
	if p.opts.TextOnly {
		return fmt.Sprintf("%q", textOf(r))
	}
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

// textOf returns the text of the first choice of r, if there is one.
func textOf(r *llm.ChatResponse) string {
	if len(r.Choices) == 0 {
		return ""
	}
	return r.Choices[0].Message.Content.Text()
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

// split divides a stream into events and reports faults in it.
func (p *protocolTest) split(t testing.TB, r protocolReply) []Event {
	t.Helper()
	events, err := p.opts.Split(r.body, r.cut)
	if err != nil {
		kit.Wrong(t, "a chat", fmt.Sprintf("a stream that is not well-formed: %v; it is %.500q", err, r.body), "what Split accepts")
	}
	return events
}
