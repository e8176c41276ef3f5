package upstream_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream"
)

const (
	markHour   = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	mark       = `"cache_control":{"type":"ephemeral"}`
	markGlobal = `"cache_control":{"type":"ephemeral","scope":"global"}`
)

// A bodyServer replies with "Hello there" and keeps the bodies of its requests.
type bodyServer struct {
	*httptest.Server
	mu     sync.Mutex // guards bodies
	bodies []string
}

func newBodyServer(t *testing.T) *bodyServer {
	s := new(bodyServer)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies = append(s.bodies, string(body))
		s.mu.Unlock()
		if r.URL.Path == "/tokenize" {
			io.WriteString(w, `{"count":5}`)
			return
		}
		io.WriteString(w, wholeReply)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *bodyServer) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies[len(s.bodies)-1]
}

// Marks are sent to servers that know them, and no trace of them to others: clients of both formats have the
// same request sent.
func TestCacheControl_Sent(t *testing.T) {
	requests := map[string]struct{ path, body string }{
		"chat": {chatPath, `{"model":"m","messages":[
			{"role":"system","content":[{"type":"text","text":"One.",` + markHour + `},{"type":"text","text":"\n\nTwo.",` + markGlobal + `}]},
			{"role":"user","content":[{"type":"text","text":"a",` + mark + `}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"cache_control\":{}}"},` + mark + `}]},
			{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"",` + mark + `}]},
			{"role":"user","content":[{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"https://images.test/1"},` + mark + `}]}],
			"max_tokens":9,"tools":[{"type":"function","function":{"name":"f","parameters":{"cache_control":{}}},` + markHour + `}],` + mark + `}`},
		"Messages": {"/v1/messages", `{"model":"m","system":[{"type":"text","text":"One.",` + markHour + `},{"type":"text","text":"Two.",` + markGlobal + `}],"messages":[
			{"role":"user","content":[{"type":"text","text":"a",` + mark + `}]},
			{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"cache_control":{}},` + mark + `}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c",` + mark + `},{"type":"text","text":"b"},
				{"type":"image","source":{"type":"url","url":"https://images.test/1"},` + mark + `}]}],
			"max_tokens":9,"tools":[{"name":"f","input_schema":{"cache_control":{}},` + markHour + `}],` + mark + `}`},
	}
	const (
		call     = `{"id":"c","type":"function","function":{"name":"f","arguments":"{\"cache_control\":{}}"}`
		image    = `{"type":"image_url","image_url":{"url":"https://images.test/1"}`
		function = `{"type":"function","function":{"name":"f","parameters":{"cache_control":{}}}`
	)
	marked := func(hour string) string {
		return `{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"One.",` + hour + `},{"type":"text","text":"\n\nTwo.",` + mark + `}]},` +
			`{"role":"user","content":[{"type":"text","text":"a",` + mark + `}]},{"role":"assistant","content":null,"tool_calls":[` + call + `,` + mark + `}]},` +
			`{"role":"tool","content":"","tool_call_id":"c"},{"role":"user","content":[{"type":"text","text":"b"},` + image + `,` + mark + `}]}],` +
			`"max_tokens":9,"tools":[` + function + `,` + hour + `}],` + mark + `}`
	}
	for option, want := range map[string]string{
		"": `{"model":"m","messages":[{"role":"system","content":"One.\n\nTwo."},{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[` + call + `}]},` +
			`{"role":"tool","content":"","tool_call_id":"c"},{"role":"user","content":[{"type":"text","text":"b"},` + image + `}]}],"max_tokens":9,"tools":[` + function + `}]}`,
		upstream.CacheControlType: marked(mark),
		upstream.CacheControlTTL:  marked(markHour),
	} {
		for format, request := range requests {
			t.Run(format+"/"+option, func(t *testing.T) {
				s := newBodyServer(t)
				g := newGateway(t, s.URL+"/v1", &upstream.Options{CacheControl: option, TokenizePath: "/tokenize"}, withProtocols)
				require.Equal(t, 200, g.do("POST", request.path, request.body).StatusCode)
				assert.Equal(t, want, s.last())
				if format == "Messages" {
					require.Equal(t, 200, g.do("POST", request.path+"/count_tokens", request.body).StatusCode)
					prompt, _, _ := strings.Cut(want, `],"max_tokens"`)
					assert.Contains(t, s.last(), prompt)
					assert.Equal(t, option != "", strings.Contains(s.last(), mark+"}]"))
				}
			})
		}
	}
}

