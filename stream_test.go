package llmhttp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
)

// The tests named TestStreamRow... are the rows of wire-format.md 2.6: what
// a stream may hold, and what it must not whatever a Backend yields.

func TestStreamRowEndHasNullContentAndReason(t *testing.T) {
	b := askStream(t, chunksOf(jsonChunks(t, `{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`)), chatAsk{})
	checkStream(t, b, 1, false)
	want := `"choices":[{"index":0,"delta":{"content":null},"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n"
	if !strings.HasSuffix(string(b), want) {
		t.Errorf("ends with\n%s", b)
	}
	if n := strings.Count(string(b), `"finish_reason":null`); n != 2 {
		t.Errorf("%d chunks say finish_reason null, want the first and the text's", n)
	}
}

func TestStreamRowKeepAliveHasNoEmptyLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			return func(yield func(*llmhttp.ChatChunk, error) bool) {
				time.Sleep(31 * time.Second)
				if yield(llmhttp.TextChunk("a"), nil) {
					time.Sleep(16 * time.Second)
					yield(llmhttp.TextChunk("b"), nil)
				}
			}
		})
		got := string(askStream(t, b, chatAsk{}))
		j := checkStream(t, []byte(got), 1, false)
		if j.Comments != 3 || j.Choices[0].Content != "ab" {
			t.Errorf("joined %+v", j)
		}
		if !strings.HasPrefix(got, ": keep-alive\n: keep-alive\ndata: {") || strings.Contains(got, "keep-alive\n\n") {
			t.Errorf("stream\n%s", got)
		}
	})
}

func TestStreamRowKeepAliveOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			return func(yield func(*llmhttp.ChatChunk, error) bool) {
				time.Sleep(2 * time.Minute)
				yield(llmhttp.TextChunk("a"), nil)
			}
		})
		w, cut := ask(t, llmhttp.NewHandler(b, anyKey, &llmhttp.Options{KeepAlive: -1}), chatAsk{stream: true})
		if j := checkStream(t, w.Body.Bytes(), 1, false); j.Comments != 0 || cut {
			t.Errorf("%d comments", j.Comments)
		}
	})
}

// No event:, id: or retry: line, no data without JSON: checkStream knows no
// other lines than data and comments. Here a Backend tries to smuggle them in.
func TestStreamRowNoOtherLines(t *testing.T) {
	const evil = "\n\nevent: ping\n\nretry: 3000\n\nid: 7\n\ndata: \n\ndata: [DONE]\n\n: ping\n\nerror: {}\r\rdata: {}\r\n\r\n"
	evilJSON, _ := json.Marshal(evil)
	chunk := func() []*llmhttp.ChatChunk {
		raw := json.RawMessage(evilJSON)
		spaced := json.RawMessage("[\n\n1,\r\n\t2 ]")
		return []*llmhttp.ChatChunk{{
			ID: evil, Model: evil,
			Choices: []llmhttp.ChunkChoice{{
				Delta: llmhttp.Delta{Content: evil, Reasoning: evil, Extra: llmhttp.Extra{evil: raw, "a": spaced},
					ToolCalls: []llmhttp.ToolCallDelta{{ID: evil, Function: llmhttp.FunctionCall{Name: evil, Arguments: evil}, Extra: llmhttp.Extra{evil: spaced}}}},
				FinishReason: llmhttp.FinishReason(evil),
				Extra:        llmhttp.Extra{evil: raw},
			}},
			Extra: llmhttp.Extra{evil: spaced},
			Usage: &llmhttp.Usage{PromptTokens: 1, Extra: llmhttp.Extra{evil: spaced}},
		}}
	}
	j := checkStream(t, askStream(t, chunksOf(chunk), chatAsk{usage: true}), 1, true)
	m := j.Choices[0]
	if j.ID != evil || j.Model != evil || m.Content != evil || m.Reasoning != evil || m.Finish != evil ||
		!reflect.DeepEqual(m.Calls, []joinedToolCall{{evil, "function", evil, evil}}) {
		t.Errorf("joined %+v %+v", j, m)
	}
}

func TestStreamRowNoErrorMemberInChunks(t *testing.T) {
	b := chunksOf(jsonChunks(t,
		`{"error":null,"choices":[{"delta":{"content":"a"}}]}`,
		`{"error":{"message":"x"},"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}`,
		`{"error":null,"choices":[]}`))
	got := askStream(t, b, chatAsk{usage: true})
	if j := checkStream(t, got, 1, true); j.Choices[0].Content != "ab" {
		t.Errorf("joined %+v", j.Choices[0])
	}
	if bytes.Contains(got, []byte(`"error"`)) {
		t.Errorf("stream\n%s", got)
	}
}

// failAfter yields pieces and then fails.
func failAfter(err error, pieces ...string) llmhttp.BackendFunc {
	return func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
		return func(yield func(*llmhttp.ChatChunk, error) bool) {
			for _, p := range pieces {
				if !yield(llmhttp.TextChunk(p), nil) {
					return
				}
			}
			yield(nil, err)
		}
	}
}

func TestStreamRowErrorIsFirstKeyOfItsEvent(t *testing.T) {
	errs := map[string]error{
		`{"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error","param":null,"code":null}}`: errors.New("secret cause"),
		`{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`:                             &llmhttp.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "too long"},
	}
	for want, err := range errs {
		h := llmhttp.NewHandler(failAfter(err, "a", "b"), anyKey, &llmhttp.Options{Logger: noLog})
		w, cut := ask(t, h, chatAsk{stream: true})
		got := w.Body.String()
		events, _, e := splitEvents(got)
		if e != nil {
			t.Fatal(e)
		}
		if !cut || len(events) != 4 || events[3] != want {
			t.Errorf("cut %t, want %s at the end of\n%s", cut, want, got)
		}
		if strings.Contains(got, "[DONE]") || strings.Contains(got, `"stop"`) {
			t.Errorf("a failed stream seems to have ended:\n%s", got)
		}
	}
}

