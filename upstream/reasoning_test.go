package upstream_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

type object = map[string]any

// A reasoningServer is a server whose model reasons and then calls a tool, and after the
// result of the tool answers.
type reasoningServer struct {
	deltas []string // the members of the deltas with reasoning
	whole  string   // the members of the message with reasoning
	want   string   // the members with reasoning that it must get back
	strict bool     // refuses tool calls without reasoning_content, as DeepSeek does

	mu  sync.Mutex
	got object // the last message of the assistant with calls that it got
}

const thinking = `"Sunny? \ud83d\ude42"`

// reasoningServers returns the servers by name.
func reasoningServers() map[string]*reasoningServer {
	named := func(names ...string) *reasoningServer {
		members := func(text string) string {
			var list []string
			for _, name := range names {
				list = append(list, `"`+name+`":`+text)
			}
			return strings.Join(list, ",")
		}
		return &reasoningServer{
			// The character is split between two deltas, as by servers in JavaScript.
			deltas: []string{members(`"Sunny? \ud83d"`), members(`"\ude42"`)}, whole: members(thinking), want: "{" + members(thinking) + "}",
		}
	}
	content, alias := upstream.ReasoningContent, upstream.Reasoning
	deepSeek := named(content)
	deepSeek.strict = true
	const detail = `{"type":"reasoning.text","text":%,"format":"unknown","index":0}`
	details := func(text string) string { return `"reasoning_details":[` + strings.Replace(detail, "%", text, 1) + `]` }
	openRouter := &reasoningServer{
		deltas: []string{`"reasoning":"Sunny? ",` + details(`"Sunny? "`), `"reasoning":"🙂",` + details(`"🙂"`)},
		whole:  `"reasoning":` + thinking + "," + details(thinking),
	}
	openRouter.want = "{" + openRouter.whole + "}"
	detailsOnly := &reasoningServer{deltas: []string{details(`"Sunny? "`), details(`"🙂"`)}, whole: details(thinking)}
	detailsOnly.want = "{" + detailsOnly.whole + "}"
	part := func(text string) string {
		return `"content":[{"type":"thinking","thinking":[{"type":"text","text":` + text + `}]}]`
	}
	mistral := &reasoningServer{deltas: []string{part(`"Sunny? "`), part(`"🙂"`)}, whole: part(thinking)}
	mistral.want = "{" + mistral.whole + "}"
	return map[string]*reasoningServer{
		"vLLM": named(alias), "vLLM before 2026": named(content), "vLLM with both names": named(content, alias), "Ollama": named(alias), "llama.cpp": named(content),
		"DeepSeek": deepSeek, "OpenRouter": openRouter, "details only": detailsOnly,
		"Mistral": mistral,
	}
}

func (s *reasoningServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Stream   bool
		Messages []object
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		panic(err)
	}
	answers := false
	for _, m := range body.Messages {
		if m["tool_calls"] != nil {
			s.mu.Lock()
			s.got, answers = m, true
			s.mu.Unlock()
			if _, ok := m["reasoning_content"].(string); s.strict && !ok {
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"error":{"message":"The reasoning_content in the thinking mode must be passed back to the API.","type":"invalid_request_error"}}`)
				return
			}
		}
	}
	const call = `"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{}"}}]`
	switch {
	case answers && body.Stream:
		io.WriteString(w, eventStream(textChunk("It is."), stopChunk, done))
	case answers:
		io.WriteString(w, wholeReply)
	case body.Stream:
		var list []string
		for _, members := range append(s.deltas, call) {
			list = append(list, `{"id":"up-1","model":"m","choices":[{"index":0,"delta":{"content":null,`+members+`}}]}`)
		}
		io.WriteString(w, eventStream(append(list, strings.Replace(stopChunk, `"stop"`, `"tool_calls"`, 1), done)...))
	default:
		io.WriteString(w, `{"id":"up-1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,`+s.whole+`,`+call+`},"finish_reason":"tool_calls"}]}`)
	}
}

// takeReasoning returns the members with reasoning of the message that the server got.
func (s *reasoningServer) takeReasoning() object {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := object{}
	for name, v := range s.got {
		if _, isList := v.([]any); strings.HasPrefix(name, "reasoning") || name == "content" && isList {
			got[name] = v
		}
	}
	s.got = nil
	return got
}

