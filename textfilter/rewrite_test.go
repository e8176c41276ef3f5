package textfilter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/examples/redaction/replacer"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/textfilter"
)

// filterSecret is what filters of the tests replace. JSON escapes some of its characters.
const (
	filterSecret = "s3cr\"t\\ü-key"
	filterMark   = "[redacted]"
)

// redact replaces filterSecret.
var redact = replacer.New(filterSecret, filterMark)

// A place is somewhere in a value where a string can be.
type place struct {
	path string
	set  func(s string)
}

// places gives each list and pointer in v one element, and returns all places in it: strings, values
// and names of the members of each Extra, and strings in raw JSON. The strings have a value, so that no
// element is empty.
func places(v reflect.Value, path string) (all []place) {
	switch {
	case v.Type() == reflect.TypeFor[llm.Extra]():
		set := func(name, value string) { v.Set(reflect.ValueOf(llm.Extra{name: json.RawMessage(value)})) }
		return []place{
			{path + ".value", func(s string) { set("x", jsonText(s)) }},
			{path + ".inner", func(s string) { set("x", `[1,{"y":{"z":[true,`+jsonText(s)+`]}}]`) }},
			{path + ".name", func(s string) { set(s, `1`) }},
			{path + ".inner name", func(s string) { set("x", `{"y":{`+jsonText(s)+`:null}}`) }},
		}
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		return []place{{path, func(s string) { v.SetBytes([]byte(`{"a":[{"description":` + jsonText(s) + `}]}`)) }}}
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("p")
		return []place{{path, v.SetString}}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				all = append(all, places(v.Field(i), path+"."+f.Name)...)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			all = places(v.Index(0), path+"[0]")
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		all = places(v.Elem(), path)
	}
	return all
}

func jsonText(s string) string {
	b, _ := llmhttp.AppendJSON(nil, s)
	return string(b)
}

// notRewritten are the places whose strings stay as they are: they are not texts, or not readable.
var notRewritten = map[string]string{
	"llm.ChatRequest.Model":                                     "chooses the model",
	"llm.ChatRequest.Messages[0].Role":                          "one of a few",
	"llm.ChatRequest.Messages[0].Content[0].Type":               "one of a few",
	"llm.ChatRequest.Messages[0].Content[0].ImageURL.Detail":    "one of a few",
	"llm.ChatRequest.Messages[0].ReasoningDetails[0].Type":      "one of a few",
	"llm.ChatRequest.Messages[0].ReasoningDetails[0].Signature": "is over what the model has written",
	"llm.ChatRequest.Messages[0].ReasoningDetails[0].Data":      "encrypted",
	"llm.ChatRequest.Messages[0].ToolCalls[0].ID":               "an ID of the server",
	"llm.ChatRequest.Messages[0].ToolCalls[0].Type":             "one of a few",
	"llm.ChatRequest.Messages[0].ToolCallID":                    "an ID of the server",
	"llm.ChatRequest.ReasoningEffort":                           "one of a few",
	"llm.ChatRequest.ResponseFormat.Type":                       "one of a few",
	"llm.ChatRequest.Tools[0].Type":                             "one of a few",
	"llm.ChatRequest.ToolChoice.Mode":                           "one of a few",
	"llm.ChatRequest.ToolChoice.Type":                           "one of a few",
	"llm.ChatRequest.ToolChoice.AllowedTools.Mode":              "one of a few",
	"llm.ChatRequest.ToolChoice.AllowedTools.Tools[0].Type":     "one of a few",
	"llm.ImageRequest.Model":                                    "chooses the model",
	"llm.ImageRequest.Size":                                     "one of a few",
	"llm.ImageRequest.Quality":                                  "one of a few",
	"llm.ImageRequest.ResponseFormat":                           "one of a few",
	"imageedit.Request.ImageRequest.Model":                      "chooses the model",
	"imageedit.Request.ImageRequest.Size":                       "one of a few",
	"imageedit.Request.ImageRequest.Quality":                    "one of a few",
	"imageedit.Request.ImageRequest.ResponseFormat":             "one of a few",
	"imageedit.Request.Images[0].ContentType":                   "one of a few",
	"imageedit.Request.Mask.ContentType":                        "one of a few",
	"audio.SpeechRequest.Model":                                 "chooses the model",
	"audio.TranscriptionRequest.Model":                          "chooses the model",
	"audio.TranscriptionRequest.Language":                       "one of a few",
	"audio.TranscriptionRequest.ResponseFormat":                 "one of a few",
	"audio.TranscriptionRequest.TimestampGranularities[0]":      "one of a few",
	"audio.TranscriptionRequest.Include[0]":                     "one of a few",
	"audio.TranscriptionRequest.File.ContentType":               "one of a few",
	"audio.SpeechRequest.Voice.Name":                            "chooses the voice",
	"audio.SpeechRequest.Voice.ID":                              "chooses the voice",
	"audio.SpeechRequest.ResponseFormat":                        "one of a few",
	"audio.SpeechRequest.StreamFormat":                          "one of a few",
	"rerank.Request.Model":                                      "chooses the model",
	"completion.Request.Model":                                  "chooses the model",
	"moderation.Request.Model":                                  "chooses the model",
	"moderation.Request.Input.Parts[0].Type":                    "one of a few",
	"moderation.Request.Input.Parts[0].ImageURL.Detail":         "one of a few",
	"llm.EmbeddingRequest.Model":                                "chooses the model",
	"llm.EmbeddingRequest.EncodingFormat":                       "one of a few",
}

