package llmhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// The work of joining and streaming a reply is linear in its length: four times as many
// chunks allocate about four times as many bytes, and not sixteen times.
func TestJoin_WorkIsLinear(t *testing.T) {
	call := func(f func(d *llm.ToolCallDelta, i, n int)) func(i, n int) *llm.ChatChunk {
		return func(i, n int) *llm.ChatChunk {
			d := llm.ToolCallDelta{Function: llm.FunctionCall{Arguments: "0123456789"}}
			f(&d, i, n)
			return &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{ToolCalls: []llm.ToolCallDelta{d}}}}}
		}
	}
	extra := func(f func(i int) llm.Extra) func(i, n int) *llm.ChatChunk {
		return func(i, _ int) *llm.ChatChunk {
			c := llm.TextChunk("")
			c.Choices[0].Delta.Extra = f(i)
			return c
		}
	}
	chunks := map[string]func(i, n int) *llm.ChatChunk{
		"text":                   func(int, int) *llm.ChatChunk { return llm.TextChunk("0123456789") },
		"arguments":              call(func(d *llm.ToolCallDelta, i, _ int) { d.ID, d.Function.Name = "a", "f" }),
		"arguments, no ID":       call(func(d *llm.ToolCallDelta, i, _ int) { d.Function.Name = "f" }),
		"arguments, late name":   call(func(d *llm.ToolCallDelta, i, n int) { d.Function.Name = strings.Repeat("f", max(0, i+2-n)) }),
		"arguments, no name":     call(func(*llm.ToolCallDelta, int, int) {}),
		"string in Extra":        extra(func(int) llm.Extra { return llm.Extra{"x": json.RawMessage(`"0123456789"`)} }),
		"array in Extra":         extra(func(int) llm.Extra { return llm.Extra{"x": json.RawMessage(`[1,2,3,4]`)} }),
		"object in Extra":        extra(func(int) llm.Extra { return llm.Extra{"x": json.RawMessage(`{"y":"0123456789"}`)} }),
		"new members":            extra(func(i int) llm.Extra { return llm.Extra{fmt.Sprint("x", i): json.RawMessage(`1`)} }),
		"new members of objects": extra(func(i int) llm.Extra { return llm.Extra{"x": json.RawMessage(fmt.Sprintf(`{"y%d":1}`, i))} }),
		"new members of chunks": func(i, _ int) *llm.ChatChunk {
			c := llm.TextChunk("")
			c.Extra = llm.Extra{fmt.Sprint("x", i): json.RawMessage(`1`)}
			return c
		},
		"new members of calls": call(func(d *llm.ToolCallDelta, i, _ int) {
			d.ID, d.Extra = "a", llm.Extra{fmt.Sprint("x", i): json.RawMessage(`1`)}
		}),
		"reasoning details": func(int, int) *llm.ChatChunk {
			c := llm.TextChunk("")
			c.Choices[0].Delta.ReasoningDetails = []llm.ReasoningDetail{{Type: llm.ReasoningText, Text: "0123456789"}}
			return c
		},
	}
	var n int
	var newChunk func(i, n int) *llm.ChatChunk
	s := newHandler(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
		for i := range n {
			if !yield(newChunk(i, n), nil) {
				return
			}
		}
	})})
	allocated := func(chunks int, body string) uint64 {
		n = chunks
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := &discardWriter{header: http.Header{}}
		serve(s.handler, w, body)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, f := range chunks {
		for mode, body := range chatModes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				newChunk = f
				allocated(100, body)
				few, many := allocated(2000, body), allocated(8000, body)
				assert.Less(t, many, 8*few, "bytes for 8,000 chunks, and for 2,000 chunks")
			})
		}
	}
}

