package promptcache_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/internal/promptcache"
	"github.com/llmhttp/llmhttp/llm"
)

func texts(list ...string) (c llm.Content) {
	for _, s := range list {
		c = append(c, llm.Part{Type: llm.PartText, Text: s})
	}
	return c
}

func TestJoin(t *testing.T) {
	assert.Nil(t, promptcache.Join(nil))
	assert.Equal(t, llm.TextContent("a"), promptcache.Join(texts("a")))
	assert.Equal(t, llm.TextContent("a\n\n\nb\n\nc"), promptcache.Join(texts("a", "\nb", "c")))
	for i := range 3 {
		marked := texts("a", "\nb", "c")
		promptcache.Set(&marked[i].Extra, json.RawMessage(`{}`))
		want := texts("a", "\n\n\nb", "\n\nc")
		want[i].Extra = llm.Extra{promptcache.Member: json.RawMessage(`{}`)}
		assert.Equal(t, want, promptcache.Join(marked))
	}
}

// Without its marks a prompt is the text that it is if there are none.
func TestRemove_JoinsParagraphs(t *testing.T) {
	for _, role := range []llm.Role{llm.RoleSystem, llm.RoleDeveloper} {
		prompt := texts("a", "\nb", "c")
		promptcache.Set(&prompt[1].Extra, json.RawMessage(`{}`))
		r := llm.ChatRequest{Messages: []llm.Message{{Role: role, Content: promptcache.Join(prompt)}}}
		promptcache.Edit(promptcache.Remove).Apply(&r)
		assert.Equal(t, promptcache.Join(texts("a", "\nb", "c")), r.Messages[0].Content)
	}
	for name, c := range map[string]llm.Content{
		"parts of a client": texts("a", "b"),
		"another member":    {{Type: llm.PartText, Text: "a"}, {Type: llm.PartText, Text: "\n\nb", Extra: llm.Extra{"x": json.RawMessage(`1`)}}},
		"another part":      {{Type: llm.PartText, Text: "a"}, {Type: llm.PartImage}},
	} {
		marked := llm.Content(append(llm.Content(nil), c...))
		promptcache.Set(&marked[0].Extra, json.RawMessage(`{}`))
		r := llm.ChatRequest{Messages: []llm.Message{{Role: llm.RoleSystem, Content: marked}}}
		promptcache.Edit(promptcache.Remove).Apply(&r)
		assert.Equal(t, c, r.Messages[0].Content, name)
	}
}

func TestSet_KeepsTheFirst(t *testing.T) {
	extra := llm.Extra{"x": json.RawMessage(`1`)}
	promptcache.Set(&extra, json.RawMessage(`{"type":"a"}`))
	promptcache.Set(&extra, json.RawMessage(`{"type":"b"}`))
	assert.Equal(t, llm.Extra{"x": json.RawMessage(`1`), promptcache.Member: json.RawMessage(`{"type":"a"}`)}, extra)
}

func TestKeep(t *testing.T) {
	for mark, want := range map[string]string{
		`{"type":"ephemeral"}`:                                   `{"type":"ephemeral"}`,
		`{ "ttl":"1h","type":"ephemeral"}`:                       `{ "ttl":"1h","type":"ephemeral"}`,
		`{"ttl":"1h","type":"ephemeral","scope":"global","x":1}`: `{"ttl":"1h","type":"ephemeral"}`,
		`null`:      ``,
		`"x"`:       `"x"`,
		`{"x":[1]}`: `{}`,
	} {
		assert.Equal(t, want, string(promptcache.Keep("type", "ttl")(json.RawMessage(mark))), mark)
	}
	assert.Equal(t, `{"type":"x"}`, string(promptcache.Keep("type")(json.RawMessage(`{"type":"x","ttl":"1h"}`))))
}

