package anthropic_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/upstream"
)

// A gateway serves a Backend to clients of both APIs.
type gateway struct {
	*httptest.Server
	records chan llmhttp.UsageRecord
}

func newGateway(t testing.TB, b llmhttp.Backend, change ...func(*llmhttp.Options)) *gateway {
	t.Helper()
	g := &gateway{records: make(chan llmhttp.UsageRecord, 256)}
	opts := &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Anthropic: true})}, Usage: g}
	for _, f := range change {
		f(opts)
	}
	g.Server = httptest.NewServer(llmhttp.NewHandler(b, llmhttp.AllowAll("test"), opts))
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) Record(_ context.Context, records ...llmhttp.UsageRecord) error {
	for _, r := range records {
		g.records <- r
	}
	return nil
}

func (g *gateway) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, nil
}

// post sends a request of the Messages API.
func (g *gateway) post(t testing.TB, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", g.URL+"/v1/messages", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// A message has the members of a message that a client keeps.
type message struct {
	ID         string           `json:"id"`
	Content    []map[string]any `json:"content"`
	StopReason string           `json:"stop_reason"`
	Usage      map[string]any   `json:"usage"`
}

// accumulate returns the message of a stream, joined as the SDKs do.
func accumulate(t testing.TB, stream string) (m message) {
	t.Helper()
	inputs := make(map[int]string)
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type    string
			Index   int
			Message message
			Block   map[string]any `json:"content_block"`
			Delta   map[string]any
			Usage   map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(data), &e), data)
		switch e.Type {
		case "message_start":
			m = e.Message
		case "content_block_start":
			require.Len(t, m.Content, e.Index)
			m.Content = append(m.Content, e.Block)
		case "content_block_delta":
			b := m.Content[e.Index]
			switch e.Delta["type"] {
			case "text_delta":
				b["text"] = b["text"].(string) + e.Delta["text"].(string)
			case "thinking_delta":
				b["thinking"] = b["thinking"].(string) + e.Delta["thinking"].(string)
			case "signature_delta":
				b["signature"] = e.Delta["signature"]
			case "citations_delta":
				list, _ := b["citations"].([]any)
				b["citations"] = append(list, e.Delta["citation"])
			case "input_json_delta":
				inputs[e.Index] += e.Delta["partial_json"].(string)
			}
		case "content_block_stop":
			if raw := inputs[e.Index]; raw != "" {
				var input any
				require.NoError(t, json.Unmarshal([]byte(raw), &input), raw)
				m.Content[e.Index]["input"] = input
			}
		case "message_delta":
			m.StopReason, _ = e.Delta["stop_reason"].(string)
			m.Usage = e.Usage
		}
	}
	return m
}

// withoutDirectCallers returns content without the callers that say that the model itself has called, which package messages
// adds for SDKs that require one.
func withoutDirectCallers(content []map[string]any) []map[string]any {
	for _, b := range content {
		if c, _ := b["caller"].(map[string]any); c["type"] == "direct" {
			delete(b, "caller")
		}
	}
	return content
}

