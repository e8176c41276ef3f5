package llm

import (
	"context"
	"errors"
	"iter"

	"github.com/llmhttp/llmhttp/internal/callctx"
)

var (
	errReaderStopped = errors.New("llmhttp: the reader of the stream has stopped")
	errNilChannel    = errors.New("llmhttp: the channel of FromChannel is nil")
)

// NewStream returns a stream that f writes with send, and that fails with the error of f. f runs
// while the stream is iterated over. send returns an error when the reader has stopped, for example
// because the client has left; f then returns, with any error. f must not call send concurrently,
// nor after it has returned.
//
// A Backend whose work is a sequence of steps, such as an agent, returns their errors to f in place
// of keeping track of what yield has returned.
func NewStream(f func(send func(*ChatChunk) error) error) ChatStream {
	return func(yield func(*ChatChunk, error) bool) {
		stopped := false
		err := f(func(c *ChatChunk) error {
			if stopped || !yield(c, nil) {
				stopped = true
				return errReaderStopped
			}
			return nil
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// FromChannel returns a stream of the values of a channel, such as that of a client of a model.
//
// open asks the model and returns the channel; its error is that of the stream. It is called when
// the stream is iterated over. Its context is done as soon as nobody needs the values any more: when
// the client has left, when ctx is done, and when the stream has ended otherwise. The sender must
// then stop, and must close the channel in every case. What it still sends is received and dropped,
// so that a sender that does not watch its context while it sends is not blocked forever.
//
// convert returns the chunk of a value, or an error, which ends the stream. A nil chunk is left out:
// it is for values that have nothing for the client.
//
// The stream ends when the channel is closed. It fails with the cause if ctx is done before that,
// and if the channel is nil.
//
// For clients without a channel there is [NewStream]: its send is called by their callback, or in
// the loop that receives from them.
func FromChannel[T any](ctx context.Context, open func(ctx context.Context) (<-chan T, error), convert func(T) (*ChatChunk, error)) ChatStream {
	return NewStream(func(send func(*ChatChunk) error) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		values, err := open(ctx)
		switch {
		case err != nil:
			return err
		case values == nil:
			return errNilChannel
		}
		defer func() {
			go func() {
				for range values {
				}
			}()
		}()
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case v, ok := <-values:
				if !ok {
					return context.Cause(ctx) // nil, or why the sender has stopped
				}
				c, err := convert(v)
				if err == nil && c != nil {
					err = send(c)
				}
				if err != nil {
					return err
				}
			}
		}
	})
}

// A ChatStream is the reply to a chat request: its chunks in order, and then at
// most one error. A stream that ends without either is an error too. A whole reply
// is a stream of one chunk: chunks are joined or streamed as the client asked.
//
// A ChatStream is iterated over at most once. It runs on the goroutine of the loop: yield returns
// when the chunk is on its way to the client, so a slow client slows the stream down, and returns
// false when the client has left or the request has ended for another reason. The Backend must then
// return. What it knows or can still find out of the usage it passes to [ReportUsage] before: see
// [ClientLeft].
//
// The stream's function should call yield on its own goroutine, as llmhttptest.TestBackend
// checks, because a loop may depend on it. Package llmhttp does not: it accepts calls on
// other goroutines, but not on several at the same time, nor after the function has
// returned.
//
// An error ends the stream; a chunk that is yielded together with an error is
// dropped. Before the first chunk an error becomes the HTTP status of the reply,
// unless the Backend was silent for so long that the stream has begun. Later it is
// an error event.
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
// was returned by join.Collect, join.Collect of the stream returns an equal response.
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

var errFailNil = errors.New("llmhttp: Fail was called with a nil error")

// Tee returns a stream that yields what s yields. Before that it calls f with each chunk, or with
// the error that ends s. When s has ended without an error, Tee calls f once more, with a nil chunk
// and a nil error: the reply is complete, unless the context of the request is done. If the reader
// of the stream stops, for example because the client has left, f is not called again.
//
// f must not change a chunk, and must not keep it after it has returned, because the reader may
// change it: a [ChatChunk.Clone] can be kept. f runs on the goroutine of the stream, which waits
// for it. The stream ends with the first error, and a chunk that is yielded together with an error
// is dropped.
//
// Tee is for what reads replies without changing them, such as a cache. textfilter.New changes
// texts.
func Tee(s ChatStream, f func(*ChatChunk, error)) ChatStream {
	if s == nil {
		s = Fail(callctx.ErrNilStream)
	}
	return func(yield func(*ChatChunk, error) bool) {
		for chunk, err := range s {
			if err != nil {
				f(nil, err)
				yield(nil, err)
				return
			}
			if chunk != nil { // a nil chunk is logged as a mistake
				f(chunk, nil)
			}
			if !yield(chunk, nil) {
				return
			}
		}
		f(nil, nil)
	}
}
