package llmhttp

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A usageKeeper is a UsageStore that keeps the last record.
type usageKeeper struct {
	UsageStore
	record UsageRecord
}

func (u *usageKeeper) Record(_ context.Context, records ...UsageRecord) error {
	u.record = records[len(records)-1]
	return nil
}

const textsSecret = "sk-fixture-4b2a76b9719d915d41402abc"

// A textsReply is what became of the chunks of a Backend.
type textsReply struct {
	body       string
	usage      Units
	summary    *RequestSummary
	transcript *Transcript
}

// serveTexts serves a chat with a Backend that yields one chunk with each delta, one second after
// another.
func serveTexts(t *testing.T, mode string, limits Limits, deltas ...*llm.Delta) (reply textsReply) {
	synctest.Test(t, func(t *testing.T) {
		b := BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
			return func(yield func(*llm.ChatChunk, error) bool) {
				for _, d := range deltas {
					time.Sleep(time.Second)
					yield((&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: *d}}}).Clone(), nil)
				}
			}
		})
		store := new(usageKeeper)
		keys := KeyStoreFunc(func(context.Context, string) (*Key, error) { return &Key{ID: "k", Limits: limits}, nil })
		h := NewHandler(b, keys, &Options{Usage: store, Observe: func(ctx context.Context, _ *http.Request) (context.Context, Observation) {
			return ctx, Observation{
				Ended:      func(s *RequestSummary) { reply.summary = s },
				Transcript: func(tr *Transcript) { reply.transcript = tr }, TranscriptLimit: 1 << 20,
			}
		}})
		r := httptest.NewRequest("POST", "/v1/chat/completions",
			strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]`+mode+`}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+textsSecret)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, 200, w.Code, "%s", w.Body)
		reply.body, reply.usage = w.Body.String(), store.record.Units
	})
	return reply
}

// The two modes of serveTexts.
const textsWhole, textsStream = "", `,"stream":true`

// events returns the deltas of a stream, and its last FinishReason.
func (r *textsReply) events(t *testing.T) (deltas []*llm.Delta, reason llm.FinishReason) {
	for lines := bufio.NewScanner(strings.NewReader(r.body)); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var c llm.ChatChunk
		require.NoError(t, json.Unmarshal([]byte(data), &c))
		deltas = append(deltas, &c.Choices[0].Delta)
		reason = c.Choices[0].FinishReason
	}
	return deltas, reason
}

// joined returns the text at path of all events.
func joined(deltas []*llm.Delta, path string) (text string) {
	for _, d := range deltas {
		text += texttest.At(d, path)
	}
	return text
}

// Every text of a Delta is treated as its kind demands, from the Backend to the client. Each
// subtest is for one string that a Delta can have; a new one fails until it is handled.
func TestTexts_OfDeltas(t *testing.T) {
	for _, path := range texttest.Paths[llm.Delta]() {
		newDelta := func(s string) *llm.Delta { return texttest.With[llm.Delta](path, s) }
		kind := texttest.KindAt(t, newDelta("x"), path)
		if kind == texts.KindRole {
			continue // a Handler sends its own
		}
		long := strings.Repeat("word ", 4000)
		t.Run(path, func(t *testing.T) {
			t.Run("content, token and size", func(t *testing.T) {
				c := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: *newDelta(long)}}}
				assert.True(t, c.HasContent())
				assert.GreaterOrEqual(t, texts.Size(c), len(long))
				assert.Equal(t, time.Second, serveTexts(t, textsStream, Limits{}, newDelta("x")).summary.FirstToken)
			})
			t.Run("usage", func(t *testing.T) {
				u := serveTexts(t, textsStream, Limits{}, newDelta(long)).usage
				assert.InDelta(t, len(long)/4, u.CompletionTokens, 10)
			})
			t.Run("split", func(t *testing.T) {
				got := serveTexts(t, textsStream, Limits{}, newDelta(long))
				deltas, _ := got.events(t)
				assert.Equal(t, long, joined(deltas, path))
				most := 0
				for _, d := range deltas {
					most = max(most, len(texttest.At(d, path)))
				}
				assert.Equal(t, texttest.IsInPieces(kind), most <= bounds.DeltaText)
			})
			t.Run("cut", func(t *testing.T) {
				got := serveTexts(t, textsStream, Limits{MaxCompletionTokens: 1}, newDelta(long))
				deltas, reason := got.events(t)
				assert.Equal(t, texttest.IsInPieces(kind), len(joined(deltas, path)) == tokens.MaxBytes(1))
				assert.Equal(t, texttest.IsInPieces(kind), reason == llm.FinishLength)
			})
			t.Run("UTF-8", func(t *testing.T) { testTextInPieces(t, path, kind) })
			t.Run("transcript", func(t *testing.T) { testReplyTranscript(t, path) })
		})
	}
}

