package llmhttp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/llm"
)

var _ = codectest.MakesConsistent(func(p *llmhttp.CompletionPrompt) { p.Tokens = nil })

func init() {
	jsonSuite.Types["CompletionRequest"] = func() any { return new(llmhttp.CompletionRequest) }
	jsonSuite.Types["CompletionPrompt"] = func() any { return new(llmhttp.CompletionPrompt) }
	jsonSuite.Documents = append(jsonSuite.Documents, []codectest.Document{
		{"CompletionRequest", `{"model":"m","prompt":"a","suffix":"b","stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"top_p":1,"presence_penalty":1,"frequency_penalty":-1,"max_tokens":0,"n":2,"best_of":3,"logprobs":0,"echo":true,"stop":["x","y"],"seed":7,"user":"u"}`},
		{"CompletionRequest", `{"model":"m","prompt":[[1,2],[3]]}`},
		{"CompletionPrompt", `""`}, {"CompletionPrompt", `["a",""]`}, {"CompletionPrompt", `[1,2]`}, {"CompletionPrompt", `[]`},
	}...)
}

func TestCompletions_Params(t *testing.T) {
	prompts := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","prompt":` + s + `}` }, list...)
	}
	members := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","prompt":["a","b"],` + s + `}` }, list...)
	}
	checkParams(t, startServer(t, config{}), completionsPath, []paramTest{
		{"", notJSON, []string{`{`}},
		{"model", missing, []string{`{}`, `{"prompt":"a"}`}},
		{"prompt", missing, append(prompts("null"), `{"model":"m"}`)},
		{"prompt", invalidType, prompts("5", "true", "{}", `["a",1]`, `[[1],"a"]`)},
		{"prompt", emptyArray, prompts(`[]`)},
		{"prompt", arrayTooLong, prompts(repeatJSON(2049, `""`), repeatJSON(2049, `[1]`))},
		{"prompt", duplicate, members(`"prompt":"a"`)},
		{"prompt[1]", emptyArray, prompts(`[[1],[]]`)},
		{"prompt[1]", invalidType, prompts(`["a",null]`, `[1,-2]`)},
		{"", accepted, prompts(`""`, `"a"`, `["a",""]`, `[1,2]`, `[[1],[2]]`, repeatJSON(2048, `"a"`))},
		{"suffix", invalidType, members(`"suffix":5`)},
		{"temperature", decimalHigh, members(`"temperature":2.1`)},
		{"top_p", decimalLow, members(`"top_p":-0.1`)},
		{"presence_penalty", decimalHigh, members(`"presence_penalty":3`)},
		{"frequency_penalty", decimalLow, members(`"frequency_penalty":-3`)},
		{"max_tokens", integerLow, members(`"max_tokens":-1`)},
		{"max_tokens", invalidType, members(`"max_tokens":"5"`)},
		{"n", integerLow, members(`"n":0`)},
		{"n", integerHigh, members(`"n":129`)},
		{"n", invalidValue, []string{`{"model":"m","n":128,"prompt":` + repeatJSON(17, `"a"`) + `}`}},
		{"best_of", integerHigh, members(`"best_of":21`)},
		{"best_of", integerLow, members(`"best_of":-1`)},
		{"best_of", invalidValue, members(`"best_of":1,"n":2`)},
		{"logprobs", integerHigh, members(`"logprobs":6`)},
		{"logprobs", invalidType, members(`"logprobs":true`)},
		{"echo", invalidType, members(`"echo":1`)},
		{"stop", arrayTooLong, members(`"stop":["a","b","c","d","e"]`)},
		{"stream", invalidType, members(`"stream":"true"`)},
		{"stream_options.include_usage", invalidType, members(`"stream_options":{"include_usage":1}`)},
		{"", accepted, members(`"suffix":"x"`, `"max_tokens":0`, `"n":128`, `"best_of":0,"n":2`, `"best_of":3,"n":2`, `"logprobs":5,"echo":true`, `"stop":null`, `"stop":"x"`, `"logit_bias":{"1":-100},"seed":1`)},
	})
}

// chunkOf returns a chunk with a piece of choice i.
func chunkOf(i int, text string, reason llm.FinishReason, logprobs string) *llm.ChatChunk {
	choice := llm.ChunkChoice{Index: i, Delta: llm.Delta{Content: text}, FinishReason: reason}
	if logprobs != "" {
		choice.Extra = llm.Extra{"logprobs": json.RawMessage(logprobs)}
	}
	return &llm.ChatChunk{Choices: []llm.ChunkChoice{choice}}
}

