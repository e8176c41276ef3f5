package llmhttptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
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

	// Choices is the largest number of choices a client can ask for. Zero means 1.
	Choices int

	// ReadWhole decodes a whole reply. ReadStream decodes a stream, and returns
	// an error if it is incomplete or if a strict client would refuse it, for
	// example because events are in the wrong order. The kit compares the text,
	// reasoning, tool calls, FinishReason and token counts of both results.
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
	if opts.Choices == 0 {
		opts.Choices = 1
	}
	runChecks(t, protocolChecks, func(testing.TB) *protocolTest { return &protocolTest{protocol: p, opts: opts} })
}

// A protocolTest is the Protocol that a check tests.
type protocolTest struct {
	protocol llmhttp.Protocol
	opts     ProtocolOptions
	wrap     func(http.Handler) http.Handler // for mutants; may be nil
}

var protocolChecks = []check[*protocolTest]{
	withCause("Keys", "Protocol.Secret reads another header than clients set.", checkProtocolKeys),
	withCause("MalformedBody", "Route.Chat does not validate the body, or returns an error other than an *Error with status 400.", checkProtocolBody),
	withCause("ErrorBeforeReply", "AppendError loses the message, or returns another status.", checkProtocolError),
	withCause("ErrorInStream", "AppendFailure does not append an event that clients read as an error.", checkProtocolFailure),
	withCause("ChosenOrders", "the ChatEncoder relies on an order of chunks that ChatEncoder does not promise.", checkProtocolOrders),
	withCause("RandomOrders", "an unusual order of chunks; the seed repeats it.", checkProtocolRandom),
}

const protocolSecret = "sk-protocol-0123456789abcdef"

// A protocolReply is what a client received.
type protocolReply struct {
	status int
	header http.Header
	body   []byte
	cut    bool // the connection was closed before the reply was complete
}

