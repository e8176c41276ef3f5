package llmhttp_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// reencode decodes a document as a T and encodes it again.
func reencode[T any](t testing.TB, doc string) string {
	t.Helper()
	v := new(T)
	require.NoError(t, any(v).(json.Unmarshaler).UnmarshalJSON([]byte(doc)), "%.200s", doc)
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestTypedMembers(t *testing.T) {
	strict, parallel := true, false
	for name, test := range map[string]struct {
		doc  string
		want any
	}{
		"request": {
			`{"model":"m","messages":[],"reasoning_effort":"high","tools":[{"type":"function","function":{"name":"f","strict":true}}],"parallel_tool_calls":false}`,
			llmhttp.ChatRequest{Model: "m", Messages: []llmhttp.Message{}, ReasoningEffort: "high", ParallelToolCalls: &parallel,
				Tools: []llmhttp.Tool{{Type: "function", Function: &llmhttp.Function{Name: "f", Strict: &strict}}}},
		},
		"refusal": {
			`{"role":"assistant","content":null,"refusal":"no"}`,
			llmhttp.Message{Role: llmhttp.RoleAssistant, Refusal: "no"},
		},
		"failed tool": {
			`{"role":"tool","content":"x","tool_call_id":"c","is_error":true}`,
			llmhttp.Message{Role: llmhttp.RoleTool, Content: llmhttp.Text("x"), ToolCallID: "c", IsError: true},
		},
		"reasoning details": {
			`{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.text","text":"t","signature":"s","index":0},{"type":"reasoning.summary","summary":"u"},{"type":"reasoning.encrypted","data":"d","id":"i"}]}`,
			llmhttp.Message{Role: llmhttp.RoleAssistant, Content: llmhttp.Text("x"), ReasoningDetails: []llmhttp.ReasoningDetail{
				{Type: llmhttp.ReasoningText, Text: "t", Signature: "s", Extra: llmhttp.Extra{"index": json.RawMessage("0")}},
				{Type: llmhttp.ReasoningSummary, Summary: "u"},
				{Type: llmhttp.ReasoningEncrypted, Data: "d", Extra: llmhttp.Extra{"id": json.RawMessage(`"i"`)}},
			}},
		},
		"delta": {
			`{"reasoning_details":[{"type":"reasoning.text","text":"t"}],"refusal":"no"}`,
			llmhttp.Delta{Refusal: "no", ReasoningDetails: []llmhttp.ReasoningDetail{{Type: llmhttp.ReasoningText, Text: "t"}}},
		},
		"stop sequence": {
			`{"index":0,"delta":{},"finish_reason":"stop","stop_reason":"END"}`,
			llmhttp.ChunkChoice{FinishReason: llmhttp.FinishStop, StopSequence: "END"},
		},
		"stop sequence of a whole reply": {
			`{"index":0,"message":{"role":"assistant","content":"x","refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":"END"}`,
			llmhttp.Choice{Message: llmhttp.Message{Role: llmhttp.RoleAssistant, Content: llmhttp.Text("x")}, FinishReason: llmhttp.FinishStop, StopSequence: "END"},
		},
		"usage": {
			`{"prompt_tokens":9,"completion_tokens":8,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":1,"cache_write_tokens":2,"audio_tokens":3,"video_tokens":4},"completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":6,"accepted_prediction_tokens":0},"cost":1}`,
			llmhttp.Usage{PromptTokens: 9, CompletionTokens: 8, TotalTokens: 17,
				PromptTokensDetails:     llmhttp.PromptTokensDetails{CachedTokens: 1, CacheWriteTokens: 2, AudioTokens: 3, Extra: llmhttp.Extra{"video_tokens": json.RawMessage("4")}},
				CompletionTokensDetails: llmhttp.CompletionTokensDetails{ReasoningTokens: 5, AudioTokens: 6, Extra: llmhttp.Extra{"accepted_prediction_tokens": json.RawMessage("0")}},
				Extra:                   llmhttp.Extra{"cost": json.RawMessage("1")}},
		},
		"no details":        {`{"prompt_tokens":9,"completion_tokens":8,"total_tokens":17}`, llmhttp.Usage{PromptTokens: 9, CompletionTokens: 8, TotalTokens: 17}},
		"texts":             {`["a","b"]`, llmhttp.EmbeddingInput{Texts: []string{"a", "b"}}},
		"one text":          {`"a"`, llmhttp.EmbeddingInput{Texts: []string{"a"}}},
		"no texts":          {`[]`, llmhttp.EmbeddingInput{Texts: []string{}}},
		"tokens":            {`[[1,2],[3]]`, llmhttp.EmbeddingInput{Tokens: [][]int{{1, 2}, {3}}}},
		"one text's tokens": {`[1,2]`, llmhttp.EmbeddingInput{Tokens: [][]int{{1, 2}}}},
		"no input":          {`null`, llmhttp.EmbeddingInput{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := reflect.New(reflect.TypeOf(test.want))
			require.NoError(t, json.Unmarshal([]byte(test.doc), got.Interface()))
			assert.Equal(t, test.want, got.Elem().Interface())
			b, err := json.Marshal(test.want)
			require.NoError(t, err)
			assert.Equal(t, test.doc, string(b))
		})
	}
}

// Replies of other servers are decoded leniently, as the documentation of
// ChatChunk says.
func TestLenientChunk(t *testing.T) {
	const head, choice = `{"id":"","object":"chat.completion.chunk","created":0,"model":"",`, `"choices":[{"index":0,"delta":`
	for name, test := range map[string]struct{ doc, want string }{
		"plain": {`{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":1,"delta":{"content":"Hi"},"finish_reason":null}]}`,
			`{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":1,"delta":{"content":"Hi"},"finish_reason":null}]}`},
		"members of a vendor": {`{"choices":[{"delta":{"reasoning":"r","x":{"a":[1,null]}},"logprobs":{"content":[]},"y":1}],"service_tier":"default","system_fingerprint":null}`,
			head + choice + `{"reasoning":"r","x":{"a":[1,null]}},"finish_reason":null,"logprobs":{"content":[]},"y":1}],"service_tier":"default","system_fingerprint":null}`},
		"null everywhere": {`{"id":null,"object":null,"created":null,"model":null,"choices":[{"index":null,"delta":{"role":null,"content":null,"reasoning_content":null,"reasoning_details":null,"tool_calls":null,"refusal":null},"logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}`,
			head + choice + `{},"finish_reason":null}]}`},
		"null choices": {`{"choices":null}`, head + `"choices":[]}`},
		"null delta":   {`{"choices":[{"delta":null},null,5]}`, head + choice + `{},"finish_reason":null}]}`},
		"no index": {`{"choices":[null,{"index":null,"delta":{"content":"a"}},{"index":[],"delta":{"tool_calls":[null,{"id":"b"}]}}]}`,
			head + choice + `{"content":"a"},"finish_reason":null},{"index":1,"delta":{"tool_calls":[{"index":0,"id":"b"}]},"finish_reason":null}]}`},
		"empty": {`{}`, head + `"choices":[]}`},
		"wrong scalars": {`{"id":17,"object":7,"created":"1755137933","model":3.5,"choices":[{"index":"2","delta":{"content":7},"finish_reason":""}]}`,
			`{"id":"17","object":"chat.completion.chunk","created":1755137933,"model":"3.5","choices":[{"index":2,"delta":{"content":"7"},"finish_reason":null}]}`},
		"wrong containers": {`{"id":["a"],"choices":{},"usage":7}`, strings.Replace(head, `"id":""`, `"id":"[\"a\"]"`, 1) + `"choices":[]}`},
		"wrong containers within": {`{"choices":[{"delta":[],"finish_reason":{}},{"delta":{"tool_calls":{},"reasoning_details":"x"}},{"delta":{"tool_calls":[{"function":5}]}}]}`,
			head + choice + `{},"finish_reason":"{}"},{"index":1,"delta":{},"finish_reason":null},{"index":2,"delta":{"tool_calls":[{"index":0}]},"finish_reason":null}]}`},
		"fraction of a second": {`{"created":1755137933.75}`, strings.Replace(head, `"created":0`, `"created":1755137933`, 1) + `"choices":[]}`},
		"time out of range":    {`{"created":1e300}`, head + `"choices":[]}`},
		"usage": {`{"choices":[],"usage":{"prompt_tokens":12.0,"completion_tokens":"3","total_tokens":null,"prompt_tokens_details":{"cached_tokens":"4"},"completion_tokens_details":null}}`,
			head + `"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}}`},
		"usage of zeros":   {`{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, head + `"choices":[]}`},
		"usage below zero": {`{"usage":{"prompt_tokens":-1,"completion_tokens":-1,"total_tokens":-1}}`, head + `"choices":[]}`},
		"tool calls": {`{"choices":[{"delta":{"tool_calls":[{"index":2,"id":"call_1","type":"function","function":{"name":"f","arguments":"{","z":1},"w":true},{"function":{"arguments":null}},null]}}]}`,
			head + choice + `{"tool_calls":[{"index":2,"id":"call_1","type":"function","function":{"name":"f","arguments":"{","z":1},"w":true},{"index":1}]},"finish_reason":null}]}`},
		"arguments that are an object": {`{"choices":[{"delta":{"tool_calls":[{"id":"a","type":null,"function":{"name":"f","arguments":{"a": 1}}}]}}]}`,
			head + choice + `{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"a\": 1}"}}]},"finish_reason":null}]}`},
		"content in parts": {`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"a"},null,{"type":"text","text":"b"},5]}}]}`,
			head + choice + `{"content":"ab","content_parts":[{"type":"thinking","thinking":[]},5]},"finish_reason":null}]}`},
		"whole reply": {`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","reasoning_content":"so","refusal":null,"annotations":[],"tool_calls":[{"index":9,"id":"a","type":"function","function":{"name":"f","arguments":{}}},{"id":"b","type":"x","x":1}]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1}}`,
			head + choice + `{"role":"assistant","reasoning_content":"so","content":"Hi","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"b","type":"x","x":1}],"annotations":[]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}`},
		"whole reply in parts": {`{"choices":[{"message":{"content":[{"type":"text","text":"a"}]}},{"message":"x"}]}`,
			head + choice + `{"content":"a"},"finish_reason":null},{"index":1,"delta":{},"finish_reason":null}]}`},
		"stop token": {`{"choices":[{"delta":{},"finish_reason":"stop","stop_reason":128001}]}`, head + choice + `{},"finish_reason":"stop"}]}`},
		"duplicate names": {`{"id":"a","id":"b","x":{"y":1,"y":2},"choices":[{"delta":{"content":"a","content":"b"}}]}`,
			`{"id":"b","object":"chat.completion.chunk","created":0,"model":"",` + choice + `{"content":"b"},"finish_reason":null}],"x":{"y":1}}`},
		"bytes that are not UTF-8": {"{\"choices\":[{\"delta\":{\"content\":\"a\xffb\",\"x\xff\":[\"\xff\"]}}]}",
			head + choice + "{\"content\":\"a\ufffdb\",\"x\ufffd\":[\"\ufffd\"]},\"finish_reason\":null}]}"},
		"halves of surrogate pairs": {`{"x":"\ud83d","choices":[{"delta":{"content":"a\ud83db","x":{"a":"\ude42"}},"y":["\ud83d"]}]}`,
			head + choice + "{\"content\":\"a\ufffdb\",\"x\":{\"a\":\"\ufffd\"}},\"finish_reason\":null,\"y\":[\"\ufffd\"]}],\"x\":\"\ufffd\"}"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, reencode[llmhttp.ChatChunk](t, test.doc))
		})
	}
	for _, doc := range []string{``, `{`, `[]`, `"a"`, `5`, `{"choices":[{"delta":{"content":"a`, `{"id":"a"}{"id":"b"}`, `data: {}`, "\x00", strings.Repeat(`{"a":`, 10_000), `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`} {
		t.Run(fmt.Sprintf("refused/%.20q", doc), func(t *testing.T) {
			assert.Error(t, new(llmhttp.ChatChunk).UnmarshalJSON([]byte(doc)))
		})
	}
}