// completer returns a Backend that completes prompts with chunks, which new returns.
func completer(chunks func() []*llm.ChatChunk) *stubBackend {
	return &stubBackend{complete: func(context.Context, *llmhttp.CompletionRequest) llm.ChatStream { return streamOf(chunks()...) }}
}

// A completionReply is a reply, or a chunk of one, as clients read it.
type completionReply struct {
	ID, Object, Model string
	Choices           []struct {
		Text         string
		Index        int
		FinishReason *string `json:"finish_reason"`
		Logprobs     *struct {
			Tokens     []string
			TextOffset []int `json:"text_offset"`
		}
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
}

func TestCompletions_WholeAndStreamAreTheSame(t *testing.T) {
	s := startServer(t, config{backend: completer(func() []*llm.ChatChunk {
		end := chunkOf(1, "", llm.FinishLength, "")
		end.Usage = &llm.Usage{PromptTokens: 5, CompletionTokens: 4}
		return []*llm.ChatChunk{
			chunkOf(1, "c", "", ""), chunkOf(0, "a\xc3", "", `{"tokens":["a"],"text_offset":[0]}`),
			chunkOf(0, "\xa9", llm.FinishStop, `{"tokens":["é"],"text_offset":[1]}`), chunkOf(1, strings.Repeat("d", 20_000), "", ""), end,
		}
	})})
	r := s.do("POST", completionsPath, `{"model":"m","prompt":["x","y"],"logprobs":1}`)
	require.Equal(t, 200, r.StatusCode, r.body)
	assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
	record := s.record()
	assert.Equal(t, llmhttp.OperationCompletions, record.Operation)
	assert.Equal(t, llmhttp.Units{PromptTokens: 5, CompletionTokens: 4}, record.Units)
	var whole completionReply
	require.NoError(t, json.Unmarshal([]byte(r.body), &whole))
	assert.Equal(t, "text_completion", whole.Object)
	assert.Equal(t, "m", whole.Model)
	assert.Regexp(t, `^cmpl-[0-9a-f]{32}$`, whole.ID)
	require.Len(t, whole.Choices, 2)
	assert.Equal(t, "aé", whole.Choices[0].Text)
	assert.Equal(t, []string{"a", "é"}, whole.Choices[0].Logprobs.Tokens)
	assert.Equal(t, []int{0, 1}, whole.Choices[0].Logprobs.TextOffset)
	assert.Nil(t, whole.Choices[1].Logprobs)
	assert.Equal(t, "c"+strings.Repeat("d", 20_000), whole.Choices[1].Text)
	assert.Equal(t, "length", *whole.Choices[1].FinishReason)
	assert.Equal(t, 5, whole.Usage.Prompt)

	for _, showUsage := range []bool{false, true} {
		body := `{"model":"m","prompt":["x","y"],"stream":true}`
		if showUsage {
			body = strings.TrimSuffix(body, "}") + `,"stream_options":{"include_usage":true}}`
		}
		r := s.do("POST", completionsPath, body)
		require.Equal(t, 200, r.StatusCode, r.body)
		texts, reasons := make([]string, 2), make([]string, 2)
		var last completionReply
		events := r.events(t)
		assert.Equal(t, "[DONE]", events[len(events)-1])
		for _, event := range events[:len(events)-1] {
			assert.Less(t, len(event), 64<<10)
			last = completionReply{}
			require.NoError(t, json.Unmarshal([]byte(event), &last))
			assert.Equal(t, "text_completion", last.Object)
			for _, c := range last.Choices {
				texts[c.Index] += c.Text
				if c.FinishReason != nil {
					reasons[c.Index] = *c.FinishReason
				}
			}
		}
		assert.Equal(t, []string{"aé", "c" + strings.Repeat("d", 20_000)}, texts)
		assert.Equal(t, []string{"stop", "length"}, reasons)
		assert.Equal(t, showUsage, last.Usage != nil)
		if showUsage {
			assert.Empty(t, last.Choices)
			assert.Equal(t, 4, last.Usage.Completion)
		}
	}
}

func TestCompletions_RequestReachesTheBackend(t *testing.T) {
	var got *llmhttp.CompletionRequest
	s := startServer(t, config{backend: &stubBackend{complete: func(_ context.Context, r *llmhttp.CompletionRequest) llm.ChatStream {
		got = r
		return llm.Reply("x")
	}}})
	for prompt, want := range map[string]llmhttp.CompletionPrompt{
		`"def f("`: {Texts: []string{"def f("}}, `["a",""]`: {Texts: []string{"a", ""}}, `[1,2]`: {Tokens: [][]int{{1, 2}}}, `[[1],[2]]`: {Tokens: [][]int{{1}, {2}}},
	} {
		r := s.do("POST", completionsPath, `{"model":"m","prompt":`+prompt+`,"suffix":"\n","echo":true,"seed":7}`)
		require.Equal(t, 200, r.StatusCode, r.body)
		assert.Equal(t, &llmhttp.CompletionRequest{Model: "m", Prompt: want, Suffix: "\n", Echo: true, Extra: llm.Extra{"seed": json.RawMessage("7")}}, got)
	}
}

// A chat is not made of a request to complete prompts.
func TestCompletions_NeedACompleter(t *testing.T) {
	s := startServer(t, config{backend: llmhttp.ChatOnly(textBackend("x"))})
	assert.Equal(t, "Invalid URL (POST /v1/completions)", s.do("POST", completionsPath, completionBody).checkError(t, 404).Message)
}

// A failure before the first chunk is the status of the reply; later, a stream is cut.
func TestCompletions_Errors(t *testing.T) {
	refused := llm.Errorf(400, "invalid_value", "No suffix.").WithParam("suffix")
	s := startServer(t, config{backend: &stubBackend{complete: func(context.Context, *llmhttp.CompletionRequest) llm.ChatStream { return llm.Fail(refused) }}})
	for _, stream := range []string{"true", "false"} {
		assert.Equal(t, "suffix", s.do("POST", completionsPath, `{"model":"m","prompt":"a","stream":`+stream+`}`).checkError(t, 400).Param)
	}
	s = startServer(t, config{backend: &stubBackend{complete: func(ctx context.Context, _ *llmhttp.CompletionRequest) llm.ChatStream {
		return failAfter(errCause, "one")(ctx, nil)
	}}})
	s.do("POST", completionsPath, `{"model":"m","prompt":"a"}`).checkError(t, 500)
	r := s.do("POST", completionsPath, `{"model":"m","prompt":"a","stream":true}`)
	assert.Contains(t, r.body, `{"text":"one","index":0,`)
	r.checkCut(t)
}

// The limit of a key on the tokens of a choice holds beside the prompt that is repeated.
func TestCompletions_MaxCompletionTokens(t *testing.T) {
	var limits []int
	prompt, long := strings.Repeat("p", 1000), strings.Repeat("x", 1000)
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{MaxCompletionTokens: 5}),
		backend: &stubBackend{complete: func(_ context.Context, r *llmhttp.CompletionRequest) llm.ChatStream {
			n, _ := r.TokenLimit()
			limits = append(limits, n)
			text := long
			if r.Echo {
				text = r.Prompt.Texts[0] + text
			}
			return llm.Reply(text)
		}},
	})
	for members, length := range map[string]int{``: 104, `,"max_tokens":9`: 104, `,"max_tokens":3`: 104, `,"echo":true`: 1104} {
		var reply completionReply
		require.NoError(t, json.Unmarshal([]byte(s.do("POST", completionsPath, `{"model":"m","prompt":"`+prompt+`"`+members+`}`).body), &reply))
		assert.Len(t, reply.Choices[0].Text, length)
		assert.Equal(t, "length", *reply.Choices[0].FinishReason)
	}
	assert.ElementsMatch(t, []int{5, 5, 3, 5}, limits)
}

func TestCompletions_Transcript(t *testing.T) {
	var got *llmhttp.Transcript
	observe := func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{
			Transcript: func(tr *llmhttp.Transcript) { got = tr },
		}
	}
	s := startServer(t, config{backend: completer(func() []*llm.ChatChunk { return []*llm.ChatChunk{chunkOf(0, "c", "", "")} }), opts: llmhttp.Options{Observe: observe}})
	s.do("POST", completionsPath, `{"model":"m","prompt":["a","b"],"suffix":"d"}`)
	s.summary()
	var texts []string
	for _, m := range got.Messages {
		texts = append(texts, m.Content.Text())
	}
	assert.Equal(t, []string{"a", "b", "d"}, texts)
	assert.Equal(t, "c", got.Choices[0].Message.Content.Text())
}
