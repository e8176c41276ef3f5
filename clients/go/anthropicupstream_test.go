package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/messages"
	upstream "github.com/llmhttp/llmhttp/upstream/anthropic"
)

// anthropicTurns are the turns of a scripted server of the Messages API.
var anthropicTurns = []string{
	`[{"type":"thinking","thinking":"I look it up.\u2028<é👋>","signature":"EqQB+one/signature=="},{"type":"redacted_thinking","data":"EmwK+redacted/data=="},` +
		`{"type":"text","text":"One moment."},{"type":"tool_use","id":"toolu_1","name":"forecast","input":{"z":1,"city":"Köln"},"caller":{"type":"direct"}}]`,
	`[{"type":"thinking","thinking":"","signature":"EqQB+two/signature=="},{"type":"text","text":"Sunny."}]`,
}

// anthropicEvents returns the stream of a message with a content.
func anthropicEvents(t *testing.T, content, stop string) string {
	t.Helper()
	var b strings.Builder
	event := func(typ, members string) {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%[1]q,%s}\n\n", typ, members)
	}
	event("message_start", `"message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":1}}`)
	var blocks []map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(content), &blocks))
	for i, block := range blocks {
		delta := func(typ, member string, value json.RawMessage) {
			event("content_block_delta", fmt.Sprintf(`"index":%d,"delta":{"type":%q,%q:%s}`, i, typ, member, value))
		}
		start := func(block string) {
			event("content_block_start", fmt.Sprintf(`"index":%d,"content_block":%s`, i, block))
		}
		switch string(block["type"]) {
		case `"text"`:
			start(`{"type":"text","text":""}`)
			delta("text_delta", "text", block["text"])
		case `"thinking"`:
			start(`{"type":"thinking","thinking":"","signature":""}`)
			delta("thinking_delta", "thinking", block["thinking"])
			delta("signature_delta", "signature", block["signature"])
		case `"tool_use"`:
			start(fmt.Sprintf(`{"type":"tool_use","id":%s,"name":%s,"input":{}}`, block["id"], block["name"]))
			input, err := json.Marshal(string(block["input"]))
			require.NoError(t, err)
			delta("input_json_delta", "partial_json", input)
		default:
			raw, err := json.Marshal(block)
			require.NoError(t, err)
			start(string(raw))
		}
		event("content_block_stop", fmt.Sprintf(`"index":%d`, i))
	}
	event("message_delta", `"delta":{"stop_reason":"`+stop+`","stop_sequence":null},"usage":{"output_tokens":9}`)
	event("message_stop", `"x":0`)
	return b.String()
}

// The SDK, through package messages and a Backend of package upstream/anthropic, gets the blocks of a scripted server, and the
// server gets them back byte for byte.
func TestAnthropicUpstream(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			var bodies []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				turn := len(bodies)
				bodies = append(bodies, string(body))
				stop := []string{"tool_use", "end_turn"}[turn]
				if strings.Contains(string(body), `"stream":true`) {
					io.WriteString(w, anthropicEvents(t, anthropicTurns[turn], stop))
					return
				}
				fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":%s,"stop_reason":%q,"stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":9}}`,
					anthropicTurns[turn], stop)
			}))
			defer server.Close()
			backend, err := upstream.New(server.URL, nil)
			require.NoError(t, err)
			defer backend.CloseIdleConnections()
			gateway := httptest.NewServer(llmhttp.NewHandler(backend, llmhttp.AllowAll("test"), &llmhttp.Options{
				Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Anthropic: true})},
			}))
			defer gateway.Close()
			client := anthropic.NewClient(option.WithBaseURL(gateway.URL), option.WithAPIKey(key), option.WithMaxRetries(0))
			ask := func(p anthropic.MessageNewParams) *anthropic.Message {
				if !stream {
					m, err := client.Messages.New(testContext(t), p)
					require.NoError(t, err)
					return m
				}
				s, m := client.Messages.NewStreaming(testContext(t), p), new(anthropic.Message)
				for s.Next() {
					require.NoError(t, m.Accumulate(s.Current()))
				}
				require.NoError(t, s.Err())
				return m
			}

			params := message2Params("How is the weather?")
			params.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
				Name: "forecast", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}},
			}}}
			first := ask(params)
			require.Len(t, first.Content, 4)
			assert.Equal(t, anthropic.StopReasonToolUse, first.StopReason)
			assert.EqualValues(t, 7, first.Usage.InputTokens)
			assert.EqualValues(t, 9, first.Usage.OutputTokens)
			params.Messages = append(params.Messages, first.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock("toolu_1", "sun", false)))
			second := ask(params)
			assert.Equal(t, "Sunny.", message2Text(second))

			var sent struct {
				Messages []struct{ Content json.RawMessage }
			}
			require.NoError(t, json.Unmarshal([]byte(bodies[1]), &sent))
			require.Len(t, sent.Messages, 3)
			want := strings.Replace(anthropicTurns[0], `,"caller":{"type":"direct"}`, "", 1)
			if stream {
				assert.JSONEq(t, want, string(sent.Messages[1].Content))
			} else { // also the order of the members of the input
				assert.Equal(t, strings.ReplaceAll(want, `\u2028`, "\u2028"), strings.ReplaceAll(string(sent.Messages[1].Content), `\u2028`, "\u2028"))
			}
		})
	}
}