// The error event is written and flushed before the connection is cut, and no
// chunk before it is lost.
func TestStreamRowErrorIsFlushedBeforeTheCut(t *testing.T) {
	w := &countingWriter{}
	h := llmhttp.NewHandler(failAfter(errors.New("x"), "a", "b", "c"), anyKey, &llmhttp.Options{Logger: noLog})
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(chatAsk{stream: true}.body()))
	r.Header.Set("Authorization", "Bearer sk-test")
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("recovered %v", p)
			}
		}()
		h.ServeHTTP(w, r)
	}()
	if !strings.Contains(w.body.String(), `data: {"error":`) || w.unflushed != 0 {
		t.Errorf("%d bytes are not flushed of\n%s", w.unflushed, w.body.String())
	}
	for _, piece := range []string{`"a"`, `"b"`, `"c"`} {
		if !strings.Contains(w.body.String(), piece) {
			t.Errorf("%s is lost", piece)
		}
	}
}

// Every end but the good one cuts the connection: no SDK takes the mere lack
// of [DONE] for a failure.
func TestStreamRowOnlyACompleteStreamEndsCleanly(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ends := map[string]llmhttp.BackendFunc{
					"error": failAfter(errors.New("x"), "a"),
					"panic": func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
						return func(yield func(*llmhttp.ChatChunk, error) bool) {
							yield(llmhttp.TextChunk("a"), nil)
							panic("x")
						}
					},
					"silence": func(ctx context.Context, _ *llmhttp.ChatRequest) llmhttp.ChatStream {
						return func(yield func(*llmhttp.ChatChunk, error) bool) {
							yield(llmhttp.TextChunk("a"), nil)
							<-ctx.Done()
						}
					},
				}
				for name, b := range ends {
					s := newPipeServer(t, llmhttp.NewHandler(b, anyKey, &llmhttp.Options{Logger: noLog}))
					resp, err := s.client(t, http2).Do(newAsk(chatAsk{stream: true}))
					if err != nil {
						t.Fatal(name, err)
					}
					got, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err == nil {
						t.Errorf("%s: a clean end of\n%s", name, got)
					}
					if s := string(got); !strings.Contains(s, `"content":"a"`) || !strings.Contains(s, `data: {"error":`) || strings.Contains(s, "[DONE]") {
						t.Errorf("%s:\n%s", name, s)
					}
				}
			})
		})
	}
}

func newAsk(a chatAsk) *http.Request {
	r, err := http.NewRequest("POST", "http://pipe/v1/chat/completions", strings.NewReader(a.body()))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer sk-test")
	return r
}

func TestStreamRowDoneIsAnEvent(t *testing.T) {
	b := askStream(t, chunksOf(textChunks("a")), chatAsk{})
	if !bytes.HasSuffix(b, []byte("\n\ndata: [DONE]\n\n")) || bytes.Count(b, []byte("[DONE]")) != 1 {
		t.Errorf("stream\n%s", b)
	}
}

func TestStreamRowRoleOnce(t *testing.T) {
	b := chunksOf(jsonChunks(t,
		`{"choices":[{"delta":{"role":"assistant","content":"a"}}]}`,
		`{"choices":[{"delta":{"role":"assistant"}}]}`,
		`{"choices":[{"delta":{"role":"user","content":"b"}}]}`,
		`{"choices":[{"delta":{"role":"assistant"},"finish_reason":"stop"}]}`))
	got := askStream(t, b, chatAsk{})
	j := checkStream(t, got, 1, false)
	if n := bytes.Count(got, []byte(`"role"`)); n != 1 || j.Choices[0].Content != "ab" || j.Chunks != 4 {
		t.Errorf("%d roles, %d chunks:\n%s", n, j.Chunks, got)
	}
}

