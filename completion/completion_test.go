package completion_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/internal/deepcopy"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

const path = "/v1/completions"

// A backend is a Backend that completes prompts.
type backend func(ctx context.Context, req *completion.Request) llm.ChatStream

func (backend) Chat(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") }

func (b backend) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	return b(ctx, req)
}

// stream returns a Backend that yields these chunks, and then err unless that is nil.
func stream(err error, chunks ...*llm.ChatChunk) backend {
	return func(context.Context, *completion.Request) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			for _, c := range chunks {
				if !yield(deepcopy.Of(c), nil) { // which the Handler may change
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
		}
	}
}

// chunkOf returns a chunk with a piece of choice i.
func chunkOf(i int, text string, reason llm.FinishReason, logprobs string) *llm.ChatChunk {
	choice := llm.ChunkChoice{Index: i, Delta: llm.Delta{Content: text}, FinishReason: reason}
	if logprobs != "" {
		choice.Extra = llm.Extra{"logprobs": json.RawMessage(logprobs)}
	}
	return &llm.ChatChunk{Choices: []llm.ChunkChoice{choice}}
}

// newServer returns a Server with the routes of package completion, whose key may do everything.
func newServer(t testing.TB, b llmhttp.Backend, k llmhttp.Key) *endpointtest.Server {
	return endpointtest.New(t, b, k, llmhttp.Options{Routes: completion.Routes()})
}

