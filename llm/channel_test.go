package llm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// convertNumber makes a chunk of a number. 0 is not for the client, and a negative number fails.
func convertNumber(n int) (*llm.ChatChunk, error) {
	switch {
	case n == 0:
		return nil, nil
	case n < 0:
		return llm.TextChunk("dropped"), fmt.Errorf("number %d", n)
	}
	return llm.TextChunk(fmt.Sprint(n)), nil
}

// send returns a function for FromChannel whose sender sends numbers and closes the channel. It
// does not watch its context.
func send(numbers ...int) func(context.Context) (<-chan int, error) {
	return func(context.Context) (<-chan int, error) {
		ch := make(chan int)
		go func() {
			defer close(ch)
			for _, n := range numbers {
				ch <- n
			}
		}()
		return ch, nil
	}
}

// Each bubble fails if a sender is left behind.
func TestFromChannel(t *testing.T) {
	errOpen := errors.New("the model is away")
	for name, test := range map[string]struct {
		open  func(context.Context) (<-chan int, error)
		reads int // the reader leaves after these
		want  []string
		err   string
	}{
		"closed":                    {send(1, 2), 9, []string{"1", "2"}, ""},
		"empty":                     {send(), 9, nil, ""},
		"nil chunks":                {send(0, 1, 0, 2, 0), 9, []string{"1", "2"}, ""},
		"error":                     {send(1, -2, 3, 4), 9, []string{"1"}, "number -2"},
		"reader leaves":             {send(1, 2, 3, 4), 2, []string{"1", "2"}, ""},
		"reader leaves at the end":  {send(1, 2), 2, []string{"1", "2"}, ""},
		"open fails":                {func(context.Context) (<-chan int, error) { return nil, errOpen }, 9, nil, errOpen.Error()},
		"open fails with a channel": {func(context.Context) (<-chan int, error) { return make(chan int), errOpen }, 9, nil, errOpen.Error()},
		"nil channel":               {func(context.Context) (<-chan int, error) { return nil, nil }, 9, nil, "llmhttp: the channel of FromChannel is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opened context.Context
				stream := llm.FromChannel(t.Context(), func(ctx context.Context) (<-chan int, error) {
					opened = ctx
					return test.open(ctx)
				}, convertNumber)
				assert.Nil(t, opened, "opened before it is read")
				var got []string
				failure := ""
				for c, err := range stream {
					if err != nil {
						failure = err.Error()
						continue
					}
					if got = append(got, c.Choices[0].Delta.Content); len(got) == test.reads {
						break
					}
				}
				assert.Equal(t, test.want, got)
				assert.Equal(t, test.err, failure)
				require.NotNil(t, opened)
				assert.Error(t, opened.Err(), "the sender is not told that the stream has ended")
			})
		})
	}
}

// A context that is done ends the stream with its cause, whether the sender hangs, or closes the
// channel as if it were the end.
func TestFromChannel_ContextDone(t *testing.T) {
	errCause := errors.New("the client has left")
	for name, watches := range map[string]bool{"the sender closes": true, "the sender hangs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(errCause) })
				began := time.Now()
				var got []string
				for c, err := range llm.FromChannel(ctx, func(ctx context.Context) (<-chan int, error) {
					ch := make(chan int)
					go func() {
						defer close(ch)
						ch <- 1
						if watches {
							<-ctx.Done()
						} else {
							time.Sleep(time.Hour)
							ch <- 2
						}
					}()
					return ch, nil
				}, convertNumber) {
					if err != nil {
						assert.Same(t, errCause, err)
						got = append(got, "failed")
						continue
					}
					got = append(got, c.Choices[0].Delta.Content)
				}
				assert.Equal(t, []string{"1", "failed"}, got)
				assert.Equal(t, time.Second, time.Since(began))
				time.Sleep(2 * time.Hour) // until the sender has ended
			})
		})
	}
}

// A panic of the reader or of convert ends the sender, too.
func TestFromChannel_Panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.PanicsWithValue(t, "reader", func() {
			for range llm.FromChannel(t.Context(), send(1, 2, 3), convertNumber) {
				panic("reader")
			}
		})
		assert.PanicsWithValue(t, "convert", func() {
			for range llm.FromChannel(t.Context(), send(1, 2, 3), func(int) (*llm.ChatChunk, error) { panic("convert") }) {
			}
		})
	})
}

// A channel that is closed when the context is already done is not taken for the end of a complete
// reply, whichever of both the stream sees first.
func TestFromChannel_ClosedAfterContext(t *testing.T) {
	errCause := errors.New("the client has left")
	for range 64 {
		ctx, cancel := context.WithCancelCause(t.Context())
		var last error
		for _, err := range llm.FromChannel(ctx, func(context.Context) (<-chan int, error) {
			ch := make(chan int, 1)
			ch <- 1
			close(ch)
			return ch, nil
		}, func(n int) (*llm.ChatChunk, error) {
			cancel(errCause)
			return convertNumber(n)
		}) {
			last = err
		}
		require.Same(t, errCause, last)
	}
}