// The ways in which Backends are known to stream tool calls all come to the
// same calls.
func TestStreamRowToolCalls(t *testing.T) {
	two := []joinedToolCall{{"c1", "function", "f", `{"a":1}`}, {"c2", "function", "g", `{}`}}
	tests := map[string]struct {
		want   []joinedToolCall
		deltas []string
	}{
		"the format's own": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}`,
			`{"index":0,"function":{"arguments":"{\"a\""}}`, `{"index":0,"function":{"arguments":":1}"}}`,
			`{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":""}}`, `{"index":1,"function":{"arguments":"{}"}}`}},
		"whole": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}`,
			`{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}`}},
		"both in one delta": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}`}},
		"no index": {two, []string{
			`{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}`,
			`{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}`}},
		"indices all 0, in pieces": {two, []string{
			`{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":0,"function":{"arguments":":1}"}}`,
			`{"index":0,"id":"c2","function":{"name":"g"}}`, `{"index":0,"function":{"arguments":"{}"}}`}},
		"indices from 1": {two, []string{
			`{"index":1,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":2,"id":"c2","function":{"name":"g","arguments":"{}"}}`}},
		"indices with a gap, negative": {two, []string{
			`{"index":-3,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":9,"id":"c2","function":{"name":"g"}}`, `{"index":9,"function":{"arguments":"{}"}}`}},
		"id, type and name repeated": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\""}}`,
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":":1}"}}`,
			`{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{"}}`,
			`{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"}"}}`}},
		"interleaved": {two, []string{
			`{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":1,"id":"c2","function":{"name":"g","arguments":"{"}}`,
			`{"index":0,"function":{"arguments":":1}"}}`, `{"index":1,"function":{"arguments":"}"}}`}},
		"name after id": {two, []string{
			`{"index":0,"id":"c1","type":"function"}`, `{"index":0,"function":{"name":"f"}}`, `{"index":0,"function":{"arguments":"{\"a\":1}"}}`,
			`{"index":1,"id":"c2"}`, `{"index":1,"function":{"arguments":"{"}}`, `{"index":1,"function":{"name":"g","arguments":"}"}}`}},
		"empty strings and nulls for what was said": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":0,"id":"","type":"","function":{"name":"","arguments":":1}"}}`,
			`{"index":1,"id":"c2","type":null,"function":{"name":"g","arguments":null}}`, `{"index":1,"id":null,"function":{"name":null,"arguments":"{}"}}`}},
		"no ids": {[]joinedToolCall{{"call_?", "function", "f", `{"a":1}`}, {"call_?", "function", "g", `{}`}}, []string{
			`{"index":0,"function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":1,"function":{"name":"g","arguments":"{}"}}`}},
		"no ids, indices all 0": {[]joinedToolCall{{"call_?", "function", "f", `{"a":1}`}, {"call_?", "function", "f", `{}`}}, []string{
			`{"function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"function":{"name":"f","arguments":"{}"}}`}},
		"arguments cut within a character": {[]joinedToolCall{{"c1", "function", "f", `{"a":"é"}`}}, []string{
			`{"id":"c1","function":{"name":"f","arguments":"{\"a\":\"é\"}"}}`}},
		"another type": {[]joinedToolCall{{"c1", "custom", "", ""}}, []string{`{"index":0,"id":"c1","type":"custom","custom":{"name":"f","input":"x"}}`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var lines []string
			for _, d := range test.deltas {
				lines = append(lines, `{"choices":[{"delta":{"tool_calls":[`+d+`]}}]}`)
			}
			lines = append(lines, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`)
			b := chunksOf(jsonChunks(t, lines...))
			got := askStream(t, b, chatAsk{})
			m := checkStream(t, got, 1, false).Choices[0]
			if normalCalls(m); !reflect.DeepEqual(m.Calls, test.want) || m.Finish != "tool_calls" || m.Content != "" {
				t.Errorf("stream: %+v\nwant calls %+v\n%s", m, test.want, got)
			}
			w, _ := ask(t, llmhttp.NewHandler(b, anyKey, nil), chatAsk{})
			m = readWhole(t, w.Body.Bytes()).Choices[0]
			if normalCalls(m); !reflect.DeepEqual(m.Calls, test.want) || m.Finish != "tool_calls" {
				t.Errorf("whole: %+v\nwant calls %+v\n%s", m, test.want, w.Body)
			}
		})
	}
}

var madeID = regexp.MustCompile(`(call_|chatcmpl-)[0-9a-f]{32}`)

func normalCalls(m *joinedMessage) {
	for i := range m.Calls {
		m.Calls[i].ID = madeID.ReplaceAllString(m.Calls[i].ID, "$1?")
	}
}

// Made-up ids are unique.
func TestStreamToolCallIDsDiffer(t *testing.T) {
	b := chunksOf(jsonChunks(t, `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}},{"index":1,"function":{"name":"g"}}]}}]}`))
	calls := checkStream(t, askStream(t, b, chatAsk{}), 1, false).Choices[0].Calls
	if len(calls) != 2 || calls[0].ID == calls[1].ID {
		t.Errorf("calls %+v", calls)
	}
}

// A call of a type that is not "function" says its type once, too.
func TestStreamToolCallTypeOnce(t *testing.T) {
	b := chunksOf(jsonChunks(t,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"custom","custom":{"name":"f","input":"a"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"custom":{"input":"b"}}]}}]}`))
	got := askStream(t, b, chatAsk{})
	if n := bytes.Count(got, []byte(`"type"`)); n != 1 {
		t.Errorf("%d types:\n%s", n, got)
	}
}

