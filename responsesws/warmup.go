// The response to a request with "generate": false, which prepares a conversation and calls no model.

package responsesws

import (
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// A warmResponse has the members of a response that SDKs require. Those that repeat a parameter are in the
// map of them.
type warmResponse map[string]any

// warmDefaults are the values of parameters that a request does not have.
var warmDefaults = map[string]string{
	"instructions": "null", "metadata": "{}", "tools": "[]", "tool_choice": `"auto"`, "parallel_tool_calls": "true",
	"temperature": "1", "top_p": "1", "text": `{"format":{"type":"text"}}`, "reasoning": `{"effort":null,"summary":null}`,
	"truncation": `"disabled"`, "max_output_tokens": "null", "model": `""`,
}

// sendWarmup sends the events of a response without output, and keeps the conversation that it prepares.
func (c *connection) sendWarmup(w *responseWriter) {
	m, now := w.message, time.Now().Unix()
	id := "resp_" + strings.ToLower(rand.Text())
	c.h.history.keep(&c.history, m.streamID, conversation{id: id, base: w.base, items: slices.Clone(w.items)})

	r := warmResponse{
		"id": id, "object": "response", "created_at": now, "completed_at": nil, "status": "in_progress", "output": []any{},
		"error": nil, "incomplete_details": nil, "previous_response_id": orNil(m.previous), "store": false, "background": false, "usage": nil,
	}
	for name, value := range warmDefaults {
		r[name] = json.RawMessage(value)
		if given := m.params[name]; !isNull(given) {
			r[name] = given
		}
	}
	messages := [][]byte{r.event(w, "response.created", 0), r.event(w, "response.in_progress", 1)}
	r["status"], r["completed_at"] = "completed", now
	r["usage"] = map[string]any{
		"input_tokens": 0, "input_tokens_details": map[string]int{"cached_tokens": 0, "cache_write_tokens": 0},
		"output_tokens": 0, "output_tokens_details": map[string]int{"reasoning_tokens": 0}, "total_tokens": 0,
	}
	_ = c.send(append(messages, r.event(w, "response.completed", 2))...) // if it fails, the client has left
}

// event returns the event about the response.
func (r warmResponse) event(w *responseWriter, typ string, sequence int) []byte {
	event := map[string]any{"type": typ, "sequence_number": sequence, "response": r}
	if id := w.message.streamID; id != "" {
		event["stream_id"] = id
	}
	b, err := json.Marshal(event)
	if err != nil { // parameters that are JSON and were accepted
		panic(err)
	}
	return b
}