// An agent is a client of one of the APIs. It returns what a client adds to the conversation.
type agent struct {
	question, result string // the items of the conversation that are not the model's
	ask              func(t *testing.T, url, history string, stream bool) (items string)
}

func agents() map[string]agent {
	chat := agent{`{"role":"user","content":"Weather?"}`, `{"role":"tool","tool_call_id":"call_1","content":"sunny"}`, askChat}
	return map[string]agent{
		"chat": chat,
		"chat with reasoning_content": {chat.question, chat.result, func(t *testing.T, url, history string, stream bool) string {
			var m object
			require.NoError(t, json.Unmarshal([]byte(askChat(t, url, history, stream)), &m))
			delete(m, "reasoning")
			return encode(t, m)
		}},
		"Messages":  {chat.question, `{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"sunny"}]}`, askMessages},
		"Responses": {chat.question, `{"type":"function_call_output","call_id":"call_1","output":"sunny"}`, askResponses},
	}
}

func encode(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// post sends a request and returns the reply, or the data of its events.
func post(t *testing.T, url, path, body string, stream bool) (events []string) {
	r, err := http.NewRequest("POST", url+path, strings.NewReader(withMembers(body, `"stream":`+encode(t, stream))))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+clientKey)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode, "%s", reply)
	if !stream {
		return []string{string(reply)}
	}
	for line := range bytes.Lines(reply) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && string(data) != done+"\n" {
			events = append(events, string(data))
		}
	}
	return events
}

const weatherTool = `{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}`

func askChat(t *testing.T, url, history string, stream bool) string {
	events := post(t, url, chatPath, `{"model":"m","messages":[`+history+`],"tools":[`+weatherTool+`]}`, stream)
	if !stream {
		var r struct {
			Choices []struct{ Message json.RawMessage }
		}
		require.NoError(t, json.Unmarshal([]byte(events[0]), &r))
		return string(r.Choices[0].Message)
	}
	message := object{"role": "assistant", "content": nil}
	for _, e := range events {
		var c struct{ Choices []struct{ Delta object } }
		require.NoError(t, json.Unmarshal([]byte(e), &c))
		for name, v := range c.Choices[0].Delta {
			if text, ok := v.(string); ok && name != "role" {
				before, _ := message[name].(string)
				message[name] = before + text
			} else if list, ok := v.([]any); ok && name == "reasoning_details" && message[name] != nil {
				last := message[name].([]any)[0].(object)
				last["text"] = last["text"].(string) + list[0].(object)["text"].(string)
			} else if v != nil {
				message[name] = v
			}
		}
	}
	return encode(t, message)
}

func askMessages(t *testing.T, url, history string, stream bool) string {
	events := post(t, url, "/v1/messages", `{"model":"m","max_tokens":100,"messages":[`+history+`],"tools":[{"name":"weather","input_schema":{"type":"object"}}]}`, stream)
	if !stream {
		var r struct{ Content json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(events[0]), &r))
		return `{"role":"assistant","content":` + string(r.Content) + `}`
	}
	var blocks []object
	for _, e := range events {
		var v struct {
			Block object `json:"content_block"`
			Delta map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(e), &v))
		if v.Block != nil {
			blocks = append(blocks, v.Block)
		}
		for name, text := range v.Delta {
			if s, ok := text.(string); ok && name != "type" && name != "partial_json" && name != "stop_reason" {
				last := blocks[len(blocks)-1]
				last[name] = last[name].(string) + s
			}
		}
	}
	return `{"role":"assistant","content":` + encode(t, blocks) + `}`
}

func askResponses(t *testing.T, url, history string, stream bool) string {
	events := post(t, url, "/v1/responses", `{"model":"m","store":false,"include":["reasoning.encrypted_content"],"input":[`+history+
		`],"tools":[{"type":"function","name":"weather","parameters":{"type":"object"}}]}`, stream)
	reply := events[len(events)-1]
	if stream {
		var v struct{ Response json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(reply), &v))
		reply = string(v.Response)
	}
	var r struct{ Output json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(reply), &r))
	return strings.Trim(string(r.Output), "[]")
}