// Texts in parts, which a chat client has chosen, stay parts.
func TestCacheControl_PartsOfClients(t *testing.T) {
	s := newBodyServer(t)
	g := newGateway(t, s.URL+"/v1", nil)
	ask := func(mark string) string {
		require.Equal(t, 200, g.chat(`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"a"`+mark+`},{"type":"text","text":"b"}]},{"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"`+mark+`}]}]}`).StatusCode)
		return s.last()
	}
	assert.Equal(t, ask(""), ask(","+mark))
}

// The request belongs to the caller, who may send it to another server with other options.
func TestCacheControl_RequestUnchanged(t *testing.T) {
	s := newBodyServer(t)
	req := new(llm.ChatRequest)
	require.NoError(t, json.Unmarshal([]byte(`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"a",`+markGlobal+`},{"type":"text","text":"\n\nb"}]},`+
		`{"role":"user","content":[{"type":"text","text":"c",`+mark+`}],`+mark+`},{"role":"assistant","reasoning":"Hm.","content":"d","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},`+mark+`}]}],`+
		`"tools":[{"type":"function","function":{"name":"f",`+mark+`},`+mark+`}],`+mark+`}`), req))
	before := req.Clone()
	for _, option := range []string{"", upstream.CacheControlType, upstream.CacheControlTTL} {
		_, err := join.Collect(newBackend(t, s.URL, &upstream.Options{CacheControl: option}).Chat(t.Context(), req))
		require.NoError(t, err)
		assert.Equal(t, before, req)
		assert.Equal(t, option != "", strings.Contains(s.last(), "cache_control"))
	}
}

func TestCacheControl_Invalid(t *testing.T) {
	_, err := upstream.New("http://localhost/v1", &upstream.Options{CacheControl: "1h"})
	assert.EqualError(t, err, `upstream: Options.CacheControl must not be "1h"`)
}

