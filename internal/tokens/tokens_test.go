package tokens_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
)

// Every text of a chat request and of a delta counts, wherever it is. A new field counts nothing
// until tokens.go knows it, and fails this test.
func TestTokens_EveryTextCounts(t *testing.T) {
	for name, count := range map[string]func(model, text string) int{
		"by length":   nil,
		"CountTokens": func(_, text string) int { return len(text) / 4 },
	} {
		c := tokens.Estimator{Count: count}
		var chat llm.ChatRequest
		var delta llm.Delta
		for kind, tt := range map[string]struct {
			value any
			count func() int
		}{
			"chat": {&chat, func() int { return c.Prompt(&chat) }},
			"delta": {&delta, func() int {
				out := tokens.Counter{KeepText: count != nil}
				out.Add(&delta)
				return c.Output(&out)
			}},
		} {
			texts := 0
			texttest.EachLong(t, reflect.ValueOf(tt.value).Elem(), kind, func(path string) {
				texts++
				want := len(texttest.Long) / 5
				if path == "chat.Messages[0].Content[0].ImageURL.URL" {
					want = len(texttest.Long) / 513 // it may contain an image
				}
				assert.GreaterOrEqual(t, tt.count(), want, "%s, %s", path, name)
			})
			assert.Greater(t, texts, 5, "%s", kind)
		}
	}
}

// Models do not get the marks of what is cached, but what is too long for one counts.
func TestTokens_CacheControl(t *testing.T) {
	prompt := func(mark string) int {
		extra := llm.Extra{"cache_control": json.RawMessage(mark)}
		return new(tokens.Estimator).Prompt(&llm.ChatRequest{Extra: extra, Tools: []llm.Tool{{Extra: extra}},
			Messages: []llm.Message{{Content: llm.Content{{Type: llm.PartText, Extra: extra}}, ToolCalls: []llm.ToolCall{{Extra: extra}}}}})
	}
	assert.Equal(t, prompt(`null`), prompt(`{"type":"ephemeral","scope":"global","ttl":"1h"}`))
	assert.Greater(t, prompt(`{"type":"`+texttest.Long+`"}`), 4*len(texttest.Long)/5)
}

