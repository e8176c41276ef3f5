package anthropic_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/cachetest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/pricing"
)

// A cacheLoop runs a loop of turns against a server that caches by prefix, directly or through a gateway, and returns what the
// server has counted. The records of the gateway must have the same tokens, and their price.
func cacheLoop(t *testing.T, direct bool, run func(t *testing.T, url string)) cachetest.Tokens {
	const turns = 30
	server := cachetest.NewServer(turns - 1)
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	url := s.URL
	var g *gateway
	if !direct {
		prices, err := pricing.Parse([]byte(cachetest.Prices), nil)
		require.NoError(t, err)
		g = newGateway(t, newBackend(t, s.URL, nil), func(o *llmhttp.Options) { o.Price = prices.Price })
		url = g.URL
	}
	run(t, url)
	require.Len(t, server.Turns(), turns)
	total := server.Total()
	t.Logf("%d tokens, %.2f%% from the cache, %v written, $%.4f", total.Prompt, 100*total.Share(), total.WrittenFor, total.Dollars())
	if g == nil {
		return total
	}
	g.Close()
	var units llmhttp.Units
	var cost llm.Money
	for len(g.records) > 0 {
		if r := <-g.records; r.Units.CachedTokens+r.Units.CacheWriteTokens > 0 {
			units.Add(r.Units)
			cost += r.Cost.Total()
		}
	}
	assert.EqualValues(t, total.Prompt, units.PromptTokens)
	assert.EqualValues(t, total.Read, units.CachedTokens)
	assert.Equal(t, total.WrittenFor, units.CacheWrites)
	assert.InDelta(t, total.Dollars(), float64(cost)/1e9, 1e-6)
	return total
}

// A loop of calls reads as much from the cache through messages and this package as directly, and costs the same.
func TestCacheLoop(t *testing.T) {
	run := func(t *testing.T, url string) { cachetest.Loop(t, url, "test") }
	direct, through := cacheLoop(t, true, run), cacheLoop(t, false, run)
	assert.Greater(t, direct.Share(), 0.9)
	assert.InDelta(t, direct.Share(), through.Share(), 0.001)
	assert.InDelta(t, direct.Dollars(), through.Dollars(), direct.Dollars()/100)
}

// The same with Claude Code itself.
func TestCacheLoop_ClaudeCode(t *testing.T) {
	run := func(t *testing.T, url string) {
		assert.Equal(t, "Done.", cachetest.ClaudeCode(t, url, "test", "Run the steps.").Result)
	}
	direct, through := cacheLoop(t, true, run), cacheLoop(t, false, run)
	assert.Greater(t, direct.Share(), 0.9)
	assert.InDelta(t, direct.Share(), through.Share(), 0.005)
	assert.InDelta(t, direct.Dollars(), through.Dollars(), direct.Dollars()/50)
}

// A thinkingServer is a scripted server whose turns have thinking in several places, and a search of the web.
type thinkingServer struct {
	mu       sync.Mutex // guards the fields below
	requests []string   // of the conversation
	searches []string   // requests whose only tool is that of a search
	replies  int
}

// The content of the turns of a thinkingServer.
var thinkingTurns = []string{
	`[{"type":"thinking","thinking":"I look.\n\"<é👋>\u2028","signature":"EqQB+first/signature=="},{"type":"text","text":"First I run a command."},` +
		`{"type":"tool_use","id":"toolu_01","name":"Bash","input":{"command":"echo 1","description":"One"}}]`,
	`[{"type":"redacted_thinking","data":"EmwKAhgB+redacted/data=="},{"type":"thinking","thinking":"Both at once.","signature":"EqQB+second/signature=="},` +
		`{"type":"tool_use","id":"toolu_02","name":"Bash","input":{"command":"echo 2","description":"Two"}},{"type":"tool_use","id":"toolu_03","name":"Bash","input":{"command":"echo 3","description":"Three"}}]`,
	`[{"type":"thinking","thinking":"","signature":"EqQB+omitted/signature=="},{"type":"text","text":"Now I search."},{"type":"tool_use","id":"toolu_04","name":"WebSearch","input":{"query":"weather today"}}]`,
	`[{"type":"text","text":"Done."}]`,
}

const searchContent = `[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"weather today"}},` +
	`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://weather.test","title":"Weather","encrypted_content":"enc","page_age":null}]},` +
	`{"type":"text","text":"It is "},{"type":"text","text":"sunny","citations":[{"type":"web_search_result_location","cited_text":"sun","url":"https://weather.test","title":"Weather","encrypted_index":"idx"}]},{"type":"text","text":"."}]`