// requestTypes returns the types of the requests of all operations: those that the methods of a
// filtering Backend get.
func requestTypes() map[string]reflect.Type {
	types := make(map[string]reflect.Type)
	for m := range reflect.TypeOf(textfilter.New(new(recordingBackend), redacting)).Methods() {
		for i := range m.Type.NumIn() {
			if in := m.Type.In(i); i > 0 && in.Kind() == reflect.Pointer {
				types[in.Elem().String()] = in.Elem()
			}
		}
	}
	return types
}

// Each string in each request is rewritten, or is in notRewritten. A new type of request, and a new
// text in one, fails until Rewrite knows it.
func TestRewrite_EveryTextOfEveryRequest(t *testing.T) {
	types := requestTypes()
	require.Len(t, types, 9)
	found := make(map[string]bool)
	for name, typ := range types {
		probe := reflect.New(typ)
		for i, p := range places(probe.Elem(), name) {
			found[p.path] = true
			v := reflect.New(typ)
			places(v.Elem(), name)[i].set("a " + filterSecret + " b")
			removeTokens(v.Interface())
			require.NoError(t, textfilter.Rewrite(v.Interface(), redact.Request))
			places := fmt.Sprint(stringsIn(v.Elem()))
			_, stays := notRewritten[p.path]
			assert.Equal(t, stays, strings.Contains(places, filterSecret), p.path)
			assert.Equal(t, !stays, strings.Contains(places, "a "+filterMark+" b"), p.path)
		}
	}
	for path := range notRewritten {
		assert.True(t, found[path], "there is no %s", path)
	}
}

// removeTokens removes the token numbers of a request, which Rewrite refuses.
func removeTokens(req any) {
	switch r := req.(type) {
	case *llm.EmbeddingRequest:
		r.Input.Tokens = nil
	case *completion.Request:
		r.Prompt.Tokens = nil
	}
}

// stringsIn returns all strings in v, those in JSON decoded.
func stringsIn(v reflect.Value) (all []string) {
	switch v.Kind() {
	case reflect.String:
		return []string{v.String()}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				all = append(all, stringsIn(v.Field(i))...)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return stringsInJSON(v.Bytes())
		}
		for i := range v.Len() {
			all = append(all, stringsIn(v.Index(i))...)
		}
	case reflect.Map:
		for _, name := range v.MapKeys() {
			all = append(append(all, name.String()), stringsIn(v.MapIndex(name))...)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return stringsIn(v.Elem())
		}
	}
	return all
}

// stringsInJSON returns the strings in a JSON text.
func stringsInJSON(raw []byte) (all []string) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	for {
		token, err := d.Token()
		if err != nil {
			return all
		}
		if s, ok := token.(string); ok {
			all = append(all, s)
		}
	}
}

func TestRewrite_Error(t *testing.T) {
	refused := errors.New("refused")
	for name, typ := range requestTypes() {
		v := reflect.New(typ)
		places(v.Elem(), name)
		removeTokens(v.Interface())
		calls := 0
		err := textfilter.Rewrite(v.Interface(), func(textfilter.Kind, string) (string, error) {
			calls++
			return "", refused
		})
		assert.Equal(t, refused, err, name)
		assert.Equal(t, 1, calls, name)
	}
}

