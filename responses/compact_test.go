package responses_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
)

const secretText = "0123456789abcdef"

func newSecretServer(t testing.TB, chunks ...string) *server {
	return newServer(t, &responses.Options{Secret: []byte(secretText)}, chunks...)
}

const (
	chunkSummary  = `{"choices":[{"delta":{"reasoning_content":"Hm","content":" The magic word is xyzzy."}}]}`
	asksToCompact = `{"model":"m","instructions":"Be kind.","input":[{"role":"user","content":"one"},{"role":"assistant","content":"two"},
		{"type":"compaction_trigger"}]`
)

// onlyCompaction returns the encrypted_content of a reply that has a compaction and nothing else.
func onlyCompaction(t testing.TB, r object) string {
	output := r["output"].([]any)
	require.Len(t, output, 1)
	item := output[0].(object)
	require.Equal(t, "compaction", item["type"])
	require.NoError(t, checkItem(item))
	return item["encrypted_content"].(string)
}

func TestCompact_Trigger(t *testing.T) {
	s := newSecretServer(t, chunkSummary, chunkText, `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}]}`, chunkUsage)
	whole := s.create(asksToCompact + `}`)
	assert.Equal(t, "completed", whole["status"])
	assert.Equal(t, 12.0, whole["usage"].(object)["total_tokens"])
	streamed, err := accumulate(s.stream(asksToCompact + `,"include":["reasoning.encrypted_content"]}`))
	require.NoError(t, err)
	assert.Equal(t, "completed", streamed["status"])
	for _, r := range []object{whole, streamed} {
		sealed := onlyCompaction(t, r)
		assert.NotContains(t, sealed, "xyzzy")
		for _, typ := range []string{"compaction", "compaction_summary", "context_compaction"} {
			s.create(`{"model":"m","input":[{"role":"user","content":"one"},{"type":"` + typ + `","encrypted_content":"` + sealed + `"},{"role":"user","content":"three"}]}`)
			assert.Equal(t, "user: one, user: The conversation before this message was replaced by a summary of it. Continue from here.\n\n"+
				"The magic word is xyzzy.Hello, user: three", s.messageTexts())
		}
	}
}

// The Backend gets the conversation as in another request, so that its cache has the beginning, and then
// the prompt. What is for answers is left out.
func TestCompact_ChatRequest(t *testing.T) {
	const params = `,"tools":[{"type":"function","name":"f"}],"tool_choice":"required","parallel_tool_calls":true,"top_logprobs":2,
		"text":{"verbosity":"low","format":{"type":"json_object"}},"max_output_tokens":100,"reasoning":{"effort":"low"},"prompt_cache_key":"k"}`
	for prompt, want := range map[string]string{"": responses.DefaultCompactPrompt, "Summarize it.": "Summarize it."} {
		s := newServer(t, &responses.Options{CompactPrompt: prompt}, chunkSummary)
		s.create(asksToCompact + params)
		got, err := json.Marshal(s.request)
		require.NoError(t, err)
		quoted, _ := json.Marshal(want)
		assert.JSONEq(t, `{"model":"m","messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"one"},{"role":"assistant","content":"two"},
			{"role":"user","content":`+string(quoted)+`}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none",
			"max_completion_tokens":100,"reasoning_effort":"low","prompt_cache_key":"k"}`, string(got))
		s.create(asksToCompact + `}`)
		assert.Nil(t, s.request.ToolChoice, "servers refuse it without tools")
	}
}

