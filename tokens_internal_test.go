package llmhttp

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// longText is as long as a prompt that somebody may want to hide from the estimate.
var longText = strings.Repeat("words ", 1_100_000/6)

// eachText calls f for each text in the value that v points to, at every depth, with v
// otherwise zero but for one element in each list. A new field of a type that has no case
// here fails the test.
func eachText(t *testing.T, v reflect.Value, path string, f func(path string)) {
	set := func(value any) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(reflect.ValueOf(value).Convert(v.Type()))
		f(path)
		v.Set(old)
	}
	raw, _ := json.Marshal(longText)
	switch v.Interface().(type) {
	case json.RawMessage:
		set(json.RawMessage(`{"a":` + string(raw) + `}`))
		return
	case Extra:
		for _, value := range []string{`%s`, `[%s]`, `{"a":{"b":%s}}`} {
			path := path + " " + value
			v.Set(reflect.ValueOf(Extra{"a": fmt.Appendf(nil, value, raw)}))
			f(path)
		}
		v.Set(reflect.ValueOf(Extra{longText: json.RawMessage("1")}))
		f(path + " name")
		v.SetZero()
		return
	}
	switch v.Kind() {
	case reflect.String:
		set(longText)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				eachText(t, v.Field(i), path+"."+field.Name, f)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		eachText(t, v.Index(0), path+"[0]", f)
		v.SetZero()
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		eachText(t, v.Elem(), path, f)
		v.SetZero()
	case reflect.Map: // the fields of a form
		for _, field := range []map[string][]string{{"a": {longText}}, {longText: {"a"}}} {
			v.Set(reflect.ValueOf(field))
			f(path)
		}
		v.SetZero()
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64, reflect.Interface:
	default:
		require.Fail(t, "a type without a case", "%s: %s", path, v.Type())
	}
}

// Every text of a request and of a reply counts, wherever it is. A new field counts nothing
// until tokens.go knows it, and fails this test.
func TestTokens_EveryTextCounts(t *testing.T) {
	for name, count := range map[string]func(model, text string) int{
		"by length":   nil,
		"CountTokens": func(_, text string) int { return len(text) / 4 },
	} {
		c := tokenEstimator{count: count}
		var chat ChatRequest
		var embedding EmbeddingRequest
		var rerank RerankRequest
		var moderation ModerationRequest
		var completion CompletionRequest
		var image ImageRequest
		var speech SpeechRequest
		var transcription TranscriptionRequest
		var delta Delta
		for kind, tt := range map[string]struct {
			value any
			count func() int
		}{
			"chat":        {&chat, func() int { return c.prompt(&chat) }},
			"embeddings":  {&embedding, func() int { return c.input(&embedding) }},
			"rerank":      {&rerank, func() int { return c.rerank(&rerank) }},
			"completions": {&completion, func() int { return c.completion(&completion) }},
			"moderations": {&moderation, func() int { return c.moderation(&moderation) }},
			"images":      {&image, func() int { return c.image(&image) }},
			"speech":      {&speech, func() int { return c.speech(&speech) }},
			"transcriptions": {&transcription, func() int {
				r := transcription
				if r.File == nil {
					r.File = new(File)
				}
				return c.transcription(&r)
			}},
			"delta": {&delta, func() int {
				out := outputCounter{keepText: count != nil}
				out.add(&delta)
				return c.output(&out)
			}},
		} {
			texts := 0
			eachText(t, reflect.ValueOf(tt.value).Elem(), kind, func(path string) {
				texts++
				want := len(longText) / 5
				if path == "chat.Messages[0].Content[0].ImageURL.URL" || path == "moderations.Input.Parts[0].ImageURL.URL" {
					want = len(longText) / 513 // it may contain an image
				}
				assert.GreaterOrEqual(t, tt.count(), want, "%s, %s", path, name)
			})
			assert.Greater(t, texts, 5, "%s", kind)
		}
	}
}

