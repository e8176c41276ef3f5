package llmhttp_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// The tests named TestStreamRow... are the rows of wire-format.md 2.6: what
// a stream may hold, and what it must not whatever a Backend yields.

var madeID = regexp.MustCompile(`(call_|chatcmpl-)[0-9a-f]{32}`)

func normalCalls(m *joinedMessage) {
	for i := range m.Calls {
		m.Calls[i].ID = madeID.ReplaceAllString(m.Calls[i].ID, "$1?")
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
	h := llmhttp.NewHandler(chunksOf(chunks), anyKey, &llmhttp.Options{Now: fixedNow, Logger: old_noLog})

	w, cut := ask(t, h, chatAsk{stream: true, usage: usage, n: n})
	if cut || w.Code != 200 {
		t.Fatalf("status %d, cut %t: %s", w.Code, cut, clipText(w.Body.String()))
	}
	stream := old_checkStream(t, w.Body.Bytes(), n, usage)
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

	r, err := llmhttp.Collect(old_streamOf(chunks()))
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
