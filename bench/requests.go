package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
)

// A request is a POST request that a case sends again and again.
type request struct {
	path string
	body []byte
}

const chatPath = "/v1/chat/completions"

// http returns a new HTTP request to the server at addr.
func (r request) http(addr string) *http.Request {
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+r.path, bytes.NewReader(r.body))
	if err != nil {
		panic(err) // addr is not an address
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	return req
}

// chatRequest returns a conversation of about size bytes.
func chatRequest(size int, stream bool) request {
	const sentence = `What is the capital of France, and why?\nPlease tell me what you know of \"Paris\". `
	var b bytes.Buffer
	b.WriteString(`{"model":"` + modelName + `","messages":[{"role":"system","content":"You are a helpful assistant. ` +
		`Answer briefly and say so when you do not know."}`)
	tail := fmt.Sprintf(`],"temperature":0.7,"max_tokens":256,"top_p":1,"stream":%t}`, stream)
	for i := 0; ; i++ {
		start := `,{"role":"` + []string{"user", "assistant"}[i%2] + `","content":"`
		room := min(size-b.Len()-len(start)-len(`"}`)-len(tail), 500)
		if room <= 0 {
			break
		}
		text := strings.Repeat(sentence, room/len(sentence)+1)[:room]
		b.WriteString(start + strings.TrimRight(text, `\`) + `"}`)
	}
	b.WriteString(tail)
	return request{chatPath, b.Bytes()}
}

// speechRequest returns a request for speech in the default format.
func speechRequest() request {
	return request{
		"/v1/audio/speech",
		[]byte(`{"model":"` + modelName + `","voice":"alloy","input":"` + strings.Repeat("Paris is the capital of France. ", 10) + `"}`),
	}
}

// forAPI returns the request for the same conversation as the chat request r in the
// API of the contender.
func (r request) forAPI(contender string) request {
	switch contender {
	case messagesAPI: // has the same parameters
		return request{"/v1/messages", r.body}
	case responsesAPI:
		body := bytes.Replace(r.body, []byte(`"messages":`), []byte(`"input":`), 1)
		return request{"/v1/responses", bytes.Replace(body, []byte(`"max_tokens":`), []byte(`"max_output_tokens":`), 1)}
	}
	return r
}

// imageRequest returns a request of about size bytes, nearly all of them one image.
func imageRequest(size int) request {
	head := `{"model":"` + modelName + `","messages":[{"role":"user","content":[{"type":"text","text":"What is in this image?"},` +
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,`
	tail := `","detail":"high"}}]}],"max_tokens":256}`
	image := make([]byte, (size-len(head)-len(tail))/4*3)
	rand.NewChaCha8([32]byte{}).Read(image)
	return request{chatPath, []byte(head + base64.StdEncoding.EncodeToString(image) + tail)}
}

// agentRequest returns what a coding agent sends in the middle of its work: 40 tools and 200
// messages in about 150 KB, most of which are source code in JSON strings, some of it escaped
// twice.
func agentRequest() request {
	type object = map[string]any
	var messages, tools []object
	for turn := range 50 {
		id, path := fmt.Sprintf("call_%024d", turn), fmt.Sprintf("internal/store/part%d.go", turn)
		arguments := marshal(object{"path": path, "old": sourceCode(turn, 2), "new": sourceCode(turn+1, 3)})
		messages = append(
			messages,
			object{"role": "user", "content": fmt.Sprintf("Correct the error in %q: \"index out of range [%d]\".", path, turn)},
			object{"role": "assistant", "content": nil, "tool_calls": []object{{
				"id": id, "type": "function", "function": object{"name": "tool_7", "arguments": string(arguments)},
			}}},
			object{"role": "tool", "tool_call_id": id, "content": sourceCode(turn, 6)},
			object{
				"role":    "assistant",
				"content": "The bound was off by one. The new code is:\n\n```go\n" + sourceCode(turn+1, 1) + "```\n",
			},
		)
	}
	parameters := json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"The path of a file."},` +
		`"old":{"type":"string","description":"The text that is replaced."},"new":{"type":"string","description":"The text that ` +
		`replaces it."},"pattern":{"type":"string"},"limit":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}`)
	for i := range 40 {
		tools = append(tools, object{"type": "function", "function": object{
			"name":        fmt.Sprintf("tool_%d", i),
			"description": "Changes files of the repository and returns what has changed as a unified diff.",
			"parameters":  parameters,
		}})
	}
	return request{chatPath, marshal(object{"model": modelName, "messages": messages, "tools": tools, "stream": true, "max_tokens": 8192})}
}

// sourceCode returns n short Go functions. The seed varies their names.
func sourceCode(seed, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(
			&b,
			"func (s *Store) get%d(key string) (string, error) {\n\tv, ok := s.values[key]\n\tif !ok && len(key) > %d {\n\t\treturn \"\", fmt.Errorf(\"no %%q\", key)\n\t}\n\treturn v, nil\n}\n\n",
			seed*10+i,
			seed,
		)
	}
	return b.String()
}

// marshal returns the JSON of v. Unlike json.Marshal it does not escape < and >.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// A hostileBody is a list of tiny elements, as long as a body may be. Decoded,
// each element takes much more memory than its bytes.
type hostileBody struct{ name, head, element, tail string }

const (
	hostileHead = `{"model":"` + modelName + `",`
	hostileUser = `{"role":"user","content":"x"}`
)

var hostileBodies = []hostileBody{
	{"empty-messages", hostileHead + `"messages":[`, `{}`, `]}`},
	{"short-messages", hostileHead + `"messages":[`, hostileUser, `]}`},
	{"empty-parts", hostileHead + `"messages":[{"role":"user","content":[`, `{}`, `]}]}`},
	{"text-parts", hostileHead + `"messages":[{"role":"user","content":[`, `{"type":"text","text":""}`, `]}]}`},
	{"image-parts", hostileHead + `"messages":[{"role":"user","content":[`, `{"type":"image_url","image_url":{"url":"x"}}`, `]}]}`},
	{"empty-tools", hostileHead + `"messages":[` + hostileUser + `],"tools":[`, `{}`, `]}`},
	{"tools", hostileHead + `"messages":[` + hostileUser + `],"tools":[`, `{"type":"function","function":{"name":"f"}}`, `]}`},
	{"tool-calls", hostileHead + `"messages":[{"role":"assistant","tool_calls":[`, `{"id":"1"}`, `]}]}`},
	{"stop-sequences", hostileHead + `"messages":[` + hostileUser + `],"stop":[`, `""`, `]}`},
	{"unknown-list", hostileHead + `"messages":[` + hostileUser + `],"x":[`, `[]`, `]}`},
	{"unknown-members", hostileHead + `"messages":[` + hostileUser + `],`, `"x%d":0`, `}`},
}

// request returns a request with a body of nearly size bytes. A %d in the element becomes its
// index.
func (h hostileBody) request(size int) request {
	b := bytes.NewBufferString(h.head)
	for i := 0; b.Len() < size-100; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strings.Replace(h.element, "%d", strconv.Itoa(i), 1))
	}
	b.WriteString(h.tail)
	return request{chatPath, b.Bytes()}
}
