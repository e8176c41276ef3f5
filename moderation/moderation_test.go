package moderation_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
)

const path = "/v1/moderations"

// A backend is a Backend that moderates.
type backend func(ctx context.Context, req *moderation.Request) (*moderation.Response, error)

func (backend) Chat(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") }

func (b backend) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	return b(ctx, req)
}

// results returns a Backend with these results.
func results(list ...moderation.Result) backend {
	return func(context.Context, *moderation.Request) (*moderation.Response, error) {
		return &moderation.Response{Results: list}, nil
	}
}

// harmless returns a Backend that finds nothing, and reports the usage.
func harmless(usage *llm.Usage) backend {
	return func(_ context.Context, req *moderation.Request) (*moderation.Response, error) {
		return &moderation.Response{Results: make([]moderation.Result, req.Input.Results()), Usage: usage}, nil
	}
}

// newServer returns a Server with the routes of package moderation, whose key may do everything.
func newServer(t testing.TB, b llmhttp.Backend, opts llmhttp.Options) *endpointtest.Server {
	opts.Routes = moderation.Routes()
	return endpointtest.New(t, b, llmhttp.Key{}, opts)
}

func countWords(_, text string) int { return len(strings.Fields(text)) }

// list returns a JSON array of n items.
func list(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

func TestModerations_Params(t *testing.T) {
	inputs := func(list ...string) (bodies []string) {
		for _, s := range list {
			bodies = append(bodies, `{"model":"m","input":`+s+`}`)
		}
		return bodies
	}
	parts := func(list ...string) []string {
		for i, s := range list {
			list[i] = `[{"type":"text","text":"a"},` + s + `]`
		}
		return inputs(list...)
	}
	newServer(t, harmless(nil), llmhttp.Options{}).CheckParams(t, path, []endpointtest.Param{
		{"", "", append(inputs(`"a`), `{`)},
		{"model", "invalid_type", []string{`{"model":5,"input":"a"}`}},
		{"input", "missing_required_parameter", append(inputs("null"), `{}`, `{"model":"m"}`)},
		{"input", "invalid_type", inputs("5", "true", "{}", `["a",{"type":"text","text":"a"}]`, `[{"type":"text","text":"a"},"a"]`)},
		{"input", "duplicate_parameter", []string{`{"model":"m","input":"a","input":"b"}`}},
		{"input", "empty_array", inputs(`[]`)},
		{"input", "array_above_max_length", inputs(list(2049, `"a"`), list(4097, `{"type":"text","text":"a"}`))},
		{"input[0]", "invalid_type", inputs(`[1]`, `[null]`, `[["a"]]`)},
		{"input[1]", "invalid_type", inputs(`["a",5]`, `["a",null]`)},
		{"input[1].type", "missing_required_parameter", parts(`{}`, `{"text":"a"}`)},
		{"input[1].type", "invalid_value", parts(`{"type":"input_audio","input_audio":{}}`, `{"type":"file"}`)},
		{"input[1].text", "missing_required_parameter", parts(`{"type":"text"}`)},
		{"input[1].text", "invalid_type", parts(`{"type":"text","text":null}`, `{"type":"text","text":5}`)},
		{"input[1].image_url", "missing_required_parameter", parts(`{"type":"image_url"}`)},
		{"input[1].image_url", "invalid_type", parts(`{"type":"image_url","image_url":"https://images.test/1"}`)},
		{"input[1].image_url.url", "missing_required_parameter", parts(`{"type":"image_url","image_url":{}}`)},
		{"", endpointtest.Accepted, inputs(`""`, `"a"`, `["a",""]`, list(2048, `"a"`), list(4096, `{"type":"text","text":"a"}`), `[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]`)},
		{"", endpointtest.Accepted, []string{`{"input":"a"}`, `{"model":null,"input":"a"}`, `{"model":"m","input":"a","user":"u"}`}},
	})
}

func TestModerations_InputReachesTheBackend(t *testing.T) {
	var got *moderation.Request
	s := newServer(t, backend(func(ctx context.Context, r *moderation.Request) (*moderation.Response, error) {
		got = r
		return harmless(nil)(ctx, r)
	}), llmhttp.Options{})
	image := llm.Part{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: "https://images.test/1"}}
	for input, want := range map[string]moderation.Input{
		`"a"`:       {Texts: []string{"a"}},
		`["a"]`:     {Texts: []string{"a"}},
		`["a","b"]`: {Texts: []string{"a", "b"}},
		`[{"image_url":{"url":"https://images.test/1"},"type":"image_url"},{"type":"text","text":"b"}]`: {Parts: []llm.Part{image, {Type: llm.PartText, Text: "b"}}},
	} {
		w := s.Post(path, `{"model":"m","input":`+input+`}`)
		require.Equal(t, 200, w.Code, w.Body)
		assert.Equal(t, want, got.Input, input)
		assert.Equal(t, "m", got.Model)
	}
	s.Post(path, `{"input":"a"}`)
	assert.Equal(t, "omni-moderation-latest", got.Model, "the default of OpenAI's API")
}

