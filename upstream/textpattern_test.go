package upstream

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

func textEvent(content string) []byte {
	return []byte(`{"id":"c1","created":7,"model":"m","x":[1],"choices":[{"index":0,"delta":{"content":` + content + `},"logprobs":null,"finish_reason":null}]}`)
}

// learnPattern returns the pattern of an event.
func learnPattern(t testing.TB, event []byte) *textPattern {
	var chunk llmhttp.ChatChunk
	require.NoError(t, chunk.UnmarshalJSON(event))
	p := new(textPattern)
	p.learn(event, &chunk)
	return p
}

func TestTextPattern_DecodesLikeTheDecoder(t *testing.T) {
	p := learnPattern(t, textEvent(`"Hello"`))
	for _, text := range []string{"", " world", "\u2028é😀", "<b>", `{}`} {
		event := textEvent(`"` + text + `"`)
		var want llmhttp.ChatChunk
		require.NoError(t, want.UnmarshalJSON(event))
		got := p.decode(event)
		require.NotNil(t, got, text)
		assert.Equal(t, &want, got)
	}
	chunk := new(llmhttp.ChatChunk)
	require.NoError(t, chunk.UnmarshalJSON(textEvent(`"Hello"`)))
	p.learn(textEvent(`"Hello"`), chunk)
	chunk.Extra["y"] = nil
	first, second := p.decode(textEvent(`"a"`)), p.decode(textEvent(`"b"`))
	first.Extra["x"], first.Choices[0].Index = nil, 9
	assert.NotContains(t, first.Extra, "y")
	assert.Equal(t, "[1]", string(second.Extra["x"]), "chunks share no maps")
	assert.Zero(t, second.Choices[0].Index)
}

func TestTextPattern_OtherEvents(t *testing.T) {
	p := learnPattern(t, textEvent(`"Hello"`))
	for _, event := range [][]byte{
		nil,
		[]byte(`{}`),
		textEvent(`"a\n"`),
		textEvent("\"a\nb\""),
		textEvent("\"\xff\""),
		textEvent(`null`),
		textEvent(`"a","role":"assistant"`),
		textEvent(`"a"},"delta":{"content":"b"`),
		append(textEvent(`"a"`), ' '),
	} {
		assert.Nil(t, p.decode(event), "%s", event)
	}
	for _, content := range []string{`"\u0048"`, `null`, `["a"]`, `"a","content":"a"`, `"a","tool_calls":[{"id":"1","function":{"name":"f"}}]`} {
		event := textEvent(content)
		assert.Nil(t, learnPattern(t, event).decode(event), "%s has no pattern", event)
	}
}

func FuzzTextPattern(f *testing.F) {
	for _, event := range [][]byte{
		textEvent(`"Hello"`),
		textEvent(`"a","content":"a"`),
		[]byte(`{"choices":[{"delta":{"content" : "Hi"},"finish_reason":"stop"}],"usage":null}`),
		[]byte(`{"choices":[{"message":{"content":"Hi","role":"assistant"}}],"error":null}`),
		[]byte(`{"choices":[{"x":{"content":""}}]}`),
		[]byte(`{"content":"x","choices":[{"delta":{"text":"content"}}]}`),
	} {
		f.Add(event, "text")
	}
	f.Fuzz(func(t *testing.T, event []byte, text string) {
		var chunk llmhttp.ChatChunk
		if chunk.UnmarshalJSON(event) != nil {
			return
		}
		p := new(textPattern)
		p.learn(event, &chunk)
		if len(p.before) == 0 {
			return
		}
		next := []byte(string(p.before) + text + string(p.after))
		got := p.decode(next)
		if got == nil {
			return
		}
		var want llmhttp.ChatChunk
		require.NoError(t, want.UnmarshalJSON(next), "%s", next)
		assert.Equal(t, &want, got, "%s", next)
	})
}