// ask sends a request to a Handler whose Backend answers with stream.
func (p *protocolTest) ask(t testing.TB, stream llmhttp.ChatStream, body []byte, authorize func(*http.Request)) protocolReply {
	t.Helper()
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
	var h http.Handler = llmhttp.NewHandler(backend, keys, options)
	if p.wrap != nil {
		h = p.wrap(h)
	}
	server := httptest.NewServer(h)
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

func checkProtocolKeys(t testing.TB, p *protocolTest) {
	body := p.opts.Request(false, 1)
	p.wantError(t, p.ask(t, llmhttp.Reply("Hi"), body, func(*http.Request) {}), http.StatusUnauthorized)
	p.wantError(t, p.ask(t, llmhttp.Reply("Hi"), body, func(r *http.Request) { p.opts.Authorize(r, "sk-unknown") }), http.StatusUnauthorized)
	if r := p.ask(t, llmhttp.Reply("Hi"), body, p.authorize); r.status != http.StatusOK {
		t.Errorf("the status with a valid key is %d, want 200; the body is %s", r.status, r.body)
	}
}

func checkProtocolBody(t testing.TB, p *protocolTest) {
	for _, body := range []string{``, `{`, `null`, `[]`, `{}`, `{"model":1}`, `{"model":"m","model":"m"}`} {
		p.wantError(t, p.ask(t, llmhttp.Reply("Hi"), []byte(body), p.authorize), http.StatusBadRequest)
	}
}

func checkProtocolError(t testing.TB, p *protocolTest) {
	const message = "The dog ate the model."
	for _, stream := range []bool{false, true} {
		r := p.ask(t, llmhttp.Fail(llmhttp.Errorf(http.StatusConflict, "dog", message)), p.opts.Request(stream, 1), p.authorize)
		if got := p.wantError(t, r, http.StatusConflict); got != message {
			t.Errorf("the message of an error before the reply is %q with stream %t, want %q", got, stream, message)
		}
	}
	r := p.ask(t, llmhttp.Fail(errors.New("a secret cause")), p.opts.Request(false, 1), p.authorize)
	if got := p.wantError(t, r, http.StatusInternalServerError); strings.Contains(got, "secret") {
		t.Errorf("the message is %q, want it not to reveal an error that is not an *llmhttp.Error", got)
	}
}

func checkProtocolFailure(t testing.TB, p *protocolTest) {
	const message = "The dog ate the rest."
	stream := func(yield func(*llmhttp.ChatChunk, error) bool) {
		if yield(llmhttp.TextChunk("Hello"), nil) {
			yield(nil, llmhttp.Errorf(http.StatusServiceUnavailable, "dog", message))
		}
	}
	r := p.ask(t, stream, p.opts.Request(true, 1), p.authorize)
	if r.status != http.StatusOK {
		t.Errorf("the status of a stream that fails later is %d, want 200", r.status)
	}
	if !r.cut {
		t.Error("the connection was not closed early, want that, so that no client takes the reply for complete")
	}
	events := parseEvents(t, r.body)
	got, err := p.opts.ReadFailure(events)
	if err != nil || got != message {
		t.Errorf("ReadFailure returned %q and the error %v, want %q", got, err, message)
	}
	if _, err := p.opts.ReadStream(events); err == nil {
		t.Error("ReadStream returned no error for a stream that failed, want one")
	}
}

// chosenOrders returns streams that have broken clients or servers before, or
// that the Handler must correct.
func chosenOrders() map[string][]*llmhttp.ChatChunk {
	text := llmhttp.TextChunk
	call := func(index int, id, name, arguments string) *llmhttp.ChatChunk {
		c := text("")
		c.Choices[0].Delta.ToolCalls = []llmhttp.ToolCallDelta{
			{Index: index, ID: id, Function: llmhttp.FunctionCall{Name: name, Arguments: arguments}},
		}
		return c
	}
	reason := func(s string) *llmhttp.ChatChunk {
		c := text("")
		c.Choices[0].Delta.Reasoning = s
		return c
	}
	finish := func(r llmhttp.FinishReason) *llmhttp.ChatChunk {
		c := text("")
		c.Choices[0].FinishReason = r
		return c
	}
	usage := func(prompt, completion int) *llmhttp.ChatChunk {
		return &llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: prompt, CompletionTokens: completion}}
	}
	return map[string][]*llmhttp.ChatChunk{
		"nothing":                  nil,
		"only usage":               {usage(3, 0)},
		"one chunk":                {text("Hello"), finish(llmhttp.FinishStop)},
		"no finish reason":         {text("Hel"), text("lo")},
		"length":                   {text("Hel"), finish(llmhttp.FinishLength)},
		"content filter":           {text("Hel"), finish(llmhttp.FinishContentFilter)},
		"text after the end":       {text("Hello"), finish(llmhttp.FinishStop), text(" again")},
		"cut characters":           {text("\xf0\x9f"), text("\x99\x82 \xe6\x9d"), text("\xb1"), text("\xe4")},
		"a long text":              {text(strings.Repeat("0123456789é", 5000))},
		"line breaks":              {text("a\nb\r\nc\u2028d\u2029e\u0085f")},
		"usage before the text":    {usage(3, 4), text("Hello"), finish(llmhttp.FinishStop)},
		"usage twice":              {text("Hello"), usage(3, 1), finish(llmhttp.FinishStop), usage(3, 4)},
		"reasoning, then text":     {reason("Let me "), reason("see."), text("Hello"), finish(llmhttp.FinishStop)},
		"reasoning between text":   {text("Hel"), reason("Hmm."), text("lo"), finish(llmhttp.FinishStop)},
		"a call":                   {call(0, "call_1", "f", `{"a":`), call(0, "", "", `1}`), finish(llmhttp.FinishToolCalls)},
		"text, then a call":        {text("Wait."), call(0, "call_1", "f", `{}`), finish(llmhttp.FinishToolCalls)},
		"a call, then text":        {call(0, "call_1", "f", `{}`), text("Done."), finish(llmhttp.FinishToolCalls)},
		"a call without arguments": {call(0, "call_1", "f", ``), finish(llmhttp.FinishToolCalls)},
		"parallel calls":           {call(0, "call_1", "f", `{}`), call(1, "call_2", "g", `{"b":2}`), finish(llmhttp.FinishToolCalls)},
		"interleaved calls": {call(0, "call_1", "f", `{"a":`), call(1, "call_2", "g", `{"b":`), call(0, "", "", `1}`),
			call(1, "", "", `2}`), finish(llmhttp.FinishToolCalls)},
		"indices with gaps":       {call(3, "call_1", "f", `{}`), call(7, "call_2", "g", `{}`)},
		"repeated IDs and names":  {call(0, "call_1", "f", `{"a":`), call(0, "call_1", "f", `1}`)},
		"all indices zero":        {call(0, "call_1", "f", `{}`), call(0, "call_2", "g", `{}`)},
		"calls without IDs":       {call(0, "", "f", `{"a":1}`), call(0, "", "f", `{"a":2}`)},
		"a name after arguments":  {call(0, "call_1", "", `{"a":`), call(0, "", "f", `1}`)},
		"reasoning between calls": {call(0, "call_1", "f", `{}`), reason("And."), call(1, "call_2", "g", `{}`)},
		"several in one chunk":    {{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Content: "Hi", Reasoning: "Hm"}, FinishReason: llmhttp.FinishStop}}, Usage: &llmhttp.Usage{PromptTokens: 1, CompletionTokens: 2}}},
		"a choice not asked for":  {text("Hi"), {Choices: []llmhttp.ChunkChoice{{Index: 200, Delta: llmhttp.Delta{Content: "x"}}}}},
		"nil chunks":              {nil, text("Hi"), nil},
	}
}

func checkProtocolOrders(t testing.TB, p *protocolTest) {
	for name, chunks := range chosenOrders() {
		p.compare(t, name, chunks, 1)
	}
}

func checkProtocolRandom(t testing.TB, p *protocolTest) {
	random := newRand(t)
	for i := range 60 {
		choices := 1 + random.IntN(min(p.opts.Choices, 3)) // with more, few choices have several chunks
		p.compare(t, fmt.Sprintf("random stream %d", i), randomChunks(random, choices), choices)
	}
}