// withProtocols makes a gateway serve all protocols.
func withProtocols(o *llmhttp.Options) {
	o.Protocols = []llmhttp.Protocol{messages.New(nil), responses.New(&responses.Options{Secret: []byte("0123456789abcdef")})}
}

// Clients of every API see the reasoning of every server once, and the server gets it back under its
// own name.
func TestReasoning_ToolLoop(t *testing.T) {
	for name, server := range reasoningServers() {
		for api, a := range agents() {
			for _, stream := range []bool{false, true} {
				t.Run(name+"/"+api+"/stream="+encode(t, stream), func(t *testing.T) {
					checkLeaks(t)
					s := httptest.NewServer(server)
					t.Cleanup(s.Close)
					g := newGateway(t, s.URL+"/v1", nil, withProtocols)
					items := a.ask(t, g.URL, a.question, stream)
					if api == "Messages" || api == "Responses" {
						assert.Equal(t, 1, strings.Count(items, "Sunny? 🙂"), "%s", items)
					}
					history := strings.Join([]string{a.question, items, a.result}, ",")
					a.ask(t, g.URL, history, stream)
					got := server.takeReasoning()
					if name == "details only" && api == "Messages" {
						delete(got, "reasoning_content") // the text of the block, beside the detail
					}
					assert.JSONEq(t, server.want, encode(t, got))

					// Another process, to which the server has not sent any reasoning.
					other := newGateway(t, s.URL+"/v1", nil, withProtocols)
					if _, ok := got["reasoning"]; ok && (api == "chat with reasoning_content" || server.strict) {
						return // whose name it cannot know
					}
					if name == "Mistral" {
						return
					}
					a.ask(t, other.URL, history, stream)
					after := server.takeReasoning()
					for name := range got {
						if name == "reasoning" && (got["reasoning_content"] != nil || after["reasoning_details"] != nil) {
							continue // the server takes the other one too
						}
						assert.Equal(t, got[name], after[name], name)
					}
				})
			}
		}
	}
}

// Parts of content that are reasoning are reasoning for clients of every API, whole and streamed. Others stay what they are.
func TestReasoning_Parts(t *testing.T) {
	const reasoning, text = "Sunny? Yes.", "It is."
	for name, test := range map[string]struct{ whole, first, second, last string }{
		"Mistral": {
			whole:  `[{"type":"thinking","thinking":[{"type":"text","text":"Sunny? "},{"type":"text","text":"Yes."}],"closed":true},{"type":"text","text":"It is."}]`,
			first:  `[{"type":"thinking","thinking":[{"type":"text","text":"Sunny? "}]}]`,
			second: `[{"type":"thinking","thinking":[{"type":"text","text":"Yes."}]},{"type":"text","text":"It "}]`, last: `"is."`,
		},
		"texts": {
			whole: `[{"type":"thinking","thinking":"Sunny? Yes."},{"type":"text","text":"It is."}]`,
			first: `[{"type":"thinking","thinking":"Sunny? "}]`, second: `[{"type":"thinking","thinking":"Yes."}]`, last: `"It is."`,
		},
		"Databricks": {
			whole:  `[{"type":"reasoning","summary":[{"type":"summary_text","text":"Sunny? Yes.","signature":"x"}]},{"type":"text","text":"It is."}]`,
			first:  `[{"type":"reasoning","summary":[{"type":"summary_text","text":"Sunny? "}]}]`,
			second: `[{"type":"reasoning","summary":[{"type":"summary_text","text":"Yes."}]}]`, last: `"It is."`,
		},
	} {
		for format, request := range chatRequests {
			if format == "completions" {
				continue // which have no content
			}
			for _, stream := range []bool{false, true} {
				t.Run(name+"/"+format+"/stream="+encode(t, stream), func(t *testing.T) {
					checkLeaks(t)
					s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						if !stream {
							io.WriteString(w, strings.Replace(wholeReply, `"Hello there"`, test.whole, 1))
							return
						}
						var events []string
						for _, content := range []string{test.first, test.second, test.last} {
							events = append(events, `{"id":"up-1","model":"m","choices":[{"index":0,"delta":{"content":`+content+`}}]}`)
						}
						io.WriteString(w, eventStream(append(events, stopChunk, usageChunk, done)...))
					}))
					t.Cleanup(s.Close)
					g := newGateway(t, s.URL+"/v1", nil, withProtocols)
					var gotReasoning, gotText string
					for _, e := range post(t, g.URL, request.path, request.body, stream) {
						var v any
						require.NoError(t, json.Unmarshal([]byte(e), &v))
						r, c := textsOf(v)
						gotReasoning, gotText = gotReasoning+r, gotText+c
					}
					assert.Equal(t, reasoning, gotReasoning)
					assert.Equal(t, text, gotText)
					assert.NotContains(t, g.log.String(), "ERROR")
				})
			}
		}
	}
	others := `[{"type":"thinking","thinking":[]},{"type":"thinking","thinking":7},{"type":"image_url","image_url":{"url":"data:,"}},{"type":"text","text":"Hi"}]`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Replace(wholeReply, `"Hello there"`, others, 1))
	}))
	t.Cleanup(s.Close)
	got := newGateway(t, s.URL+"/v1", nil).chat(askWhole)
	assert.Contains(t, got.body, `"content":"Hi"`)
	assert.Contains(t, got.body, `"content_parts":[{"type":"thinking","thinking":7},{"type":"image_url","image_url":{"url":"data:,"}}]`)
	assert.NotContains(t, got.body, "reasoning_content")
}