// Blocks and signatures reach the client as the server sent them, and the server as the client sends them back.
func TestGateway_BlocksBothWays(t *testing.T) {
	for name, body := range map[string]string{"whole": allBlocks, "stream": allEvents()} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, text(http.StatusOK, body))
			g := newGateway(t, newBackend(t, s.URL, nil))
			const hello = `{"role":"user","content":[{"type":"text","text":"Hello"}]}`
			const tools = `"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5},{"name":"f","input_schema":{"type":"object"}}]`
			ask := func(turns string) string {
				return `{"model":"m","max_tokens":99,"stream":` + map[string]string{"whole": "false", "stream": "true"}[name] + `,"messages":[` + turns + `],` + tools + `}`
			}
			reply, err := io.ReadAll(g.post(t, ask(hello)).Body)
			require.NoError(t, err)
			var want, got message
			require.NoError(t, json.Unmarshal([]byte(allBlocks), &want))
			if name == "whole" {
				require.NoError(t, json.Unmarshal(reply, &got))
			} else {
				got = accumulate(t, string(reply))
			}
			assert.Equal(t, want.ID, got.ID)
			assert.Equal(t, want.StopReason, got.StopReason)
			assert.Equal(t, want.Content, withoutDirectCallers(got.Content))
			for _, name := range []string{"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation", "output_tokens", "output_tokens_details"} {
				assert.Equal(t, want.Usage[name], got.Usage[name], name)
			}

			blocks, err := json.Marshal(withoutDirectCallers(got.Content))
			require.NoError(t, err)
			const results = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"R"},{"type":"tool_result","tool_use_id":"toolu_2","content":"S"}]}`
			g.post(t, ask(hello+`,{"role":"assistant","content":`+string(blocks)+`},`+results))
			sent, _ := s.last()
			var body struct {
				Messages []struct{ Content json.RawMessage }
				Tools    json.RawMessage
			}
			require.NoError(t, json.Unmarshal([]byte(sent), &body))
			assert.JSONEq(t, string(blocks), string(body.Messages[1].Content))
			assert.JSONEq(t, results, `{"role":"user","content":`+string(body.Messages[2].Content)+`}`)
			assert.JSONEq(t, `{`+tools+`}`, `{"tools":`+string(body.Tools)+`}`)
		})
	}
}

// A compaction comes whole, and goes back as the server sent it.
func TestGateway_Compaction(t *testing.T) {
	const block = `{"type":"compaction","content":"S","encrypted_content":"E","signature":"G"}`
	s := newServer(t, text(http.StatusOK, events(messageStart,
		start("0", `{"type":"compaction","content":null,"encrypted_content":null,"signature":"G"}`),
		delta("0", `{"type":"compaction_delta","content":"S","encrypted_content":"E"}`),
		blockStop, messageEnd, messageStop)))
	g := newGateway(t, newBackend(t, s.URL, nil))
	const hello = `{"role":"user","content":"Hi"}`
	ask := func(turns string) string { return `{"model":"m","max_tokens":9,"messages":[` + turns + `]}` }
	reply, err := io.ReadAll(g.post(t, ask(hello)).Body)
	require.NoError(t, err)
	var m struct{ Content json.RawMessage }
	require.NoError(t, json.Unmarshal(reply, &m))
	assert.JSONEq(t, `[`+block+`]`, string(m.Content))

	for _, blocks := range []string{
		block, `{"type":"text","text":"A"},` + block + `,{"type":"text","text":"B"}`, `{"type":"compaction","content":null},{"type":"text","text":"B"}`,
	} {
		g.post(t, ask(hello+`,{"role":"assistant","content":[`+blocks+`]},`+hello))
		sent, _ := s.last()
		var body struct {
			Messages []struct{ Content json.RawMessage }
		}
		require.NoError(t, json.Unmarshal([]byte(sent), &body))
		assert.JSONEq(t, `[`+blocks+`]`, string(body.Messages[1].Content))
	}
}

// Documents and what belongs to them arrive as the client sent them.
func TestGateway_Documents(t *testing.T) {
	s := newServer(t, text(http.StatusOK, okMessage))
	g := newGateway(t, newBackend(t, s.URL, nil))
	const content = `[{"type":"document","title":"N","context":"C","citations":{"enabled":true},"source":{"type":"text","media_type":"text/plain","data":"D"},"cache_control":{"type":"ephemeral"}},` +
		`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"1"},{"type":"image","source":{"type":"url","url":"https://a.test/1"}}]},"citations":{"enabled":true}},` +
		`{"type":"document","title":"P","source":{"type":"base64","media_type":"application/pdf","data":"QUE="}},{"type":"document","source":{"type":"url","url":"https://a.test/a.pdf"}},` +
		`{"type":"search_result","source":"https://a.test","title":"S","content":[{"type":"text","text":"3"}],"citations":{"enabled":true}},` +
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUE="}},{"type":"text","text":"?"}]`
	resp := g.post(t, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":`+content+`}]}`)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	sent, _ := s.last()
	var body struct {
		Messages []struct{ Content json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(sent), &body))
	assert.JSONEq(t, content, string(body.Messages[0].Content))
}

