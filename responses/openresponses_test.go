package responses_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// TestOpenResponses has the seven cases of the compliance suite of Open Responses
// (https://www.openresponses.org/compliance). Each response must have all members
// that its schema requires, which checkResponse checks.
func TestOpenResponses(t *testing.T) {
	const tools = `,"tools":[{"type":"function","name":"get_weather","description":"The weather","parameters":{"type":"object",` +
		`"properties":{"location":{"type":"string"}},"required":["location"]}}]`
	tests := []struct {
		name, body string
		stream     bool
		types      []string
	}{
		{"basic text", `"input":[{"type":"message","role":"user","content":"Say hello."}]`, false, []string{"message"}},
		{"streamed text", `"input":[{"type":"message","role":"user","content":"Count from 1 to 5."}]`, true, []string{"message"}},
		{
			"system prompt",
			`"input":[{"type":"message","role":"system","content":"Talk like a pirate."},{"type":"message","role":"user","content":"Say hello."}]`,
			false,
			[]string{"message"},
		},
		{"tool call", `"input":[{"type":"message","role":"user","content":"What is the weather in Rome?"}]` + tools, false, []string{"function_call"}},
		{"streamed tool call", `"input":[{"type":"message","role":"user","content":"What is the weather in Rome?"}]` + tools, true, []string{"function_call"}},
		{
			"image",
			`"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"What is this?"},` +
				`{"type":"input_image","image_url":"data:image/gif;base64,R0lGODlhAQABAAAAACw="}]}]`,
			false,
			[]string{"message"},
		},
		{
			"several turns",
			`"input":[{"type":"message","role":"user","content":"My name is Ada."},{"type":"message","role":"assistant","content":"Hello Ada."},` +
				`{"type":"message","role":"user","content":"What is my name?"}]`,
			false,
			[]string{"message"},
		},
	}
	h := newHandler(&memory.Backend{Script: func(r *llm.ChatRequest) []memory.Step {
		if len(r.Tools) == 0 {
			return nil // the text of the user
		}
		return []memory.Step{memory.Call("call_1", r.Tools[0].Function.Name, `{"location":"Rome"}`)}
	}})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body := `{"model":"` + memory.ModelChat + `",` + test.body
			var r object
			if test.stream {
				w := serveDirectly(h, []byte(body+`,"stream":true}`))
				require.Equal(t, 200, w.Code, "%s", w.Body)
				assert.Equal(t, "text/event-stream; charset=utf-8", w.Header().Get("Content-Type"))
				var err error
				r, err = accumulate(readEvents(t, w.Body.String()))
				require.NoError(t, err)
			} else {
				w := serveDirectly(h, []byte(body+"}"))
				require.Equal(t, 200, w.Code, "%s", w.Body)
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
				require.NoError(t, checkResponse(r))
			}
			assert.Equal(t, "completed", r["status"])
			var types []string
			for _, it := range r["output"].([]any) {
				types = append(types, it.(object)["type"].(string))
			}
			assert.Equal(t, test.types, types)
		})
	}
}