// testTextInPieces tests what becomes of a text that comes in deltas that divide its characters,
// and that ends within one.
func testTextInPieces(t *testing.T, path string, kind texts.Kind) {
	deltas := []*llm.Delta{texttest.With[llm.Delta](path, "caf\xc3"), texttest.With[llm.Delta](path, "\xa9 \xff \xc3")}
	collected, err := join.Collect(func(yield func(*llm.ChatChunk, error) bool) {
		for _, d := range deltas {
			yield((&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: *d}}}).Clone(), nil)
		}
	})
	require.NoError(t, err)
	again, err := join.Collect(collected.Stream())
	require.NoError(t, err)
	assert.Equal(t, collected, again, "of a stream of the reply")

	stream, whole := serveTexts(t, textsStream, Limits{}, deltas...), serveTexts(t, textsWhole, Limits{}, deltas...)
	for _, body := range []string{stream.body, whole.body} {
		assert.True(t, utf8.ValidString(body))
	}
	if !texttest.IsInPieces(kind) {
		assert.Contains(t, whole.body, "caf")
		return
	}
	const want = "café \uFFFD \uFFFD"
	var r llm.ChatResponse
	require.NoError(t, json.Unmarshal([]byte(whole.body), &r))
	for name, m := range map[string]*llm.Message{"Collect": &collected.Choices[0].Message, "reply": &r.Choices[0].Message} {
		m.Extra = nil
		b, err := json.Marshal(m)
		require.NoError(t, err)
		assert.Contains(t, string(b), want, name)
	}
	events, _ := stream.events(t)
	assert.Equal(t, want, joined(events, path))
}

// testReplyTranscript tests that a text of a reply is in the Transcript, without the API key.
// A Transcript has no details of reasoning.
func testReplyTranscript(t *testing.T, path string) {
	got := serveTexts(t, textsStream, Limits{}, texttest.With[llm.Delta](path, "my key "+textsSecret))
	b, err := json.Marshal(got.transcript.Choices)
	require.NoError(t, err)
	assert.Equal(t, !strings.HasPrefix(path, ".ReasoningDetails"), strings.Contains(string(b), "my key [redacted]"), "%s", b)
	assert.NotContains(t, string(b), textsSecret)
}

// Every text of a request is in the Transcript, without the API key, except for images and
// details of reasoning. The request does not change.
func TestTexts_OfRequestsInTranscript(t *testing.T) {
	transcribe := func(t *testing.T, req *llm.ChatRequest, want bool) {
		original := req.Clone()
		tr := &transcript{bytesLeft: 1 << 20}
		tr.addRequest(req)
		got := tr.finish(nil, newRedactor(textsSecret))
		assert.Equal(t, original, req)
		b, err := json.Marshal(got)
		require.NoError(t, err)
		assert.Equal(t, want, strings.Contains(string(b), "my key [redacted]"), "%s", b)
		assert.NotContains(t, string(b), textsSecret)
	}
	const text = "my key " + textsSecret
	for _, path := range texttest.Paths[llm.Message]() {
		t.Run("message"+path, func(t *testing.T) {
			excluded := strings.HasPrefix(path, ".ReasoningDetails") || strings.Contains(path, ".ImageURL.")
			m := texttest.With[llm.Message](path, text)
			m.Extra = llm.Extra{"x": json.RawMessage(`"` + textsSecret + `"`)}
			if strings.HasPrefix(path, ".Content[0].") && path != ".Content[0].Type" {
				m.Content[0].Type = llm.PartText // other parts have no text in JSON
			}
			transcribe(t, &llm.ChatRequest{Messages: []llm.Message{*m}}, !excluded)
		})
	}
	for _, path := range texttest.Paths[llm.Tool]() {
		t.Run("tool"+path, func(t *testing.T) {
			transcribe(t, &llm.ChatRequest{Tools: []llm.Tool{*texttest.With[llm.Tool](path, text)}}, true)
		})
	}
}