func (s *thinkingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/messages") {
		http.NotFound(w, r)
		return
	}
	var req struct {
		Stream bool
		Tools  []struct{ Name, Type string }
	}
	if err := json.Unmarshal(body, &req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	content := `[{"type":"text","text":"A title"}]`
	s.mu.Lock()
	switch {
	case len(req.Tools) == 1 && req.Tools[0].Name == "web_search":
		s.searches = append(s.searches, string(body))
		content = searchContent
	case len(req.Tools) > 1:
		content = thinkingTurns[min(len(s.requests), len(thinkingTurns)-1)]
		s.requests = append(s.requests, string(body))
	}
	s.replies++
	id := fmt.Sprintf("msg_%d", s.replies) // Claude Code takes messages with the same ID for one
	s.mu.Unlock()
	stop := "end_turn"
	if strings.Contains(content, `"type":"tool_use"`) {
		stop = "tool_use"
	}
	message := func(content, stop string) string {
		return `{"id":"` + id + `","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":` + content + `,"stop_reason":` + stop +
			`,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":5,"service_tier":"standard"}}`
	}
	if !req.Stream {
		io.WriteString(w, message(content, `"`+stop+`"`))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	list := []string{`{"type":"message_start","message":` + message("[]", "null") + `}`}
	var blocks []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(content), &blocks); err != nil {
		panic(err)
	}
	for i, b := range blocks {
		list = append(list, blockEvents(i, b)...)
	}
	io.WriteString(w, events(append(list, `{"type":"message_delta","delta":{"stop_reason":"`+stop+`","stop_sequence":null},"usage":{"output_tokens":5}}`, messageStop)...))
}

// blockEvents returns the events of a block.
func blockEvents(i int, b map[string]json.RawMessage) []string {
	index := fmt.Sprint(i)
	var list []string
	add := func(typ, member string, value json.RawMessage) {
		list = append(list, delta(index, `{"type":"`+typ+`","`+member+`":`+string(value)+`}`))
	}
	begin := func(block string) { list = append(list, start(index, block)) }
	switch string(b["type"]) {
	case `"text"`:
		begin(`{"type":"text","text":""}`)
		var citations []json.RawMessage
		_ = json.Unmarshal(b["citations"], &citations) // most have none
		for _, c := range citations {
			add("citations_delta", "citation", c)
		}
		add("text_delta", "text", b["text"])
	case `"thinking"`:
		begin(`{"type":"thinking","thinking":"","signature":""}`)
		if string(b["thinking"]) != `""` {
			add("thinking_delta", "thinking", b["thinking"])
		}
		add("signature_delta", "signature", b["signature"])
	case `"tool_use"`, `"server_tool_use"`:
		begin(`{"type":` + string(b["type"]) + `,"id":` + string(b["id"]) + `,"name":` + string(b["name"]) + `,"input":{}}`)
		raw, _ := json.Marshal(string(b["input"]))
		add("input_json_delta", "partial_json", raw)
	default:
		raw, _ := json.Marshal(b)
		begin(string(raw))
	}
	return append(list, stop(index))
}

// Claude Code, directly and through messages and this package, sends the blocks and signatures of a turn back as the server
// sent them, and its search of the web reaches the server.
func TestClaudeCode_Blocks(t *testing.T) {
	var searches [2]string
	for i, name := range []string{"direct", "through"} {
		t.Run(name, func(t *testing.T) {
			server := new(thinkingServer)
			s := httptest.NewServer(server)
			t.Cleanup(s.Close)
			url := s.URL
			if name == "through" {
				url = newGateway(t, newBackend(t, s.URL, nil)).URL
			}
			result := cachetest.ClaudeCode(t, url, "test", "Run the steps.")
			assert.Equal(t, "Done.", result.Result)
			if dir := os.Getenv("LLMHTTP_KEEP"); dir != "" {
				for k, r := range append(server.requests, server.searches...) {
					require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.json", name, k)), []byte(r), 0o600))
				}
			}
			require.Len(t, server.requests, len(thinkingTurns))
			var last struct {
				Messages []struct {
					Role    string
					Content json.RawMessage
				}
			}
			require.NoError(t, json.Unmarshal([]byte(server.requests[len(thinkingTurns)-1]), &last))
			turn := 0
			for _, m := range last.Messages {
				if m.Role == "assistant" && turn < len(thinkingTurns) {
					assert.JSONEq(t, thinkingTurns[turn], withoutMarks(t, m.Content))
					turn++
				}
			}
			assert.Equal(t, len(thinkingTurns)-1, turn)
			require.Len(t, server.searches, 1)
			var search struct{ Tools, Messages json.RawMessage }
			require.NoError(t, json.Unmarshal([]byte(server.searches[0]), &search))
			searches[i] = string(search.Tools)
			assert.Contains(t, server.requests[len(thinkingTurns)-1], "https://weather.test", "the result of the search")
		})
	}
	if searches[0] != "" {
		assert.JSONEq(t, searches[0], searches[1])
	}
}

// withoutMarks returns the blocks of a turn without cache_control, and without callers that are the model itself.
func withoutMarks(t *testing.T, content json.RawMessage) string {
	t.Helper()
	var blocks []map[string]any
	require.NoError(t, json.Unmarshal(content, &blocks))
	for _, b := range blocks {
		delete(b, "cache_control")
	}
	return asJSON(t, withoutDirectCallers(blocks))
}
