package messages_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/llm"
)

// A request without its marks is the one that the client would have sent without them. That is what servers get that
// do not know them, and so prompts are the same wherever the marks move.
func FuzzRequests_Marks(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		request := func(marked bool) *llm.ChatRequest {
			s := newServer(nil, nil)
			body := randomRequest(rand.New(rand.NewPCG(seed, 1)), marked)
			w := s.do("POST", messagesPath, body)
			require.Equal(t, 200, w.Code, "%s\n%s", body, w.Body)
			promptcache.Edit(promptcache.Remove).Apply(s.last)
			return s.last
		}
		require.Equal(t, request(false), request(true))
	})
}

// randomRequest returns a request with blocks of random types. It has random marks, or none.
func randomRequest(random *rand.Rand, marked bool) string {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	mark := func() string {
		m := pick("", "", `,"cache_control":{"type":"ephemeral"}`, `,"cache_control":{"type":"ephemeral","ttl":"1h"}`, `,"cache_control":null`)
		if marked {
			return m
		}
		return ""
	}
	list := func(most int, element func(i int) string) string {
		elements := make([]string, random.IntN(most+1))
		for i := range elements {
			elements[i] = element(i)
		}
		return "[" + strings.Join(elements, ",") + "]"
	}
	text := func(int) string {
		return `{"type":"text","text":"` + pick("", "", "a", `\n\nb`, "c", "x-anthropic-billing-header: d") + `"` + mark() + `}`
	}
	user := func(i int) string {
		switch random.IntN(6) {
		case 0:
			return `{"type":"image","source":{"type":"url","url":"u"}` + mark() + `}`
		case 1:
			return `{"type":"document","title":"t","source":{"type":"content","content":` + list(2, text) + `}` + mark() + `}`
		case 2:
			return `{"type":"search_result","title":"` + pick("", "t") + `","content":` + list(2, text) + mark() + `}`
		case 3, 4:
			return fmt.Sprintf(`{"type":"tool_result","tool_use_id":"c%d","content":%s%s}`, i, list(2, text), mark())
		}
		return text(i)
	}
	assistant := func(i int) string {
		switch random.IntN(4) {
		case 0:
			return fmt.Sprintf(`{"type":"tool_use","id":"c%d","name":"f","input":{"cache_control":{}}%s}`, i, mark())
		case 1:
			return `{"type":"thinking","thinking":"t","signature":"` + pick("", "s") + `"` + mark() + `}`
		case 2:
			return `{"type":"web_search_tool_result","tool_use_id":"s","content":[]` + mark() + `}`
		}
		return text(i)
	}
	turn := func(int) string {
		switch random.IntN(5) {
		case 0:
			return `{"role":"system","content":` + list(3, text) + `}`
		case 1, 2:
			return `{"role":"assistant","content":` + list(4, assistant) + `}`
		}
		return `{"role":"user","content":` + list(4, user) + `}`
	}
	tool := func(i int) string {
		if random.IntN(3) == 0 {
			return `{"type":"web_search_20260318","name":"web_search"` + mark() + `}`
		}
		return fmt.Sprintf(`{"name":"f%d","input_schema":{"cache_control":{}}%s}`, i, mark())
	}
	turns := strings.Replace(","+list(5, turn)[1:], ",]", "]", 1)
	return `{"model":"m","max_tokens":9,"system":` + list(4, text) + `,"tool_choice":{"type":"none"},"tools":` + list(3, tool) +
		`,"messages":[{"role":"user","content":"Hi"}` + turns + mark() + `}`
}