// A Backend of another API behind the same protocol gets none of what only Anthropic's has, and refuses a chat that
// would lose all of its tools.
func TestGateway_OtherAPI(t *testing.T) {
	s := newServer(t, text(http.StatusOK, `{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}`))
	other, err := upstream.New(s.URL+"/v1", nil)
	require.NoError(t, err)
	t.Cleanup(other.CloseIdleConnections)
	g := newGateway(t, other)
	const search = `{"type":"web_search_20250305","name":"web_search"}`
	const turns = `"messages":[{"role":"user","content":[{"type":"document","title":"N","source":{"type":"text","media_type":"text/plain","data":"D"}}]},` +
		`{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"text","text":"A"}]},{"role":"user","content":"B"}]`
	resp := g.post(t, `{"model":"m","max_tokens":9,"thinking":{"type":"adaptive"},"context_management":{},"tools":[`+search+`,{"name":"f","input_schema":{"type":"object"}}],`+turns+`}`)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	sent, _ := s.last()
	assert.JSONEq(t, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"N"},{"type":"text","text":"D"}]},{"role":"assistant","content":"A"},{"role":"user","content":"B"}],`+
		`"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}`, sent)

	for members, status := range map[string]int{
		`"tools":[` + search + `]`:                               http.StatusBadRequest,
		`"tools":[` + search + `],"tool_choice":{"type":"any"}`:  http.StatusBadRequest,
		`"tools":[` + search + `],"tool_choice":{"type":"none"}`: http.StatusOK,
		`"tools":[]`: http.StatusOK,
	} {
		resp := g.post(t, `{"model":"m","max_tokens":9,`+members+`,`+turns+`}`)
		assert.Equal(t, status, resp.StatusCode, members)
	}
}

// A watchedBody closes read when more than left bytes are wanted, so that those before were used.
type watchedBody struct {
	io.ReadCloser
	left int
	read chan struct{}
}

func (b *watchedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		close(b.read)
		b.left = -1
	}
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left = max(b.left-n, 0)
	}
	return n, err
}

// The usage that comes when the client has left is recorded.
func TestGateway_ReadsOnForTheUsage(t *testing.T) {
	left, read := make(chan struct{}), make(chan struct{})
	content := events(messageStart, textStart, textDelta, blockStop)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, content)
		http.NewResponseController(w).Flush()
		<-left
		io.WriteString(w, events(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":777}}`, messageStop))
	})
	g := newGateway(t, newBackend(t, s.URL, withTransport(func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			resp.Body = &watchedBody{ReadCloser: resp.Body, left: len(content), read: read}
		}
		return resp, err
	})))
	resp := g.post(t, `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`)
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, "text_delta") {
			break
		}
	}
	<-read // also the end of the block, which the client cannot see yet
	resp.Body.Close()
	close(left)
	r := <-g.records
	assert.EqualValues(t, 777, r.Units.CompletionTokens)
	assert.EqualValues(t, 3, r.Units.PromptTokens)
}

// A stream that breaks off is an error event for the client.
func TestGateway_ErrorInStream(t *testing.T) {
	s := newServer(t, text(http.StatusOK, events(messageStart, textStart, textDelta, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)))
	g := newGateway(t, newBackend(t, s.URL, nil))
	body, err := io.ReadAll(g.post(t, `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`).Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), `event: error`)
	assert.Contains(t, string(body), `overloaded_error`)
}

