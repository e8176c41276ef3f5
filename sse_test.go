package llmhttp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// These tests check streams of chat completions, event by event. framing_test.go tests the
// Framing of any format.

func TestEventStream_Framing(t *testing.T) {
	assert.Equal(t, llmhttp.Framing{ContentType: "text/event-stream; charset=utf-8", KeepAlive: ": keep-alive\n"}, llmhttp.EventStream())
}

// A text of the largest size has one event, which clients with a limit on lines can read.
func TestEventStream_LinesAreBounded(t *testing.T) {
	r := streamChat(t, textBackend(strings.Repeat("\x01", 20<<10)), chatParams{})
	longest := 0
	for line := range strings.Lines(r.raw) {
		longest = max(longest, len(line))
	}
	assert.Less(t, longest, 64<<10)
	assert.Equal(t, 3, strings.Count(r.raw, `{"content":"`), "events with text")
}

func TestEventStream_LastChunkOfAChoiceHasNullContentAndReason(t *testing.T) {
	r := streamChat(t, jsonBackend(t, `{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`), chatParams{})
	assert.True(t, strings.HasSuffix(r.raw, `"choices":[{"index":0,"delta":{"content":null},"finish_reason":"length"}]}`+"\n\ndata: [DONE]\n\n"), r.raw)
	assert.Equal(t, 2, strings.Count(r.raw, `"finish_reason":null`), "the first chunk and the text's")
}

func TestEventStream_DoneIsTheLastEvent(t *testing.T) {
	r := streamChat(t, textBackend("a"), chatParams{})
	assert.True(t, strings.HasSuffix(r.raw, "\n\ndata: [DONE]\n\n"), r.raw)
	assert.Equal(t, 1, strings.Count(r.raw, "[DONE]"))
}

// A Backend cannot inject lines into a stream: checkStream permits only data and
// comments.
func TestEventStream_BackendCannotInjectLines(t *testing.T) {
	const evil = "\n\nevent: ping\n\nretry: 3000\n\nid: 7\n\ndata: \n\ndata: [DONE]\n\n: ping\n\nerror: {}\r\rdata: {}\r\n\r\n"
	quoted, err := json.Marshal(evil)
	require.NoError(t, err)
	spaced := json.RawMessage("[\n\n1,\r\n\t2 ]")
	b := chunkBackend(func() []*llm.ChatChunk {
		return []*llm.ChatChunk{{
			ID: evil, Model: evil,
			Choices: []llm.ChunkChoice{{
				Delta: llm.Delta{Content: evil, Reasoning: evil, Extra: llm.Extra{evil: quoted, "a": spaced},
					ToolCalls: []llm.ToolCallDelta{{ID: evil, Function: llm.FunctionCall{Name: evil, Arguments: evil}, Extra: llm.Extra{evil: spaced}}}},
				FinishReason: llm.FinishReason(evil),
				Extra:        llm.Extra{evil: quoted},
			}},
			Extra: llm.Extra{evil: spaced},
			Usage: &llm.Usage{PromptTokens: 1, Extra: llm.Extra{evil: spaced}},
		}}
	})
	r := streamChat(t, b, chatParams{usage: true})
	assert.Equal(t, evil, r.ID)
	assert.Equal(t, evil, r.Model)
	assert.Equal(t, &chatMessage{Content: evil, Reasoning: evil, Finish: evil, Calls: []toolCall{{evil, "function", evil, evil}}}, r.Choices[0])
}

func TestEventStream_ChunksHaveNoErrorMember(t *testing.T) {
	r := streamChat(t, jsonBackend(t,
		`{"error":null,"choices":[{"delta":{"content":"a"}}]}`,
		`{"error":{"message":"x"},"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}`,
		`{"error":null,"choices":[]}`), chatParams{usage: true})
	assert.Equal(t, "ab", r.Choices[0].Content)
	assert.NotContains(t, r.raw, `"error"`)
}