// A reply that is too large fails, whether it is one chunk or many. One with too many
// tool calls fails before they are joined.
func TestJoin_MaxReply(t *testing.T) {
	const limit = 1 << 20
	piece := strings.Repeat("a", 1<<10)
	chunk := func(d llm.Delta) *llm.ChatChunk {
		return &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: d}}}
	}
	repeat := func(n int, c func() *llm.ChatChunk) llmhttp.Backend {
		return streamBackend(func(_ context.Context, yield yieldFunc) {
			for range n {
				if !yield(c(), nil) {
					return
				}
			}
		})
	}
	backends := map[string]llmhttp.Backend{
		"one text":   repeat(1, func() *llm.ChatChunk { return llm.TextChunk(strings.Repeat(piece, 1025)) }),
		"many texts": repeat(1025, func() *llm.ChatChunk { return llm.TextChunk(piece) }),
		"arguments of a call without a name": repeat(1025, func() *llm.ChatChunk {
			return chunk(llm.Delta{ToolCalls: []llm.ToolCallDelta{{Function: llm.FunctionCall{Arguments: piece}}}})
		}),
		"Extra": repeat(1025, func() *llm.ChatChunk {
			return chunk(llm.Delta{Extra: llm.Extra{"x": json.RawMessage(`"` + piece + `"`)}})
		}),
		"details": repeat(1025, func() *llm.ChatChunk {
			return chunk(llm.Delta{ReasoningDetails: []llm.ReasoningDetail{{Type: llm.ReasoningText, Text: piece}}})
		}),
		"65,000 calls": repeat(1, func() *llm.ChatChunk {
			return chunk(llm.Delta{ToolCalls: make([]llm.ToolCallDelta, 65000)})
		}),
		"1,025 calls": repeat(1, func() *llm.ChatChunk {
			var calls []llm.ToolCallDelta
			for i := range 1025 {
				calls = append(calls, llm.ToolCallDelta{Index: i, Function: llm.FunctionCall{Name: "f"}})
			}
			return chunk(llm.Delta{ToolCalls: calls})
		}),
	}
	for name, b := range backends {
		s := startServer(t, config{backend: b, opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxReply: limit}}})
		t.Run(name+"/whole", func(t *testing.T) {
			r := s.chat(chatBody)
			e := r.checkError(t, 502)
			assert.Regexp(t, `^The reply of the model (is too large\. The limit is 1048576 bytes|has too many tool calls\. The limit is 1024 for each choice)\.$`, e.Message)
			assert.Equal(t, "false", r.Header.Get("X-Should-Retry"))
		})
		t.Run(name+"/stream", func(t *testing.T) {
			if r := s.chat(streamBody); r.StatusCode == 200 {
				assert.Contains(t, r.checkCut(t).Message, "The limit is")
			} else {
				r.checkError(t, 502)
			}
		})
	}
	for name, size := range map[string]struct{ bytes, status int }{"within": {limit - 1000, 200}, "beyond": {limit, 502}} {
		t.Run("images and vectors, "+name, func(t *testing.T) {
			s := startServer(t, config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxReply: limit}}, backend: &stubBackend{
				images: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
					return &llm.ImageResponse{Data: []llm.Image{{Data: make([]byte, size.bytes/2)}, {Data: make([]byte, size.bytes/2)}}}, nil
				},
				embed: func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
					return &llm.EmbeddingResponse{Vectors: [][]float32{make([]float32, size.bytes/8), make([]float32, size.bytes/8)}}, nil
				},
			}})
			assert.Equal(t, size.status, s.do("POST", imagesPath, imageBody).StatusCode)
			assert.Equal(t, size.status, s.do("POST", embeddingsPath, `{"model":"m","input":["a","b"]}`).StatusCode)
		})
	}
}

// Choice 0 is in every reply. Other choices that the Backend does not yield are missing
// in whole replies and in streams.
func TestJoin_GapsBetweenChoices(t *testing.T) {
	for mode, members := range map[string]string{"whole": `"n":5`, "stream": `"n":5,"stream":true`} {
		s := startServer(t, config{backend: chunkBackend(func() []*llm.ChatChunk {
			return []*llm.ChatChunk{{Choices: []llm.ChunkChoice{{Index: 3, Delta: llm.Delta{Content: "x"}}, {Index: 1, Delta: llm.Delta{Content: "y"}}}}}
		})})
		r := s.chat(chatWith(members))
		require.NoError(t, r.err)
		for i, present := range []bool{true, true, false, true, false} {
			assert.Equal(t, present, strings.Contains(r.body, fmt.Sprintf(`"index":%d`, i)), "%s: choice %d", mode, i)
		}
	}
}
