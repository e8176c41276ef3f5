package llmhttp

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is encoded by hand is compared with what the library encodes: with each
// field of the type set alone, and with random texts.

func TestAppendDelta_EqualsLibrary(t *testing.T) {
	compareEncodings(t, func(b []byte, d *Delta) ([]byte, error) { return appendDelta(b, d) }, func(d *Delta, text string) { d.Content = text })
}

func TestAppendChoice_EqualsLibrary(t *testing.T) {
	compareEncodings(t, appendChoice, func(c *Choice, text string) {
		c.Message = Message{Role: RoleAssistant, Content: Text(text)}
		c.FinishReason = FinishStop
	})
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Message]()) {
		t.Run("Message."+field.Name, func(t *testing.T) {
			c := Choice{Message: Message{Role: RoleAssistant, Content: Text("Hi")}}
			setField(reflect.ValueOf(&c.Message).Elem().FieldByIndex(field.Index))
			requireSameEncoding(t, appendChoice, &c)
		})
	}
}

func TestAppendUsage_EqualsLibrary(t *testing.T) {
	compareEncodings(t, appendUsage, func(u *Usage, _ string) { u.PromptTokens, u.CompletionTokens = 3, 4 })
	for _, name := range []string{"PromptTokensDetails", "CompletionTokensDetails"} {
		details, _ := reflect.TypeFor[Usage]().FieldByName(name)
		for _, field := range reflect.VisibleFields(details.Type) {
			t.Run(name+"."+field.Name, func(t *testing.T) {
				var u Usage
				setField(reflect.ValueOf(&u).Elem().FieldByIndex(details.Index).FieldByIndex(field.Index))
				requireSameEncoding(t, appendUsage, &u)
			})
		}
	}
}

// compareEncodings compares encode with the library for a T filled by fill, and
// then for one in which each field was changed.
func compareEncodings[T any](t *testing.T, encode func([]byte, *T) ([]byte, error), fill func(v *T, text string)) {
	t.Helper()
	for range 200 {
		v := new(T)
		fill(v, randomText())
		requireSameEncoding(t, encode, v)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if !field.IsExported() {
			continue
		}
		t.Run(field.Name, func(t *testing.T) {
			v := new(T)
			fill(v, "Hi")
			setField(reflect.ValueOf(v).Elem().FieldByIndex(field.Index))
			requireSameEncoding(t, encode, v)
		})
	}
}

func requireSameEncoding[T any](t *testing.T, encode func([]byte, *T) ([]byte, error), v *T) {
	t.Helper()
	got, err := encode(nil, v)
	require.NoError(t, err)
	want, err := appendJSON(nil, v)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
	assert.NotContains(t, string(got), "\u2028")
}

// setField sets a field to a value that is not zero.
func setField(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Map:
		v.Set(reflect.ValueOf(Extra{"vendor": []byte(`{"a":1}`)}))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setField(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setField(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				setField(v.Field(i))
			}
		}
	}
}

// randomText returns valid UTF-8 with characters that JSON or clients of event
// streams treat specially.
func randomText() string {
	special := []string{"a", "Hello ", `"`, `\`, "/", "\n", "\r", "\t", "\x00", "\x1f", "\x7f", "\u0085", "\u2028", "\u2029", "<", ">", "&", "é", "’", "東", "🙂"}
	var b strings.Builder
	for range rand.IntN(20) {
		b.WriteString(special[rand.IntN(len(special))])
	}
	return b.String()
}

func BenchmarkAppendDelta(b *testing.B) {
	d := &Delta{Content: "token "}
	b.Run("by hand", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf, _ = appendDelta(buf[:0], d)
		}
	})
	b.Run("library", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf, _ = appendJSON(buf[:0], d)
		}
	})
}

func BenchmarkAppendWhole(b *testing.B) {
	r := &ChatResponse{
		ID: "chatcmpl-1", Created: 1700000000, Model: "demo", Usage: &Usage{PromptTokens: 10, CompletionTokens: 20},
		Choices: []Choice{{Message: Message{Role: RoleAssistant, Content: Text(strings.Repeat("token ", 50))}, FinishReason: FinishStop}},
	}
	b.Run("by hand", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf, _ = new(completionEncoder).AppendWhole(buf[:0], r)
		}
	})
	b.Run("library", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf, _ = appendJSON(buf[:0], r)
		}
	})
}
