package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// A Backend answers chat requests. It may also implement other interfaces, such as
// [ModelLister] and [Embedder], without which a [Handler] answers 404 on their
// endpoints: a [Forwarder] has the methods of all of them. All methods must be safe
// for concurrent use.
type Backend interface {
	// Chat returns the reply to req. The work is done while the returned stream is iterated over,
	// not before, and must stop when ctx is done.
	//
	// A stream that ends without an error is a complete reply, unless ctx is done: then it need not
	// yield ctx's error. If req asks for several choices, the stream contains all of them. For an
	// unknown model the stream yields [ModelNotFound].
	//
	// A Usage that it yields is the total of the request so far, not that of a
	// chunk: the last one counts. A Backend that learns it in steps yields it after each step or
	// calls [ReportUsage], so that a client that leaves has paid for what was done. One that calls
	// models several times, such as an agent, tells each call with [StartCall].
	//
	// The Backend owns req and everything it points to.
	Chat(ctx context.Context, req *ChatRequest) ChatStream
}

// The BackendFunc type is an adapter to use an ordinary function as a
// [Backend].
type BackendFunc func(ctx context.Context, req *ChatRequest) ChatStream

// Chat returns f(ctx, req).
func (f BackendFunc) Chat(ctx context.Context, req *ChatRequest) ChatStream { return f(ctx, req) }

// A Forwarder is a [Backend] that forwards every call, including those of the
// optional interfaces, to another Backend. Embed it in a wrapper that changes
// some of the calls, or use it to call an optional method of any Backend:
//
//	models, err := llmhttp.Forwarder{Backend: b}.ListModels(ctx)
//
// If the wrapped Backend does not implement an optional interface, the methods of that interface
// return an error wrapping [errors.ErrUnsupported].
type Forwarder struct{ Backend }

func unsupported(what string) error {
	return fmt.Errorf("llmhttp: backend does not %s: %w", what, errors.ErrUnsupported)
}

// A ChatStream is the reply to a chat request: its chunks in order, and then at
// most one error. A stream that ends without either is an error too. A whole reply
// is a stream of one chunk: the Handler joins or streams the chunks as the client
// asked.
//
// A ChatStream is iterated over at most once. It runs on the goroutine of the loop: yield returns
// when the chunk is on its way to the client, so a slow client slows the stream down, and returns
// false when the client has left or the request has ended for another reason. The Backend must then
// return. What it knows or can still find out of the usage it passes to [ReportUsage] before: see
// [ClientLeft].
//
// The stream's function should call yield on its own goroutine, as llmhttptest.TestBackend
// checks, because a loop may depend on it. A Handler does not: it accepts calls on
// other goroutines, but not on several at the same time, nor after the function has
// returned.
//
// An error ends the stream; a chunk that is yielded together with an error is
// dropped. Before the first chunk an error becomes the HTTP status of the reply,
// unless the Backend was silent for so long that the stream has begun: see
// Options.KeepAlive and Framing.StartsEarly. Later it is an error event.
//
// The Backend must not use a chunk that it has yielded: the loop may change it and
// keep it.
type ChatStream = iter.Seq2[*ChatChunk, error]

// TextChunk returns a chunk that adds s to the first choice.
func TextChunk(s string) *ChatChunk {
	// One allocation instead of two (budget: stream, chunks ready at once).
	c := new(struct {
		ChatChunk
		choice [1]ChunkChoice
	})
	c.choice[0].Delta.Content = s
	c.Choices = c.choice[:]
	return &c.ChatChunk
}

// Reply returns a complete reply with the text s.
func Reply(s string) ChatStream {
	return func(yield func(*ChatChunk, error) bool) {
		c := TextChunk(s)
		c.Choices[0].FinishReason = FinishStop
		yield(c, nil)
	}
}

// Fail returns a stream that fails with err. A nil err is a mistake, and the stream fails
// with an error that says so.
func Fail(err error) ChatStream {
	if err == nil {
		err = errFailNil
	}
	return func(yield func(*ChatChunk, error) bool) { yield(nil, err) }
}

// Stream returns r as a stream of one chunk, which shares the memory of r. If r
// was returned by [Collect], Collect of the stream returns an equal response.
func (r *ChatResponse) Stream() ChatStream {
	return func(yield func(*ChatChunk, error) bool) {
		c := &ChatChunk{ID: r.ID, Created: r.Created, Model: r.Model, Usage: r.Usage, Extra: r.Extra}
		for i := range r.Choices {
			c.Choices = append(c.Choices, r.Choices[i].chunk())
		}
		yield(c, nil)
	}
}

// chunk returns the choice as a choice of a chunk.
func (c *Choice) chunk() ChunkChoice {
	m := &c.Message
	out := ChunkChoice{
		Index:        c.Index,
		FinishReason: c.FinishReason,
		StopSequence: c.StopSequence,
		Extra:        c.Extra,
	}
	out.Delta = Delta{
		Role: m.Role, Reasoning: m.Reasoning, ReasoningAlias: m.ReasoningAlias, ReasoningDetails: m.ReasoningDetails,
		Content: m.Content.Text(), Refusal: m.Refusal, Extra: m.Extra,
	}
	for i, call := range m.ToolCalls {
		out.Delta.ToolCalls = append(out.Delta.ToolCalls,
			ToolCallDelta{Index: i, ID: call.ID, Type: call.Type, Function: call.Function, Extra: call.Extra})
	}
	return out
}

// Collect joins the chunks of s to a reply. If s fails, Collect returns its
// error, and what came before as a reply whose unfinished choices have no
// FinishReason. A choice with more than 1024 tool calls is an error, and so is a stream
// without a chunk.
//
// The choices are in the order of their indices; those with an index of 128 or more are dropped.
// Texts are concatenated, and so are members of a Delta's Extra that are strings. Arrays in Extra
// are concatenated and objects merged; of other values the last one is kept.
func Collect(s ChatStream) (*ChatResponse, error) {
	j := new(Joiner)
	o := orderer{sink: j, choiceLimit: maxChoices}
	began := false
	for chunk, err := range s {
		if err != nil {
			o.emitHeld()
			return o.response(j), err
		}
		began = began || chunk != nil
		if o.add(chunk); o.err != nil {
			return o.response(j), o.err
		}
	}
	o.emitHeld()
	if !began {
		return o.response(j), errNoChunk
	}
	return o.response(j), nil
}

// response returns what j has joined, as the reply that the chunks have identified.
func (o *orderer) response(j *Joiner) *ChatResponse {
	r := j.Response()
	r.ID, r.Created, r.Model = o.start.id, o.start.created, o.start.model
	r.Usage, r.Extra = o.usage, mergeExtra(r.Extra, o.endExtra())
	return r
}
