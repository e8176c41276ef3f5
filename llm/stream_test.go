package llm_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// teed reads a Tee of s, at most n chunks, and returns what its function got.
func teed(s llm.ChatStream, n int) (seen []string, got int) {
	for chunk, err := range llm.Tee(s, func(c *llm.ChatChunk, err error) {
		switch {
		case err != nil:
			seen = append(seen, "error "+err.Error())
		case c == nil:
			seen = append(seen, "end")
		default:
			seen = append(seen, c.Choices[0].Delta.Content)
		}
	}) {
		if err == nil && chunk != nil {
			got++
		}
		if n--; n == 0 {
			break
		}
	}
	return seen, got
}

func TestTee(t *testing.T) {
	chunks := func(err error) llm.ChatStream {
		return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
			_, _ = send(llm.TextChunk("a")), send(llm.TextChunk("b"))
			return err
		})
	}
	for name, test := range map[string]struct {
		stream llm.ChatStream
		reads  int
		want   []string
	}{
		"complete":     {chunks(nil), 9, []string{"a", "b", "end"}},
		"failure":      {chunks(errors.New("broken")), 9, []string{"a", "b", "error broken"}},
		"reader stops": {chunks(nil), 1, []string{"a"}},
		"nil stream":   {nil, 9, []string{"error llmhttp: the Backend returned a nil ChatStream"}},
		"nil chunk": {func(yield func(*llm.ChatChunk, error) bool) {
			_ = yield(nil, nil) && yield(llm.TextChunk("a"), nil)
		}, 9, []string{"a", "end"}},
		"chunk and error": {func(yield func(*llm.ChatChunk, error) bool) {
			yield(llm.TextChunk("x"), errors.New("broken"))
		}, 9, []string{"error broken"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen, _ := teed(test.stream, test.reads)
			assert.Equal(t, test.want, seen)
		})
	}
}

func TestNewStream(t *testing.T) {
	errCause := errors.New("broken")
	text := func(s string) *llm.ChatChunk { return llm.TextChunk(s) }
	var sent []error
	stream := func(end error) llm.ChatStream {
		sent = nil
		return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
			for _, s := range []string{"a", "b", "c"} {
				sent = append(sent, send(text(s)))
			}
			return end
		})
	}
	r, err := join.Collect(stream(nil))
	require.NoError(t, err)
	assert.Equal(t, "abc", r.Choices[0].Message.Content.Text())

	r, err = join.Collect(stream(errCause))
	assert.Equal(t, errCause, err)
	assert.Equal(t, "abc", r.Choices[0].Message.Content.Text())

	for range stream(errCause) { // a loop that is called again after a break panics
		break
	}
	assert.Error(t, sent[0])
	assert.Error(t, sent[2])
}
