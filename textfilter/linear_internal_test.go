package textfilter

import (
	"encoding/json"
	"runtime"
	"strconv"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manyTexts returns a stream of n deltas, each of which has a text of its own.
func manyTexts(n int, delta func(i int) llm.Delta) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		for i := range n {
			if !yield(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: delta(i)}}}, nil) {
				return
			}
		}
	}
}

// manyDeltas have many texts, each with a name or an index.
var manyDeltas = map[string]func(i int) llm.Delta{
	"reasoning": func(i int) llm.Delta {
		return llm.Delta{ReasoningDetails: []llm.ReasoningDetail{{Type: llm.ReasoningText, Text: "a", Extra: llm.Extra{"index": json.RawMessage(strconv.Itoa(i))}}}}
	},
	"summaries": func(i int) llm.Delta {
		return llm.Delta{ReasoningDetails: []llm.ReasoningDetail{{Type: "s", Summary: "a", Extra: llm.Extra{"index": json.RawMessage(strconv.Itoa(i))}}}}
	},
	"members": func(i int) llm.Delta {
		return llm.Delta{Extra: llm.Extra{"m" + strconv.Itoa(i): json.RawMessage(`"a"`)}}
	},
	"inner members": func(i int) llm.Delta {
		return llm.Delta{Extra: llm.Extra{"o": json.RawMessage(`{"m` + strconv.Itoa(i) + `":"a"}`)}}
	},
}

// A filter of a reply with many texts looks at few of them for each chunk, whether it holds all back
// or nothing.
func TestStream_ManyTexts(t *testing.T) {
	const n = 2000
	filters := map[string]func(t *ReplyText) (string, string, error){
		"holds": func(t *ReplyText) (string, string, error) { return "", t.Text, nil },
		"sends": func(t *ReplyText) (string, string, error) { return t.Text, "", nil },
	}
	for name, delta := range manyDeltas {
		for behaviour, f := range filters {
			t.Run(name+" "+behaviour, func(t *testing.T) {
				looked, sent := 0, 0
				var s *streamFilter
				s = newStreamFilter(1, f, func(c *llm.ChatChunk, err error) bool {
					require.NoError(t, err)
					for _, choice := range c.Choices {
						for _, d := range choice.Delta.ReasoningDetails {
							sent += len(d.Text) + len(d.Summary)
						}
						sent += len(choice.Delta.Extra)
						if s.choices[0] != nil {
							looked += len(s.choices[0].unpaused)
						}
					}
					return true
				})
				s.run(manyTexts(n, delta))
				assert.LessOrEqual(t, looked, 3*n)
				if name != "inner members" {
					assert.Equal(t, n, sent)
				}
			})
		}
	}
}

// The memory that a filter takes in all grows with the number of texts and not with its square.
func TestStream_ManyTextsInLinearMemory(t *testing.T) {
	allocated := func(n int, delta func(i int) llm.Delta) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, err := range Stream(manyTexts(n, delta), 1, func(t *ReplyText) (string, string, error) { return "", t.Text, nil }) {
			require.NoError(t, err)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	for name, delta := range manyDeltas {
		few, many := allocated(1000, delta), allocated(4000, delta)
		assert.Less(t, many/few, 6.0, name)
	}
	parts := func(n int) float64 {
		req := &llm.ChatRequest{Messages: []llm.Message{{Role: llm.RoleUser, Content: make(llm.Content, n)}}}
		for i := range req.Messages[0].Content {
			req.Messages[0].Content[i] = llm.Part{Type: llm.PartText, Text: "some text"}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, Rewrite(req, func(_ Kind, s string) (string, error) { return s, nil }))
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	assert.Less(t, parts(8000)/parts(2000), 6.0, "parts of a message")
}

// A member whose name the filter changes has the changed name also if its text was held back.
func TestStream_NamesOfHeldMembers(t *testing.T) {
	s := Stream(manyTexts(1, func(int) llm.Delta {
		return llm.Delta{Extra: llm.Extra{"secret": json.RawMessage(`"a"`), "o": json.RawMessage(`{"secret":"a"}`)}}
	}), 1, func(t *ReplyText) (string, string, error) {
		if t.Text == "secret" {
			return "name", "", nil
		}
		return "", t.Text, nil
	})
	reply, err := join.Collect(s)
	require.NoError(t, err)
	assert.Equal(t, llm.Extra{"name": json.RawMessage(`"a"`), "o": json.RawMessage(`{"name":"a"}`)}, reply.Choices[0].Message.Extra)
}
