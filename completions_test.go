package llmhttp

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAppendDelta_IsLikeTheTable(t *testing.T) {
	texts := []string{"", "token ", "\n\"", "é\u2028", "\xff"}
	text := func() string { return texts[rand.IntN(len(texts))] }
	for range 1000 {
		d := llm.Delta{Content: text()}
		if rand.IntN(2) == 0 {
			d.Reasoning, d.Refusal = text(), text()
			d.Role = []llm.Role{"", llm.RoleAssistant}[rand.IntN(2)]
			d.ToolCalls = make([]llm.ToolCallDelta, rand.IntN(2))
			d.ReasoningDetails = make([]llm.ReasoningDetail, rand.IntN(2))
			d.Extra = []llm.Extra{nil, {}, {"x": json.RawMessage("1")}}[rand.IntN(3)]
		}
		got, err := appendDelta(nil, &d)
		require.NoError(t, err)
		want, err := deltaJSON.Append(nil, &d)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
	}
}

func TestAppendCompletion_IsLikeTheTable(t *testing.T) {
	texts := []string{"", "token ", "\n\"", "é\u2028", "\xff"}
	text := func() string { return texts[rand.IntN(len(texts))] }
	rarely := func() bool { return rand.IntN(10) == 0 }
	var extra = llm.Extra{"x": json.RawMessage("1")}
	for range 1000 {
		m := llm.Message{Role: llm.RoleAssistant, Content: llm.TextContent(text())}
		c := llm.Choice{Index: rand.IntN(2), FinishReason: llm.FinishReason(text())}
		r := llm.ChatResponse{ID: "chatcmpl-1", Created: rand.Int64N(2e9), Model: text(), Usage: &llm.Usage{PromptTokens: rand.IntN(2), CompletionTokens: 3}}
		for _, change := range []func(){
			func() { m.Content = nil },
			func() { m.Content[0].Type = llm.PartAudio },
			func() { m.Content = append(m.Content, m.Content...) },
			func() { m.Role = "" },
			func() { m.Reasoning = text() },
			func() { m.Refusal = text() },
			func() { m.Name = text() },
			func() { m.ToolCallID = text() },
			func() { m.IsError = true },
			func() { m.ReasoningDetails = []llm.ReasoningDetail{{Type: llm.ReasoningText}} },
			func() { m.ToolCalls = []llm.ToolCall{{ID: "call_1"}} },
			func() { m.Extra = extra },
			func() { c.StopSequence = text() },
			func() { c.Extra = llm.Extra{membername.Logprobs: json.RawMessage("{}")} },
			func() { r.Extra = extra },
			func() { r.Usage = nil },
			func() { r.Usage.Extra = extra },
			func() { r.Usage.PromptTokensDetails.CachedTokens = 1 },
			func() { r.Usage.PromptTokensDetails.CacheWriteTokens = 1 },
			func() { r.Usage.PromptTokensDetails.CacheWrites = llm.CacheWrites{time.Hour: 1} },
			func() { r.Usage.PromptTokensDetails.AudioTokens = 1 },
			func() { r.Usage.PromptTokensDetails.Extra = llm.Extra{} },
			func() { r.Usage.CompletionTokensDetails.ReasoningTokens = 1 },
			func() { r.Usage.CompletionTokensDetails.AudioTokens = 1 },
			func() { r.Usage.CompletionTokensDetails.Extra = extra },
		} {
			if rarely() && r.Usage != nil && len(m.Content) == 1 {
				change()
			}
		}
		c.Message = m
		r.Choices = slices.Repeat([]llm.Choice{c}, 1+rand.IntN(10)/9)
		got, err := appendCompletion(nil, &r)
		require.NoError(t, err)
		want, err := chatResponseJSON.Append(nil, &r)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
}

// setEachField sets one field of a struct after the other, calls check, and restores the
// field. It does so for structs in the struct too.
func setEachField(t *testing.T, v reflect.Value, check func(field string)) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		old := reflect.ValueOf(f.Interface())
		switch f.Kind() {
		case reflect.Struct:
			setEachField(t, f, check)
			continue
		case reflect.String:
			f.SetString("x")
		case reflect.Int, reflect.Int64:
			f.SetInt(7)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Map:
			if f.Type() == reflect.TypeFor[llm.CacheWrites]() {
				f.Set(reflect.ValueOf(llm.CacheWrites{time.Hour: 1}))
				break
			}
			f.Set(reflect.ValueOf(llm.Extra{"x": json.RawMessage("1")}))
		default:
			require.Fail(t, "a field of another kind", name)
		}
		check(name)
		f.Set(old)
	}
}

// A field that is added to a type must not be missing in the encoders that do without
// the table.
func TestAppend_EncodesEveryField(t *testing.T) {
	d := llm.Delta{Content: "x"}
	setEachField(t, reflect.ValueOf(&d).Elem(), func(field string) {
		got, err := appendDelta(nil, &d)
		require.NoError(t, err)
		want, err := deltaJSON.Append(nil, &d)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), field)
	})
	r := llm.ChatResponse{ID: "1", Usage: &llm.Usage{}, Choices: []llm.Choice{{Message: llm.Message{Role: llm.RoleAssistant, Content: llm.TextContent("x")}}}}
	for _, v := range []any{&r, &r.Choices[0], r.Usage} {
		setEachField(t, reflect.ValueOf(v).Elem(), func(field string) {
			got, err := appendCompletion(nil, &r)
			require.NoError(t, err)
			want, err := chatResponseJSON.Append(nil, &r)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got), "%T.%s", v, field)
		})
	}
}

func BenchmarkAppendDelta(b *testing.B) {
	d := &llm.Delta{Content: "token "}
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = appendDelta(buf[:0], d)
	}
}

func BenchmarkAppendCompletion(b *testing.B) {
	r := &llm.ChatResponse{
		ID: "chatcmpl-1", Created: 1700000000, Model: "demo", Usage: &llm.Usage{PromptTokens: 10, CompletionTokens: 20},
		Choices: []llm.Choice{{Message: llm.Message{Role: llm.RoleAssistant, Content: llm.TextContent(strings.Repeat("token ", 50))}, FinishReason: llm.FinishStop}},
	}
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = appendCompletion(buf[:0], r)
	}
}