// list returns a JSON array of n items.
func list(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

func TestCompletions_Params(t *testing.T) {
	prompts := func(list ...string) (bodies []string) {
		for _, s := range list {
			bodies = append(bodies, `{"model":"m","prompt":`+s+`}`)
		}
		return bodies
	}
	members := func(list ...string) (bodies []string) {
		for _, s := range list {
			bodies = append(bodies, `{"model":"m","prompt":["a","b"],`+s+`}`)
		}
		return bodies
	}
	echo := backend(func(_ context.Context, req *completion.Request) llm.ChatStream { return llm.Reply("x") })
	newServer(t, llmhttp.Choices(echo), llmhttp.Key{}).CheckParams(t, path, []endpointtest.Param{
		{"", "", []string{`{`}},
		{"model", "missing_required_parameter", []string{`{}`, `{"prompt":"a"}`}},
		{"prompt", "missing_required_parameter", append(prompts("null"), `{"model":"m"}`)},
		{"prompt", "invalid_type", prompts("5", "true", "{}", `["a",1]`, `[[1],"a"]`)},
		{"prompt", "empty_array", prompts(`[]`)},
		{"prompt", "array_above_max_length", prompts(list(2049, `""`), list(2049, `[1]`))},
		{"prompt", "duplicate_parameter", members(`"prompt":"a"`)},
		{"prompt[1]", "empty_array", prompts(`[[1],[]]`)},
		{"prompt[1]", "invalid_type", prompts(`["a",null]`, `[1,-2]`)},
		{"", endpointtest.Accepted, prompts(`""`, `"a"`, `["a",""]`, `[1,2]`, `[[1],[2]]`, list(2048, `"a"`))},
		{"suffix", "invalid_type", members(`"suffix":5`)},
		{"temperature", "decimal_above_max_value", members(`"temperature":2.1`)},
		{"top_p", "decimal_below_min_value", members(`"top_p":-0.1`)},
		{"presence_penalty", "decimal_above_max_value", members(`"presence_penalty":3`)},
		{"frequency_penalty", "decimal_below_min_value", members(`"frequency_penalty":-3`)},
		{"max_tokens", "integer_below_min_value", members(`"max_tokens":-1`)},
		{"max_tokens", "invalid_type", members(`"max_tokens":"5"`)},
		{"n", "integer_below_min_value", members(`"n":0`)},
		{"n", "integer_above_max_value", members(`"n":129`)},
		{"n", "invalid_value", []string{`{"model":"m","n":128,"prompt":` + list(17, `"a"`) + `}`}},
		{"best_of", "integer_above_max_value", members(`"best_of":21`)},
		{"best_of", "integer_below_min_value", members(`"best_of":-1`)},
		{"best_of", "invalid_value", members(`"best_of":1,"n":2`)},
		{"logprobs", "integer_above_max_value", members(`"logprobs":6`)},
		{"logprobs", "invalid_type", members(`"logprobs":true`)},
		{"echo", "invalid_type", members(`"echo":1`)},
		{"stop", "array_above_max_length", members(`"stop":["a","b","c","d","e"]`)},
		{"stream", "invalid_type", members(`"stream":"true"`)},
		{"stream_options.include_usage", "invalid_type", members(`"stream_options":{"include_usage":1}`)},
		{"fallbacks", "unknown_parameter", members(`"fallbacks":["x"]`)},
		{"", endpointtest.Accepted, members(`"suffix":"x"`, `"max_tokens":0`, `"n":128`, `"best_of":0,"n":2`, `"best_of":3,"n":2`, `"logprobs":5,"echo":true`, `"stop":null`, `"stop":"x"`, `"logit_bias":{"1":-100},"seed":1`)},
	})
}

// A clientReply is a reply, or a chunk of one, as clients read it.
type clientReply struct {
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
	end := chunkOf(1, "", llm.FinishLength, "")
	end.Usage = &llm.Usage{PromptTokens: 5, CompletionTokens: 4}
	s := newServer(t, stream(nil,
		chunkOf(1, "c", "", ""), chunkOf(0, "a\xc3", "", `{"tokens":["a"],"text_offset":[0]}`),
		chunkOf(0, "\xa9", llm.FinishStop, `{"tokens":["é"],"text_offset":[1]}`), chunkOf(1, strings.Repeat("d", 20_000), "", ""), end,
	), llmhttp.Key{})
	w := s.Post(path, `{"model":"m","prompt":["x","y"],"logprobs":1}`)
	require.Equal(t, 200, w.Code, w.Body)
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.Equal(t, completion.Operation, s.Records[0].Operation)
	assert.Equal(t, llmhttp.Units{PromptTokens: 5, CompletionTokens: 4}, s.Records[0].Units)
	assert.Equal(t, []llm.FinishReason{llm.FinishStop, llm.FinishLength}, s.Summaries[0].Reply.FinishReasons)
	assert.Positive(t, s.Summaries[0].FirstToken)
	assert.Equal(t, 5, s.Summaries[0].Chunks)
	var whole clientReply
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &whole))
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
		w := s.Post(path, fmt.Sprintf(`{"model":"m","prompt":["x","y"],"stream":true,"stream_options":{"include_usage":%t}}`, showUsage))
		require.Equal(t, 200, w.Code, w.Body)
		texts, reasons := make([]string, 2), make([]string, 2)
		var last clientReply
		var events []string
		for event := range strings.SplitSeq(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n") {
			data, ok := strings.CutPrefix(event, "data: ")
			require.True(t, ok, event)
			events = append(events, data)
		}
		assert.Equal(t, "[DONE]", events[len(events)-1])
		for _, event := range events[:len(events)-1] {
			assert.Less(t, len(event), 64<<10)
			last = clientReply{}
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
	var got *completion.Request
	s := newServer(t, backend(func(_ context.Context, r *completion.Request) llm.ChatStream {
		got = r
		return llm.Reply("x")
	}), llmhttp.Key{})
	for prompt, want := range map[string]completion.Prompt{
		`"def f("`: {Texts: []string{"def f("}}, `["a",""]`: {Texts: []string{"a", ""}}, `[1,2]`: {Tokens: [][]int{{1, 2}}}, `[[1],[2]]`: {Tokens: [][]int{{1}, {2}}},
	} {
		w := s.Post(path, `{"model":"m","prompt":`+prompt+`,"suffix":"\n","echo":true,"seed":7}`)
		require.Equal(t, 200, w.Code, w.Body)
		assert.Equal(t, &completion.Request{Model: "m", Prompt: want, Suffix: "\n", Echo: true, Extra: llm.Extra{"seed": json.RawMessage("7")}}, got)
	}
}

