package responsesws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	"github.com/llmhttp/llmhttp/responsesws"
)

// bubble runs a test whose servers and clients are in a synctest bubble, which fails if a goroutine is left.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// A response has the same events over a WebSocket as over HTTP, and the Handler is told the same.
func TestResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		usage := memory.NewUsageStore()
		s := start(t, config{opts: llmhttp.Options{Usage: usage, Prefix: "/llm"}, key: llmhttp.Key{Account: "acme"}})
		body := `{"model":"m","stream":true,"input":"Hello"}`
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/llm/v1/responses", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer sk-test")
		resp, err := s.client.Do(r)
		require.NoError(t, err)
		var want []object
		for line := range strings.Lines(readAll(t, resp.Body)) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				var o object
				require.NoError(t, json.Unmarshal([]byte(data), &o))
				want = append(want, o)
			}
		}

		ws, _, err := s.upgrade("/llm/v1/responses")
		require.NoError(t, err)
		defer ws.CloseNow()
		c := &client{t, ws}
		c.send(`{"type":"response.create","model":"m","stream":false,"input":"Hello"}`)
		for _, w := range want {
			got := c.receive()
			assert.Equal(t, w["type"], got["type"])
			assert.Equal(t, w["sequence_number"], got["sequence_number"])
			assert.Equal(t, w["delta"], got["delta"])
			assert.NotContains(t, got, "stream_id")
		}
		synctest.Wait()
		require.Len(t, s.ended(), 2)
		for _, summary := range s.ended() {
			assert.Equal(t, "POST /llm/v1/responses", summary.Route)
			assert.True(t, summary.Streamed)
			assert.Equal(t, 200, summary.Status)
			assert.NoError(t, summary.Err)
			assert.Equal(t, "key_1", summary.Record.KeyID)
		}
		assert.Equal(t, s.ended()[0].Record.Units, s.ended()[1].Record.Units)
		sums, err := usage.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", To: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		require.Len(t, sums, 1)
		assert.EqualValues(t, 2, sums[0].Requests)
		assert.Empty(t, s.log.String())
	})
}

// The request in process has the headers of the upgrade, but not those about its connection.
func TestResponse_Request(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		var requests []*http.Request
		s := start(t, config{
			base: context.WithValue(context.Background(), key{}, "value"),
			inner: func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests = append(requests, r)
					next.ServeHTTP(w, r)
				})
			},
		})
		c := s.dial("X-Custom", "yes", "Accept-Encoding", "gzip", "User-Agent", "test")
		c.create(`"input":"Hello"`)
		c.complete()
		require.Len(t, requests, 2)
		r := requests[1]
		assert.Equal(t, http.Header{
			"Authorization": {"Bearer sk-test"}, "X-Custom": {"yes"}, "User-Agent": {"test"},
			"Content-Type": {"application/json"}, "Accept": {"text/event-stream"},
		}, r.Header)
		assert.Equal(t, "POST", r.Method)
		assert.Equal(t, "localhost", r.Host)
		assert.Equal(t, requests[0].RemoteAddr, r.RemoteAddr)
		assert.Equal(t, "value", r.Context().Value(key{}))
		assert.NotNil(t, r.Context().Value(http.ServerContextKey))
	})
}

// A conversation continues from the last response of the connection without a store.
func TestConversation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{})
		c := s.dial()
		c.create(`"store":false,"input":"one"`)
		first := c.complete()
		assert.Nil(t, first["previous_response_id"])
		c.create(`"store":false,"instructions":"new","previous_response_id":"` + first["id"].(string) + `","input":[` + user("two") + `]`)
		second := c.complete()
		assert.Equal(t, first["id"], second["previous_response_id"])
		c.create(`"previous_response_id":"` + second["id"].(string) + `","input":[` + user("three") + "," + user("four") + `]`)
		third := c.complete()
		assert.Equal(t, "You said: four", outputText(third))
		assert.Equal(t, [][]string{
			{"one"},
			{"new", "one", "You said: one", "two"},
			{"one", "You said: one", "two", "You said: two", "three", "four"},
		}, s.asked())

		for _, id := range []any{first["id"], second["id"], "resp_unknown"} {
			c.create(`"previous_response_id":"` + id.(string) + `","input":"five"`)
			status, code := c.fail()
			assert.Equal(t, 400, status)
			assert.Equal(t, "previous_response_not_found", code)
		}
		c.create(`"previous_response_id":"` + third["id"].(string) + `","input":[]`)
		c.complete()
		assert.Equal(t, "four", s.asked()[3][5])

		other := s.dial()
		other.create(`"previous_response_id":"` + third["id"].(string) + `","input":"five"`)
		_, code := other.fail()
		assert.Equal(t, "previous_response_not_found", code, "of another connection")
	})
}