// Random messages are the same whole, as a stream and behind the gateway in both forms.
func TestGateway_Random(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		content := randomContent(r)
		whole := `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":` + asJSON(t, content) + `,"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}`
		stream := events(append(append([]string{messageStart}, randomEvents(t, r, content)...), messageEnd, messageStop)...)
		var replies [2]string
		for i, isStream := range []bool{false, true} {
			resp, err := replyTo(t, nil, isStream, [2]string{whole, stream}[i])
			require.NoError(t, err)
			resp.Created = 0
			replies[i] = asJSON(t, resp)
		}
		require.JSONEq(t, replies[0], replies[1])
		s := newServer(t, func(w http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			if strings.Contains(string(body), `"stream":true`) {
				io.WriteString(w, stream)
				return
			}
			io.WriteString(w, whole)
		})
		g := newGateway(t, newBackend(t, s.URL, nil))
		const ask = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]`
		reply, err := io.ReadAll(g.post(t, ask+`}`).Body)
		require.NoError(t, err)
		var m message
		require.NoError(t, json.Unmarshal(reply, &m))
		require.JSONEq(t, asJSON(t, content), asJSON(t, withoutDirectCallers(m.Content)))
		reply, err = io.ReadAll(g.post(t, ask+`,"stream":true}`).Body)
		require.NoError(t, err)
		require.JSONEq(t, asJSON(t, content), asJSON(t, withoutDirectCallers(accumulate(t, string(reply)).Content)), "%s", reply)
		s.Close()
		g.Close()
	}
}

// randomContent returns the content of a message. Texts are not empty, and thinking has a signature, as Anthropic's.
func randomContent(r *rand.Rand) (content []map[string]any) {
	word := func() string { return strings.Repeat(string(rune('a'+r.IntN(26)))+"é👋 ", 1+r.IntN(4)) }
	for i := range 1 + r.IntN(8) {
		id := string(rune('a' + i))
		var b map[string]any
		switch r.IntN(6) {
		case 0:
			b = map[string]any{"type": "thinking", "thinking": word(), "signature": word()}
		case 1:
			b = map[string]any{"type": "redacted_thinking", "data": word()}
		case 2:
			b = map[string]any{"type": "tool_use", "id": id, "name": "f", "input": map[string]any{"a": word()}}
		case 3:
			b = map[string]any{"type": "server_tool_use", "id": id, "name": "web_search", "input": map[string]any{"query": word()}}
		case 4:
			b = map[string]any{"type": "web_fetch_tool_result", "tool_use_id": id, "content": map[string]any{"x": word()}}
		default:
			b = map[string]any{"type": "text", "text": word()}
			if r.IntN(3) == 0 {
				b["citations"] = []any{map[string]any{"type": "char_location", "cited_text": word()}}
			}
		}
		content = append(content, b)
	}
	return content
}

// randomEvents returns the events of the blocks of content, with texts in pieces.
func randomEvents(t testing.TB, r *rand.Rand, content []map[string]any) (list []string) {
	t.Helper()
	pieces := func(s string) []string {
		n := r.IntN(len(s) + 1)
		for n < len(s) && s[n]&0xc0 == 0x80 {
			n++
		}
		return []string{s[:n], s[n:]}
	}
	for i, b := range content {
		index := asJSON(t, i)
		add := func(typ, member, text string) {
			for _, piece := range pieces(text) {
				list = append(list, delta(index, asJSON(t, map[string]any{"type": typ, member: piece})))
			}
		}
		switch b["type"] {
		case "text":
			list = append(list, start(index, `{"type":"text","text":""}`))
			citations, _ := b["citations"].([]any)
			for _, c := range citations {
				list = append(list, delta(index, asJSON(t, map[string]any{"type": "citations_delta", "citation": c})))
			}
			add("text_delta", "text", b["text"].(string))
		case "thinking":
			list = append(list, start(index, `{"type":"thinking","thinking":"","signature":""}`))
			add("thinking_delta", "thinking", b["thinking"].(string))
			list = append(list, delta(index, asJSON(t, map[string]any{"type": "signature_delta", "signature": b["signature"]})))
		case "tool_use", "server_tool_use":
			list = append(list, start(index, asJSON(t, map[string]any{"type": b["type"], "id": b["id"], "name": b["name"], "input": map[string]any{}})))
			add("input_json_delta", "partial_json", asJSON(t, b["input"]))
		default:
			list = append(list, start(index, asJSON(t, b)))
		}
		list = append(list, stop(index))
	}
	return list
}