func TestLenientReplies(t *testing.T) {
	response := reencode[llmhttp.ChatResponse](t, `{"id":5,"created":"7","choices":[{"message":{"role":"assistant","content":{"a":1},"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"b":2}}},null]},"finish_reason":null,"stop_reason":7,"logprobs":null},null,{"message":{"content":[{"type":"text","text":"a"},5,{"type":"text"}]}}],"usage":{"prompt_tokens":"1"},"x":"\ud83d"}`)
	assert.Equal(t, `{"id":"5","object":"chat.completion","created":7,"model":"","choices":[`+
		`{"index":0,"message":{"role":"assistant","content":"{\"a\":1}","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"b\":2}"}}],"refusal":null},"logprobs":null,"finish_reason":null},`+
		`{"index":1,"message":{"role":"","content":[{"type":"text","text":"a"},{"type":"text","text":""}],"refusal":null},"logprobs":null,"finish_reason":null}],`+
		`"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1},"x":"`+"\ufffd"+`"}`, response)

	images := reencode[llmhttp.ImageResponse](t, `{"created":1.5,"data":[null,{"url":5,"b64_json":"AAE="}],"usage":{"input_tokens":1.0,"output_tokens":"2"}}`)
	assert.Equal(t, `{"created":1,"data":[{"url":"5","b64_json":"AAE="}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}`, images)
	assert.Error(t, new(llmhttp.ImageResponse).UnmarshalJSON([]byte(`{"data":[{"b64_json":"no base64!"}]}`)))

	embeddings := reencode[llmhttp.EmbeddingResponse](t, `{"model":null,"data":[{"index":1,"embedding":[1,0.5]},{"index":0,"embedding":"AACAPw=="},{"embedding":[]}],"usage":{"prompt_tokens":2,"completion_tokens":0,"total_tokens":2}}`)
	assert.Equal(t, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1]},{"object":"embedding","index":1,"embedding":[1,0.5]},{"object":"embedding","index":2,"embedding":[]}],"model":"","usage":{"prompt_tokens":2,"total_tokens":2}}`, embeddings)
	for _, doc := range []string{`{"data":[{"index":-1,"embedding":[]}]}`, `{"data":[{"index":2048,"embedding":[]}]}`, `{"data":[{"embedding":"AAA="}]}`, `{"data":[{"embedding":"?"}]}`, `{"data":[{"embedding":["a"]}]}`} {
		assert.Error(t, new(llmhttp.EmbeddingResponse).UnmarshalJSON([]byte(doc)), doc)
	}

	model := reencode[llmhttp.Model](t, `{"id":"m","created":"5","owned_by":{"n":1},"meta":2}`)
	assert.Equal(t, `{"id":"m","object":"model","created":5,"owned_by":"","meta":2}`, model)
}

// An error in place of a reply is in Extra, and is never encoded.
func TestErrorOfReply(t *testing.T) {
	for doc, want := range map[string]string{
		`{"error":{"message":"m"}}`:                         `{"message":"m"}`,
		`{"id":"a","choices":[],"error":"text"}`:            `"text"`,
		`{"object":"error","message":"m","code":400}`:       `{"code":400,"message":"m"}`,
		`{"message":"m","code":"\ud83d","object":"error"}`:  `{"code":"` + "\ufffd" + `","message":"m"}`,
		`{"error":null,"object":"chat.completion.chunk"}`:   `null`,
		`{"object":"chat.completion.chunk","message":"ok"}`: ``,
	} {
		var c llmhttp.ChatChunk
		require.NoError(t, c.UnmarshalJSON([]byte(doc)))
		assert.Equal(t, want, string(c.Extra["error"]), doc)
		b, err := json.Marshal(c)
		require.NoError(t, err)
		assert.NotContains(t, string(b), "error")
	}
}

// What is decoded does not share memory with the document, nor with what is
// decoded afterwards.
func TestDecodeCopies(t *testing.T) {
	var chunks []llmhttp.ChatChunk
	names := []string{"alpha", "bravo", "charlie"}
	for _, name := range names {
		data := []byte(`{"id":"` + name + `","choices":[{"delta":{"content":"` + name + `","x":"` + name + `"}}]}`)
		var c llmhttp.ChatChunk
		require.NoError(t, c.UnmarshalJSON(data))
		clear(data)
		chunks = append(chunks, c)
	}
	for i, name := range names {
		assert.Equal(t, name, chunks[i].ID)
		assert.Equal(t, name, chunks[i].Choices[0].Delta.Content)
		assert.Equal(t, `"`+name+`"`, string(chunks[i].Choices[0].Delta.Extra["x"]))
	}
}

// Line breaks that JSON need not escape are escaped: in texts, names and raw
// values.
func TestLineBreaksAreEscaped(t *testing.T) {
	const breaks = "a\u0085\u2028\u2029\n\r“é”"
	raw, err := json.Marshal(map[string]string{breaks: breaks})
	require.NoError(t, err)
	raw = []byte(strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(string(raw)))
	m := llmhttp.Message{Role: llmhttp.RoleUser, Content: llmhttp.Text(breaks), Name: breaks, Extra: llmhttp.Extra{breaks: raw}}
	b, err := m.MarshalJSON()
	require.NoError(t, err)
	const escaped = `"a\u0085\u2028\u2029\n\r“é”"`
	assert.Equal(t, `{"role":"user","content":`+escaped+`,"name":`+escaped+`,`+escaped+`:{`+escaped+`:`+escaped+`}}`, string(b))
	var again llmhttp.Message
	require.NoError(t, again.UnmarshalJSON(b))
	assert.Equal(t, breaks, again.Name)
}

// What decoding and encoding a request has for a result does not depend on what
// the same decoder did before, successful or not.
func TestDecodersAreUsedAgain(t *testing.T) {
	docs := []string{`{"model":"a","messages":[{"role":"user","content":[{"text":"x","type":"text"}]}]}`, `{"model":`, `{"model":5}`, `{"messages":[{"content":[{"type":"text"}]}]}`, `{"model":"b","n":3}`}
	want := make(map[string]string)
	for range 3 {
		for _, doc := range docs {
			var r llmhttp.ChatRequest
			err := r.UnmarshalJSON([]byte(doc))
			got := fmt.Sprint(r.Model, r.Messages, r.N != nil, err)
			if want[doc] == "" {
				want[doc] = got
			}
			assert.Equal(t, want[doc], got)
		}
	}
}

// fillValue sets all that v refers to to values that are not zero.
func fillValue(v reflect.Value, r *rand.Rand, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fillValue(v.Field(i), r, depth)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), r, depth)
	case reflect.Slice:
		if v.Type() == rawType {
			v.SetBytes([]byte(fmt.Sprint(r.IntN(1000))))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fillValue(v.Index(i), r, depth)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fillValue(value, r, depth)
		v.SetMapIndex(reflect.ValueOf(fmt.Sprintf("x_%d", r.IntN(1000))), value)
	case reflect.String:
		v.SetString(fmt.Sprint("s", r.IntN(1000)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + r.Int64N(1000))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(1 + r.IntN(1000)))
	}
}

// No field of a type is forgotten by the codec: what has values everywhere comes
// back through JSON.
func TestEveryFieldIsEncoded(t *testing.T) {
	for name, fresh := range jsonTypes {
		t.Run(name, func(t *testing.T) {
			v := fresh()
			fillValue(reflect.ValueOf(v).Elem(), rand.New(rand.NewPCG(3, 4)), 0)
			wellFormed(v)
			b, err := json.Marshal(v)
			require.NoError(t, err)
			again := fresh()
			require.NoError(t, json.Unmarshal(b, again), "%s", b)
			assert.Equal(t, v, again, "%s", b)
		})
	}
}

// wellFormed corrects what values of fillValue cannot be at the same time.
func wellFormed(v any) {
	switch v := v.(type) {
	case *llmhttp.ChatRequest:
		for i := range v.Messages {
			wellFormed(&v.Messages[i])
		}
	case *llmhttp.Message:
		wellFormed(&v.Content)
	case *llmhttp.Content:
		for i := range *v {
			wellFormed(&(*v)[i])
		}
	case *llmhttp.Part:
		v.Type, v.ImageURL = llmhttp.PartText, nil
	case *llmhttp.ChatResponse:
		for i := range v.Choices {
			v.Choices[i].Index = i
			wellFormed(&v.Choices[i])
		}
	case *llmhttp.Choice:
		wellFormed(&v.Message)
	case *llmhttp.ImageResponse:
		v.Usage.PromptTokensDetails, v.Usage.CompletionTokensDetails = llmhttp.PromptTokensDetails{}, llmhttp.CompletionTokensDetails{}
	case *llmhttp.EmbeddingRequest:
		v.Input.Tokens = nil
	case *llmhttp.EmbeddingResponse:
		v.Usage.CompletionTokens, v.Usage.CompletionTokensDetails = 0, llmhttp.CompletionTokensDetails{}
	}
}

func TestJoinReasoningDetails(t *testing.T) {
	stream := func(deltas ...string) llmhttp.ChatStream {
		return func(yield func(*llmhttp.ChatChunk, error) bool) {
			for _, details := range deltas {
				var c llmhttp.ChatChunk
				require.NoError(t, c.UnmarshalJSON([]byte(`{"choices":[{"delta":{"reasoning_details":[`+details+`]}}]}`)))
				if !yield(&c, nil) {
					return
				}
			}
		}
	}
	for name, test := range map[string]struct {
		deltas []string
		want   string
	}{
		"texts with one index": {
			[]string{`{"type":"reasoning.text","text":"a","index":0}`, `{"type":"reasoning.text","text":"b","index":0,"format":"f"}`, `{"type":"reasoning.text","signature":"s","index":0}`},
			`{"type":"reasoning.text","text":"ab","signature":"s","format":"f","index":0}`,
		},
		"another index": {
			[]string{`{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"b","index":1}`, `{"type":"reasoning.text","text":"c","index":1}`},
			`{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"bc","index":1}`,
		},
		"a signature between": {
			[]string{`{"type":"reasoning.text","text":"a","signature":"s"}`, `{"type":"reasoning.text","text":"b"}`},
			`{"type":"reasoning.text","text":"a","signature":"s"},{"type":"reasoning.text","text":"b"}`,
		},
		"other types": {
			[]string{`{"type":"reasoning.summary","summary":"a"}`, `{"type":"reasoning.summary","summary":"b"}`, `{"type":"reasoning.encrypted","data":"d"}`, `{"type":"reasoning.text","text":"t"}`},
			`{"type":"reasoning.summary","summary":"a"},{"type":"reasoning.summary","summary":"b"},{"type":"reasoning.encrypted","data":"d"},{"type":"reasoning.text","text":"t"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := llmhttp.Collect(stream(test.deltas...))
			require.NoError(t, err)
			b, err := json.Marshal(r.Choices[0].Message)
			require.NoError(t, err)
			assert.Equal(t, `{"role":"assistant","content":"","reasoning_details":[`+test.want+`]}`, string(b))
			again, err := llmhttp.Collect(r.Stream())
			require.NoError(t, err)
			assert.Equal(t, r, again)
		})
	}
}

// The refusal and the stop sequence of a stream are those of the reply.
func TestCollectRefusalAndStopSequence(t *testing.T) {
	r, err := llmhttp.Collect(func(yield func(*llmhttp.ChatChunk, error) bool) {
		_ = yield(&llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Refusal: "I "}}}}, nil) &&
			yield(&llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Refusal: "won't."}, FinishReason: llmhttp.FinishStop, StopSequence: "END"}}}, nil)
	})
	require.NoError(t, err)
	assert.Equal(t, []llmhttp.Choice{{Message: llmhttp.Message{Role: llmhttp.RoleAssistant, Refusal: "I won't."}, FinishReason: llmhttp.FinishStop, StopSequence: "END"}}, r.Choices)
	again, err := llmhttp.Collect(r.Stream())
	require.NoError(t, err)
	assert.Equal(t, r, again)
}