// Media count by their size. Text that only looks like media counts as text.
func TestTokens_Media(t *testing.T) {
	c := new(tokenEstimator)
	base64 := strings.Repeat("QUJD", 275_000) // 1.1 MB
	url := func(mediaType string) string { return "data:" + mediaType + ";base64," + base64 }
	part := func(typ, format string, a ...any) Part {
		return Part{Type: typ, Extra: Extra{typ: fmt.Appendf(nil, format, a...)}}
	}
	const asMedia, asFile, asText = 1_100_000 / bytesPerMedia, 1_100_000 / bytesPerFile, 1_100_000 / 4
	for name, tt := range map[string]struct {
		part Part
		want int
	}{
		"image":                      {Part{Type: PartImage, ImageURL: &ImageURL{URL: url("image/png")}}, asMedia},
		"image, address":             {Part{Type: PartImage, ImageURL: &ImageURL{URL: "https://example.com/cat.png", Detail: "high"}}, 0},
		"image, long address":        {Part{Type: PartImage, ImageURL: &ImageURL{URL: "https://example.com/" + base64}}, asMedia},
		"audio":                      {part(PartAudio, `{"data":"%s","format":"wav"}`, base64), asMedia},
		"audio with space":           {part(PartAudio, `{ "format" : "wav" , "data" : "%s" }`, base64), asMedia},
		"audio that is text":         {part(PartAudio, `{"data":"%s","format":"wav"}`, longText), asText},
		"text beside audio":          {part(PartAudio, `{"data":"AAAA","format":"%s"}`, longText), asText},
		"file, PDF":                  {part(PartFile, `{"filename":"a.pdf","file_data":"%s"}`, url("application/pdf")), asFile},
		"file, text":                 {part(PartFile, `{"file_data":"%s"}`, url("text/plain")), asText * 3 / 4},
		"file, image":                {part(PartFile, `{"file_data":"%s"}`, url(`image\/png`)), asMedia},
		"file, no type":              {part(PartFile, `{"file_data":"%s"}`, url("")), asFile},
		"file, ID":                   {part(PartFile, `{"file_id":"file-1"}`), 0},
		"another type":               {part("video_url", `{"url":"%s"}`, url("video/mp4")), asMedia},
		"a string":                   {part("video", `"%s"`, url("video/mp4")), asMedia},
		"several":                    {part("media", `["%s","%s"]`, url("video/mp4"), url("image/png")), 2 * asMedia},
		"text in a data URL":         {part("x", `{"url":"data:image/png;base64,%s"}`, longText), asText},
		"text in escapes":            {part("x", `{"url":"data:image/png;base64,%s"}`, strings.Repeat(`\u0057`, 1_100_000/6)), asText},
		"base64 with escapes":        {part("x", `{"url":"data:image/png;base64,%s"}`, strings.Repeat(`QU\/D`, 220_000)), asMedia},
		"text without base64":        {part("x", `{"url":"data:text/plain,%s"}`, longText), asText},
		"text that quotes one":       {part("x", `"a \"data:image/png;base64,AAAA\" %s"`, longText), asText},
		"text that quotes a payload": {part("x", `["a \"%s\" "]`, url("image/png")), asText},
		"text that begins with data": {part("x", `{"a":"data: %s"}`, longText), asText},
		"elements with spaces":       {part("x", `{ "images" : [ "%s" , "%s" ] }`, url("image/png"), url("image/png")), 2 * asMedia},
		"after another string":       {part("x", `{"url":["%s",{"text":"x"},"%s"]}`, url("image/png"), url("image/png")), asMedia + asText},
		"text of a part":             {part("thinking", `"%s"`, url("image/png")), asText},
		"text in a member":           {part(PartFile, `{"filename":"%s"}`, url("image/png")), asText},
		"texts":                      {part("x", `{"texts":["%s","%s"]}`, url("image/png"), url("image/png")), 2 * asText},
		"text after an image":        {part("x", `{"url":"%s","text":"%s"}`, url("image/png"), url("image/png")), asMedia + asText},
		"a name":                     {part("x", `{"url":"","%s":1}`, url("image/png")), asText},
		"an escaped name":            {part("x", `{"\"url":"%s"}`, url("image/png")), asText},
		"not JSON, joined":           {part("x", `{"url":"%s"data:image/png;base64,"`, url("image/png")), asMedia},
		"not JSON":                   {part(PartAudio, `{"data"`), 0},
		"not JSON either":            {part(PartAudio, `"`), 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.message(&Message{Content: Content{tt.part}})
			assert.InDelta(t, tokensPerMessage+tokensPerMedia+tt.want, got, 30+float64(tt.want)/100)
		})
	}
	t.Run("a tool is text", func(t *testing.T) {
		tool := Tool{Type: "custom", Extra: Extra{"custom": fmt.Appendf(nil, `{"description":"%s"}`, url("image/png"))}}
		assert.GreaterOrEqual(t, c.tool(&tool), asText)
	})
	t.Run("text of a message", func(t *testing.T) {
		for name, value := range map[string]string{"reasoning": `"%s"`, "reasoning_content": `"%s"`, "thinking": `["%s"]`, "x": `{"text":"%s"}`} {
			m := Message{Extra: Extra{name: fmt.Appendf(nil, value, url("image/png"))}}
			assert.GreaterOrEqual(t, c.message(&m), asText, name)
		}
	})
	t.Run("reply", func(t *testing.T) {
		var out outputCounter
		out.add(&Delta{Extra: Extra{
			"audio":  fmt.Appendf(nil, `{"id":"audio_1","data":"%s","transcript":"Hello"}`, base64),
			"images": fmt.Appendf(nil, `[{"type":"image_url","image_url":{"url":"%s"}}]`, url("image/png")),
		}})
		assert.InDelta(t, 2*asMedia, c.output(&out), 100)
	})
}

// Reasoning that comes in two forms counts once, and labels that each delta repeats do not count.
func TestTokens_Reasoning(t *testing.T) {
	detail := []ReasoningDetail{{Type: ReasoningText, Text: "four", Extra: Extra{"format": json.RawMessage(`"anthropic-claude-v1"`), "index": json.RawMessage("0")}}}
	c := new(tokenEstimator)
	for name, d := range map[string]Delta{
		"text":             {Reasoning: "four"},
		"details":          {ReasoningDetails: detail},
		"both":             {Reasoning: "four", ReasoningDetails: detail},
		"details, shorter": {Reasoning: "four", ReasoningDetails: []ReasoningDetail{{Text: "f"}}},
		"text, shorter":    {Reasoning: "f", ReasoningDetails: detail},
	} {
		var out outputCounter
		out.add(&d)
		assert.Equal(t, 1, c.output(&out), name)
		m := Message{Reasoning: d.Reasoning, ReasoningDetails: d.ReasoningDetails}
		m.ReasoningDetails = append([]ReasoningDetail(nil), m.ReasoningDetails...)
		for i := range m.ReasoningDetails {
			m.ReasoningDetails[i].Extra = nil
		}
		assert.Equal(t, tokensPerMessage+1, c.message(&m), name)
	}
}
