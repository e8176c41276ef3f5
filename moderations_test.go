package llmhttp_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/llm"
)

var (
	_ = codectest.MakesConsistent(func(in *llmhttp.ModerationInput) { in.Parts = nil })
	_ = codectest.MakesConsistent(func(r *llmhttp.ModerationResponse) {
		r.Usage.CompletionTokens, r.Usage.CompletionTokensDetails = 0, llm.CompletionTokensDetails{}
	})
)

func init() {
	jsonSuite.Types["ModerationRequest"] = func() any { return new(llmhttp.ModerationRequest) }
	jsonSuite.Types["ModerationInput"] = func() any { return new(llmhttp.ModerationInput) }
	jsonSuite.Types["ModerationResponse"] = func() any { return new(llmhttp.ModerationResponse) }
	jsonSuite.Types["ModerationResult"] = func() any { return new(llmhttp.ModerationResult) }
	jsonSuite.Documents = append(jsonSuite.Documents, []codectest.Document{
		{"ModerationRequest", `{"model":"m","input":["a",""],"user":"u"}`},
		{"ModerationRequest", `{"model":"m","input":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}`},
		{"ModerationInput", `"a"`}, {"ModerationInput", `["a","b"]`}, {"ModerationInput", `[]`}, {"ModerationInput", `[{"type":"text","text":"a","x":1}]`},
		{"ModerationResponse", `{"id":"i","model":"m","results":[{"flagged":true,"categories":{"hate":true,"violence/graphic":false},"category_scores":{"hate":0.9,"violence/graphic":1e-9},"category_applied_input_types":{"hate":["text"],"violence/graphic":[]},"x":1}],"usage":{"prompt_tokens":1,"total_tokens":1},"y":2}`},
		{"ModerationResult", `{"flagged":false,"categories":{},"category_scores":{}}`},
	}...)
}

func TestModerations_Params(t *testing.T) {
	inputs := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","input":` + s + `}` }, list...)
	}
	parts := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","input":[{"type":"text","text":"a"},` + s + `]}` }, list...)
	}
	checkParams(t, startServer(t, config{}), moderationsPath, []paramTest{
		{"", notJSON, append(inputs(`"a`), `{`)},
		{"model", invalidType, []string{`{"model":5,"input":"a"}`}},
		{"input", missing, append(inputs("null"), `{}`, `{"model":"m"}`)},
		{"input", invalidType, inputs("5", "true", "{}", `["a",{"type":"text","text":"a"}]`, `[{"type":"text","text":"a"},"a"]`)},
		{"input", duplicate, []string{`{"model":"m","input":"a","input":"b"}`}},
		{"input", emptyArray, inputs(`[]`)},
		{"input", arrayTooLong, inputs(repeatJSON(2049, `"a"`), repeatJSON(4097, `{"type":"text","text":"a"}`))},
		{"input[0]", invalidType, inputs(`[1]`, `[null]`, `[["a"]]`)},
		{"input[1]", invalidType, inputs(`["a",5]`, `["a",null]`)},
		{"input[1].type", missing, parts(`{}`, `{"text":"a"}`)},
		{"input[1].type", invalidValue, parts(`{"type":"input_audio","input_audio":{}}`, `{"type":"file"}`)},
		{"input[1].text", missing, parts(`{"type":"text"}`)},
		{"input[1].text", invalidType, parts(`{"type":"text","text":null}`, `{"type":"text","text":5}`)},
		{"input[1].image_url", missing, parts(`{"type":"image_url"}`)},
		{"input[1].image_url", invalidType, parts(`{"type":"image_url","image_url":"https://images.test/1"}`)},
		{"input[1].image_url.url", missing, parts(`{"type":"image_url","image_url":{}}`)},
		{"", accepted, inputs(`""`, `"a"`, `["a",""]`, repeatJSON(2048, `"a"`), repeatJSON(4096, `{"type":"text","text":"a"}`), `[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]`)},
		{"", accepted, []string{`{"input":"a"}`, `{"model":null,"input":"a"}`, `{"model":"m","input":"a","user":"u"}`}},
	})
}

func TestModerations_InputReachesTheBackend(t *testing.T) {
	var got *llmhttp.ModerationRequest
	s := startServer(t, config{backend: &stubBackend{moderate: func(_ context.Context, r *llmhttp.ModerationRequest) (*llmhttp.ModerationResponse, error) {
		got = r
		return &llmhttp.ModerationResponse{Results: make([]llmhttp.ModerationResult, r.Input.Results())}, nil
	}}})
	image := llm.Part{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: "https://images.test/1"}}
	for input, want := range map[string]llmhttp.ModerationInput{
		`"a"`:       {Texts: []string{"a"}},
		`["a"]`:     {Texts: []string{"a"}},
		`["a","b"]`: {Texts: []string{"a", "b"}},
		`[{"image_url":{"url":"https://images.test/1"},"type":"image_url"},{"type":"text","text":"b"}]`: {Parts: []llm.Part{image, {Type: llm.PartText, Text: "b"}}},
	} {
		r := s.do("POST", moderationsPath, `{"model":"m","input":`+input+`}`)
		require.Equal(t, 200, r.StatusCode, r.body)
		assert.Equal(t, want, got.Input, input)
		assert.Equal(t, "m", got.Model)
	}
	s.do("POST", moderationsPath, `{"input":"a"}`)
	assert.Equal(t, "omni-moderation-latest", got.Model, "the default of OpenAI's API")
}