// turnsOfClaudeCode returns the requests of an agent that calls a tool n times, as Claude Code sends them: the last mark
// moves with the conversation.
func turnsOfClaudeCode(n int) (bodies []string) {
	const system = `"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; turn=%d"},{"type":"text","text":"You are an agent.",` + markHour + `},{"type":"text","text":"\nWork.",` + markHour + `}]`
	const tools = `"tools":[{"name":"b","description":"B","input_schema":{"type":"object","properties":{"z":{},"a":{}}}},{"name":"a","input_schema":{"type":"object"}}]`
	history := []string{`{"role":"user","content":[{"type":"text","text":"<system-reminder>"},{"type":"text","text":"Go on."%s}]}`}
	for turn := range n + 1 {
		last := strings.Replace(history[len(history)-1], "%s", ","+mark, 1)
		messages := strings.ReplaceAll(strings.Join(append(history[:len(history)-1:len(history)-1], last), ","), "%s", "")
		bodies = append(bodies, `{"model":"m","max_tokens":9,"messages":[`+messages+`],`+fmt.Sprintf(system, turn)+`,`+tools+`}`)
		history = append(history,
			fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":"Step %d."},{"type":"tool_use","id":"c%d","name":"a","input":{"z":1,"a":[%d]}}]}`, turn, turn, turn),
			fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":"done %d"%%s}]}`, turn, turn))
	}
	return bodies
}

// A server caches by prefix, so what has been sent is sent again byte for byte. A server that does not know the marks
// must not see where they were.
func TestCacheControl_PrefixIsStable(t *testing.T) {
	s := newBodyServer(t)
	g := newGateway(t, s.URL+"/v1", nil, withProtocols)
	known := newGateway(t, s.URL+"/v1", &upstream.Options{CacheControl: upstream.CacheControlTTL}, withProtocols)
	tools := func(body string) string {
		_, tools, found := strings.Cut(body, `],"max_tokens"`)
		require.True(t, found, body)
		return tools
	}
	var plain, marked string
	for _, body := range turnsOfClaudeCode(5) {
		require.Equal(t, 200, g.do("POST", "/v1/messages", body).StatusCode)
		sent := s.last()
		assert.NotContains(t, sent, "cache_control")
		require.Equal(t, 200, known.do("POST", "/v1/messages", body).StatusCode)
		assert.Equal(t, 3, strings.Count(s.last(), "cache_control"))
		if plain != "" {
			assert.Equal(t, tools(plain), tools(sent))
			before, _, _ := strings.Cut(plain, `],"max_tokens"`)
			assert.True(t, strings.HasPrefix(sent, before), "%s\n%s", before, sent)

			// The mark at the end has moved: without it and its part the prefix is the same.
			assert.Equal(t, tools(marked), tools(s.last()))
			before = marked[:strings.LastIndex(marked, `"content":[`)]
			assert.True(t, strings.HasPrefix(s.last(), before), "%s\n%s", before, s.last())
		}
		plain, marked = sent, s.last()
	}
}

// Claude Code is told what was read from and written to the cache, by lifetime, and the record has its price.
func TestCacheControl_UsageAndPrice(t *testing.T) {
	for server, usage := range map[string]string{
		"LiteLLM": `{"prompt_tokens":1000,"completion_tokens":20,"total_tokens":1020,"prompt_tokens_details":{"cached_tokens":600,"cache_creation_tokens":300,` +
			`"cache_creation_token_details":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200}},"cache_creation_input_tokens":300,"cache_read_input_tokens":600}`,
		"Anthropic's members": `{"prompt_tokens":1000,"completion_tokens":20,"total_tokens":1020,"cache_read_input_tokens":600,"cache_creation_input_tokens":300,` +
			`"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200}}`,
	} {
		for _, stream := range []bool{false, true} {
			t.Run(server+"/stream="+encode(t, stream), func(t *testing.T) {
				g := newPricedGateway(t, usageServer(usagePlaces["usage"], usage))
				got := g.do("POST", "/v1/messages", withMembers(turnsOfClaudeCode(1)[1], `"stream":`+encode(t, stream)))
				require.Equal(t, 200, got.StatusCode, "%s", got.body)
				reply := got.body
				if stream {
					_, reply, _ = strings.Cut(reply, "event: message_delta\ndata: ")
					reply, _, _ = strings.Cut(reply, "\n")
				}
				var told struct{ Usage map[string]any }
				require.NoError(t, json.Unmarshal([]byte(reply), &told), "%s", reply)
				for name, want := range map[string]any{
					"input_tokens": 100., "cache_creation_input_tokens": 300., "cache_read_input_tokens": 600., "output_tokens": 20.,
					"cache_creation": map[string]any{"ephemeral_5m_input_tokens": 100., "ephemeral_1h_input_tokens": 200.},
				} {
					assert.Equal(t, want, told.Usage[name], name)
				}
				record := g.summary().Record
				assert.Equal(t, llmhttp.Units{PromptTokens: 1000, CachedTokens: 600, CacheWriteTokens: 300, CompletionTokens: 20,
					CacheWrites: llm.CacheWrites{5 * time.Minute: 100, time.Hour: 200}}, record.Units)
				// 100 * $1/M, 600 * $0.10/M, 100 * $1.25/M + 200 * $2/M, 20 * $2/M
				assert.Equal(t, llmhttp.Cost{Input: 100_000, CacheRead: 60_000, CacheWrite: 525_000, Output: 40_000}, record.Cost)
				assert.False(t, record.Estimated)
			})
		}
	}
}