func TestCompact_Standalone(t *testing.T) {
	s := newServer(t, &responses.Options{Store: memory.NewResponseStore()}, chunkSummary, chunkUsage)
	first := s.create(`{"model":"m","input":[{"role":"developer","content":"Be brief."},{"role":"user","content":"one"}]}`)
	const image = `{"type":"input_image","image_url":"data:,x","detail":"low"}`
	r := s.ask("acme", "POST", "/v1/responses/compact", `{"model":"m","instructions":"Be kind.","previous_response_id":"`+first["id"].(string)+`",
		"input":[{"role":"assistant","content":"A"},{"id":"msg_mine","role":"user","content":[{"type":"input_text","text":"two"},`+image+`]}],
		"prompt_cache_key":"k","prompt_cache_options":{"ttl":"30m"},"service_tier":"auto","image":{"context_compression":"auto"},"stream":true}`)
	assert.Equal(t, "system: Be kind., developer: Be brief., user: one, assistant:  The magic word is xyzzy.A, user: two, user: "+responses.DefaultCompactPrompt,
		s.messageTexts())
	assert.Equal(t, "response.compaction", r["object"])
	assert.NoError(t, requireStrings(r, "id", "object"))
	assert.NotZero(t, r["created_at"])
	assert.Equal(t, object{"input_tokens": 7.0, "input_tokens_details": object{"cached_tokens": 3.0, "cache_write_tokens": 2.0}, "output_tokens": 5.0,
		"output_tokens_details": object{"reasoning_tokens": 2.0}, "total_tokens": 12.0}, r["usage"])
	output := r["output"].([]any)
	require.Len(t, output, 3, "the messages of the user, and the compaction")
	assert.Equal(t, []any{object{"type": "input_text", "text": "one"}}, output[0].(object)["content"])
	assert.Equal(t, object{"id": "msg_mine", "type": "message", "role": "user", "status": "completed",
		"content": []any{object{"type": "input_text", "text": "two"}, object{"type": "input_image", "image_url": "data:,x", "detail": "low"}}}, output[1])
	require.NoError(t, checkItem(output[2].(object)))

	items, err := json.Marshal(append(output, object{"role": "user", "content": "three"}))
	require.NoError(t, err)
	s.create(`{"model":"m","input":` + string(items) + `}`)
	assert.Regexp(t, "^user: one, user: two, user: The conversation before .*\n\nThe magic word is xyzzy., user: three$", s.messageTexts())
	s.requireRefused(404, "GET", "/v1/responses/"+r["id"].(string), "")
	s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","input":"x","previous_response_id":"`+r["id"].(string)+`"}`)
}