// A clientReply is a reply as clients read it.
type clientReply struct {
	ID, Model string
	Results   []struct {
		Flagged    bool
		Categories map[string]bool
		Scores     map[string]float64  `json:"category_scores"`
		InputTypes map[string][]string `json:"category_applied_input_types"`
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
	}
}

func TestModerations_Reply(t *testing.T) {
	own := &moderation.Response{Results: []moderation.Result{
		{Flagged: true, Categories: map[string]bool{"hate": true}, Scores: map[string]float64{"hate": 0.75}, InputTypes: map[string][]string{"hate": {"text"}}}, {},
	}}
	s := newServer(t, backend(func(_ context.Context, r *moderation.Request) (*moderation.Response, error) {
		r.Input.Texts[0], r.Model = "", ""
		return own, nil
	}), llmhttp.Options{})
	for range 2 {
		w := s.Post(path, `{"model":"m","input":["a","b"]}`)
		require.Equal(t, 200, w.Code, w.Body)
		var reply clientReply
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
		assert.Regexp(t, `^modr-[0-9a-f]{32}$`, reply.ID)
		assert.Equal(t, "m", reply.Model)
		assert.True(t, reply.Results[0].Flagged)
		assert.Equal(t, own.Results[0].Categories, reply.Results[0].Categories)
		assert.Equal(t, own.Results[0].Scores, reply.Results[0].Scores)
		assert.Equal(t, own.Results[0].InputTypes, reply.Results[0].InputTypes)
		assert.Contains(t, w.Body.String(), `{"flagged":false,"categories":{},"category_scores":{}}`, "clients read the members of each result")
		assert.Empty(t, own.ID, "the Backend may keep its reply")
	}
}

func TestModerations_InvalidReplies(t *testing.T) {
	scored := func(score float64) []moderation.Result {
		return []moderation.Result{{}, {Scores: map[string]float64{"hate": score}}}
	}
	for name, invalid := range map[string][]moderation.Result{
		"none": nil, "too few": {{}}, "too many": {{}, {}, {}}, "no number": scored(math.NaN()), "infinite": scored(math.Inf(1)),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, results(invalid...), llmhttp.Options{})
			s.PostRefused(path, `{"model":"m","input":["a","b"]}`, 500)
			assert.Equal(t, llmhttp.ClassBackend, s.Summaries[0].ErrorClass)
		})
	}
	t.Run("nil", func(t *testing.T) {
		s := newServer(t, backend(func(context.Context, *moderation.Request) (*moderation.Response, error) { return nil, nil }), llmhttp.Options{})
		s.PostRefused(path, `{"model":"m","input":"a"}`, 500)
	})
	t.Run("larger than MaxReply", func(t *testing.T) {
		s := newServer(t, harmless(nil), llmhttp.Options{Bounds: llmhttp.Bounds{MaxReply: 1000}})
		s.PostRefused(path, `{"model":"m","input":`+list(100, `"a"`)+`}`, 502)
	})
}

// Without a report the usage is an estimate of the texts, and of images by their size.
func TestModerations_Usage(t *testing.T) {
	failing := backend(func(context.Context, *moderation.Request) (*moderation.Response, error) { return nil, assert.AnError })
	for name, tt := range map[string]struct {
		body      string
		backend   llmhttp.Backend
		want      int64
		estimated bool
	}{
		"texts":             {`{"model":"m","input":["one two","three"]}`, harmless(nil), 3, true},
		"parts":             {`{"model":"m","input":[{"type":"text","text":"one two"},{"type":"image_url","image_url":{"url":"https://images.test/1"}}]}`, harmless(nil), 2 + 85, true},
		"tokens":            {`{"model":"m","input":"one two"}`, harmless(&llm.Usage{TotalTokens: 70}), 70, false},
		"the Backend fails": {`{"model":"m","input":"one two"}`, failing, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tt.backend, llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}})
			w := s.Post(path, tt.body)
			require.Len(t, s.Records, 1)
			record := s.Records[0]
			assert.Equal(t, llmhttp.Units{PromptTokens: tt.want}, record.Units)
			assert.Equal(t, tt.estimated, record.Estimated)
			assert.Equal(t, moderation.Operation, record.Operation)
			if w.Code == 200 {
				var reply clientReply
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
				assert.EqualValues(t, tt.want, reply.Usage.Prompt)
			}
		})
	}
}