// textsOf returns the reasoning and the text in a reply or in an event that adds to one, in whichever format.
func textsOf(v any) (reasoning, text string) {
	str := func(o object, name string) string {
		s, _ := o[name].(string)
		return s
	}
	list := func(o object, name string) (elements []object) {
		values, _ := o[name].([]any)
		for _, v := range values {
			if o, ok := v.(object); ok {
				elements = append(elements, o)
			}
		}
		return elements
	}
	o, _ := v.(object)
	for _, choice := range list(o, "choices") {
		for _, name := range []string{"message", "delta"} {
			m, _ := choice[name].(object)
			reasoning, text = reasoning+str(m, "reasoning_content"), text+str(m, "content")
		}
	}
	switch str(o, "type") {
	case "message": // of Messages
		for _, block := range list(o, "content") {
			reasoning, text = reasoning+str(block, "thinking"), text+str(block, "text")
		}
	case "content_block_delta":
		delta, _ := o["delta"].(object)
		reasoning, text = str(delta, "thinking"), str(delta, "text")
	case "response.output_text.delta":
		text = str(o, "delta")
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		reasoning = str(o, "delta")
	}
	for _, item := range list(o, "output") { // of Responses
		for _, part := range list(item, "summary") {
			reasoning += str(part, "text")
		}
		for _, part := range list(item, "content") {
			text += str(part, "text")
		}
	}
	return reasoning, text
}

// A conversation that goes on with another server has its reasoning under the name of that
// server, also if it has not sent any yet.
func TestReasoning_OfAnotherServer(t *testing.T) {
	servers := reasoningServers()
	for name, pair := range map[string][2]string{"vLLM to DeepSeek": {"vLLM", "DeepSeek"}, "llama.cpp to vLLM": {"llama.cpp", "vLLM"}} {
		for api, a := range agents() {
			if api == "chat with reasoning_content" {
				continue
			}
			for _, primed := range []bool{false, true} {
				if name == "llama.cpp to vLLM" && !primed {
					continue // reasoning_content is also what clients send that know no other name
				}
				t.Run(name+"/"+api+"/primed="+encode(t, primed), func(t *testing.T) {
					checkLeaks(t)
					var backends [2]llmhttp.Backend
					down := false
					for i, server := range pair {
						s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							if i == 0 && down {
								w.WriteHeader(http.StatusServiceUnavailable)
								return
							}
							servers[server].ServeHTTP(w, r)
						}))
						t.Cleanup(s.Close)
						backends[i] = newBackend(t, s.URL+"/v1", nil)
					}
					router, err := route.New([]route.Route{{Model: "m", Strategy: route.InOrder,
						Targets: []route.Target{{Name: "a", Backend: backends[0]}, {Name: "b", Backend: backends[1]}}}}, &route.Options{Logger: noLog})
					require.NoError(t, err)
					if primed {
						_, err := join.Collect(backends[1].Chat(t.Context(), &llm.ChatRequest{Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("?")}}}))
						require.NoError(t, err)
					}
					o := llmhttp.Options{Logger: noLog}
					withProtocols(&o)
					g := httptest.NewServer(llmhttp.NewHandler(router, llmhttp.AllowAll("test"), &o))
					t.Cleanup(g.Close)
					history := strings.Join([]string{a.question, a.ask(t, g.URL, a.question, false), a.result}, ",")
					down = true
					a.ask(t, g.URL, history, false)
					got := servers[pair[1]].takeReasoning()
					want := "reasoning_content"
					if pair[1] == "vLLM" {
						want = "reasoning"
					}
					assert.Equal(t, "Sunny? 🙂", got[want], "%v", got)
					assert.Equal(t, !primed, len(got) > 1, "%v", got)
				})
			}
		}
	}
}