func TestEventStream_FailureIsAnEventThatBeginsWithError(t *testing.T) {
	for want, err := range map[string]error{
		errorBody(internalMessage, "server_error", "", ""):                                    errCause,
		errorBody("too long", "invalid_request_error", "messages", "context_length_exceeded"): &llm.Error{Status: 400, Code: "context_length_exceeded", Param: "messages", Message: "too long"},
	} {
		h := llmhttp.NewHandler(failAfter(err, "a", "b"), keysFor(testKey()), &llmhttp.Options{Logger: noLog})
		w := httptest.NewRecorder()
		assert.True(t, serve(h, w, streamBody), "the connection is cut")
		events, _, err := splitEvents(w.Body.String())
		require.NoError(t, err)
		require.Len(t, events, 4)
		assert.Equal(t, want, events[3])
		assert.NotContains(t, w.Body.String(), "[DONE]")
		assert.NotContains(t, w.Body.String(), `"stop"`)
	}
}

func TestEventStream_RoleIsSentOnce(t *testing.T) {
	r := streamChat(t, jsonBackend(t,
		`{"choices":[{"delta":{"role":"assistant","content":"a"}}]}`,
		`{"choices":[{"delta":{"role":"assistant"}}]}`,
		`{"choices":[{"delta":{"role":"user","content":"b"}}]}`,
		`{"choices":[{"delta":{"role":"assistant"},"finish_reason":"stop"}]}`), chatParams{})
	assert.Equal(t, "ab", r.Choices[0].Content)
	assert.Equal(t, 4, r.chunks)
	assert.Equal(t, 1, strings.Count(r.raw, `"role"`))
}

func TestEventStream_AllChunksHaveTheHeadOfTheFirst(t *testing.T) {
	lines := []string{
		`{"id":"x1","created":11,"model":"m1","choices":[{"delta":{"content":"a"}}]}`,
		`{"id":"x2","created":12,"model":"m2","choices":[{"delta":{"content":"b"}}]}`,
		`{"choices":[{"delta":{"content":"c"},"finish_reason":"stop"}]}`,
	}
	r := streamChat(t, jsonBackend(t, lines...), chatParams{usage: true})
	assert.Equal(t, "x1", r.ID)
	assert.Equal(t, int64(11), r.Created)
	assert.Equal(t, "m1", r.Model)
	assert.Equal(t, "abc", r.Choices[0].Content)

	// The Handler generates what the first chunk lacks. It does not wait for a later
	// chunk.
	slices.Reverse(lines)
	r = streamChat(t, jsonBackend(t, lines...), chatParams{})
	assert.Regexp(t, randomID, r.ID)
	assert.Greater(t, r.Created, int64(1e9))
	assert.Equal(t, "m", r.Model)
}

func TestEventStream_UsageIsTheLastReported(t *testing.T) {
	b := jsonBackend(t,
		`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`,
		`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`,
		`{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}}`,
		`{"choices":[],"usage":null}`)
	for _, shown := range []bool{false, true} {
		usage := new(usageLog)
		h := llmhttp.NewHandler(b, keysFor(testKey()), &llmhttp.Options{Usage: usage})
		r := streamFrom(t, h, chatParams{usage: shown})
		if shown {
			assert.Equal(t, `{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}`, r.Usage)
		}
		require.Len(t, usage.records(), 1)
		assert.EqualValues(t, 7, usage.records()[0].Units.Tokens(), "recorded whether it is asked for or not")
		assert.False(t, usage.records()[0].Estimated)
	}
}

// A complete reply has a finish reason even if the Backend gives none.
func TestEventStream_FinishReasonIsNeverMissing(t *testing.T) {
	for name, test := range map[string]struct{ chunk, want string }{
		"text":          {`{"choices":[{"delta":{"content":"a"}}]}`, "stop"},
		"tool calls":    {`{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"f"}}]}}]}`, "tool_calls"},
		"no choices":    {`{"choices":[]}`, "stop"},
		"the Backend's": {`{"choices":[{"delta":{},"finish_reason":"content_filter"}]}`, "content_filter"},
	} {
		t.Run(name, func(t *testing.T) {
			b := jsonBackend(t, test.chunk)
			assert.Equal(t, test.want, streamChat(t, b, chatParams{}).Choices[0].Finish)
			assert.Equal(t, test.want, wholeChat(t, b, chatParams{}).Choices[0].Finish)
		})
	}
}