// What a call has beside its own members is not lost while its name is awaited.
func TestStreamToolCallExtraSurvivesWaiting(t *testing.T) {
	lines := []string{
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","sig":"s","function":{"arguments":"{","x":1}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}`,
	}
	for name, last := range map[string]string{
		"name comes":  `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}`,
		"never comes": `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`,
	} {
		got := askStream(t, chunksOf(jsonChunks(t, append(slices.Clone(lines), last)...)), chatAsk{})
		m := checkStream(t, got, 1, false).Choices[0]
		if len(m.Calls) != 1 || m.Calls[0].Args != "{}" || !bytes.Contains(got, []byte(`"sig":"s"`)) || !bytes.Contains(got, []byte(`"x":1`)) {
			t.Errorf("%s: %+v\n%s", name, m, got)
		}
	}
}

func TestStreamRowOneIDCreatedModel(t *testing.T) {
	lines := []string{
		`{"id":"x1","created":11,"model":"m1","choices":[{"delta":{"content":"a"}}]}`,
		`{"id":"x2","created":12,"model":"m2","choices":[{"delta":{"content":"b"}}]}`,
		`{"choices":[{"delta":{"content":"c"},"finish_reason":"stop"}]}`,
	}
	j := checkStream(t, askStream(t, chunksOf(jsonChunks(t, lines...)), chatAsk{usage: true}), 1, true)
	if j.ID != "x1" || j.Created != 11 || j.Model != "m1" || j.Choices[0].Content != "abc" {
		t.Errorf("joined %+v", j)
	}
	// What the first chunk lacks is completed, and not from a later one.
	slices.Reverse(lines)
	j = checkStream(t, askStream(t, chunksOf(jsonChunks(t, lines...)), chatAsk{}), 1, false)
	if !madeID.MatchString(j.ID) || j.Model != "m" || j.Created < 1e9 {
		t.Errorf("joined %+v", j)
	}
}

func TestStreamRowNothingAfterTheEndOfAChoice(t *testing.T) {
	b := chunksOf(jsonChunks(t,
		`{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"length"},{"index":0,"delta":{"content":"a"}}]}`,
		`{"choices":[{"index":1,"delta":{"content":"late"}},{"index":1,"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"c","function":{"name":"late"}}]}}]}`))
	got := askStream(t, b, chatAsk{n: 2})
	j := checkStream(t, got, 2, false)
	if bytes.Contains(got, []byte("late")) || j.Choices[0].Content != "ab" || j.Choices[1].Content != "x" || j.Choices[1].Finish != "length" {
		t.Errorf("stream\n%s", got)
	}
}

func TestStreamRowUsageOnce(t *testing.T) {
	lines := []string{
		`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`,
		`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`,
		`{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}}`,
		`{"choices":[],"usage":null}`,
	}
	j := checkStream(t, askStream(t, chunksOf(jsonChunks(t, lines...)), chatAsk{usage: true}), 1, true)
	if want := `{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}`; j.Usage != want {
		t.Errorf("usage %s, want %s", j.Usage, want)
	}
	checkStream(t, askStream(t, chunksOf(jsonChunks(t, lines...)), chatAsk{}), 1, false)
	// Recorded it is whether or not it was asked for.
	for _, usage := range []bool{false, true} {
		kept := new(keptUsage)
		ask(t, llmhttp.NewHandler(chunksOf(jsonChunks(t, lines...)), anyKey, &llmhttp.Options{Usage: kept}), chatAsk{stream: true, usage: usage})
		if r := kept.all(); len(r) != 1 || r[0].Usage.TotalTokens != 7 || r[0].Estimated {
			t.Errorf("records %+v", r)
		}
	}
}

func TestStreamRowFirstChunkIsOfChoice0(t *testing.T) {
	b := chunksOf(jsonChunks(t,
		`{"choices":[{"index":2,"delta":{"content":"c"}}]}`,
		`{"choices":[{"index":1,"delta":{"content":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}]}`))
	j := checkStream(t, askStream(t, b, chatAsk{n: 3}), 3, false)
	if len(j.Choices) != 3 || j.Choices[0].Content+j.Choices[1].Content+j.Choices[2].Content != "abc" {
		t.Errorf("joined %+v", j.Choices)
	}
}

// A reply that came to its end has a finish_reason even if the Backend gave
// none; TestStreamRowErrorIsFirstKeyOfItsEvent shows that a cut one has not.
func TestStreamRowFinishReasonIsNeverMissing(t *testing.T) {
	for name, test := range map[string]struct{ chunk, want string }{
		"text":    {`{"choices":[{"delta":{"content":"a"}}]}`, "stop"},
		"tools":   {`{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"f"}}]}}]}`, "tool_calls"},
		"nothing": {`{"choices":[]}`, "stop"},
		"own":     {`{"choices":[{"delta":{},"finish_reason":"content_filter"}]}`, "content_filter"},
	} {
		b := chunksOf(jsonChunks(t, test.chunk))
		if got := checkStream(t, askStream(t, b, chatAsk{}), 1, false).Choices[0].Finish; got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		w, _ := ask(t, llmhttp.NewHandler(b, anyKey, nil), chatAsk{})
		if got := readWhole(t, w.Body.Bytes()).Choices[0].Finish; got != test.want {
			t.Errorf("%s, whole: %q, want %q", name, got, test.want)
		}
	}
}

func TestStreamOfNoChunksIsEmptyReply(t *testing.T) {
	j := checkStream(t, askStream(t, chunksOf(textChunks()), chatAsk{usage: true, n: 3}), 3, true)
	if !reflect.DeepEqual(j.Choices, map[int]*joinedMessage{0: {Finish: "stop"}}) {
		t.Errorf("joined %+v", j.Choices)
	}
}

// Old clients of openai-go read lines of up to 64 KiB.
func TestStreamRowLinesAreShort(t *testing.T) {
	text := strings.Repeat("the quick brown fox 🦊 ", 20_000)
	got := askStream(t, chunksOf(textChunks(text)), chatAsk{})
	if j := checkStream(t, got, 1, false); j.Choices[0].Content != text {
		t.Error("text is not whole")
	}
	for line := range bytes.Lines(got) {
		if len(line) > 64<<10 {
			t.Fatalf("a line of %d bytes", len(line))
		}
	}
}

// A long text is cut between characters, if it has any.
func TestStreamLongTexts(t *testing.T) {
	for _, text := range []string{strings.Repeat("😀", 10_000), "x" + strings.Repeat("é", 20_000), strings.Repeat("\x80", 20_000), strings.Repeat("a", 8190) + "😀", strings.Repeat("\u0000", 30_000)} {
		want := string([]rune(text))
		chunk := func() []*llmhttp.ChatChunk {
			c := llmhttp.TextChunk(text)
			d := &c.Choices[0].Delta
			d.Reasoning = text
			d.ToolCalls = []llmhttp.ToolCallDelta{{ID: "c1", Function: llmhttp.FunctionCall{Name: "f", Arguments: text}}, {ID: "c2", Index: 1, Function: llmhttp.FunctionCall{Name: "g", Arguments: text}}}
			return []*llmhttp.ChatChunk{c}
		}
		within(t, 20*time.Second, func() {
			raw := askStream(t, chunksOf(chunk), chatAsk{})
			m := checkStream(t, raw, 1, false).Choices[0]
			if m.Content != want || m.Reasoning != want || len(m.Calls) != 2 || m.Calls[0].Args != want || m.Calls[1].Args != want {
				t.Errorf("%.20q is not whole", text)
			}
			for line := range bytes.Lines(raw) {
				if len(line) > 64<<10 {
					t.Errorf("%.20q: a line of %d bytes", text, len(line))
				}
			}
		})
	}
}

// Text cut anywhere comes whole, and never as a part of a character.
func TestStreamTextCutAnywhere(t *testing.T) {
	const text = "aé👩‍👩‍👧‍👦🇩🇪€\u00a0\U0010ffff~"
	set := map[string]func(*llmhttp.Delta, string){
		"content":   func(d *llmhttp.Delta, s string) { d.Content = s },
		"reasoning": func(d *llmhttp.Delta, s string) { d.Reasoning = s },
		"arguments": func(d *llmhttp.Delta, s string) {
			d.ToolCalls = []llmhttp.ToolCallDelta{{ID: "c", Function: llmhttp.FunctionCall{Name: "f", Arguments: s}}}
		},
	}
	for where, put := range set {
		check := func(pieces ...string) {
			t.Helper()
			b := chunksOf(func() (list []*llmhttp.ChatChunk) {
				for _, p := range pieces {
					c := &llmhttp.ChatChunk{Choices: make([]llmhttp.ChunkChoice, 1)}
					put(&c.Choices[0].Delta, p)
					list = append(list, c)
				}
				return list
			})
			raw := askStream(t, b, chatAsk{})
			m := checkStream(t, raw, 1, false).Choices[0]
			got := m.Content + m.Reasoning
			for _, c := range m.Calls {
				got += c.Args
			}
			if got != text || bytes.Contains(raw, []byte("\ufffd")) || bytes.Contains(raw, []byte(`\ufffd`)) {
				t.Fatalf("%s, cut into %q: got %q", where, pieces, got)
			}
			w, _ := ask(t, llmhttp.NewHandler(b, anyKey, nil), chatAsk{})
			if whole := readWhole(t, w.Body.Bytes()).Choices[0]; !reflect.DeepEqual(whole, m) {
				t.Fatalf("%s, cut into %q: whole %+v, stream %+v", where, pieces, whole, m)
			}
		}
		var bytewise []string
		for i := range len(text) {
			bytewise = append(bytewise, text[i:i+1])
			check(text[:i], text[i:])
			check(text[:i], "", text[i:i+1], text[i+1:])
		}
		check(bytewise...)
	}
}

// What interleaves does not mix: each text of each choice has its own rest.
func TestStreamCharactersOfChoicesDoNotMix(t *testing.T) {
	b := chunksOf(func() []*llmhttp.ChatChunk {
		var list []*llmhttp.ChatChunk
		for i := range 4 {
			list = append(list, &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{
				{Index: 0, Delta: llmhttp.Delta{Content: "😀"[i : i+1], Reasoning: "🎉"[i : i+1]}},
				{Index: 1, Delta: llmhttp.Delta{Content: "🚀"[i : i+1]}},
			}})
		}
		return list
	})
	j := checkStream(t, askStream(t, b, chatAsk{n: 2}), 2, false)
	if j.Choices[0].Content != "😀" || j.Choices[0].Reasoning != "🎉" || j.Choices[1].Content != "🚀" {
		t.Errorf("joined %+v %+v", j.Choices[0], j.Choices[1])
	}
}

