// A run of an agent on a goroutine of its own, whose parts write to one reply. Stream is for frameworks
// with callbacks; llm.FromChannel is for those with a channel.

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

var (
	errReaderStopped = errors.New("agent: the reader of the reply has stopped")
	errRunEnded      = errors.New("agent: the run of the Writer has ended")
	errGoexit        = errors.New("agent: the run called runtime.Goexit")
	errNothingToDo   = errors.New("agent: Stream without a function")
)

// StreamOptions configure a [Stream]. A nil *StreamOptions is the zero value.
type StreamOptions struct {
	// FinishWithin is how long a run may go on after the client has left, so that what it has begun
	// is finished. Its context then ends after that time, or when the request ends for another
	// reason, such as a timeout or a shutdown; what it writes is dropped. Zero or negative means
	// that the context ends when the client leaves. Either way the request is recorded once, when the
	// run has returned, with what all its calls have used and cost.
	FinishWithin time.Duration
}

// Stream returns a stream that run writes: the reply of an agent whose framework calls back.
//
//	return agent.Stream(ctx, nil, func(ctx context.Context, w *agent.Writer) error {
//		return framework.Run(ctx, question, framework.OnText(w.Text), framework.OnTool(w.Progress))
//	})
//
// run is called when the stream is iterated over, on a goroutine of its own. Its context is done when
// the client has left, unless StreamOptions.FinishWithin is set, and when ctx is done for another
// reason, or the loop over the stream panics; run must then return soon. The same context, and those that derive from it, are for
// [Progress]. The error of run is that of the stream; a panic of run continues on the goroutine of the
// stream. ctx is that of the request, so that calls of [llm.StartCall] with the context of run are
// priced and summed. opts may be nil.
func Stream(ctx context.Context, opts *StreamOptions, run func(ctx context.Context, w *Writer) error) llm.ChatStream {
	if run == nil {
		return llm.Fail(errNothingToDo)
	}
	var o StreamOptions
	if opts != nil {
		o = *opts
	}
	return func(yield func(*llm.ChatChunk, error) bool) {
		w := &Writer{chunks: make(chan *llm.ChatChunk), taken: make(chan error), ended: make(chan struct{})}
		runCtx, cancel := o.runContext(ctx)
		defer cancel(nil)
		done := make(chan outcome, 1)
		go func() {
			end := outcome{err: errGoexit}
			defer func() {
				if v := recover(); v != nil {
					end.panicked = withStack(v)
				}
				done <- end
			}()
			end.err = run(context.WithValue(runCtx, writerKey{}, w), w)
		}()
		stopped := false  // yield has returned false
		returned := false // run has
		defer func() {
			if !returned { // yield has panicked
				cancel(errReaderStopped)
				close(w.ended)
				<-done
			}
		}()
		for {
			select {
			case c := <-w.chunks:
				if !stopped && !yield(c, nil) {
					stopped = true
					if _, left := llm.ClientLeft(ctx); !left || o.FinishWithin <= 0 {
						cancel(errReaderStopped)
					}
				}
				if stopped && runCtx.Err() != nil {
					w.taken <- errReaderStopped
				} else {
					w.taken <- nil
				}
			case end := <-done:
				returned = true
				close(w.ended)
				if end.panicked != nil {
					panic(*end.panicked)
				}
				if stopped {
					return
				}
				if end.err != nil {
					yield(nil, end.err)
				} else if last := w.last(); last != nil {
					yield(last, nil)
				}
				return
			}
		}
	}
}

// runContext returns the context of a run, which has the values of ctx.
func (o StreamOptions) runContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	if o.FinishWithin <= 0 {
		return context.WithCancelCause(ctx)
	}
	runCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		after, left := llm.ClientLeft(ctx)
		if !left {
			cancel(context.Cause(ctx))
			return
		}
		timer := time.AfterFunc(o.FinishWithin, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(after, func() { cancel(context.Cause(after)) })
		context.AfterFunc(runCtx, func() { timer.Stop() })
	})
	return runCtx, func(cause error) {
		stop()
		cancel(cause)
	}
}