// A moderationReply is a reply as clients read it.
type moderationReply struct {
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
	own := &llmhttp.ModerationResponse{Results: []llmhttp.ModerationResult{
		{Flagged: true, Categories: map[string]bool{"hate": true}, Scores: map[string]float64{"hate": 0.75}, InputTypes: map[string][]string{"hate": {"text"}}}, {},
	}}
	s := startServer(t, config{backend: &stubBackend{moderate: func(_ context.Context, r *llmhttp.ModerationRequest) (*llmhttp.ModerationResponse, error) {
		r.Input.Texts[0], r.Model = "", ""
		return own, nil
	}}})
	for range 2 {
		r := s.do("POST", moderationsPath, `{"model":"m","input":["a","b"]}`)
		require.Equal(t, 200, r.StatusCode, r.body)
		var reply moderationReply
		require.NoError(t, json.Unmarshal([]byte(r.body), &reply))
		assert.Regexp(t, `^modr-[0-9a-f]{32}$`, reply.ID)
		assert.Equal(t, "m", reply.Model)
		assert.True(t, reply.Results[0].Flagged)
		assert.Equal(t, own.Results[0].Categories, reply.Results[0].Categories)
		assert.Equal(t, own.Results[0].Scores, reply.Results[0].Scores)
		assert.Equal(t, own.Results[0].InputTypes, reply.Results[0].InputTypes)
		assert.Contains(t, r.body, `{"flagged":false,"categories":{},"category_scores":{}}`, "clients read the members of each result")
		assert.Empty(t, own.ID, "the Backend may keep its reply")
	}
}

func TestModerations_InvalidReplies(t *testing.T) {
	scored := func(score float64) []llmhttp.ModerationResult {
		return []llmhttp.ModerationResult{{}, {Scores: map[string]float64{"hate": score}}}
	}
	for name, results := range map[string][]llmhttp.ModerationResult{
		"none": nil, "too few": {{}}, "too many": {{}, {}, {}}, "no number": scored(math.NaN()), "infinite": scored(math.Inf(1)),
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: &stubBackend{moderate: func(context.Context, *llmhttp.ModerationRequest) (*llmhttp.ModerationResponse, error) {
				return &llmhttp.ModerationResponse{Results: results}, nil
			}}})
			s.do("POST", moderationsPath, `{"model":"m","input":["a","b"]}`).checkError(t, 500)
			assert.Equal(t, llmhttp.ClassBackend, s.summary().ErrorClass)
		})
	}
	t.Run("nil", func(t *testing.T) {
		s := startServer(t, config{backend: &stubBackend{moderate: func(context.Context, *llmhttp.ModerationRequest) (*llmhttp.ModerationResponse, error) {
			return nil, nil
		}}})
		s.do("POST", moderationsPath, moderationBody).checkError(t, 500)
	})
	t.Run("larger than MaxReply", func(t *testing.T) {
		s := startServer(t, config{opts: llmhttp.Options{MaxReply: 1000}})
		s.do("POST", moderationsPath, `{"model":"m","input":`+repeatJSON(100, `"a"`)+`}`).checkError(t, 502)
	})
}

// Servers leave out members, set them to null and add others.
func TestModerations_RepliesOfServers(t *testing.T) {
	for doc, want := range map[string]llmhttp.ModerationResult{
		`{}`: {},
		`{"flagged":null,"categories":null,"category_scores":null,"category_applied_input_types":null}`: {},
		`{"categories":{"hate":true,"illicit":null,"x":"y"},"category_scores":{"hate":1,"illicit":null,"x":"y"}}`: {
			Categories: map[string]bool{"hate": true}, Scores: map[string]float64{"hate": 1}},
		`{"categories":[],"category_scores":5,"category_applied_input_types":{"hate":"text","sexual":["image"]}}`: {
			InputTypes: map[string][]string{"sexual": {"image"}}},
	} {
		got := llmhttp.ModerationResult{}
		require.NoError(t, json.Unmarshal([]byte(doc), &got), doc)
		assert.Equal(t, want, got, doc)
	}
}

// Without a report the usage is an estimate of the texts, and of images by their size.
func TestModerations_Usage(t *testing.T) {
	for name, tt := range map[string]struct {
		body      string
		backend   llmhttp.Backend
		want      int64
		estimated bool
	}{
		"texts":             {`{"model":"m","input":["one two","three"]}`, nil, 3, true},
		"parts":             {`{"model":"m","input":[{"type":"text","text":"one two"},{"type":"image_url","image_url":{"url":"https://images.test/1"}}]}`, nil, 2 + 85, true},
		"tokens":            {`{"model":"m","input":"one two"}`, &stubBackend{usage: &llm.Usage{TotalTokens: 70}}, 70, false},
		"the Backend fails": {`{"model":"m","input":"one two"}`, failingBackend(errCause), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{backend: tt.backend, opts: llmhttp.Options{TextTokens: countWords}})
			r := s.do("POST", moderationsPath, tt.body)
			record := s.record()
			assert.Equal(t, llmhttp.Units{PromptTokens: tt.want}, record.Units)
			assert.Equal(t, tt.estimated, record.Estimated)
			assert.Equal(t, llmhttp.OperationModerations, record.Operation)
			if r.StatusCode == 200 {
				var reply moderationReply
				require.NoError(t, json.Unmarshal([]byte(r.body), &reply))
				assert.EqualValues(t, tt.want, reply.Usage.Prompt)
			}
		})
	}
}