// marked returns a request with a mark in each Extra that has a place for it, and each list filled.
func marked(t *testing.T) *llm.ChatRequest {
	r := new(llm.ChatRequest)
	codectest.Fill(reflect.ValueOf(r).Elem(), rand.New(rand.NewPCG(7, 8)), 0)
	require.NotEmpty(t, r.Messages)
	require.NotEmpty(t, r.Tools)
	m := &r.Messages[0]
	require.NotEmpty(t, m.Content)
	require.NotEmpty(t, m.ToolCalls)
	for _, extra := range []*llm.Extra{&r.Extra, &m.Extra, &m.Content[0].Extra, &m.ToolCalls[0].Extra, &m.ToolCalls[0].Function.Extra,
		&r.Tools[0].Extra, &r.Tools[0].Function.Extra} {
		promptcache.Set(extra, json.RawMessage(`{"type":"ephemeral","scope":"global"}`))
	}
	m.Content = append(m.Content, llm.Part{Type: llm.PartText, Extra: llm.Extra{promptcache.Member: json.RawMessage(`{"type":"ephemeral"}`)}})
	return r
}

// Apply finds each mark, and changes a copy alone.
func TestApply(t *testing.T) {
	for _, edit := range []promptcache.Edit{promptcache.Remove, promptcache.Keep("type")} {
		r := marked(t)
		sent := *r
		edit.Apply(&sent)
		assert.Equal(t, marked(t), r)
		b, err := sent.MarshalJSON()
		require.NoError(t, err)
		assert.NotContains(t, string(b), "scope")
		if edit(json.RawMessage(`{}`)) == nil {
			assert.NotContains(t, string(b), promptcache.Member)
		} else {
			assert.Equal(t, 7, strings.Count(string(b), promptcache.Member), "all but that of an empty text: %s", b)
		}
	}
	r := marked(t)
	before, err := r.MarshalJSON()
	require.NoError(t, err)
	promptcache.Edit(promptcache.Remove).Apply(r)
	after, err := r.MarshalJSON()
	require.NoError(t, err)
	text := strings.NewReplacer(`,"cache_control":{"type":"ephemeral","scope":"global"}`, ``, `"cache_control":{"type":"ephemeral","scope":"global"},`, ``, `,"cache_control":{"type":"ephemeral"}`, ``)
	assert.JSONEq(t, text.Replace(string(before)), string(after), "nothing else changes")
}

// A request without marks is not copied.
func TestApply_NoMarks(t *testing.T) {
	r := llm.ChatRequest{Messages: []llm.Message{{Content: texts("a", "b")}}, Tools: []llm.Tool{{Function: new(llm.Function)}}}
	sent := r
	promptcache.Edit(promptcache.Remove).Apply(&sent)
	assert.Same(t, &r.Messages[0], &sent.Messages[0])
	assert.Same(t, &r.Tools[0], &sent.Tools[0])
}

// Whatever a request is, its marks are found where they are sent, and it does not change.
func FuzzApply(f *testing.F) {
	const mark = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	for _, s := range []string{
		`{` + mark + `}`,
		`{"messages":[{"role":"system","content":[{"type":"text","text":"a",` + mark + `},{"type":"text","text":"\n\nb"}],` + mark + `}]}`,
		`{"messages":[{"content":[{"type":"file","file":{` + mark + `},` + mark + `},{"type":"text","text":"","cache_control":null}]}]}`,
		`{"messages":[{"tool_calls":[{"function":{"name":"f",` + mark + `},` + mark + `}]}],"tools":[{"function":{"parameters":{` + mark + `},` + mark + `}},{` + mark + `}]}`,
		`{"messages":[{"content":"a"}],"cache_control":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(llm.ChatRequest)
		if json.Unmarshal(data, r) != nil {
			return
		}
		before := r.Clone()
		for _, edit := range []promptcache.Edit{promptcache.Remove, promptcache.Keep("type")} {
			sent := *r
			edit.Apply(&sent)
			require.Equal(t, before, r)
			again := sent
			edit.Apply(&again)
			require.Equal(t, sent, again, "there is nothing left to do")
			_, err := sent.MarshalJSON()
			require.NoError(t, err)
		}
	})
}