// Media count by their size. Text that only looks like media counts as text.
func TestTokens_Media(t *testing.T) {
	c := new(tokens.Estimator)
	base64 := strings.Repeat("QUJD", 275_000) // 1.1 MB
	url := func(mediaType string) string { return "data:" + mediaType + ";base64," + base64 }
	part := func(typ, format string, a ...any) llm.Part {
		return llm.Part{Type: typ, Extra: llm.Extra{typ: fmt.Appendf(nil, format, a...)}}
	}
	const asMedia, asFile, asText = 1_100_000 / tokens.BytesPerMedia, 1_100_000 / tokens.BytesPerFile, 1_100_000 / 4
	for name, tt := range map[string]struct {
		part llm.Part
		want int
	}{
		"image":                      {llm.Part{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: url("image/png")}}, asMedia},
		"image, address":             {llm.Part{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: "https://example.com/cat.png", Detail: "high"}}, 0},
		"image, long address":        {llm.Part{Type: llm.PartImage, ImageURL: &llm.ImageURL{URL: "https://example.com/" + base64}}, asMedia},
		"audio":                      {part(llm.PartAudio, `{"data":"%s","format":"wav"}`, base64), asMedia},
		"audio with space":           {part(llm.PartAudio, `{ "format" : "wav" , "data" : "%s" }`, base64), asMedia},
		"audio that is text":         {part(llm.PartAudio, `{"data":"%s","format":"wav"}`, texttest.Long), asText},
		"text beside audio":          {part(llm.PartAudio, `{"data":"AAAA","format":"%s"}`, texttest.Long), asText},
		"file, PDF":                  {part(llm.PartFile, `{"filename":"a.pdf","file_data":"%s"}`, url("application/pdf")), asFile},
		"file, text":                 {part(llm.PartFile, `{"file_data":"%s"}`, url("text/plain")), asText * 3 / 4},
		"file, image":                {part(llm.PartFile, `{"file_data":"%s"}`, url(`image\/png`)), asMedia},
		"file, no type":              {part(llm.PartFile, `{"file_data":"%s"}`, url("")), asFile},
		"file, ID":                   {part(llm.PartFile, `{"file_id":"file-1"}`), 0},
		"another type":               {part("video_url", `{"url":"%s"}`, url("video/mp4")), asMedia},
		"a string":                   {part("video", `"%s"`, url("video/mp4")), asMedia},
		"several":                    {part("media", `["%s","%s"]`, url("video/mp4"), url("image/png")), 2 * asMedia},
		"text in a data URL":         {part("x", `{"url":"data:image/png;base64,%s"}`, texttest.Long), asText},
		"text in escapes":            {part("x", `{"url":"data:image/png;base64,%s"}`, strings.Repeat(`\u0057`, 1_100_000/6)), asText},
		"base64 with escapes":        {part("x", `{"url":"data:image/png;base64,%s"}`, strings.Repeat(`QU\/D`, 220_000)), asMedia},
		"text without base64":        {part("x", `{"url":"data:text/plain,%s"}`, texttest.Long), asText},
		"text that quotes one":       {part("x", `"a \"data:image/png;base64,AAAA\" %s"`, texttest.Long), asText},
		"text that quotes a payload": {part("x", `["a \"%s\" "]`, url("image/png")), asText},
		"text that begins with data": {part("x", `{"a":"data: %s"}`, texttest.Long), asText},
		"elements with spaces":       {part("x", `{ "images" : [ "%s" , "%s" ] }`, url("image/png"), url("image/png")), 2 * asMedia},
		"after another string":       {part("x", `{"url":["%s",{"text":"x"},"%s"]}`, url("image/png"), url("image/png")), asMedia + asText},
		"text of a part":             {part("thinking", `"%s"`, url("image/png")), asText},
		"text in a member":           {part(llm.PartFile, `{"filename":"%s"}`, url("image/png")), asText},
		"texts":                      {part("x", `{"texts":["%s","%s"]}`, url("image/png"), url("image/png")), 2 * asText},
		"text after an image":        {part("x", `{"url":"%s","text":"%s"}`, url("image/png"), url("image/png")), asMedia + asText},
		"a name":                     {part("x", `{"url":"","%s":1}`, url("image/png")), asText},
		"an escaped name":            {part("x", `{"\"url":"%s"}`, url("image/png")), asText},
		"not JSON, joined":           {part("x", `{"url":"%s"data:image/png;base64,"`, url("image/png")), asMedia},
		"not JSON":                   {part(llm.PartAudio, `{"data"`), 0},
		"not JSON either":            {part(llm.PartAudio, `"`), 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.Message(&llm.Message{Content: llm.Content{tt.part}})
			assert.InDelta(t, tokens.TokensPerMessage+tokens.TokensPerMedia+tt.want, got, 30+float64(tt.want)/100)
		})
	}
	t.Run("a tool is text", func(t *testing.T) {
		tool := llm.Tool{Type: "custom", Extra: llm.Extra{"custom": fmt.Appendf(nil, `{"description":"%s"}`, url("image/png"))}}
		assert.GreaterOrEqual(t, c.Tool(&tool), asText)
	})
	t.Run("text of a message", func(t *testing.T) {
		for name, value := range map[string]string{"reasoning": `"%s"`, "reasoning_content": `"%s"`, "thinking": `["%s"]`, "x": `{"text":"%s"}`} {
			m := llm.Message{Extra: llm.Extra{name: fmt.Appendf(nil, value, url("image/png"))}}
			assert.GreaterOrEqual(t, c.Message(&m), asText, name)
		}
	})
	t.Run("reply", func(t *testing.T) {
		var out tokens.Counter
		out.Add(&llm.Delta{Extra: llm.Extra{
			"audio":  fmt.Appendf(nil, `{"id":"audio_1","data":"%s","transcript":"Hello"}`, base64),
			"images": fmt.Appendf(nil, `[{"type":"image_url","image_url":{"url":"%s"}}]`, url("image/png")),
		}})
		assert.InDelta(t, 2*asMedia, c.Output(&out), 100)
	})
}

// Reasoning that comes in two forms counts once, and labels that each delta repeats do not count.
func TestTokens_Reasoning(t *testing.T) {
	detail := []llm.ReasoningDetail{{Type: llm.ReasoningText, Text: "four", Extra: llm.Extra{"format": json.RawMessage(`"anthropic-claude-v1"`), "index": json.RawMessage("0")}}}
	c := new(tokens.Estimator)
	for name, d := range map[string]llm.Delta{
		"text":             {Reasoning: "four"},
		"details":          {ReasoningDetails: detail},
		"both":             {Reasoning: "four", ReasoningDetails: detail},
		"details, shorter": {Reasoning: "four", ReasoningDetails: []llm.ReasoningDetail{{Text: "f"}}},
		"text, shorter":    {Reasoning: "f", ReasoningDetails: detail},
	} {
		var out tokens.Counter
		out.Add(&d)
		assert.Equal(t, 1, c.Output(&out), name)
		m := llm.Message{Reasoning: d.Reasoning, ReasoningDetails: d.ReasoningDetails}
		m.ReasoningDetails = append([]llm.ReasoningDetail(nil), m.ReasoningDetails...)
		for i := range m.ReasoningDetails {
			m.ReasoningDetails[i].Extra = nil
		}
		assert.Equal(t, tokens.TokensPerMessage+1, c.Message(&m), name)
	}
}