// The events about a whole response repeat the previous_response_id, wherever else that name may stand.
func TestConversation_RepeatsThePreviousID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := start(t, config{}).dial()
		c.create(`"input":"one"`)
		id := c.complete()["id"]
		c.create(`"instructions":"\"previous_response_id\":null","previous_response_id":"` + id.(string) + `","input":"two",` +
			`"metadata":{"previous_response_id":"x"}`)
		for {
			e := c.receive()
			if r, ok := e["response"].(object); ok {
				assert.Equal(t, id, r["previous_response_id"], e["type"])
				assert.Equal(t, `"previous_response_id":null`, r["instructions"])
				assert.Equal(t, object{"previous_response_id": "x"}, r["metadata"])
			}
			if e["type"] == "response.completed" {
				break
			}
		}
	})
}

// Calls of tools and their outputs are a part of the conversation.
func TestConversation_Tools(t *testing.T) {
	bubble(t, func(t *testing.T) {
		backend := &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
			if last := req.Messages[len(req.Messages)-1]; last.Role == llm.RoleTool {
				return []memory.Step{memory.Say("It is " + last.Content.Text())}
			}
			return []memory.Step{memory.Reason("Let me see."), memory.Call("call_1", "weather", `{"city":"Rome"}`)}
		}}
		s := start(t, config{chat: backend.Chat})
		c := s.dial()
		const tools = `"tools":[{"type":"function","name":"weather","parameters":{"type":"object"}}],`
		c.create(tools + `"input":"How is the weather?"`)
		first := c.complete()
		c.create(tools + `"previous_response_id":"` + first["id"].(string) + `","input":[{"type":"function_call_output","call_id":"call_1","output":"sunny"}]`)
		assert.Equal(t, "It is sunny", outputText(c.complete()))
		messages := s.requests[1].Messages
		require.Len(t, messages, 3)
		assert.Equal(t, "Let me see.", messages[1].Reasoning)
		assert.Equal(t, `{"city":"Rome"}`, messages[1].ToolCalls[0].Function.Arguments)
	})
}

// Responses that are stored continue from the store, and what was not stored follows from the connection.
func TestConversation_Store(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, config{responses: &responses.Options{Store: memory.NewResponseStore()}})
		c := s.dial()
		previous := ""
		for i, store := range []string{"true", "false", "false", "true", "true", "false"} {
			c.create(`"store":` + store + `,"previous_response_id":"` + previous + `","input":"` + string(rune('a'+i)) + `"`)
			r := c.complete()
			if previous == "" {
				assert.Nil(t, r["previous_response_id"])
			} else {
				assert.Equal(t, previous, r["previous_response_id"])
			}
			previous = r["id"].(string)
		}
		assert.Equal(t, []string{
			"a", "You said: a", "b", "You said: b", "c", "You said: c", "d", "You said: d", "e", "You said: e", "f",
		}, s.asked()[5])
		assert.Equal(t, s.infos[0].Conversation, s.infos[3].Conversation, "stored responses of one conversation")

		other := s.dial()
		stored := s.infos[0].Conversation
		other.create(`"previous_response_id":"` + stored + `","input":"z"`)
		other.complete()
		assert.Equal(t, []string{"a", "You said: a", "z"}, s.asked()[6])
	})
}

// A response that is incomplete can be continued, and one that has failed cannot.
func TestConversation_OfAResponseThatIsNotCompleted(t *testing.T) {
	for name, test := range map[string]struct {
		steps []memory.Step
		want  string
	}{
		"incomplete": {[]memory.Step{memory.Say("half"), memory.Finish(llm.FinishLength)}, ""},
		"failed":     {[]memory.Step{memory.Say("half"), memory.Fail(llm.Errorf(502, "", "broken"))}, "previous_response_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				backend := &memory.Backend{Script: func(*llm.ChatRequest) []memory.Step {
					steps := test.steps
					test.steps = []memory.Step{memory.Say("well")}
					return steps
				}}
				s := start(t, config{chat: backend.Chat})
				c := s.dial()
				c.create(`"input":"one"`)
				end := c.terminal()
				require.Equal(t, "response."+name, end["type"])
				c.create(`"previous_response_id":"` + end["response"].(object)["id"].(string) + `","input":"two"`)
				if test.want == "" {
					c.complete()
					assert.Equal(t, []string{"one", "half", "two"}, s.asked()[1])
					return
				}
				_, code := c.fail()
				assert.Equal(t, test.want, code, "the response has had one end only")
			})
		})
	}
}