// What a model reads as one text is one for the filter, wherever it is divided.
func TestRewrite_DividedBetweenParts(t *testing.T) {
	cached := llm.Extra{"cache_control": json.RawMessage(`{"type":"ephemeral"}`)}
	for i := range len(filterSecret) {
		head, tail := "x "+filterSecret[:i], filterSecret[i:]+" y"
		parts := func() llm.Content {
			return llm.Content{{Type: "text", Text: head, Extra: cached}, {Type: "text", Text: tail}, {Type: "image_url"}, {Type: "text", Text: "z"}}
		}
		details := []llm.ReasoningDetail{{Type: llm.ReasoningText, Text: head}, {Type: llm.ReasoningText, Text: tail, Signature: "s"}, {Type: llm.ReasoningText, Text: "z"}}
		req := &llm.ChatRequest{Messages: []llm.Message{{Content: parts(), ReasoningDetails: details}}}
		require.NoError(t, textfilter.Rewrite(req, redact.Request))
		m := req.Messages[0]
		assert.Equal(t, "x "+filterMark+" yz", m.Content.Text())
		assert.Equal(t, cached, m.Content[0].Extra)
		assert.Equal(t, "x "+filterMark+" y", strings.Join([]string{m.ReasoningDetails[0].Text, m.ReasoningDetails[len(m.ReasoningDetails)-2].Text}, "")[:len("x "+filterMark+" y")])
		assert.NotContains(t, fmt.Sprint(m.ReasoningDetails[0].Text+m.ReasoningDetails[1].Text), filterSecret)
	}
	// Parts that the filter leaves alone stay apart, and so do those that it changes one by one.
	req := &llm.ChatRequest{Messages: []llm.Message{{Content: llm.Content{{Type: "text", Text: "a"}, {Type: "text", Text: filterSecret}}}}}
	require.NoError(t, textfilter.Rewrite(req, redact.Request))
	assert.Equal(t, llm.Content{{Type: "text", Text: "a"}, {Type: "text", Text: filterMark}}, req.Messages[0].Content)
}

// The source of a document counts the parts that follow it, which is wrong if some of them were joined: upstream/anthropic
// would take parts of the user for parts of the document.
func TestRewrite_DividedBetweenPartsOfSources(t *testing.T) {
	const turn = `{"role":"user","content":[{"type":"text","text":"1","anthropic":{"block":{"type":"document"},"parts":3}},{"type":"image_url","image_url":{"url":"https://a.test"}},%s]}`
	for parts, want := range map[string]bool{
		`{"type":"text","text":"x s3cr\"t\\ü"},{"type":"text","text":"-key y"}`: false,
		`{"type":"text","text":"x"},{"type":"text","text":"y"}`:                 true,
	} {
		var m llm.Message
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, turn, parts), &m))
		req := &llm.ChatRequest{Messages: []llm.Message{m}}
		require.NoError(t, textfilter.Rewrite(req, redact.Request))
		assert.Equal(t, want, req.Messages[0].Content[0].Extra["anthropic"] != nil, parts)
		assert.NotContains(t, req.Messages[0].Content.Text(), filterSecret)
	}
}

// A model can write arguments with escapes that JSON does not need.
func TestRewrite_EscapedArguments(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"x":"\u0073\u0033cr\u0022t\u005c\u00fc-key"}`: `{"x":"[redacted]"}`,
		`{"x":"s3cr\"t\\ü\u002dkey"}`:                   `{"x":"[redacted]"}`,
		`{"x":"\u0041 \ud83d\ude00 \/"}`:                `{"x":"\u0041 \ud83d\ude00 \/"}`, // nothing to replace: as the model wrote it
		`{"x":"s3cr\"t\\ü-key`:                          `{"x":"[redacted]`,
		`not JSON \u`:                                   `not JSON \u`,
	} {
		req := &llm.ChatRequest{Messages: []llm.Message{{ToolCalls: []llm.ToolCall{{Function: llm.FunctionCall{Name: "f", Arguments: arguments}}}}}}
		require.NoError(t, textfilter.Rewrite(req, redact.Request))
		assert.Equal(t, want, req.Messages[0].ToolCalls[0].Function.Arguments)
	}
}

// Base64 is not text, and it may be megabytes.
func TestRewrite_Media(t *testing.T) {
	audio := strings.Repeat("QUJD", 2000)
	req := &llm.ChatRequest{Messages: []llm.Message{{Content: llm.Content{
		{Type: "image_url", ImageURL: &llm.ImageURL{URL: "data:image/png;base64,AAAA"}},
		{Type: "input_audio", Extra: llm.Extra{"input_audio": json.RawMessage(`{"data":"` + audio + `"}`)}},
		{Type: "file", Extra: llm.Extra{"file": json.RawMessage(`{"file_data":"data:application/pdf;base64,AAAA"}`)}},
	}}}}
	var seen []string
	require.NoError(t, textfilter.Rewrite(req, func(_ textfilter.Kind, text string) (string, error) {
		seen = append(seen, text)
		return text, nil
	}))
	assert.ElementsMatch(t, []string{"input_audio", "data", "file", "file_data"}, seen)
}

func TestRewrite_TokenNumbers(t *testing.T) {
	req := &llm.EmbeddingRequest{Input: llm.EmbeddingInput{Tokens: [][]int{{1, 2}}}}
	var e *llm.Error
	require.ErrorAs(t, textfilter.Rewrite(req, redact.Request), &e)
	assert.Equal(t, 400, e.Status)
	assert.Equal(t, "input", e.Param)
}