func TestReasoning_Option(t *testing.T) {
	const message = `{"role":"assistant","content":"Hi",%},{"role":"user","content":"?"}`
	const inParts = `{"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]},{"type":"text","text":"Hi"}]}`
	for _, tt := range []struct{ name, sent, want string }{
		{"", `"reasoning_content":"a"`, `{"reasoning_content":"a"}`},
		{"", `"reasoning":"a"`, `{"reasoning_content":"a","reasoning":"a"}`},
		{"", `"reasoning":"a","reasoning_content":"b"`, `{"reasoning":"a","reasoning_content":"b"}`},
		{upstream.ReasoningContent, `"reasoning":"a"`, `{"reasoning_content":"a"}`},
		{upstream.ReasoningContent, `"reasoning":"a","reasoning_content":"a"`, `{"reasoning_content":"a"}`},
		{upstream.Reasoning, `"reasoning":"a","reasoning_content":"a"`, `{"reasoning":"a"}`},
		{upstream.Reasoning, `"reasoning_content":"a"`, `{"reasoning":"a"}`},
		{upstream.Reasoning, `"reasoning":"a","reasoning_content":"b"`, `{"reasoning":"a"}`},
		{upstream.Reasoning, `"reasoning":{"x":1}`, `{"reasoning":{"x":1}}`},
		{upstream.ReasoningBoth, `"reasoning_content":"a"`, `{"reasoning_content":"a","reasoning":"a"}`},
		{upstream.ReasoningNone, `"reasoning_content":"a","reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a"}]`, `{}`},
		{upstream.ReasoningNone, `"reasoning_details":[{"type":"reasoning.text","text":"a"}]`, `{}`},
		{upstream.ReasoningParts, `"reasoning_content":"a","reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a"}]`, inParts},
		{upstream.ReasoningParts, `"reasoning":"a"`, inParts},
		{upstream.ReasoningParts, `"reasoning_details":[{"type":"reasoning.text","text":"a"}]`, inParts},
		{upstream.ReasoningParts, `"reasoning_details":[{"type":"reasoning.encrypted","data":"a"}]`, `{}`},
	} {
		t.Run(tt.name+"/"+tt.sent, func(t *testing.T) {
			var body struct{ Messages []object }
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
				io.WriteString(w, wholeReply)
			}))
			t.Cleanup(s.Close)
			var req llm.ChatRequest
			require.NoError(t, json.Unmarshal([]byte(`{"model":"m","messages":[`+strings.Replace(message, "%", tt.sent, 1)+`]}`), &req))
			before := encode(t, req)
			_, err := join.Collect(newBackend(t, s.URL, &upstream.Options{ReasoningName: tt.name}).Chat(t.Context(), &req))
			require.NoError(t, err)
			assert.Equal(t, before, encode(t, req), "the request is not changed")
			m := body.Messages[0]
			delete(m, "role")
			if _, isText := m["content"].(string); isText {
				delete(m, "content")
			}
			assert.JSONEq(t, tt.want, encode(t, m))
		})
	}
	_, err := upstream.New("http://x/v1", &upstream.Options{ReasoningName: "thoughts"})
	assert.ErrorContains(t, err, "ReasoningName")
}

func TestNew_URLOfAnEndpoint(t *testing.T) {
	for _, u := range []string{"http://x/v1/chat/completions", "http://x/v1/chat/completions/", "https://x/chat/completions?a=b"} {
		_, err := upstream.New(u, nil)
		assert.ErrorContains(t, err, `must not end in "/chat/completions"`, u)
	}
	newBackend(t, "http://x/chat/completions/v1", nil)
}