// A failure before the first chunk is the status of the reply; later, a stream is cut.
func TestCompletions_Errors(t *testing.T) {
	s := newServer(t, stream(llm.Errorf(400, "invalid_value", "No suffix.").WithParam("suffix")), llmhttp.Key{})
	for _, stream := range []string{"true", "false"} {
		assert.Equal(t, "suffix", s.PostRefused(path, `{"model":"m","prompt":"a","stream":`+stream+`}`, 400).Param)
	}
	s = newServer(t, stream(assert.AnError, chunkOf(0, "one", "", "")), llmhttp.Key{})
	s.PostRefused(path, `{"model":"m","prompt":"a"}`, 500)
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { s.Post(path, `{"model":"m","prompt":"a","stream":true}`) })
	last := s.Summaries[len(s.Summaries)-1]
	assert.True(t, last.Aborted())
	assert.Equal(t, llmhttp.ClassBackend, last.ErrorClass)
	assert.ErrorIs(t, last.Err, assert.AnError)
	s = newServer(t, backend(func(context.Context, *completion.Request) llm.ChatStream { return nil }), llmhttp.Key{})
	s.PostRefused(path, `{"model":"m","prompt":"a"}`, 500)
}

// The limit of a key on the tokens of a choice holds beside the prompt that is repeated.
func TestCompletions_MaxCompletionTokens(t *testing.T) {
	var limits []int
	prompt, long := strings.Repeat("p", 1000), strings.Repeat("x", 1000)
	s := newServer(t, backend(func(_ context.Context, r *completion.Request) llm.ChatStream {
		n, _ := r.TokenLimit()
		limits = append(limits, n)
		text := long
		switch {
		case r.Echo && r.Prompt.Texts != nil:
			text = slices.Max(r.Prompt.Texts) + text
		case r.Echo:
			text += long
		}
		return llm.Reply(text)
	}), llmhttp.Key{Limits: llmhttp.Limits{MaxCompletionTokens: 5}})
	for members, length := range map[string]int{
		`"prompt":"` + prompt + `"`:                                     104,
		`"prompt":"` + prompt + `","max_tokens":9`:                      104,
		`"prompt":"` + prompt + `","max_tokens":3`:                      104,
		`"prompt":"` + prompt + `","echo":true`:                         1104,
		`"prompt":["","` + prompt + `"],"echo":true`:                    1104,
		`"prompt":[[1],` + list(100, "7") + `],"n":1,"echo":true`:       104 + 864,
		`"prompt":[[1],` + list(100, "7") + `],"n":1,"max_tokens":null`: 104,
	} {
		var reply clientReply
		w := s.Post(path, `{"model":"m",`+members+`}`)
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply), w.Body)
		longest := 0
		for _, c := range reply.Choices {
			longest = max(longest, len(c.Text))
		}
		assert.Equal(t, length, longest, "%.40s", members)
		assert.Equal(t, "length", *reply.Choices[0].FinishReason)
	}
	assert.ElementsMatch(t, []int{5, 5, 3, 5, 5, 5, 5}, limits)
	s = newServer(t, stream(nil), llmhttp.Key{Limits: llmhttp.Limits{MaxCompletionTokens: -1}})
	assert.Equal(t, "completions_not_permitted", s.PostRefused(path, `{"model":"m","prompt":"a"}`, 403).Code)
}

// What is reserved is the prompts, and the limit of each choice that the model makes.
func TestCompletions_Reservation(t *testing.T) {
	for members, tokens := range map[string]int{
		`"prompt":[1,2,3],"max_tokens":10`:                         13,
		`"prompt":[[1,2],[3]],"max_tokens":10`:                     23,
		`"prompt":[[1,2],[3]],"max_tokens":10,"n":3`:               63,
		`"prompt":[[1,2],[3]],"max_tokens":10,"n":3,"best_of":5`:   103,
		`"prompt":["12345678",""],"suffix":"1234","max_tokens":10`: 24,
		`"prompt":[1,2,3],"max_tokens":0`:                          3,
	} {
		key := llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.Rate{N: 1, Burst: tokens}}}
		w := newServer(t, stream(nil, chunkOf(0, "x", "", "")), key).Post(path, `{"model":"m",`+members+`}`)
		assert.Equal(t, 200, w.Code, "%s: %s", members, w.Body)
		key.Limits.Tokens.Burst--
		w = newServer(t, stream(nil, chunkOf(0, "x", "", "")), key).Post(path, `{"model":"m",`+members+`}`)
		assert.Equal(t, 429, w.Code, "%s: %s", members, w.Body)
	}
}