// The conversations that are kept are bounded, for a connection and for all.
func TestConversation_Bounds(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for name, test := range map[string]struct {
		ws    responsesws.Options
		found [4]bool // the first and second stream of the first connection, then of the second
	}{
		"default":          {responsesws.Options{}, [4]bool{true, true, true, true}},
		"no limit":         {responsesws.Options{MaxHistory: -1, MaxTotalHistory: -1}, [4]bool{true, true, true, true}},
		"none fits":        {responsesws.Options{MaxHistory: 1000}, [4]bool{}},
		"one fits":         {responsesws.Options{MaxHistory: 10_000}, [4]bool{false, true, false, true}},
		"three fit in all": {responsesws.Options{MaxTotalHistory: 20_000}, [4]bool{false, true, true, true}},
		"one fits in all":  {responsesws.Options{MaxTotalHistory: 10_000}, [4]bool{false, false, false, true}},
	} {
		for i, found := range test.found {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := start(t, config{ws: test.ws})
					clients := []*client{s.dial(), s.dial()}
					var ids []string
					for _, c := range clients {
						for _, stream := range []string{"a", "b"} {
							c.create(`"stream_id":"` + stream + `","input":"` + long + `"`)
							ids = append(ids, c.complete()["id"].(string))
						}
					}
					c := clients[i/2]
					c.create(`"previous_response_id":"` + ids[i] + `","input":"go on"`)
					if found {
						c.complete()
						return
					}
					_, code := c.fail()
					assert.Equal(t, "previous_response_not_found", code)
				})
			})
		}
	}
}

// What follows a response that is a summary of the conversation continues from the summary.
func TestConversation_Compacted(t *testing.T) {
	for _, trigger := range []string{`{"type":"compaction_trigger"}`, ` { "type" : "compaction_trigger" } `} {
		bubble(t, func(t *testing.T) {
			s := start(t, config{
				responses: &responses.Options{CompactPrompt: "Summarize it."},
				chat: func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
					return llm.Reply("Re: " + req.Messages[len(req.Messages)-1].Content.Text())
				},
			})
			c := s.dial()
			c.create(`"input":"one"`)
			first := c.complete()["id"].(string)
			c.create(`"previous_response_id":"` + first + `","input":[` + trigger + `]`)
			compacted := c.complete()
			require.Len(t, compacted["output"], 1)
			c.create(`"previous_response_id":"` + compacted["id"].(string) + `","input":"two"`)
			c.complete()
			last := s.asked()[2]
			require.Len(t, last, 3)
			assert.Equal(t, "one", last[0])
			assert.Contains(t, last[1], "Re: Summarize it.")
			assert.Equal(t, "two", last[2])
		})
	}
}

// A request with "generate": false calls no model, and what it has can be continued.
func TestWarmup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		usage := memory.NewUsageStore()
		s := start(t, config{opts: llmhttp.Options{Usage: usage}, key: llmhttp.Key{Account: "acme", Models: []string{"m"}}})
		c := s.dial()
		c.create(`"generate":false,"store":false,"instructions":"Be brief.","tools":[{"type":"function","name":"f","parameters":{}}],"input":[` + user("one") + `]`)
		var warm object
		for i, typ := range []string{"response.created", "response.in_progress", "response.completed"} {
			e := c.receive()
			assert.Equal(t, typ, e["type"])
			assert.EqualValues(t, i, e["sequence_number"])
			warm = e["response"].(object)
		}
		assert.Regexp(t, "^resp_", warm["id"])
		assert.Equal(t, "completed", warm["status"])
		assert.Equal(t, "m", warm["model"])
		assert.Equal(t, "Be brief.", warm["instructions"])
		assert.Len(t, warm["tools"], 1)
		assert.Empty(t, warm["output"])
		assert.EqualValues(t, 0, warm["usage"].(object)["total_tokens"])
		assert.Empty(t, s.asked())

		c.create(`"generate":false,"previous_response_id":"` + warm["id"].(string) + `","input":[` + user("two") + `]`)
		second := c.complete()
		assert.Equal(t, warm["id"], second["previous_response_id"])
		c.create(`"generate":true,"previous_response_id":"` + second["id"].(string) + `","input":[` + user("three") + `]`)
		c.complete()
		assert.Equal(t, [][]string{{"one", "two", "three"}}, s.asked())
		sums, err := usage.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", To: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		require.Len(t, sums, 1)
		assert.EqualValues(t, 1, sums[0].Requests)

		for _, members := range []string{`"generate":false,"input":"x","model":"other"`, `"generate":false,"input":7`} {
			c.send(`{"type":"response.create",` + members + `}`)
			status, _ := c.fail()
			assert.Contains(t, []int{400, 404}, status, members)
		}
	})
}