func TestStreamHarmlessText(t *testing.T) {
	var controls strings.Builder
	for c := rune(0); c < 0xa1; c++ {
		controls.WriteRune(c)
	}
	for _, text := range []string{
		controls.String(), "\u2028", "\u2029", "\u0085", "a\u2028b\u2029c\u0085d", "data: [DONE]", "\ndata: [DONE]\n\n", "\r\n\r\ndata: {}\r\n",
		": keep-alive\n", `"}]}`, `\`, `\u0000`, `{"error":{"message":"x"}}`, "</script><!--", "\ufeff", "\ufffd", "\uffff", "\x7f",
	} {
		b := chunksOf(textChunks(text, text))
		if got := checkStream(t, askStream(t, b, chatAsk{}), 1, false).Choices[0].Content; got != text+text {
			t.Errorf("got %q, want %q twice", got, text)
		}
		w, _ := ask(t, llmhttp.NewHandler(b, anyKey, nil), chatAsk{})
		if got := readWhole(t, w.Body.Bytes()).Choices[0].Content; got != text+text {
			t.Errorf("whole: got %q, want %q twice", got, text)
		}
	}
}

// Bytes that are no character become U+FFFD, the same ones however the text
// is cut.
func TestStreamInvalidText(t *testing.T) {
	for in, want := range map[string]string{
		"\xff":                   "\ufffd",
		"a\x80\x80b":             "a\ufffd\ufffdb",
		"a\xc3(b":                "a\ufffd(b",
		"\xc0\xafx":              "\ufffd\ufffdx",
		"\xed\xa0\x80x":          "\ufffd\ufffd\ufffdx",
		"\xf4\x90\x80\x80x":      "\ufffd\ufffd\ufffd\ufffdx",
		"\xf0\x9f\x98A":          "\ufffd\ufffd\ufffdA",
		"é\xe2\x82é":             "é\ufffd\ufffdé",
		"ends within \xf0\x9f":   "ends within \ufffd",
		"ends within \xe2\x82":   "ends within \ufffd",
		"ends within \xc3":       "ends within \ufffd",
		"\xf0\x9f\x98\x80\xf0😀.": "😀\ufffd😀.",
	} {
		for i := range len(in) + 1 {
			b := chunksOf(textChunks(in[:i], in[i:]))
			if got := checkStream(t, askStream(t, b, chatAsk{}), 1, false).Choices[0].Content; got != want {
				t.Errorf("%q cut at %d: got %q, want %q", in, i, got, want)
			}
			w, _ := ask(t, llmhttp.NewHandler(b, anyKey, nil), chatAsk{})
			if got := readWhole(t, w.Body.Bytes()).Choices[0].Content; got != want {
				t.Errorf("%q cut at %d, whole: got %q, want %q", in, i, got, want)
			}
		}
	}
}

// A countingWriter is a ResponseWriter that counts. Its methods must not be
// called concurrently, which the race detector checks.
type countingWriter struct {
	header          http.Header
	body            bytes.Buffer
	writes, flushes int
	unflushed       int
	onWrite         func()
}

func (w *countingWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

func (w *countingWriter) WriteHeader(int) {}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.writes++
	w.unflushed += len(p)
	if w.onWrite != nil {
		w.onWrite()
	}
	return w.body.Write(p)
}

func (w *countingWriter) FlushError() error {
	w.flushes++
	w.unflushed = 0
	return nil
}

// Chunks that are ready at once share writes. The bubble's clock stands still,
// so that they are at once however slow the machine is.
func TestStreamBurstSharesWrites(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that no write is between two chunks but by the clock
	const chunks = 2000
	synctest.Test(t, func(t *testing.T) {
		w := new(countingWriter)
		var firstWrite int // how many chunks had been yielded
		yielded := 0
		w.onWrite = func() {
			if w.writes == 1 {
				firstWrite = yielded
			}
		}
		b := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			return func(yield func(*llmhttp.ChatChunk, error) bool) {
				for range chunks {
					yielded++
					if !yield(llmhttp.TextChunk("word "), nil) {
						t.Error("stopped")
						return
					}
				}
			}
		})
		r := newAsk(chatAsk{stream: true, usage: true})
		llmhttp.NewHandler(b, anyKey, nil).ServeHTTP(w, r)
		j := checkStream(t, w.body.Bytes(), 1, true)
		if want := strings.Repeat("word ", chunks); j.Choices[0].Content != want {
			t.Error("text is not whole")
		}
		if firstWrite != 1 {
			t.Errorf("the first write came with chunk %d", firstWrite)
		}
		if w.writes > chunks/10 || w.unflushed > 0 {
			t.Errorf("%d writes, %d flushes for %d chunks of %d bytes", w.writes, w.flushes, chunks, w.body.Len())
		}
		if w.flushes != w.writes {
			t.Errorf("%d flushes of %d writes", w.flushes, w.writes)
		}
	})
}

// With a pause before each chunk there is a write for each.
func TestStreamPausesWriteEachChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(countingWriter)
		b := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			return func(yield func(*llmhttp.ChatChunk, error) bool) {
				for i := range 50 {
					time.Sleep(time.Millisecond)
					if yield(llmhttp.TextChunk("x"), nil); w.writes != i+1 || w.unflushed != 0 {
						t.Errorf("%d writes after chunk %d", w.writes, i+1)
					}
				}
			}
		})
		llmhttp.NewHandler(b, anyKey, nil).ServeHTTP(w, newAsk(chatAsk{stream: true}))
		if w.writes != 51 {
			t.Errorf("%d writes for 50 chunks and the end", w.writes)
		}
	})
}

// ackBackend goes on after a chunk only when it is told that the client has it.
func ackBackend(chunks int, acks <-chan int) llmhttp.BackendFunc {
	return func(ctx context.Context, _ *llmhttp.ChatRequest) llmhttp.ChatStream {
		return func(yield func(*llmhttp.ChatChunk, error) bool) {
			for i := range chunks {
				if !yield(llmhttp.TextChunk(fmt.Sprintf("<%d>", i)), nil) {
					return
				}
				select {
				case got := <-acks:
					if got != i {
						yield(nil, fmt.Errorf("ack %d of %d", got, i))
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

func readAcked(t *testing.T, c *http.Client, url string, chunks int, acks chan<- int) {
	r := newAsk(chatAsk{stream: true})
	r.URL.Host = strings.TrimPrefix(strings.TrimPrefix(url, "http://"), "https://")
	if strings.HasPrefix(url, "https") {
		r.URL.Scheme = "https"
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got bytes.Buffer
	for i := range chunks {
		if err := readFor(resp.Body, &got, fmt.Sprintf("<%d>", i)); err != nil {
			t.Fatal(err)
		}
		acks <- i
	}
	if err := readFor(resp.Body, &got, "[DONE]\n\n"); err != nil {
		t.Fatal(err)
	}
	checkStream(t, got.Bytes(), 1, false)
}

// Each chunk is with the client before the Backend goes on, without any time
// passing: in the bubble chunks always count as a burst, and a Handler that
// waited for another chunk, or for time, would be found out.
func TestStreamEachChunkArrivesInBurst(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				acks := make(chan int, 100)
				s := newPipeServer(t, llmhttp.NewHandler(ackBackend(100, acks), anyKey, nil))
				start := time.Now()
				readAcked(t, s.client(t, http2), "http://pipe", 100, acks)
				if d := time.Since(start); d != 0 {
					t.Errorf("took %v of the bubble's time", d)
				}
			})
		})
	}
}

// The same over a network, where chunks may count as a burst or not.
func TestStreamEachChunkArrives(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			acks := make(chan int, 100)
			s := httptest.NewUnstartedServer(llmhttp.NewHandler(ackBackend(100, acks), anyKey, &llmhttp.Options{KeepAlive: -1, Timeout: 20 * time.Second}))
			if http2 {
				s.EnableHTTP2 = true
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			readAcked(t, s.Client(), s.URL, 100, acks)
		})
	}
}

// A chunk is with the client at the very time that it was yielded.
func TestStreamChunksAreNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			return func(yield func(*llmhttp.ChatChunk, error) bool) {
				for i := range 40 {
					time.Sleep(time.Duration(i) * time.Second / 2)
					if !yield(llmhttp.TextChunk(fmt.Sprintf("<%d.0>", i)), nil) || !yield(llmhttp.TextChunk(fmt.Sprintf("<%d.1>", i)), nil) {
						return
					}
				}
			}
		})
		s := newPipeServer(t, llmhttp.NewHandler(b, anyKey, nil))
		start := time.Now()
		resp, err := s.client(t, false).Do(newAsk(chatAsk{stream: true}))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got bytes.Buffer
		var due time.Duration
		for i := range 40 {
			due += time.Duration(i) * time.Second / 2
			if err := readFor(resp.Body, &got, fmt.Sprintf("<%d.1>", i)); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d != due {
				t.Fatalf("chunk %d came after %v, want %v", i, d, due)
			}
		}
	})
}

// Collect and Stream are each other's opposite.
func TestCollectOfStream(t *testing.T) {
	r, err := llmhttp.Collect(streamOf(jsonChunks(t,
		`{"id":"i","created":5,"model":"m","system_fingerprint":"fp","choices":[{"index":1,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b"}]}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"think","refusal":"no"}},{"index":1,"delta":{"content":"c"},"logprobs":{"content":[{"token":"c"}]},"finish_reason":"length"}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`)()))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"i","object":"chat.completion","created":5,"model":"m","choices":[` +
		`{"index":0,"message":{"role":"assistant","content":null,"reasoning_content":"think","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}],"refusal":"no"},"logprobs":null,"finish_reason":"tool_calls"},` +
		`{"index":1,"message":{"role":"assistant","content":"bc","refusal":null},"finish_reason":"length","logprobs":{"content":[{"token":"b"},{"token":"c"}]}}],` +
		`"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"system_fingerprint":"fp"}`
	got, _ := json.Marshal(r)
	if string(got) != want {
		t.Errorf("collected\n%s\nwant\n%s", got, want)
	}
	again, err := llmhttp.Collect(r.Stream())
	if err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("again %+v, %v\nwant %+v", again, err, r)
	}
}

func TestCollectError(t *testing.T) {
	boom := errors.New("boom")
	r, err := llmhttp.Collect(failAfter(boom, "a", "b\xf0\x9f").Chat(t.Context(), nil))
	if err != boom || r == nil || r.Choices[0].Message.Content.Text() != "ab\ufffd" || r.Choices[0].FinishReason != "" {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := llmhttp.Collect(llmhttp.Fail(boom)); err != boom || len(r.Choices) != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := llmhttp.Collect(llmhttp.Reply("x")); err != nil || r.Choices[0].FinishReason != llmhttp.FinishStop {
		t.Errorf("got %+v, %v", r, err)
	}
}

// JSON of a Backend that is none is a failure, not a broken stream.
func TestStreamBrokenExtra(t *testing.T) {
	broken := func() *llmhttp.ChatChunk {
		c := llmhttp.TextChunk("x")
		c.Extra = llmhttp.Extra{"a": json.RawMessage(`{`)}
		return c
	}
	h := llmhttp.NewHandler(chunksOf(func() []*llmhttp.ChatChunk { return []*llmhttp.ChatChunk{broken()} }), anyKey, &llmhttp.Options{Logger: noLog})
	for _, stream := range []bool{false, true} {
		if w, cut := ask(t, h, chatAsk{stream: stream}); w.Code != 500 || cut {
			t.Errorf("stream %t: status %d, cut %t: %s", stream, w.Code, cut, w.Body)
		}
	}
	h = llmhttp.NewHandler(chunksOf(func() []*llmhttp.ChatChunk {
		return []*llmhttp.ChatChunk{llmhttp.TextChunk("a"), broken(), llmhttp.TextChunk("b")}
	}), anyKey, &llmhttp.Options{Logger: noLog})
	w, cut := ask(t, h, chatAsk{stream: true})
	events, _, err := splitEvents(w.Body.String())
	if !cut || err != nil || !strings.HasPrefix(events[len(events)-1], `{"error":{"message":"The server had an error`) {
		t.Errorf("cut %t, %v:\n%s", cut, err, w.Body)
	}
	for _, e := range events {
		if !json.Valid([]byte(e)) {
			t.Errorf("event %s", e)
		}
	}
}

// A byteSource makes choices from bytes, for tests by property and by fuzzing.
type byteSource struct {
	data []byte
	pos  int
}

func (s *byteSource) byte() byte {
	if s.pos >= len(s.data) {
		return 0
	}
	s.pos++
	return s.data[s.pos-1]
}

func (s *byteSource) more() bool         { return s.pos < len(s.data) }
func (s *byteSource) chance(n byte) bool { return s.byte()%n == n-1 }

func pick[T any](s *byteSource, list ...T) T { return list[int(s.byte())%len(list)] }

func (s *byteSource) text() string {
	if s.chance(100) {
		return pick(s, strings.Repeat("long ", 2000), strings.Repeat("é", 5000), strings.Repeat("x\x80", 5000), strings.Repeat("\x00", 9000), strings.Repeat("\x80", 9000))
	}
	return pick(s, "", "a", "word ", "😀", "\xf0", "\x9f\x98", "\x80", "\xc3", "\xa9", "\n\ndata: [DONE]\n\n", "\u2028", "\x00\r", "\xff\xfe", `"\`, "\xed\xa0\x80")
}

func (s *byteSource) extra() llmhttp.Extra {
	if !s.chance(5) {
		return nil
	}
	e := llmhttp.Extra{}
	for range s.byte() % 4 {
		name := pick(s, "error", "id", "object", "created", "model", "choices", "usage", "index", "delta", "finish_reason", "role", "content",
			"tool_calls", "reasoning_content", "name", "arguments", "function", "type", "logprobs", "refusal", "x", "\n\u2028\"", "")
		e[name] = json.RawMessage(pick(s, "null", `"s"`, "1", "[]", "{}", `{"error":null}`, "[\"a\u2028\", 1 ]", " true ", `"\u2028\ud83d\ude00"`, "-0.0e+10"))
	}
	return e
}

// chunks makes hostile chunks for a request of n choices.
func (s *byteSource) chunks(n int) []*llmhttp.ChatChunk {
	var list []*llmhttp.ChatChunk
	for s.more() && len(list) < 60 {
		if s.chance(20) {
			list = append(list, nil)
			continue
		}
		c := &llmhttp.ChatChunk{Extra: s.extra()}
		if s.chance(4) {
			c.ID, c.Created, c.Model = pick(s, "", "id1", "id\n2"), pick[int64](s, 0, 1, 1700000000), pick(s, "", "m1", "m\xff")
		}
		if s.chance(6) {
			c.Usage = &llmhttp.Usage{PromptTokens: int(int8(s.byte())), CompletionTokens: int(s.byte()), TotalTokens: int(s.byte()), Extra: s.extra()}
		}
		for range pick(s, 1, 1, 1, 0, 2, 3) {
			c.Choices = append(c.Choices, s.choice(n))
		}
		list = append(list, c)
	}
	return list
}

func (s *byteSource) choice(n int) llmhttp.ChunkChoice {
	c := llmhttp.ChunkChoice{Index: pick(s, 0, 0, 0, 1, n-1, n, -1, int(s.byte()), 1<<40), Extra: s.extra()}
	if s.chance(12) {
		c.FinishReason = pick(s, llmhttp.FinishStop, llmhttp.FinishLength, llmhttp.FinishToolCalls, "odd\n\xff")
	}
	d := &c.Delta
	d.Role = pick[llmhttp.Role](s, "", "", "assistant", "user", "\xff")
	if s.chance(2) {
		d.Content = s.text()
	}
	if s.chance(5) {
		d.Reasoning = s.text()
	}
	d.Extra = s.extra()
	if s.chance(3) {
		for range s.byte() % 4 {
			d.ToolCalls = append(d.ToolCalls, llmhttp.ToolCallDelta{
				Index: pick(s, 0, 0, 1, 2, -1, 7, 1<<40),
				ID:    pick(s, "", "", "c1", "c2", "c3", "\xff"),
				Type:  pick(s, "", "", "function", "function", "custom"),
				Function: llmhttp.FunctionCall{
					Name:      pick(s, "", "", "f", "g", "\xf0"),
					Arguments: s.text(),
					Extra:     s.extra(),
				},
				Extra: s.extra(),
			})
		}
	}
	return c
}

var fixedNow = func() time.Time { return time.Unix(1700000000, 0) }

// checkScript fails t unless the chunks that data makes come to a legal stream,
// and to the same reply however they are joined.
func checkScript(t testing.TB, data []byte) {
	t.Helper()
	if len(data) == 0 {
		return
	}
	n := 1 + int(data[0]%4)
	usage := data[0]&4 != 0
	chunks := func() []*llmhttp.ChatChunk { return (&byteSource{data: data[1:]}).chunks(n) }
	h := llmhttp.NewHandler(chunksOf(chunks), anyKey, &llmhttp.Options{Now: fixedNow, Logger: noLog})

	w, cut := ask(t, h, chatAsk{stream: true, usage: usage, n: n})
	if cut || w.Code != 200 {
		t.Fatalf("status %d, cut %t: %s", w.Code, cut, clipText(w.Body.String()))
	}
	stream := checkStream(t, w.Body.Bytes(), n, usage)
	w, _ = ask(t, h, chatAsk{n: n})
	if w.Code != 200 {
		t.Fatalf("whole: status %d: %s", w.Code, w.Body)
	}
	whole := readWhole(t, w.Body.Bytes())

	normalReply(stream)
	normalReply(whole)
	if usage && stream.Usage != whole.Usage {
		t.Fatalf("usage %s of the stream, %s of the whole", stream.Usage, whole.Usage)
	}
	if stream.ID != whole.ID || stream.Created != whole.Created || stream.Model != whole.Model {
		t.Fatalf("stream %+v\nwhole %+v", stream, whole)
	}
	if !reflect.DeepEqual(stream.Choices, whole.Choices) {
		t.Fatalf("stream %s\nwhole %s", describe(stream), describe(whole))
	}

	r, err := llmhttp.Collect(streamOf(chunks()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Choices {
		if c := &r.Choices[i]; c.FinishReason == "" && c.Index < n {
			if m := whole.Choices[c.Index]; m != nil {
				c.FinishReason = llmhttp.FinishReason(m.Finish)
				if m.Finish != "stop" && m.Finish != "tool_calls" {
					t.Fatalf("finish_reason %q is made up", m.Finish)
				}
			}
		}
	}
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	collected := readWhole(t, body)
	normalReply(collected)
	for index, m := range whole.Choices {
		got := collected.Choices[index]
		if got == nil {
			got = &joinedMessage{Finish: "stop"} // an empty reply
		}
		if !reflect.DeepEqual(got, m) {
			t.Fatalf("choice %d: collected %+v\nwhole %+v", index, got, m)
		}
	}

	// Splitting it again changes nothing.
	again, err := llmhttp.Collect(r.Stream())
	if err != nil {
		t.Fatal(err)
	}
	if twice, _ := json.Marshal(again); string(twice) != string(body) {
		at := 0
		for at < min(len(twice), len(body)) && twice[at] == body[at] {
			at++
		}
		from := max(at-100, 0)
		t.Fatalf("collected\n%s\nand again\n%s", clipText(string(body[from:])), clipText(string(twice[from:])))
	}
}

func normalReply(j *joinedReply) {
	j.ID = madeID.ReplaceAllString(j.ID, "$1?")
	for _, m := range j.Choices {
		normalCalls(m)
	}
}

func describe(j *joinedReply) string {
	var b strings.Builder
	short := func(s string) string {
		if len(s) > 60 {
			return fmt.Sprintf("%+.30q... of %d bytes, hash %x", s, len(s), sha256.Sum256([]byte(s)))
		}
		return fmt.Sprintf("%+q", s)
	}
	for _, i := range slices.Sorted(maps.Keys(j.Choices)) {
		m := j.Choices[i]
		fmt.Fprintf(&b, "\n%d: content %s, reasoning %s, finish %q", i, short(m.Content), short(m.Reasoning), m.Finish)
		for _, c := range m.Calls {
			fmt.Fprintf(&b, "\n   call %+q %q %+q %s", c.ID, c.Type, c.Name, short(c.Args))
		}
	}
	return b.String()
}

// Whatever a Backend yields, the stream is legal.
func TestStreamOfHostileChunks(t *testing.T) {
	rounds := 600
	if testing.Short() || raceEnabled {
		rounds = 150
	}
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(uint64(seed), 7))
		data := make([]byte, 1+rnd.IntN(600))
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		if checkScript(t, data); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Any chunking of a reply collects to the same.
func TestCollectAnyChunking(t *testing.T) {
	const text = "Zwölf 🧑‍🚀 sagen: „data: [DONE]“\u2028\x00 …"
	for seed := range 300 {
		rnd := rand.New(rand.NewPCG(uint64(seed), 8))
		var pieces []string
		for rest := text; rest != ""; {
			n := 1 + rnd.IntN(min(len(rest), 9))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		r, err := llmhttp.Collect(streamOf(textChunks(pieces...)()))
		if err != nil || len(r.Choices) != 1 || r.Choices[0].Message.Content.Text() != text || !utf8.ValidString(text) {
			t.Fatalf("%q: %+v, %v", pieces, r, err)
		}
	}
}
