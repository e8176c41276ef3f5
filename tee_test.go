package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// printText prints the text of a whole reply.
func printText(resp *http.Response) {
	body, _ := io.ReadAll(resp.Body)
	var r llm.ChatResponse
	if err := r.UnmarshalJSON(body); err != nil || len(r.Choices) == 0 {
		fmt.Println(string(body))
		return
	}
	fmt.Println(r.Choices[0].Message.Content.Text())
}

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
		return failAfter(err, "a", "b").Chat(context.Background(), nil)
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
		"nil chunk":    {streamOf(nil, llm.TextChunk("a")), 9, []string{"a", "end"}},
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

// The Handler may change a chunk that the function has cloned.
func TestTee_Clones(t *testing.T) {
	var kept *llm.ChatChunk
	s := startServer(t, config{backend: llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return llm.Tee(llm.Reply("Hello!"), func(c *llm.ChatChunk, _ error) {
			if c != nil {
				kept = c.Clone()
			}
		})
	})})
	s.chat(streamBody).checkText(t, "Hello!")
	s.shutdown()
	require.NotNil(t, kept)
	assert.Equal(t, llm.FinishStop, kept.Choices[0].FinishReason)
	assert.Equal(t, "Hello!", kept.Choices[0].Delta.Content)
}