func TestCompact_Refused(t *testing.T) {
	s := newSecretServer(t, chunkSummary)
	sealed := onlyCompaction(t, s.create(asksToCompact+`}`))
	reasoning := must(accumulate(s.stream(`{"model":"m","input":"Hi","include":["reasoning.encrypted_content"]}`)))["output"].([]any)[0].(object)["encrypted_content"].(string)
	s.request = nil
	const standalone = "/v1/responses/compact"
	for _, test := range []struct{ name, path, body, param, code, message string }{
		{"trigger before the end", "", `"input":[{"type":"compaction_trigger"},{"role":"user","content":"x"}]`, "input[0]", "invalid_value", "'input[0]' must be the last item"},
		{"two triggers", "", `"input":[{"role":"user","content":"x"},{"type":"compaction_trigger"},{"type":"compaction_trigger"}]`, "input[1]", "invalid_value", ""},
		{"only a trigger", "", `"instructions":"Be kind.","input":[{"type":"compaction_trigger"}]`, "input", "invalid_value", "There is no conversation to compact"},
		{"no input", standalone, `"instructions":"Be kind."`, "input", "missing_required_parameter", ""},
		{"empty input", standalone, `"input":[]`, "input", "invalid_value", "There is no conversation to compact"},
		{"unknown response", standalone, `"previous_response_id":"resp_1"`, "previous_response_id", "previous_response_not_found", ""},
		{"conversation", standalone, `"input":"x","conversation":"c"`, "conversation", "unsupported_parameter", ""},
		{"foreign", "", `"input":[{"role":"user","content":"x"},{"type":"compaction","id":"cmp_1","encrypted_content":"gAAAA"}]`, "input[1].encrypted_content",
			"invalid_encrypted_content", "The encrypted content for item 'cmp_1' in 'input[1].encrypted_content' could not be verified"},
		{"foreign, to be compacted", standalone, `"input":[{"type":"compaction_summary","encrypted_content":"gAAAA"}]`, "input[0].encrypted_content", "invalid_encrypted_content", ""},
		{"changed", "", `"input":[{"type":"compaction","encrypted_content":"` + sealed[:len(sealed)-1] + `"}]`, "input[0].encrypted_content", "invalid_encrypted_content", ""},
		{"reasoning as a summary", "", `"input":[{"type":"compaction","encrypted_content":"` + reasoning + `"}]`, "input[0].encrypted_content", "invalid_encrypted_content", ""},
		{"reasoning renamed", "", `"input":[{"type":"compaction","encrypted_content":"` + strings.Replace(reasoning, "llmhttp1.", "llmhttp-summary1.", 1) + `"}]`,
			"input[0].encrypted_content", "invalid_encrypted_content", ""},
		{"empty", "", `"input":[{"type":"compaction","encrypted_content":""}]`, "input[0].encrypted_content", "invalid_encrypted_content", ""},
		{"without content", "", `"input":[{"type":"context_compaction"}]`, "input[0].encrypted_content", "missing_required_parameter", ""},
		{"number", "", `"input":[{"type":"compaction","encrypted_content":3}]`, "input[0].encrypted_content", "invalid_type", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := "/v1/responses"
			if test.path != "" {
				path = test.path
			}
			e := s.requireRefused(400, "POST", path, `{"model":"m",`+test.body+`}`)
			assert.Equal(t, test.param, e.Param)
			assert.Equal(t, test.code, e.Code)
			assert.Contains(t, e.Message, test.message)
		})
	}
	e := s.requireRefused(400, "POST", standalone, `{}`)
	assert.Equal(t, "model", e.Param)
	assert.Nil(t, s.request, "the Backend got a request")

	// What this server has encrypted is only for the account, and for servers with the secret.
	body := `{"model":"m","input":[{"type":"compaction","encrypted_content":"` + sealed + `"}]}`
	status, data := s.send("other", "POST", "/v1/responses", body)
	assert.Equal(t, 400, status)
	assert.Contains(t, string(data), `"invalid_encrypted_content"`)
	newSecretServer(t, chunkText).create(body)
	e = newServer(t, &responses.Options{Secret: []byte("another secret..")}, chunkText).requireRefused(400, "POST", "/v1/responses", body)
	assert.Equal(t, "invalid_encrypted_content", e.Code)

	// Reasoning is no part of the conversation: that of others is ignored, and so is a summary in it.
	s.create(`{"model":"m","input":[{"role":"user","content":"x"},{"type":"reasoning","summary":[],"encrypted_content":"` + sealed + `"},{"role":"assistant","content":"y"}]}`)
	assert.Empty(t, s.request.Messages[1].Reasoning)
}

// A reply that is not a whole summary is a failure, whose tokens are charged, and never an empty
// compaction.
func TestCompact_NoSummary(t *testing.T) {
	const cut = `{"choices":[{"delta":{"content":"The magic"},"finish_reason":"`
	for _, test := range []struct {
		name, message string
		chunks        []string
	}{
		{"cut", "was cut at the limit of tokens", []string{cut + `length"}]}`, chunkUsage}},
		{"filtered", "stopped by a content filter", []string{cut + `content_filter"}]}`, chunkUsage}},
		{"empty", "returned no summary", []string{`{"choices":[{"delta":{"content":" \n","reasoning_content":"Hm"},"finish_reason":"stop"}]}`, chunkUsage}},
		{"refused", "returned no summary", []string{`{"choices":[{"delta":{"refusal":"No."},"finish_reason":"stop"}]}`, chunkUsage}},
		{"call", "returned no summary", []string{`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]},"finish_reason":"tool_calls"}]}`, chunkUsage}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, &responses.Options{Store: memory.NewResponseStore()}, test.chunks...)
			for _, path := range []string{"/v1/responses", "/v1/responses/compact"} {
				status, data := s.send("acme", "POST", path, asksToCompact+`}`)
				assert.Equal(t, 502, status)
				assert.Contains(t, string(data), test.message)
				summary := <-s.ended
				assert.Equal(t, 502, summary.Status)
				assert.Equal(t, llmhttp.ClassBackend, summary.ErrorClass)
				assert.Equal(t, []int64{7, 5}, []int64{summary.Record.Units.PromptTokens, summary.Record.Units.CompletionTokens})
				assert.False(t, summary.Record.Estimated)
			}
			r, err := accumulate(s.stream(asksToCompact + `}`))
			require.NoError(t, err)
			assert.Equal(t, "failed", r["status"])
			assert.Empty(t, r["output"])
			assert.Contains(t, r["error"].(object)["message"], test.message)
			assert.EqualValues(t, 5, (<-s.ended).Record.Units.CompletionTokens)
			s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","input":"x","previous_response_id":"`+r["id"].(string)+`"}`)
		})
	}
	t.Run("failed", func(t *testing.T) {
		s := newServer(t, nil, chunkSummary)
		s.err = llm.Errorf(503, "", "It broke.")
		s.requireRefused(503, "POST", "/v1/responses", asksToCompact+`}`)
		s.requireRefused(503, "POST", "/v1/responses/compact", asksToCompact+`}`)
		r, err := accumulate(s.stream(asksToCompact + `}`))
		require.NoError(t, err)
		assert.Equal(t, "failed", r["status"])
		assert.Empty(t, r["output"])
	})
}