func TestEventStream_WithoutChoicesIsAnEmptyReply(t *testing.T) {
	r := streamChat(t, jsonBackend(t, `{}`), chatParams{usage: true, n: 3})
	assert.Equal(t, map[int]*chatMessage{0: {Finish: "stop"}}, r.Choices)
}

// A nil chunk and one without choices are skipped.
func TestEventStream_SkipsEmptyChunks(t *testing.T) {
	b := chunkBackend(func() []*llm.ChatChunk {
		return []*llm.ChatChunk{nil, llm.TextChunk("hi"), nil, {}}
	})
	want := &chatMessage{Content: "hi", Finish: "stop"}
	assert.Equal(t, want, streamChat(t, b, chatParams{}).Choices[0])
	assert.Equal(t, want, wholeChat(t, b, chatParams{}).Choices[0])
}

// Invalid JSON in Extra fails the request, and the stream ends with a valid error event.
func TestEventStream_InvalidExtraIsAFailure(t *testing.T) {
	newHandler := func(before ...string) http.Handler {
		b := chunkBackend(func() []*llm.ChatChunk {
			var chunks []*llm.ChatChunk
			for _, text := range before {
				chunks = append(chunks, llm.TextChunk(text))
			}
			invalid := llm.TextChunk("x")
			invalid.Extra = llm.Extra{"a": json.RawMessage(`{`)}
			return append(chunks, invalid, llm.TextChunk("after"))
		})
		return llmhttp.NewHandler(b, keysFor(testKey()), &llmhttp.Options{Logger: noLog})
	}
	for mode, body := range chatModes {
		w := httptest.NewRecorder()
		assert.False(t, serve(newHandler(), w, body), mode)
		assert.Equal(t, 500, w.Code, mode)
	}
	w := httptest.NewRecorder()
	assert.True(t, serve(newHandler("a"), w, streamBody), "the connection is cut")
	events, _, err := splitEvents(w.Body.String())
	require.NoError(t, err)
	for _, e := range events {
		assert.True(t, json.Valid([]byte(e)), e)
	}
	assert.Equal(t, errorBody(internalMessage, "server_error", "", ""), events[len(events)-1])
}

// The memory of a request is free while its stream runs: a server may have many idle
// streams.
func TestEventStream_DoesNotKeepTheRequest(t *testing.T) {
	freed := false
	b := llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
		request := weak.Make(req)
		return func(yield func(*llm.ChatChunk, error) bool) {
			yield(llm.TextChunk("x"), nil)
			for range 10 {
				runtime.GC()
				freed = freed || request.Value() == nil
			}
		}
	})
	h := llmhttp.NewHandler(b, keysFor(testKey()), &llmhttp.Options{Logger: noLog})
	w := httptest.NewRecorder()
	assert.False(t, serve(h, w, streamBody))
	assert.True(t, freed)
}

// The Handler may change a chunk that the function has cloned.
func TestTee_Clones(t *testing.T) {
	var kept *llm.ChatChunk
	s := startServer(t, config{backend: llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return llm.Tee(llm.Reply("Hello!"), func(c *llm.ChatChunk, _ error) {
			if c != nil {
				kept = c.Clone()
			}
		})
	})})
	s.chat(streamBody).checkText(t, "Hello!")
	s.shutdown()
	require.NotNil(t, kept)
	assert.Equal(t, llm.FinishStop, kept.Choices[0].FinishReason)
	assert.Equal(t, "Hello!", kept.Choices[0].Delta.Content)
}