// randomChunks returns chunks of random content in random order.
func randomChunks(random *rand.Rand, choices int) []*llmhttp.ChatChunk {
	pieces := []string{"a", "Hello ", "é", "\xf0\x9f\x99", "\x82", "東", "\n", `"`, "\\", "{", "}"}
	var chunks []*llmhttp.ChatChunk
	calls := make([]int, choices)
	for range random.IntN(12) {
		c := llmhttp.ChunkChoice{Index: random.IntN(choices)}
		switch random.IntN(6) {
		case 0, 1, 2:
			c.Delta.Content = pieces[random.IntN(len(pieces))]
		case 3:
			c.Delta.Reasoning = pieces[random.IntN(len(pieces))]
		case 4:
			n := calls[c.Index]
			calls[c.Index]++
			c.Delta.ToolCalls = []llmhttp.ToolCallDelta{{Index: n, ID: fmt.Sprintf("call_%d_%d", c.Index, n),
				Function: llmhttp.FunctionCall{Name: "f", Arguments: `{"n":` + fmt.Sprint(n) + `}`}}}
		case 5:
			if random.IntN(3) == 0 {
				c.FinishReason = llmhttp.FinishLength
			}
		}
		chunks = append(chunks, &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{c}})
	}
	return append(chunks, &llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: random.IntN(100), CompletionTokens: 1 + random.IntN(100)}})
}

// compare requests chunks as a whole reply and as a stream, and compares both
// with what [llmhttp.Collect] returns for chunks.
func (p *protocolTest) compare(t testing.TB, name string, chunks []*llmhttp.ChatChunk, choices int) {
	t.Helper()
	whole := p.ask(t, streamOf(chunks), p.opts.Request(false, choices), p.authorize)
	streamed := p.ask(t, streamOf(chunks), p.opts.Request(true, choices), p.authorize)
	for _, r := range []struct {
		what, contentType string
		protocolReply
	}{{"the whole reply", "application/json", whole}, {"the stream", "text/event-stream", streamed}} {
		if r.status != http.StatusOK || r.cut {
			t.Errorf("%s: the status of %s is %d and cut is %t, want 200 and false", name, r.what, r.status, r.cut)
			return
		}
		if ct := r.header.Get("Content-Type"); !strings.HasPrefix(ct, r.contentType) {
			t.Errorf("%s: the Content-Type of %s is %q, want %s", name, r.what, ct, r.contentType)
		}
	}
	a, err := p.opts.ReadWhole(whole.body)
	if err != nil {
		t.Errorf("%s: ReadWhole returned the error %v, want nil; the body is %s", name, err, whole.body)
		return
	}
	b, err := p.opts.ReadStream(parseEvents(t, streamed.body))
	if err != nil {
		t.Errorf("%s: ReadStream returned the error %v, want nil; the stream is %s", name, err, streamed.body)
		return
	}
	if whole, stream := describeReply(a, a), describeReply(b, a); whole != stream {
		t.Errorf("%s: the whole reply is %s, and the stream %s; want them to be equal", name, whole, stream)
	}
	yielded, _ := llmhttp.Collect(streamOf(chunks))
	if got, want := describeReply(a, yielded), describeReply(yielded, yielded); got != want {
		t.Errorf("%s: the whole reply is %s, want %s as yielded", name, got, want)
	}
}

// streamOf returns a stream of copies of chunks, because a Handler may change the
// chunks that it receives.
func streamOf(chunks []*llmhttp.ChatChunk) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		for _, c := range chunks {
			if !yield(copyChunk(c), nil) {
				return
			}
		}
	}
}

func copyChunk(c *llmhttp.ChatChunk) *llmhttp.ChatChunk {
	if c == nil {
		return nil
	}
	n := *c
	n.Choices = slices.Clone(c.Choices)
	for i := range n.Choices {
		d := &n.Choices[i].Delta
		d.ToolCalls = slices.Clone(d.ToolCalls)
	}
	return &n
}

// describeReply describes what the kit compares of a reply. It leaves out what a
// Handler adds to known: an empty choice if there is none, the FinishReason of an
// unfinished choice, and an estimated Usage.
func describeReply(r, known *llmhttp.ChatResponse) string {
	var b strings.Builder
	for i := range r.Choices {
		if len(known.Choices) == 0 {
			break
		}
		c := &r.Choices[i]
		fmt.Fprintf(&b, "[%d text %q reasoning %q", c.Index, c.Message.Content.Text(), c.Message.Reasoning)
		for _, call := range c.Message.ToolCalls {
			fmt.Fprintf(&b, " call %s(%s)", call.Function.Name, compactArguments(call.Function.Arguments))
		}
		if i < len(known.Choices) && known.Choices[i].FinishReason != "" {
			fmt.Fprintf(&b, " %s", c.FinishReason)
		}
		b.WriteString("]")
	}
	if r.Usage != nil && known.Usage != nil {
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