// The Backend does not get the messages that a summary replaces, whether the client sends them again or the store has them.
func TestCompact_Replaces(t *testing.T) {
	s := newServer(t, &responses.Options{Store: memory.NewResponseStore(), Secret: []byte(secretText)}, chunkSummary)
	const heading = "user: The conversation before this message was replaced by a summary of it. Continue from here.\n\nThe magic word is xyzzy."
	const turn = `{"role":"developer","content":"Rules."},{"role":"user","content":"one"},{"type":"reasoning","summary":[{"type":"summary_text","text":"Hm"}]},
		{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"1"},
		{"type":"function_call","call_id":"c2","name":"f","arguments":"{}"}`
	ask := func(input, previous string) object {
		body := `{"model":"m","input":[` + input + `]`
		if previous != "" {
			body += continued(previous)
		}
		return s.create(body + "}")
	}
	t.Run("kept by the client", func(t *testing.T) {
		sealed := onlyCompaction(t, ask(turn+`,{"type":"compaction_trigger"}`, ""))
		item := `{"type":"compaction","encrypted_content":"` + sealed + `"}`
		ask(turn+`,`+item+`,{"type":"additional_tools","tools":[{"type":"function","name":"g"}]},{"type":"function_call_output","call_id":"c2","output":"2"}`, "")
		assert.Equal(t, "developer: Rules., user: one, "+heading+", user: 2", s.messageTexts(), "an output whose call is gone is a message")
		assert.Len(t, s.request.Tools, 1)
		ask(`{"type":"additional_tools","tools":[{"type":"function","name":"g"}]},`+item+`,`+turn+`,`+item, "")
		assert.Equal(t, "developer: Rules., user: one, "+heading, s.messageTexts(), "the last summary has what the first one had")
		assert.Len(t, s.request.Tools, 1)
		const call = `{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"new"}`
		ask(turn+`,`+item+`,`+call, "")
		last := s.request.Messages[len(s.request.Messages)-1]
		assert.Equal(t, llm.RoleTool, last.Role, "a call whose ID the Backend has used again")
		assert.Equal(t, "c1", last.ToolCallID)
	})
	t.Run("stored", func(t *testing.T) {
		first := ask(`{"role":"developer","content":"Rules."},{"role":"user","content":"one"}`, "")["id"].(string)
		second := ask(`{"type":"compaction_trigger"}`, first)
		onlyCompaction(t, second)
		assert.Equal(t, first, s.info.Conversation)
		id := second["id"].(string)
		page := s.ask("acme", "GET", "/v1/responses/"+id+"/input_items", "")
		assert.Empty(t, page["data"], "the trigger is no part of the conversation")
		assert.Equal(t, second["output"], s.ask("acme", "GET", "/v1/responses/"+id, "")["output"])

		third := ask(`{"role":"user","content":"two"}`, id)["id"].(string)
		assert.Equal(t, "developer: Rules., user: one, "+heading+", user: two", s.messageTexts())
		fourth := ask(`{"role":"user","content":"three"},{"type":"compaction_trigger"}`, third)
		assert.Equal(t, "developer: Rules., user: one, "+heading+", user: two, assistant:  The magic word is xyzzy., user: three, user: "+responses.DefaultCompactPrompt,
			s.messageTexts())
		ask(`{"role":"user","content":"four"}`, fourth["id"].(string))
		assert.Equal(t, "developer: Rules., user: one, user: two, user: three, "+heading+", user: four", s.messageTexts())

		compaction := fourth["output"].([]any)[0].(object)
		reference := `{"type":"item_reference","id":"` + compaction["id"].(string) + `"}`
		sent := `{"type":"compaction","encrypted_content":"` + compaction["encrypted_content"].(string) + `"}`
		fifth := ask(reference+`,`+sent+`,{"role":"user","content":"five"}`, third)["id"].(string)
		assert.Equal(t, "developer: Rules., user: one, user: two, "+heading+", user: five", s.messageTexts())
		page = s.ask("acme", "GET", "/v1/responses/"+fifth+"/input_items?order=asc", "")
		items := page["data"].([]any)
		require.Len(t, items, 3)
		assert.Equal(t, compaction, items[0])
		require.NoError(t, checkItem(items[1].(object)))
		assert.Equal(t, compaction["encrypted_content"], items[1].(object)["encrypted_content"])
	})
	t.Run("large messages", func(t *testing.T) {
		large := strings.Repeat("x", 200<<10)
		var id string
		for _, text := range []string{"small", "A" + large, "B" + large, "last"} {
			id = ask(`{"role":"user","content":"`+text+`"}`, id)["id"].(string)
		}
		id = ask(`{"type":"compaction_trigger"}`, id)["id"].(string)
		assert.Contains(t, s.messageTexts(), "A"+large)
		ask(`{"role":"user","content":"x"}`, id)
		assert.Equal(t, "user: small, user: B"+large+", user: last, "+heading+", user: x", s.messageTexts())
	})
}

