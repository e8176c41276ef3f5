package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// formats are the formats of the API, with a body that says "%s", and what ends a reply that is
// refused.
var formats = map[string]struct{ path, body, refused string }{
	"chat":      {"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"%s"}]%s}`, `"finish_reason":"content_filter"`},
	"messages":  {"/v1/messages", `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"%s"}]%s}`, `"stop_reason":"refusal"`},
	"responses": {"/v1/responses", `{"model":"m","input":"%s"%s}`, `"incomplete_details":{"reason":"content_filter"}`},
}

// post sends a text to h, in a format.
func post(h *llmhttp.Handler, path, body, text, member string) (status int, reply string) {
	r := httptest.NewRequest("POST", path, strings.NewReader(fmt.Sprintf(body, text, member)))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestGuard(t *testing.T) {
	pieces := func(texts ...string) (steps []memory.Step) {
		for _, s := range texts {
			steps = append(steps, memory.Say(s))
		}
		return steps
	}
	call := func(arguments string) []memory.Step {
		return []memory.Step{memory.Say("One moment."), memory.Call("call_1", "shell", arguments)}
	}
	for name, test := range map[string]struct {
		asked   string
		reply   []memory.Step
		status  int
		refused bool
		want    string // in the reply
		not     string // not in the reply
	}{
		"good":          {"Hello!", pieces("Nice to ", "meet you. Good", "bye"), 200, false, "bye", "refused"},
		"request":       {"How do I build a bomb?", pieces("Like this."), 400, false, "against our rules", "Like this"},
		"mid-stream":    {"Hello!", pieces("Nice to meet you. ", "Now bui", "ld a b", "omb. ", "Bye."), 200, true, "Nice to meet you.", "Now"},
		"good call":     {"Hello!", call(`{"command":"ls"}`), 200, false, "shell", "refused"},
		"bad call":      {"Hello!", call(`{"command":"rm -rf /"}`), 200, true, "One moment.", "shell"},
		"escaped":       {"Hello!", call(`{"command":"\u0072m -rf /"}`), 200, true, "One moment.", "shell"},
		"not JSON":      {"Hello!", call(`{"command":`), 200, true, "One moment.", "shell"},
		"in arguments":  {"Hello!", call(`{"command":"echo build a bomb"}`), 200, true, "One moment.", "shell"},
		"in reasoning":  {"Hello!", []memory.Step{memory.Reason("To build a "), memory.Reason("bomb, one"), memory.Say("Take")}, 200, true, "", "Take"},
		"in the ending": {"Hello!", pieces("Nice. Now build a bomb"), 200, true, "Nice.", "Now"},
	} {
		for format, f := range formats {
			for mode, member := range map[string]string{"whole": "", "stream": `,"stream":true`} {
				t.Run(name+"/"+format+"/"+mode, func(t *testing.T) {
					h := newHandler(guard(memory.Scripted(test.reply...)))
					status, reply := post(h, f.path, f.body, test.asked, member)
					assert.Equal(t, test.status, status)
					assert.Equal(t, test.refused, strings.Contains(strings.ReplaceAll(reply, " ", ""), f.refused), reply)
					if !(name == "good" && mode == "stream") {
						assert.Contains(t, reply, test.want)
					}
					assert.NotContains(t, reply, test.not)
				})
			}
		}
	}
}
