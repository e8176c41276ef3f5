package llmhttp_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// A byteSource derives choices from bytes, which are random or come from a fuzzer.
type byteSource struct {
	data []byte
	pos  int
}

// byte returns the next byte, or 0 if there is none.
func (s *byteSource) byte() byte {
	if s.pos >= len(s.data) {
		return 0
	}
	s.pos++
	return s.data[s.pos-1]
}

func (s *byteSource) more() bool { return s.pos < len(s.data) }

// chance returns true once in n times.
func (s *byteSource) chance(n byte) bool { return s.byte()%n == n-1 }

// pick returns an element of list.
func pick[T any](s *byteSource, list ...T) T { return list[int(s.byte())%len(list)] }

func (s *byteSource) text() string {
	if s.chance(100) {
		return pick(s, strings.Repeat("long ", 2000), strings.Repeat("é", 5000), strings.Repeat("x\x80", 5000), strings.Repeat("\x00", 9000), strings.Repeat("\x80", 9000))
	}
	return pick(s, "", "a", "word ", "😀", "\xf0", "\x9f\x98", "\x80", "\xc3", "\xa9", "\n\ndata: [DONE]\n\n", "\u2028", "\x00\r", "\xff\xfe", `"\`, "\xed\xa0\x80")
}

func (s *byteSource) extra() llm.Extra {
	if !s.chance(5) {
		return nil
	}
	e := llm.Extra{}
	for range s.byte() % 4 {
		name := pick(s, "error", "id", "object", "created", "model", "choices", "usage", "index", "delta", "finish_reason", "role", "content",
			"tool_calls", "reasoning_content", "name", "arguments", "function", "type", "logprobs", "refusal", "x", "\n\u2028\"", "")
		e[name] = json.RawMessage(pick(s, "null", `"s"`, "1", "[]", "{}", `{"error":null}`, "[\"a\u2028\", 1 ]", " true ", `"\u2028\ud83d\ude00"`, "-0.0e+10"))
	}
	return e
}

// chunks returns valid and invalid chunks for a request with n choices.
func (s *byteSource) chunks(n int) []*llm.ChatChunk {
	list := []*llm.ChatChunk{{}} // a stream without chunks fails
	for s.more() && len(list) < 60 {
		if s.chance(20) {
			list = append(list, nil)
			continue
		}
		c := &llm.ChatChunk{Extra: s.extra()}
		if s.chance(4) {
			c.ID, c.Created, c.Model = pick(s, "", "id1", "id\n2"), pick[int64](s, 0, 1, 1700000000), pick(s, "", "m1", "m\xff")
		}
		if s.chance(6) {
			c.Usage = &llm.Usage{PromptTokens: int(int8(s.byte())), CompletionTokens: int(s.byte()), TotalTokens: int(s.byte()), Extra: s.extra()}
		}
		for range pick(s, 1, 1, 1, 0, 2, 3) {
			c.Choices = append(c.Choices, s.choice(n))
		}
		list = append(list, c)
	}
	return list
}

func (s *byteSource) choice(n int) llm.ChunkChoice {
	c := llm.ChunkChoice{Index: pick(s, 0, 0, 0, 1, n-1, n, -1, int(s.byte()), hugeLimit), Extra: s.extra()}
	if s.chance(12) {
		c.FinishReason = pick(s, llm.FinishStop, llm.FinishLength, llm.FinishToolCalls, "odd\n\xff")
	}
	d := &c.Delta
	d.Role = pick[llm.Role](s, "", "", "assistant", "user", "\xff")
	if s.chance(2) {
		d.Content = s.text()
	}
	if s.chance(5) {
		d.Reasoning = s.text()
	}
	d.Extra = s.extra()
	if s.chance(3) {
		for range s.byte() % 4 {
			d.ToolCalls = append(d.ToolCalls, llm.ToolCallDelta{
				Index: pick(s, 0, 0, 1, 2, -1, 7, hugeLimit),
				ID:    pick(s, "", "", "c1", "c2", "c3", "\xff"),
				Type:  pick(s, "", "", "function", "function", "custom"),
				Function: llm.FunctionCall{
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

// withoutDefaults is withoutIDs, and has no arguments for {}, which whole replies have where a model wrote none.
func (r *chatReply) withoutDefaults() *chatReply {
	c := r.withoutIDs()
	for _, m := range c.Choices {
		for i := range m.Calls {
			m.Calls[i].Arguments = strings.TrimPrefix(m.Calls[i].Arguments, "{}")
		}
	}
	return c
}

// checkRandomChunks derives chunks from data. It checks that they become a valid stream,
// and that the stream, the whole reply and Collect have the same content.
func checkRandomChunks(t testing.TB, data []byte) {
	t.Helper()
	if len(data) == 0 {
		return
	}
	params := chatParams{n: 1 + int(data[0]%4), usage: data[0]&4 != 0}
	chunks := func() []*llm.ChatChunk { return (&byteSource{data: data[1:]}).chunks(params.n) }
	h := llmhttp.NewHandler(chunkBackend(chunks), keysFor(testKey()), &llmhttp.Options{
		Now:    func() time.Time { return time.Unix(1700000000, 0) },
		Logger: noLog,
	})
	stream := streamFrom(t, h, params).withoutDefaults()
	whole := wholeFrom(t, h, params).withoutDefaults()
	if !params.usage {
		stream.Usage = whole.Usage
	}
	require.Equal(t, whole, stream)

	r, err := join.Collect(streamOf(chunks()...))
	require.NoError(t, err)
	for i := range r.Choices {
		c := &r.Choices[i]
		if m := whole.Choices[c.Index]; m != nil && c.FinishReason == "" {
			// The Handler generates what the Backend did not set.
			require.Contains(t, []string{"stop", "tool_calls"}, m.Finish)
			c.FinishReason = llm.FinishReason(m.Finish)
		}
	}
	body, err := json.Marshal(r)
	require.NoError(t, err)
	collected := parseWhole(t, string(body)).withoutDefaults()
	for index, m := range whole.Choices {
		got := collected.Choices[index]
		if got == nil {
			got = &chatMessage{Finish: "stop"} // an empty reply
		}
		require.Equal(t, m, got, "choice %d", index)
	}

	// Splitting and collecting the reply again changes nothing.
	again, err := join.Collect(r.Stream())
	require.NoError(t, err)
	bodyAgain, err := json.Marshal(again)
	require.NoError(t, err)
	require.Equal(t, shorten(string(body)), shorten(string(bodyAgain)))
	require.True(t, string(body) == string(bodyAgain), "the replies differ in the middle")
}

func TestOrder_RandomChunks(t *testing.T) {
	rounds := 600
	if testing.Short() || raceEnabled {
		rounds = 150
	}
	for seed := range rounds {
		random := rand.New(rand.NewPCG(uint64(seed), 7))
		data := make([]byte, 1+random.IntN(600))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		if checkRandomChunks(t, data); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzStream does the same as TestOrder_RandomChunks with the bytes of a fuzzer.
func FuzzStream(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("\x05 a plain text has all kinds of bytes that make chunks"))
	for seed := range byte(16) {
		data := make([]byte, 200)
		x := uint32(seed) + 1
		for i := range data {
			x = x*1664525 + 1013904223
			data[i] = byte(x >> 24)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 2000 {
			checkRandomChunks(t, data)
		}
	})
}