// A summary has a limit on tokens like other replies, and its request counts like other requests.
func TestCompact_Limits(t *testing.T) {
	s := newServer(t, nil, chunkSummary, chunkUsage)
	s.limits = llmhttp.Limits{Tokens: llmhttp.Rate{N: 1000, Per: 365 * 24 * time.Hour}}
	long := strings.Repeat("word ", 1000)
	for _, path := range []string{"/v1/responses", "/v1/responses/compact"} {
		s.requireRefused(429, "POST", path, `{"model":"m","input":[{"role":"user","content":"`+long+`"},{"type":"compaction_trigger"}]}`)
	}
	assert.Nil(t, s.request)
	s.limits = llmhttp.Limits{}
	r := s.create(`{"model":"m","input":[{"role":"user","content":"` + long + `"},{"type":"compaction_trigger"}]}`)
	count := func(input string) int {
		return int(s.ask("acme", "POST", "/v1/responses/input_tokens", `{"model":"m","input":`+input+`}`)["input_tokens"].(float64))
	}
	assert.Less(t, count(`[{"type":"compaction","encrypted_content":"`+onlyCompaction(t, r)+`"}]`), 50)
	assert.InDelta(t, count(`[{"role":"user","content":"x"},{"type":"compaction_trigger"}]`), len(responses.DefaultCompactPrompt)/4, 60)
}

// A stream has events while the Backend writes a long summary, because Codex gives up after five minutes
// without one.
func TestCompact_Progress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
			return func(yield func(*llm.ChatChunk, error) bool) {
				for range 11 {
					c := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Content: "word "}}}}
					if !yield(c, nil) {
						return
					}
					time.Sleep(10 * time.Second)
				}
			}
		}))
		r := httptest.NewRequest("POST", "/v1/responses", strings.NewReader(strings.Replace(asksToCompact, "{", `{"stream":true,`, 1)+`}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		events := readEvents(t, w.Body.String())
		var names []string
		for _, e := range events {
			names = append(names, strings.TrimPrefix(e.Name, "response."))
		}
		assert.Equal(t, []string{"created", "in_progress", "in_progress", "in_progress", "in_progress", "output_item.added", "output_item.done", "completed"}, names)
		_, err := accumulate(events)
		assert.NoError(t, err)
	})
}
