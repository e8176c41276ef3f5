package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
)

const wantDetails = `{"role":"assistant","content":"Hello","reasoning_content":"AB","reasoning_details":[{"type":"reasoning.text","text":"AB",` +
	`"signature":"sig","index":0}]}`

// assistantMessage returns the message of the assistant that the Backend got.
func assistantMessage(t *testing.T, r *llm.ChatRequest) string {
	for i := range r.Messages {
		if r.Messages[i].Role == llm.RoleAssistant {
			data, err := json.Marshal(r.Messages[i])
			require.NoError(t, err)
			return string(data)
		}
	}
	return ""
}

func TestReasoning_StatelessLoop(t *testing.T) {
	opts := &responses.Options{Secret: []byte("0123456789abcdef")}
	s := newServer(t, opts, reasoningChunks...)
	const params = `"model":"m","store":false,"include":["reasoning.encrypted_content"]`
	for name, r := range map[string]object{
		"whole":    s.create(`{"input":"Hi",` + params + `}`),
		"streamed": must(accumulate(s.stream(`{"input":"Hi",` + params + `}`))),
	} {
		t.Run(name, func(t *testing.T) {
			output := r["output"].([]any)
			sealed := output[0].(object)["encrypted_content"].(string)
			assert.NotContains(t, sealed, "sig")
			next := func(s *server, output any) string {
				items, err := json.Marshal(output)
				require.NoError(t, err)
				input := `[{"role":"user","content":"Hi"},` + strings.Trim(string(items), "[]") + `,{"role":"user","content":"Go on"}]`
				s.create(`{"input":` + strings.Replace(input, `"content":[{"annotations":[,`, `"content":[{`, 1) + `,` + params + `}`)
				return assistantMessage(t, s.request)
			}
			assert.JSONEq(t, wantDetails, next(s, output))
			assert.JSONEq(t, wantDetails, next(newServer(t, opts, chunkText), output), "another process with the same Secret")

			const withoutDetails = `{"role":"assistant","content":"Hello","reasoning_content":"AB"}`
			assert.JSONEq(t, withoutDetails, next(newServer(t, nil, chunkText), output), "another process")
			changed := []byte(sealed)
			changed[len(changed)/2] ^= 'A' ^ 'B'
			output[0].(object)["encrypted_content"] = string(changed)
			assert.JSONEq(t, withoutDetails, next(s, output), "changed by the client")
			output[0].(object)["encrypted_content"] = sealed
			output[0].(object)["summary"] = []any{object{"type": "summary_text", "text": "changed"}}
			assert.JSONEq(t, wantDetails, next(s, output), "the summary was changed by the client")
		})
	}
	r := s.create(`{"model":"m","input":"Hi"}`)
	assert.NotContains(t, r["output"].([]any)[0], "encrypted_content", "the client did not ask for it")
}

func TestReasoning_OfAnotherAccount(t *testing.T) {
	s := newServer(t, nil, reasoningChunks...)
	r := s.create(`{"model":"m","input":"Hi","include":["reasoning.encrypted_content"]}`)
	items, err := json.Marshal(r["output"])
	require.NoError(t, err)
	s.ask("other", "POST", "/v1/responses", `{"model":"m","input":`+string(items)+`}`)
	assert.JSONEq(t, `{"role":"assistant","content":"Hello","reasoning_content":"AB"}`, assistantMessage(t, s.request))
}

func TestReasoning_OnlyEncrypted(t *testing.T) {
	s := newServer(t, &responses.Options{Store: memory.NewResponseStore()},
		`{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"blob"}]}}]}`, chunkText)
	r := s.create(`{"model":"m","input":"Hi"}`)
	assert.Equal(t, []any{}, r["output"].([]any)[0].(object)["summary"])
	s.create(`{"model":"m","input":"Go on","previous_response_id":"` + r["id"].(string) + `"}`)
	assert.JSONEq(t, `{"role":"assistant","content":"Hello","reasoning_details":[{"type":"reasoning.encrypted","data":"blob"}]}`, assistantMessage(t, s.request))
}

// reasoningChunks are the reasoning of a Backend, in pieces.
var reasoningChunks = []string{
	`{"choices":[{"delta":{"reasoning_content":"A","reasoning_details":[{"type":"reasoning.text","text":"A","index":0}]}}]}`,
	`{"choices":[{"delta":{"reasoning_content":"B","reasoning_details":[{"type":"reasoning.text","text":"B","index":0,"signature":"sig"}]}}]}`,
	chunkText,
}

// Reasoning that comes only in details is shown. The texts of different indices are parts
// of the summary, and the details go back to the Backend without a text of its own.
func TestReasoning_OnlyDetails(t *testing.T) {
	s := newServer(t, nil,
		`{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.summary","summary":"A\ud83d\ude42","index":0}]}}]}`,
		`{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","text":"B","index":1},{"type":"reasoning.encrypted","data":"blob"}]}}]}`,
		`{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","text":"C","index":1}]}}]}`, chunkText)
	const params = `"model":"m","store":false,"include":["reasoning.encrypted_content"]`
	for name, r := range map[string]object{
		"whole":    s.create(`{"input":"Hi",` + params + `}`),
		"streamed": must(accumulate(s.stream(`{"input":"Hi",` + params + `}`))),
	} {
		t.Run(name, func(t *testing.T) {
			item := r["output"].([]any)[0].(object)
			assert.Equal(t, []any{object{"type": "summary_text", "text": "A🙂"}, object{"type": "summary_text", "text": "BC"}}, item["summary"])
			items, err := json.Marshal(r["output"])
			require.NoError(t, err)
			s.create(`{"input":[{"role":"user","content":"Hi"},` + strings.Trim(string(items), "[]") + `,{"role":"user","content":"Go on"}],` + params + `}`)
			assert.NotContains(t, assistantMessage(t, s.request), "reasoning_content")
			assert.Contains(t, assistantMessage(t, s.request), `"summary":"A🙂"`)
		})
	}
}
