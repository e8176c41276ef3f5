package llmhttp_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

func TestCollect_JoinsChunksAndStreamSplitsThemAgain(t *testing.T) {
	r, err := llmhttp.Collect(streamOf(parseChunks(t,
		`{"id":"i","created":5,"model":"m","system_fingerprint":"fp","choices":[{"index":1,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b"}]}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"think","refusal":"no"}},{"index":1,"delta":{"content":"c"},"logprobs":{"content":[{"token":"c"}]},"finish_reason":"length"}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`)...))
	require.NoError(t, err)
	got, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Equal(t, `{"id":"i","object":"chat.completion","created":5,"model":"m","choices":[`+
		`{"index":0,"message":{"role":"assistant","content":null,"reasoning_content":"think","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}],"refusal":"no"},"logprobs":null,"finish_reason":"tool_calls"},`+
		`{"index":1,"message":{"role":"assistant","content":"bc","refusal":null},"finish_reason":"length","logprobs":{"content":[{"token":"b"},{"token":"c"}]}}],`+
		`"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"system_fingerprint":"fp"}`, string(got))
	again, err := llmhttp.Collect(r.Stream())
	require.NoError(t, err)
	assert.Equal(t, r, again)
}

func TestCollect_ReturnsWhatCameBeforeAnError(t *testing.T) {
	r, err := llmhttp.Collect(failAfter(errCause, "a", "b\xf0\x9f").Chat(t.Context(), nil))
	require.Equal(t, errCause, err)
	assert.Equal(t, "ab\ufffd", r.Choices[0].Message.Content.Text())
	assert.Empty(t, r.Choices[0].FinishReason)

	r, err = llmhttp.Collect(llmhttp.Fail(errCause))
	require.Equal(t, errCause, err)
	assert.Empty(t, r.Choices)
}

func TestCollect_ReplyHasAFinishReason(t *testing.T) {
	r, err := llmhttp.Collect(llmhttp.Reply("x"))
	require.NoError(t, err)
	assert.Equal(t, llmhttp.FinishStop, r.Choices[0].FinishReason)
}

func TestCollect_TextMayBeCutAnywhere(t *testing.T) {
	const text = "Zwölf 🧑‍🚀 sagen: „data: [DONE]“\u2028\x00 …"
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 8))
		var chunks []*llmhttp.ChatChunk
		for rest := text; rest != ""; {
			n := 1 + random.IntN(min(len(rest), 9))
			chunks = append(chunks, llmhttp.TextChunk(rest[:n]))
			rest = rest[n:]
		}
		r, err := llmhttp.Collect(streamOf(chunks...))
		require.NoError(t, err)
		require.Len(t, r.Choices, 1)
		require.Equal(t, text, r.Choices[0].Message.Content.Text(), "seed %d", seed)
	}
}

func TestCollect_ReplySurvivesJSON(t *testing.T) {
	r, err := llmhttp.Collect(llmhttp.Reply("hi"))
	require.NoError(t, err)
	b, err := json.Marshal(r)
	require.NoError(t, err)
	again := new(llmhttp.ChatResponse)
	require.NoError(t, json.Unmarshal(b, again))
	assert.Equal(t, r, again)
}

func TestCollect_ReasoningDetails(t *testing.T) {
	stream := func(deltas ...string) llmhttp.ChatStream {
		return func(yield func(*llmhttp.ChatChunk, error) bool) {
			for _, details := range deltas {
				var c llmhttp.ChatChunk
				require.NoError(t, c.UnmarshalJSON([]byte(`{"choices":[{"delta":{"reasoning_details":[`+details+`]}}]}`)))
				if !yield(&c, nil) {
					return
				}
			}
		}
	}
	for name, test := range map[string]struct {
		deltas []string
		want   string
	}{
		"texts with one index": {
			[]string{`{"type":"reasoning.text","text":"a","index":0}`, `{"type":"reasoning.text","text":"b","index":0,"format":"f"}`, `{"type":"reasoning.text","signature":"s","index":0}`},
			`{"type":"reasoning.text","text":"ab","signature":"s","format":"f","index":0}`,
		},
		"another index": {
			[]string{`{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"b","index":1}`, `{"type":"reasoning.text","text":"c","index":1}`},
			`{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"bc","index":1}`,
		},
		"a signature between": {
			[]string{`{"type":"reasoning.text","text":"a","signature":"s"}`, `{"type":"reasoning.text","text":"b"}`},
			`{"type":"reasoning.text","text":"a","signature":"s"},{"type":"reasoning.text","text":"b"}`,
		},
		"other types": {
			[]string{`{"type":"reasoning.summary","summary":"a"}`, `{"type":"reasoning.summary","summary":"b"}`, `{"type":"reasoning.encrypted","data":"d"}`, `{"type":"reasoning.text","text":"t"}`},
			`{"type":"reasoning.summary","summary":"a"},{"type":"reasoning.summary","summary":"b"},{"type":"reasoning.encrypted","data":"d"},{"type":"reasoning.text","text":"t"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := llmhttp.Collect(stream(test.deltas...))
			require.NoError(t, err)
			b, err := json.Marshal(r.Choices[0].Message)
			require.NoError(t, err)
			assert.Equal(t, `{"role":"assistant","content":"","reasoning_details":[`+test.want+`]}`, string(b))
			again, err := llmhttp.Collect(r.Stream())
			require.NoError(t, err)
			assert.Equal(t, r, again)
		})
	}
}

// The refusal and the stop sequence of a stream are those of the reply.
func TestCollect_RefusalAndStopSequence(t *testing.T) {
	r, err := llmhttp.Collect(func(yield func(*llmhttp.ChatChunk, error) bool) {
		_ = yield(&llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Refusal: "I "}}}}, nil) &&
			yield(&llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Refusal: "won't."}, FinishReason: llmhttp.FinishStop, StopSequence: "END"}}}, nil)
	})
	require.NoError(t, err)
	assert.Equal(t, []llmhttp.Choice{{Message: llmhttp.Message{Role: llmhttp.RoleAssistant, Refusal: "I won't."}, FinishReason: llmhttp.FinishStop, StopSequence: "END"}}, r.Choices)
	again, err := llmhttp.Collect(r.Stream())
	require.NoError(t, err)
	assert.Equal(t, r, again)
}
