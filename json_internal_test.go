package llmhttp

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wireTypes contains each type that a request or a reply has within it: the codec
// would call the methods of others.
func TestWireTypesAreComplete(t *testing.T) {
	listed := make(map[reflect.Type]bool)
	for _, w := range wireTypes {
		listed[w.typ] = true
	}
	wireObjects := reflect.TypeFor[wireObject]()
	seen := make(map[reflect.Type]bool)
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		if reflect.PointerTo(typ).Implements(wireObjects) {
			assert.True(t, listed[typ], "%v", typ)
		}
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				walk(typ.Field(i).Type)
			}
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
		}
	}
	for _, w := range wireTypes {
		walk(w.typ)
	}
	assert.Greater(t, len(seen), len(wireTypes))
}

// appendString writes what the codec writes for a string.
func TestAppendString(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	pieces := []string{"a", "é", "\u0085", "\u2028", "\u2029", "“", "\n", "\r", "\t", "\x00", "\x1f", "\x7f", `"`, `\\`, "/", "<", "&", "\xff", "\xed\xa0\x80", "\U0001f600"}
	for range 1000 {
		var b strings.Builder
		for range r.IntN(12) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		s := b.String()
		want, err := marshal(&s)
		require.NoError(t, err)
		assert.Equal(t, "x"+string(want), string(appendString([]byte("x"), s)))
		assert.NotContains(t, string(want), "\u0085")
	}
}

// appendReply writes what the codec writes, whichever field of the reply is set.
func TestAppendReply(t *testing.T) {
	check := func(r *ChatResponse) {
		t.Helper()
		want, err := marshal(r)
		require.NoError(t, err)
		got, err := appendReply(nil, r)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
	}
	plain := func() *ChatResponse {
		return &ChatResponse{ID: "i\u2028", Created: 7, Model: "m", Usage: &Usage{PromptTokens: 1, CompletionTokens: 2},
			Choices: []Choice{{Index: 3, Message: Message{Role: RoleAssistant, Content: Text("a\n“b”\xff")}, FinishReason: FinishStop}}}
	}
	check(plain())
	check(&ChatResponse{})
	fields := 0
	var walk func(get func(*ChatResponse) reflect.Value)
	walk = func(get func(*ChatResponse) reflect.Value) {
		v := get(plain())
		switch {
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(func(r *ChatResponse) reflect.Value { return get(r).Field(i) })
				}
			}
			return
		case v.Kind() == reflect.Pointer && !v.IsNil():
			walk(func(r *ChatResponse) reflect.Value { return get(r).Elem() })
		case v.Kind() == reflect.Slice && v.Len() > 0:
			walk(func(r *ChatResponse) reflect.Value { return get(r).Index(0) })
		}
		fields++
		r := plain()
		get(r).SetZero()
		check(r)
		r = plain()
		switch v := get(r); v.Kind() {
		case reflect.String:
			v.SetString("another")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(5)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		case reflect.Map:
			v.Set(reflect.ValueOf(Extra{"x": []byte("1")}))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		}
		check(r)
	}
	walk(func(r *ChatResponse) reflect.Value { return reflect.ValueOf(r).Elem() })
	assert.Greater(t, fields, 30)
}

// A document that nests too deep, or has too many members, is refused where the
// limit is, before memory is spent on it.
func TestBounds(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for n := range 20 {
		for limit := range 20 {
			assert.Equal(t, n > limit, isDeeper(nested(n), limit), "%d, %d", n, limit)
		}
	}
	assert.False(t, isDeeper([]byte(`{"a":"[[[[\\\"[[[["}`), 1))
	assert.True(t, isDeeper([]byte(`{"a":"[[[[\\\"[[[[","b":[]}`), 1))
	assert.NoError(t, checkBounds(nested(maxDepth), true))
	assert.Error(t, checkBounds(nested(maxDepth+1), true))
	assert.NoError(t, checkBounds(nested(maxDepth+1), false), "the decoder checks the depth")
}
