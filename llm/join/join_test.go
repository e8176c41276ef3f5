package join_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/internal/largebody"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// streamOf returns a stream of chunks.
func streamOf(chunks ...*llm.ChatChunk) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// decoded decodes one chunk from each line.
func decoded(t *testing.T, lines ...string) (chunks []*llm.ChatChunk) {
	for _, line := range lines {
		c := new(llm.ChatChunk)
		require.NoError(t, c.UnmarshalJSON([]byte(line)), "%s", line)
		chunks = append(chunks, c)
	}
	return chunks
}

func TestCollect_JoinsChunksAndStreamSplitsThemAgain(t *testing.T) {
	r, err := join.Collect(streamOf(decoded(t,
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
	again, err := join.Collect(r.Stream())
	require.NoError(t, err)
	assert.Equal(t, r, again)
}

func TestCollect_ReturnsWhatCameBeforeAnError(t *testing.T) {
	errCause := errors.New("broken")
	r, err := join.Collect(llm.NewStream(func(send func(*llm.ChatChunk) error) error {
		_, _ = send(llm.TextChunk("a")), send(llm.TextChunk("b\xf0\x9f"))
		return errCause
	}))
	require.Equal(t, errCause, err)
	assert.Equal(t, "ab\ufffd", r.Choices[0].Message.Content.Text())
	assert.Empty(t, r.Choices[0].FinishReason)

	r, err = join.Collect(llm.Fail(errCause))
	require.Equal(t, errCause, err)
	assert.Empty(t, r.Choices)
}

func TestCollect_ReplyHasAFinishReason(t *testing.T) {
	r, err := join.Collect(llm.Reply("x"))
	require.NoError(t, err)
	assert.Equal(t, llm.FinishStop, r.Choices[0].FinishReason)
}

func TestCollect_TextMayBeCutAnywhere(t *testing.T) {
	const text = "Zwölf 🧑‍🚀 sagen: „data: [DONE]“\u2028\x00 …"
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 8))
		var chunks []*llm.ChatChunk
		for rest := text; rest != ""; {
			n := 1 + random.IntN(min(len(rest), 9))
			chunks = append(chunks, llm.TextChunk(rest[:n]))
			rest = rest[n:]
		}
		r, err := join.Collect(streamOf(chunks...))
		require.NoError(t, err)
		require.Len(t, r.Choices, 1)
		require.Equal(t, text, r.Choices[0].Message.Content.Text(), "seed %d", seed)
	}
}

func TestCollect_ReplySurvivesJSON(t *testing.T) {
	r, err := join.Collect(llm.Reply("hi"))
	require.NoError(t, err)
	b, err := json.Marshal(r)
	require.NoError(t, err)
	again := new(llm.ChatResponse)
	require.NoError(t, json.Unmarshal(b, again))
	assert.Equal(t, r, again)
}

func TestCollect_ReasoningDetails(t *testing.T) {
	stream := func(deltas ...string) llm.ChatStream {
		var lines []string
		for _, details := range deltas {
			lines = append(lines, `{"choices":[{"delta":{"reasoning_details":[`+details+`]}}]}`)
		}
		return streamOf(decoded(t, lines...)...)
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
			r, err := join.Collect(stream(test.deltas...))
			require.NoError(t, err)
			b, err := json.Marshal(r.Choices[0].Message)
			require.NoError(t, err)
			assert.Equal(t, `{"role":"assistant","content":"","reasoning_details":[`+test.want+`]}`, string(b))
			again, err := join.Collect(r.Stream())
			require.NoError(t, err)
			assert.Equal(t, r, again)
		})
	}
}

// The refusal and the stop sequence of a stream are those of the reply.
func TestCollect_RefusalAndStopSequence(t *testing.T) {
	r, err := join.Collect(func(yield func(*llm.ChatChunk, error) bool) {
		_ = yield(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Refusal: "I "}}}}, nil) &&
			yield(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Refusal: "won't."}, FinishReason: llm.FinishStop, StopSequence: "END"}}}, nil)
	})
	require.NoError(t, err)
	assert.Equal(t, []llm.Choice{{Message: llm.Message{Role: llm.RoleAssistant, Refusal: "I won't."}, FinishReason: llm.FinishStop, StopSequence: "END"}}, r.Choices)
	again, err := join.Collect(r.Stream())
	require.NoError(t, err)
	assert.Equal(t, r, again)
}

// Objects in an Extra are merged, but the memory for it does not depend on how deep they are.
func TestJoin_NestedExtra(t *testing.T) {
	const depth = 400
	object := func(name string) json.RawMessage {
		return json.RawMessage(strings.Repeat(`{"a":`, depth) + `{"` + name + `":"` + strings.Repeat("x", 64<<10) + `"}` + strings.Repeat("}", depth))
	}
	var reply *llm.ChatResponse
	megabytes := largebody.Allocated(func() {
		var err error
		reply, err = join.Collect(func(yield func(*llm.ChatChunk, error) bool) {
			for _, name := range []string{"b", "c"} {
				yield(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Extra: llm.Extra{"x": object(name)}}}}, nil)
			}
		})
		require.NoError(t, err)
	})
	assert.JSONEq(t, string(object("c")), string(reply.Choices[0].Extra["x"]), "the last of two that are too deep")
	assert.Less(t, megabytes, uint64(20))
}