// Observers get the prompts as messages, and parameters as those of a chat.
func TestCompletions_Transcript(t *testing.T) {
	var got *llmhttp.Transcript
	var info *llmhttp.RequestInfo
	h := llmhttp.NewHandler(stream(nil, chunkOf(0, "c", "", "")), llmhttp.AllowAll("a"), &llmhttp.Options{
		Routes: completion.Routes(),
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{
				Started:    func(_ context.Context, i *llmhttp.RequestInfo) context.Context { info = i; return nil },
				Transcript: func(tr *llmhttp.Transcript) { got = tr },
			}
		},
	})
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader(
		`{"model":"m","prompt":["a","","b"],"suffix":"d","stream":true,"n":2,"max_tokens":7,"temperature":0.5,"top_k":4,"seed":3,"stop":"x"}`)))
	var texts []string
	for _, m := range got.Messages {
		texts = append(texts, m.Content.Text())
	}
	assert.Equal(t, []string{"a", "b", "d"}, texts)
	assert.Equal(t, "c", got.Choices[0].Message.Content.Text())
	assert.True(t, info.Stream)
	assert.Equal(t, llmhttp.RequestParams{
		MaxTokens: 7, Choices: 6, Messages: 3, Temperature: new(0.5), TopK: new(4.0), Seed: new(3), Stop: []string{"x"},
	}, info.Params)
}

// A listingCompleter lists models, and completes with none of them.
type listingCompleter struct {
	llmhttp.Backend
	models []llm.Model
	err    error
}

func (listingCompleter) Complete(_ context.Context, req *completion.Request) llm.ChatStream {
	return llm.Fail(llm.ModelNotFound(req.Model))
}

func (l listingCompleter) ListModels(context.Context) ([]llm.Model, error) { return l.models, l.err }

// A model that exists is not said to be missing.
func TestCompletions_ChatModel(t *testing.T) {
	const absent = "The model `m` does not exist or you do not have access to it."
	for name, test := range map[string]struct {
		backend listingCompleter
		want    string
	}{
		"a chat model": {listingCompleter{models: []llm.Model{{ID: "x"}, {ID: "m", Capabilities: []llm.Capability{llm.CapabilityTools}}}},
			"'m' is a chat model, which this endpoint does not serve. Use /v1/chat/completions."},
		"a model": {listingCompleter{models: []llm.Model{{ID: "m"}}},
			"The model 'm' does not complete prompts. Chat models are served at /v1/chat/completions."},
		"none":              {listingCompleter{models: []llm.Model{{ID: "x"}}}, absent},
		"a list that fails": {listingCompleter{models: []llm.Model{{ID: "m"}}, err: errors.New("down")}, absent},
	} {
		for _, stream := range []string{"false", "true"} {
			t.Run(name+", stream "+stream, func(t *testing.T) {
				h := llmhttp.NewHandler(test.backend, llmhttp.AllowAll(""), &llmhttp.Options{Routes: completion.Routes(), Logger: slog.New(slog.DiscardHandler)})
				r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"model":"m","prompt":"p","stream":`+stream+`}`))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				assert.Equal(t, http.StatusNotFound, w.Code)
				var reply struct {
					Error struct{ Message, Code string }
				}
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply), w.Body)
				assert.Equal(t, test.want, reply.Error.Message)
				assert.Equal(t, "model_not_found", reply.Error.Code)
			})
		}
	}
}
