package llmhttp

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAppendDelta_IsLikeTheTable(t *testing.T) {
	texts := []string{"", "token ", "\n\"", "é\u2028", "\xff"}
	text := func() string { return texts[rand.IntN(len(texts))] }
	for range 1000 {
		d := Delta{Content: text()}
		if rand.IntN(2) == 0 {
			d.Reasoning, d.Refusal = text(), text()
			d.Role = []Role{"", RoleAssistant}[rand.IntN(2)]
			d.ToolCalls = make([]ToolCallDelta, rand.IntN(2))
			d.ReasoningDetails = make([]ReasoningDetail, rand.IntN(2))
			d.Extra = []Extra{nil, {}, {"x": json.RawMessage("1")}}[rand.IntN(3)]
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
	var extra = Extra{"x": json.RawMessage("1")}
	for range 1000 {
		m := Message{Role: RoleAssistant, Content: Text(text())}
		c := Choice{Index: rand.IntN(2), FinishReason: FinishReason(text())}
		r := ChatResponse{ID: "chatcmpl-1", Created: rand.Int64N(2e9), Model: text(), Usage: &Usage{PromptTokens: rand.IntN(2), CompletionTokens: 3}}
		for _, change := range []func(){
			func() { m.Content = nil },
			func() { m.Content[0].Type = PartAudio },
			func() { m.Content = append(m.Content, m.Content...) },
			func() { m.Role = "" },
			func() { m.Reasoning = text() },
			func() { m.Refusal = text() },
			func() { m.Name = text() },
			func() { m.ToolCallID = text() },
			func() { m.IsError = true },
			func() { m.ReasoningDetails = []ReasoningDetail{{Type: ReasoningText}} },
			func() { m.ToolCalls = []ToolCall{{ID: "call_1"}} },
			func() { m.Extra = extra },
			func() { c.StopSequence = text() },
			func() { c.Extra = Extra{memberLogprobs: json.RawMessage("{}")} },
			func() { r.Extra = extra },
			func() { r.Usage = nil },
			func() { r.Usage.Extra = extra },
			func() { r.Usage.PromptTokensDetails.CachedTokens = 1 },
			func() { r.Usage.PromptTokensDetails.CacheWriteTokens = 1 },
			func() { r.Usage.PromptTokensDetails.CacheWrites = CacheWrites{time.Hour: 1} },
			func() { r.Usage.PromptTokensDetails.AudioTokens = 1 },
			func() { r.Usage.PromptTokensDetails.Extra = Extra{} },
			func() { r.Usage.CompletionTokensDetails.ReasoningTokens = 1 },
			func() { r.Usage.CompletionTokensDetails.AudioTokens = 1 },
			func() { r.Usage.CompletionTokensDetails.Extra = extra },
		} {
			if rarely() && r.Usage != nil && len(m.Content) == 1 {
				change()
			}
		}
		c.Message = m
		r.Choices = slices.Repeat([]Choice{c}, 1+rand.IntN(10)/9)
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
			if f.Type() == reflect.TypeFor[CacheWrites]() {
				f.Set(reflect.ValueOf(CacheWrites{time.Hour: 1}))
				break
			}
			f.Set(reflect.ValueOf(Extra{"x": json.RawMessage("1")}))
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
	d := Delta{Content: "x"}
	setEachField(t, reflect.ValueOf(&d).Elem(), func(field string) {
		got, err := appendDelta(nil, &d)
		require.NoError(t, err)
		want, err := deltaJSON.Append(nil, &d)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), field)
	})
	r := ChatResponse{ID: "1", Usage: &Usage{}, Choices: []Choice{{Message: Message{Role: RoleAssistant, Content: Text("x")}}}}
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
	d := &Delta{Content: "token "}
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = appendDelta(buf[:0], d)
	}
}

func BenchmarkAppendCompletion(b *testing.B) {
	r := &ChatResponse{
		ID: "chatcmpl-1", Created: 1700000000, Model: "demo", Usage: &Usage{PromptTokens: 10, CompletionTokens: 20},
		Choices: []Choice{{Message: Message{Role: RoleAssistant, Content: Text(strings.Repeat("token ", 50))}, FinishReason: FinishStop}},
	}
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = appendCompletion(buf[:0], r)
	}
}