// An outcome is how a run has ended.
type outcome struct {
	err      error
	panicked *any // its value, with the stack
}

type writerKey struct{}

// Progress shows the client how far a run has come, as reasoning: a tool that takes minutes calls it
// with the context that it gets, so that people know that it works. Text is added to what was
// shown before, so it should end with a line break.
//
// ctx is that of a run of a [Stream] or of a [Backend], or derives from it. With another context Progress
// does nothing. It returns an error if the run has ended or its reader has stopped: the caller then
// should return. It may be called concurrently.
func Progress(ctx context.Context, text string) error {
	w, ok := ctx.Value(writerKey{}).(*Writer)
	if !ok {
		return nil
	}
	return w.Progress(text)
}

// A Writer writes the reply of a run: see [Stream]. Its methods may be called concurrently, on any
// goroutine. They return when the chunk is on its way to the client, so a slow client slows them
// down. They return an error if the reader of the reply has stopped, after which the run should
// return, and if the run has ended.
type Writer struct {
	chunks chan *llm.ChatChunk
	taken  chan error    // answers each value of chunks
	ended  chan struct{} // closed when the run has ended, or its reader has panicked

	mu       sync.Mutex // guards the fields below, and is held while a chunk is sent
	model    string     // of chunks that have none
	calls    int        // that Calls has written
	hasCalls bool       // a chunk had some
	reason   llm.FinishReason
	finished bool // a chunk had a reason for the end
}

// Text adds a text to the reply. An empty text adds nothing.
func (w *Writer) Text(text string) error {
	if text == "" {
		return nil
	}
	return w.Send(llm.TextChunk(text))
}

// Progress adds a text that clients show as reasoning. An empty text adds nothing.
func (w *Writer) Progress(text string) error {
	if text == "" {
		return nil
	}
	return w.Send(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Reasoning: text, Progress: true}}}})
}

// Calls adds calls of tools that the client has. The client sends their results in its next request,
// so the run should then return nil.
func (w *Writer) Calls(calls ...llm.ToolCall) error {
	if len(calls) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var delta llm.Delta
	for _, call := range calls {
		delta.ToolCalls = append(delta.ToolCalls, llm.ToolCallDelta{
			Index: w.calls, ID: call.ID, Type: call.Type, Function: call.Function, Extra: call.Extra,
		})
		w.calls++
	}
	return w.send(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: delta}}})
}

// Finish sets why the reply ends when the run returns nil. Without it, or with "", the reason is
// tool_calls if the reply has calls, and otherwise stop.
func (w *Writer) Finish(reason llm.FinishReason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reason = reason
}

// Send adds a chunk. The Writer keeps it: the caller must not use it afterwards. Send is what
// [ForwardReply] takes.
func (w *Writer) Send(c *llm.ChatChunk) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.send(c)
}

// send sends c. The caller holds the mutex.
func (w *Writer) send(c *llm.ChatChunk) error {
	if c.Model == "" {
		c.Model = w.model
	}
	for i := range c.Choices {
		w.finished = w.finished || c.Choices[i].FinishReason != ""
		w.hasCalls = w.hasCalls || len(c.Choices[i].Delta.ToolCalls) > 0
	}
	select {
	case w.chunks <- c:
		select {
		case err := <-w.taken:
			return err
		case <-w.ended: // instead of an answer
			return errReaderStopped
		}
	case <-w.ended:
		return errRunEnded
	}
}

// setModel sets the model of later chunks.
func (w *Writer) setModel(model string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.model = model
}

// last returns the chunk that ends the reply of a run that has succeeded, or nil if it has ended it itself.
func (w *Writer) last() *llm.ChatChunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return nil
	}
	reason := w.reason
	switch {
	case reason != "":
	case w.hasCalls:
		reason = llm.FinishToolCalls
	default:
		reason = llm.FinishStop
	}
	return &llm.ChatChunk{Model: w.model, Choices: []llm.ChunkChoice{{FinishReason: reason}}}
}
